//! The file of encryption keys: one key a line, the first one seals, all of them open.

use super::{KEY_LEN, Key, KeyId, Keyring};
use crate::apiserver::files::{self, write_file};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file within a data directory, where no other is named.
pub const FILE: &str = "encryption.key";
/// What a line begins with.
const SCHEME: &str = "aes256gcm:";
const HEADER: &str = "# Keys by which a Towline hub encrypts what it keeps: the first one encrypts, all of them decrypt.\n\
                      # Without this file neither the hub nor a backup can be opened: keep a copy apart from both.\n";

/// Why something cannot be encrypted or decrypted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file of keys cannot be read.
    #[error("failed to read the encryption key file {}", file.display())]
    File {
        /// Which file.
        file: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// It cannot be put where it was asked for.
    #[error("failed to use the encryption key file {}", file.display())]
    Link {
        /// Which file.
        file: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// It cannot be written.
    #[error("failed to keep the encryption key")]
    Write(#[source] files::Error),
    /// A line of it.
    #[error("line {line} of the encryption key file {} is no key: it has to be `aes256gcm:` and 32 bytes in base64", file.display())]
    Line {
        /// Which file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// Nothing in it.
    #[error("the encryption key file {} holds no key; put back the copy of it that was kept", file.display())]
    Empty {
        /// Which file.
        file: PathBuf,
    },
    /// There is none, and something is encrypted.
    #[error(
        "the encryption key file {} is missing, and {} is encrypted by key {id}: put back the copy that was kept, \
         or name its place with --encryption-key-file",
        file.display(), of.display()
    )]
    Missing {
        /// Which file.
        file: PathBuf,
        /// What needs it.
        of: PathBuf,
        /// By which key.
        id: KeyId,
    },
    /// There is none, and a file is encrypted.
    #[error(
        "the encryption key file {} is missing, and {} is encrypted: put back the copy that was kept, or name \
         its place with --encryption-key-file",
        file.display(), of.display()
    )]
    Absent {
        /// Which file.
        file: PathBuf,
        /// What needs it.
        of: PathBuf,
    },
    /// It is of something else.
    #[error(
        "the encryption key file {} does not hold key {id}, by which this was encrypted, but {}: name the right \
         one with --encryption-key-file",
        file.display(), held.join(", ")
    )]
    Unknown {
        /// Which file.
        file: PathBuf,
        /// The key that is needed.
        id: KeyId,
        /// The keys that are there.
        held: Vec<String>,
    },
    /// It does not open.
    #[error(
        "{what} {name} is damaged, or belongs to another place: it cannot be decrypted; restore a backup"
    )]
    Damaged {
        /// Of which kind.
        what: String,
        /// Which one.
        name: String,
    },
    /// The machine gave no randomness.
    #[error("failed to encrypt: the machine gave no randomness")]
    Random,
}

impl Keyring {
    /// Reads a file of keys; `None` when there is none.
    pub fn read(file: &Path) -> Result<Option<Self>, Error> {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                return Err(Error::File {
                    file: file.to_owned(),
                    source,
                });
            }
        };
        let mut keys = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let secret = decode(line).ok_or_else(|| Error::Line {
                file: file.to_owned(),
                line: number,
            })?;
            keys.push(Key::new(secret)?);
        }
        if keys.is_empty() {
            return Err(Error::Empty {
                file: file.to_owned(),
            });
        }
        Ok(Some(Self {
            file: file.to_owned(),
            keys: Arc::new(keys),
        }))
    }

    /// Makes a file with one new key; durable when this returns.
    pub fn create(file: &Path) -> Result<Self, Error> {
        let ring = Self {
            file: file.to_owned(),
            keys: Arc::new(vec![Key::generate()?]),
        };
        ring.write(file)?;
        Ok(ring)
    }

    /// The file with a new key before the others.
    pub fn with_new_key(&self) -> Result<Self, Error> {
        let mut secrets = vec![Key::generate()?];
        for key in self.keys.iter() {
            secrets.push(Key::new(key.secret)?);
        }
        let ring = Self {
            file: self.file.clone(),
            keys: Arc::new(secrets),
        };
        ring.write(&self.file)?;
        Ok(ring)
    }

    /// The file with its first key alone. The others are kept beside it, each under its name, for the
    /// backups that were made by them; returns their files.
    pub fn without_old_keys(&self) -> Result<Vec<PathBuf>, Error> {
        let (first, old) = self
            .keys
            .split_first()
            .expect("invariant: no keyring is without a key");
        let mut kept = Vec::new();
        for key in old {
            let mut name = self.file.as_os_str().to_owned();
            name.push(format!(".{}", key.id));
            let alone = Self {
                file: PathBuf::from(name),
                keys: Arc::new(vec![Key::new(key.secret)?]),
            };
            alone.write(&alone.file)?;
            kept.push(alone.file);
        }
        let alone = Self {
            file: self.file.clone(),
            keys: Arc::new(vec![Key::new(first.secret)?]),
        };
        alone.write(&self.file)?;
        Ok(kept)
    }

    /// The text of the file, with the keys themselves.
    pub fn export(&self) -> String {
        let mut text = HEADER.to_owned();
        for key in self.keys.iter() {
            text.push_str(SCHEME);
            text.push_str(&BASE64_STANDARD.encode(key.secret));
            text.push('\n');
        }
        text
    }

    pub(super) fn write(&self, file: &Path) -> Result<(), Error> {
        write_file(file, self.export().as_bytes()).map_err(Error::Write)
    }
}

