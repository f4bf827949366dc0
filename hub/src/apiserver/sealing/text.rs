//! Files of private keys, encrypted: text like that of any other key, in lines.

use super::{AssociatedData, Error, Keyring};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

const BEGIN: &str = "-----BEGIN TOWLINE ENCRYPTED FILE-----\n";
const END: &str = "-----END TOWLINE ENCRYPTED FILE-----\n";
const LINE: usize = 64;

/// What the files of keys are among what is sealed.
const FILE: &str = "the file";

fn place(name: &str) -> AssociatedData<'_> {
    AssociatedData {
        what: FILE,
        name,
        revision: 0,
    }
}

impl Keyring {
    /// The text of a file that holds a private key, as it lies on disk. It opens under this name alone.
    pub fn seal_file(&self, name: &str, plain: &str) -> Result<String, Error> {
        let sealed = BASE64_STANDARD.encode(self.seal(place(name), plain.as_bytes())?);
        let mut text = BEGIN.to_owned();
        for line in sealed.as_bytes().chunks(LINE) {
            text.extend(line.iter().map(|byte| char::from(*byte)));
            text.push('\n');
        }
        text.push_str(END);
        Ok(text)
    }

    /// Whether the text of a file is encrypted.
    pub fn is_sealed_file(text: &str) -> bool {
        text.starts_with(BEGIN)
    }

    /// The text in a file, which may be encrypted.
    pub fn open_file(&self, name: &str, text: String) -> Result<String, Error> {
        let Some(sealed) = decode(&text) else {
            return Ok(text);
        };
        let damaged = || Error::Damaged {
            what: FILE.to_owned(),
            name: name.to_owned(),
        };
        let plain = self.open(place(name), &sealed.ok_or_else(damaged)?)?;
        String::from_utf8(plain).map_err(|_| damaged())
    }

    /// The content of a file that holds a private key, if it is to be another one: encrypted by the first key.
    pub fn reseal_file(&self, name: &str, content: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if !is_private(name) {
            return Ok(None);
        }
        let Ok(text) = std::str::from_utf8(content) else {
            return Ok(None);
        };
        let current = |sealed: Option<Vec<u8>>| sealed.is_some_and(|s| self.is_current(&s));
        if decode(text).is_some_and(current) {
            return Ok(None);
        }
        let plain = self.open_file(name, text.to_owned())?;
        let sealed = self.seal_file(name, &plain)?;
        Ok(Some(sealed.into_bytes()))
    }
}

/// Whether a file among the keys holds a private one.
pub fn is_private(name: &str) -> bool {
    name.ends_with(".key")
}

/// What a text has sealed in it: `None` when it is plain, nothing within when it cannot be read.
fn decode(text: &str) -> Option<Option<Vec<u8>>> {
    let rest = text.strip_prefix(BEGIN)?;
    let Some(lines) = rest.strip_suffix(END) else {
        return Some(None);
    };
    let whole: String = lines.lines().collect();
    Some(BASE64_STANDARD.decode(whole).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_keys_is_sealed_once_and_read_either_way() {
        let dir = tempfile::tempdir().expect("a folder");
        let ring = Keyring::create(&dir.path().join("keys")).expect("made");
        let plain = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let open = |ring: &Keyring, name: &str, text: &str| ring.open_file(name, text.to_owned());
        assert_eq!(open(&ring, "ca.key", plain).expect("plain"), plain);
        let sealed = ring.reseal_file("ca.key", plain.as_bytes());
        let sealed = sealed.expect("sealed").expect("another content");
        let text = String::from_utf8(sealed.clone()).expect("text");
        assert!(!text.contains("PRIVATE") && text.lines().all(|line| line.len() <= 64));
        assert_eq!(open(&ring, "ca.key", &text).expect("opens"), plain);
        assert!(open(&ring, "server.key", &text).is_err(), "another file");
        assert_eq!(ring.reseal_file("ca.key", &sealed).expect("current"), None);
        assert_eq!(ring.reseal_file("ca.crt", b"x").expect("public"), None);
        let later = ring.with_new_key().expect("added");
        let resealed = later.reseal_file("ca.key", &sealed).expect("sealed");
        assert!(resealed.is_some_and(|again| again != sealed));
        assert!(open(&ring, "ca.key", &text[..text.len() - 5]).is_err());
    }
}
