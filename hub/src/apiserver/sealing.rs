//! What lies on disk encrypted: keys that seal bytes and open them again.
//!
//! AES-256-GCM with a random nonce. What is sealed names its key, so that several keys can be there: the
//! first one seals, all of them open. It is bound to its place ([`AssociatedData`]): put elsewhere it does not open.

mod file;
mod place;
mod text;

pub use file::{Error, FILE};
pub use text::is_private;

use common::chance::secret;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::rand::SecureRandom as _;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The first byte of what is sealed.
const VERSION: u8 = 1;
const ID_LEN: usize = 8;
const KEY_LEN: usize = 32;
const HEAD: usize = 1 + ID_LEN + NONCE_LEN;

/// What a key is called: the beginning of a digest of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId([u8; ID_LEN]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl KeyId {
    fn of(secret: &[u8; KEY_LEN]) -> Self {
        let whole = digest(&SHA256, &[b"towline key id\0", secret.as_slice()].concat());
        let mut id = [0; ID_LEN];
        id.copy_from_slice(&whole.as_ref()[..ID_LEN]);
        Self(id)
    }

    /// Reads what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let mut id = [0; ID_LEN];
        if text.len() != 2 * ID_LEN || !text.is_ascii() {
            return None;
        }
        for (place, byte) in id.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
        }
        Some(Self(id))
    }
}

struct Key {
    id: KeyId,
    secret: [u8; KEY_LEN],
    cipher: LessSafeKey,
}

impl Key {
    fn new(secret: [u8; KEY_LEN]) -> Result<Self, Error> {
        let unbound = UnboundKey::new(&AES_256_GCM, &secret).map_err(|_| Error::Random)?;
        Ok(Self {
            id: KeyId::of(&secret),
            secret,
            cipher: LessSafeKey::new(unbound),
        })
    }

    fn generate() -> Result<Self, Error> {
        let mut secret = [0; KEY_LEN];
        let filled = secret::system().fill(&mut secret);
        filled.map_err(|_| Error::Random)?;
        Self::new(secret)
    }
}

/// The keys of one file. Clones share them.
#[derive(Clone)]
pub struct Keyring {
    file: PathBuf,
    keys: Arc<Vec<Key>>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("file", &self.file)
            .field("keys", &self.ids())
            .finish()
    }
}

/// What something sealed belongs to. No part of it holds a zero byte.
#[derive(Debug, Clone, Copy)]
pub struct AssociatedData<'a> {
    /// What it is: the resource of an object, or a file of keys.
    pub what: &'a str,
    /// Which one: `namespace/name`, or the file's name.
    pub name: &'a str,
    /// Which version of it; 0 where there is only one.
    pub revision: u64,
}

impl AssociatedData<'_> {
    fn bytes(&self) -> Vec<u8> {
        let Self {
            what,
            name,
            revision,
        } = self;
        format!("towline\0{what}\0{name}\0{revision}").into_bytes()
    }
}

impl Keyring {
    /// One key that everybody knows, of no file: what a simulation keeps is worth nothing to anybody.
    pub(in crate::apiserver) fn of_simulations() -> Result<Self, Error> {
        Ok(Self {
            file: PathBuf::new(),
            keys: Arc::new(vec![Key::new([0; KEY_LEN])?]),
        })
    }

    /// Which file it is of.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What its keys are called, the one that seals first.
    pub fn ids(&self) -> Vec<KeyId> {
        self.keys.iter().map(|key| key.id).collect()
    }

    fn sealing(&self) -> &Key {
        self.keys
            .first()
            .expect("invariant: no keyring is without a key")
    }

    /// The key that seals.
    pub fn first(&self) -> KeyId {
        self.sealing().id
    }