fn decode(line: &str) -> Option<[u8; KEY_LEN]> {
    let secret = BASE64_STANDARD.decode(line.strip_prefix(SCHEME)?).ok()?;
    secret.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::super::AssociatedData;
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    const HERE: AssociatedData<'_> = AssociatedData {
        what: "w",
        name: "n",
        revision: 0,
    };

    #[test]
    fn keys_are_added_and_dropped_and_the_old_one_is_kept_apart() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("keys");
        assert!(Keyring::read(&file).expect("no error").is_none());
        let first = Keyring::create(&file).expect("made");
        let mode = fs::metadata(&file).expect("there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
        let sealed = first.seal(HERE, b"x").expect("sealed");
        let both = first.with_new_key().expect("added");
        let read = Keyring::read(&file).expect("read").expect("there");
        assert_eq!(both.ids(), read.ids());
        assert_eq!(read.ids().len(), 2);
        assert!(read.first() != first.first() && !read.is_current(&sealed));
        assert_eq!(read.open(HERE, &sealed).expect("opens"), b"x");
        let kept = read.without_old_keys().expect("dropped");
        let alone = Keyring::read(&file).expect("read").expect("there");
        assert_eq!(alone.ids(), [both.first()]);
        assert!(matches!(
            alone.open(HERE, &sealed),
            Err(Error::Unknown { .. })
        ));
        let old = Keyring::read(&kept[0]).expect("read").expect("there");
        assert_eq!(old.open(HERE, &sealed).expect("opens"), b"x");
    }

    #[test]
    fn what_is_no_key_is_named_by_its_line_and_never_shown() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("keys");
        for (text, line) in [
            ("aes256gcm:c2hvcnQ=\n", 1),
            ("# a\n\nwhatever\n", 3),
            ("aes256gcm:*\n", 1),
        ] {
            fs::write(&file, text).expect("written");
            let refused = Keyring::read(&file).expect_err("no key");
            assert!(
                matches!(&refused, Error::Line { line: found, .. } if *found == line),
                "{refused}"
            );
            assert!(!refused.to_string().contains("c2hvcnQ"));
        }
        fs::write(&file, "# nothing\n").expect("written");
        assert!(matches!(Keyring::read(&file), Err(Error::Empty { .. })));
        let shown = format!("{:?}", Keyring::create(&file).expect("made"));
        let secret = fs::read_to_string(&file).expect("there");
        let secret = secret.lines().last().expect("a key");
        assert!(!shown.contains(secret.trim_start_matches(SCHEME)));
    }

    #[test]
    fn what_is_exported_opens_what_the_file_opens() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("keys");
        let ring = Keyring::create(&file).expect("made");
        let ring = ring.with_new_key().expect("added");
        assert_eq!(fs::read_to_string(&file).expect("there"), ring.export());
        let copy = dir.path().join("copy");
        fs::write(&copy, ring.export()).expect("written");
        let copied = Keyring::read(&copy).expect("read").expect("there");
        assert_eq!(copied.ids(), ring.ids());
    }
}
