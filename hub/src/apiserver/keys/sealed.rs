//! Private keys on disk: encrypted by the keys of their data directory, where it has some.
//!
//! Files of before, which are plain, are read all the same, and encrypted at the next start.

use super::FOLDER;
use super::files::Error;
use crate::apiserver::files::write_file;
use crate::apiserver::sealing::{self, Keyring, is_private};
use std::path::{Path, PathBuf};

/// The name of a file and the folder of the data directory above it, for a private key of a hub.
fn of_hub(path: &Path) -> Option<(&str, &Path)> {
    let name = path.file_name()?.to_str()?;
    let folder = path.parent()?;
    let ours = folder.file_name()? == FOLDER && is_private(name);
    ours.then(|| folder.parent().map(|data_dir| (name, data_dir)))?
}

fn failed(error: sealing::Error) -> Error {
    Error::Encryption(Box::new(error))
}

/// What is to be written in place of `content`.
pub(super) fn content(path: &Path, content: &[u8]) -> Result<Option<Vec<u8>>, Error> {
    let Some((name, data_dir)) = of_hub(path) else {
        return Ok(None);
    };
    let ring = Keyring::read(&Keyring::place(data_dir)).map_err(failed)?;
    match ring {
        Some(ring) => ring.reseal_file(name, content).map_err(failed),
        // Keys alone, without a hub around them.
        None => Ok(None),
    }
}

/// What an encrypted file holds.
pub(super) fn open(path: &Path, text: String) -> Result<String, Error> {
    let lost = || Error::Content {
        path: path.to_owned(),
        wanted: "a private key that is not encrypted",
    };
    let (name, data_dir) = of_hub(path).ok_or_else(lost)?;
    let file = Keyring::place(data_dir);
    let ring = Keyring::read(&file).map_err(failed)?;
    let missing = || {
        failed(sealing::Error::Absent {
            file: file.clone(),
            of: path.to_owned(),
        })
    };
    let ring = ring.ok_or_else(missing)?;
    ring.open_file(name, text).map_err(failed)
}

/// Encrypts every private key in a folder that is not, or not by the first key.
pub fn seal_all(folder: &Path) -> Result<(), Error> {
    let unread = |path: &Path| {
        let path: PathBuf = path.to_owned();
        move |source| Error::File {
            doing: "read",
            path,
            source,
        }
    };
    for entry in std::fs::read_dir(folder).map_err(unread(folder))? {
        let path = entry.map_err(unread(folder))?.path();
        if of_hub(&path).is_none() {
            continue;
        }
        let found = std::fs::read(&path).map_err(unread(&path))?;
        if let Some(sealed) = content(&path, &found)? {
            write_file(&path, &sealed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::files::{read, secret_file};
    use super::*;

    #[test]
    fn private_keys_of_a_hub_are_encrypted_and_read_as_before() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join(FOLDER);
        std::fs::create_dir(&folder).expect("made");
        let (key, certificate) = (folder.join("ca.key"), folder.join("ca.crt"));
        let raw = |path: &Path| std::fs::read_to_string(path).expect("there");
        // Before there are keys to encrypt by, and of a start of before.
        secret_file(&key, b"private").expect("written");
        assert_eq!(raw(&key), "private");
        Keyring::create(&Keyring::place(dir.path())).expect("made");
        seal_all(&folder).expect("sealed");
        assert!(!raw(&key).contains("private"));
        assert_eq!(read(&key).expect("read").as_deref(), Some("private"));
        let before = raw(&key);
        seal_all(&folder).expect("sealed");
        assert_eq!(raw(&key), before, "once");
        secret_file(&key, b"another").expect("written");
        secret_file(&certificate, b"public").expect("written");
        assert_eq!(read(&key).expect("read").as_deref(), Some("another"));
        assert!(!raw(&key).contains("another") && raw(&certificate) == "public");
        // Without its keys it says so, and with those of another hub.
        let place = Keyring::place(dir.path());
        std::fs::remove_file(&place).expect("removed");
        let said = read(&key).expect_err("no keys").to_string();
        assert!(
            said.contains("is missing") && said.contains("ca.key"),
            "{said}"
        );
        Keyring::create(&place).expect("made");
        let said = read(&key).expect_err("other keys").to_string();
        assert!(said.contains("does not hold key"), "{said}");
    }
}