    /// Seals bytes for their place.
    pub fn seal(&self, place: AssociatedData<'_>, plain: &[u8]) -> Result<Vec<u8>, Error> {
        let key = self.sealing();
        let mut nonce = [0; NONCE_LEN];
        let filled = secret::system().fill(&mut nonce);
        filled.map_err(|_| Error::Random)?;
        let room = HEAD + plain.len() + AES_256_GCM.tag_len();
        let mut sealed = Vec::with_capacity(room);
        sealed.push(VERSION);
        sealed.extend_from_slice(&key.id.0);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let aad = Aad::from(place.bytes());
        let content = &mut sealed[HEAD..];
        let tag = key.cipher.seal_in_place_separate_tag(nonce, aad, content);
        let tag = tag.map_err(|_| Error::Random)?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed)
    }

    /// What was sealed for this place.
    pub fn open(&self, place: AssociatedData<'_>, sealed: &[u8]) -> Result<Vec<u8>, Error> {
        let damaged = || Error::Damaged {
            what: place.what.to_owned(),
            name: place.name.to_owned(),
        };
        let id = key_of(sealed).ok_or_else(damaged)?;
        let key = self.keys.iter().find(|key| key.id == id);
        let key = key.ok_or_else(|| self.lacks(id))?;
        let nonce = Nonce::try_assume_unique_for_key(&sealed[1 + ID_LEN..HEAD]);
        let nonce = nonce.map_err(|_| damaged())?;
        let mut content = sealed[HEAD..].to_vec();
        let aad = Aad::from(place.bytes());
        let opened = key.cipher.open_in_place(nonce, aad, &mut content);
        let length = opened.map_err(|_| damaged())?.len();
        content.truncate(length);
        Ok(content)
    }

    /// Whether something is sealed by the first key.
    pub fn is_current(&self, sealed: &[u8]) -> bool {
        key_of(sealed) == Some(self.first())
    }

    /// Refuses a key that it does not have.
    pub fn has(&self, id: KeyId) -> Result<(), Error> {
        match self.keys.iter().any(|key| key.id == id) {
            true => Ok(()),
            false => Err(self.lacks(id)),
        }
    }

    fn lacks(&self, id: KeyId) -> Error {
        let held = self.ids().iter().map(ToString::to_string).collect();
        Error::Unknown {
            file: self.file.clone(),
            id,
            held,
        }
    }
}

/// The key that something is sealed by; `None` when it is not sealed.
fn key_of(sealed: &[u8]) -> Option<KeyId> {
    let head = sealed.get(..HEAD + AES_256_GCM.tag_len())?;
    let (version, rest) = head.split_first()?;
    let mut id = [0; ID_LEN];
    id.copy_from_slice(rest.get(..ID_LEN)?);
    (*version == VERSION).then_some(KeyId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: AssociatedData<'_> = AssociatedData {
        what: "/secrets",
        name: "ns/a",
        revision: 7,
    };

    fn ring() -> (Keyring, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("a folder");
        let ring = Keyring::create(&dir.path().join(FILE)).expect("made");
        (ring, dir)
    }

    #[test]
    fn what_is_sealed_opens_in_its_place_alone() {
        let (ring, _dir) = ring();
        let sealed = ring.seal(HERE, b"worth").expect("sealed");
        assert_eq!(ring.open(HERE, &sealed).expect("opens"), b"worth");
        assert!(!sealed.windows(5).any(|part| part == b"worth"));
        let again = ring.seal(HERE, b"worth").expect("sealed");
        assert_ne!(sealed, again, "each time by another nonce");
        for elsewhere in [
            AssociatedData {
                what: "work.karmada.io/works",
                ..HERE
            },
            AssociatedData {
                name: "ns/b",
                ..HERE
            },
            AssociatedData {
                revision: 8,
                ..HERE
            },
        ] {
            let refused = ring.open(elsewhere, &sealed);
            assert!(
                matches!(refused, Err(Error::Damaged { .. })),
                "{elsewhere:?}"
            );
        }
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert!(ring.open(HERE, &changed).is_err(), "byte {place}");
            assert!(ring.open(HERE, &sealed[..place]).is_err(), "cut at {place}");
        }
    }

    #[test]
    fn another_key_is_named() {
        let ((ours, _one), (others, _two)) = (ring(), ring());
        let sealed = ours.seal(HERE, b"worth").expect("sealed");
        let refused = others.open(HERE, &sealed).expect_err("not its key");
        let text = refused.to_string();
        assert!(text.contains(&ours.first().to_string()), "{text}");
        assert!(text.contains(&others.first().to_string()), "{text}");
        assert_eq!(KeyId::parse(&ours.first().to_string()), Some(ours.first()));
        assert_eq!(KeyId::parse("0123"), None);
    }
}
