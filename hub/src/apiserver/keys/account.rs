//! The keys of ServiceAccounts' tokens: the one that signs, and those that signed before, whose tokens hold
//! until the longest of them has ended.
//!
//! `service-account.key` signs. `service-account-retired.json` is a set of public keys (RFC 7517), each with
//! the time `until` which its tokens are taken.

use super::files::{self, Error};
use super::sec1;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use chrono::{DateTime, Duration, Utc};
use common::chance::secret;
use rcgen::{KeyPair, PublicKeyData as _};
use ring::digest::{SHA256, digest};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;
use std::path::Path;

const FILE: &str = "service-account.key";
const RETIRED: &str = "service-account-retired.json";

/// The longest life of a token; a request for a longer one is granted this.
pub const LONGEST_TOKEN: Duration = Duration::days(365);
/// A hub that runs signs with its old key until it has read the new one, and clocks differ.
const MARGIN: Duration = Duration::hours(1);

/// The keys.
pub struct AccountKeys {
    signing: EcdsaKeyPair,
    public: PublicKey,
    retired: Vec<Retired>,
}

/// A public key of P-256 as JSON has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PublicKey {
    kid: String,
    x: String,
    y: String,
}

/// A key that signs no more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Retired {
    #[serde(flatten)]
    key: PublicKey,
    until: DateTime<Utc>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct RetiredSet {
    keys: Vec<Retired>,
}

impl fmt::Debug for AccountKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountKeys")
            .field("id", &self.public.kid)
            .field("retired", &self.retired)
            .finish_non_exhaustive()
    }
}

impl PartialEq for AccountKeys {
    fn eq(&self, other: &Self) -> bool {
        self.public == other.public && self.retired == other.retired
    }
}

impl PublicKey {
    fn of(pair: &KeyPair) -> Self {
        let id = digest(&SHA256, &pair.subject_public_key_info());
        // An uncompressed point: one byte, then both coordinates.
        let point = pair.public_key_raw();
        let coordinate =
            |range| BASE64_URL_SAFE_NO_PAD.encode(point.get(range).unwrap_or_default());
        Self {
            kid: BASE64_URL_SAFE_NO_PAD.encode(id),
            x: coordinate(1..33),
            y: coordinate(33..65),
        }
    }

    fn verify(&self, signed: &[u8], signature: &[u8]) -> Option<()> {
        let mut point = vec![4];
        for coordinate in [&self.x, &self.y] {
            point.extend(BASE64_URL_SAFE_NO_PAD.decode(coordinate).ok()?);
        }
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        key.verify(signed, signature).ok()
    }

    fn value(&self) -> Value {
        json!({
            "use": "sig", "kty": "EC", "kid": self.kid, "crv": "P-256", "alg": "ES256",
            "x": self.x, "y": self.y,
        })
    }
}

impl AccountKeys {
    /// Reads the keys in a folder, or makes the first one.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(FILE);
        if files::read(&path)?.is_none() {
            let (_, text) = sec1::make("the key of ServiceAccounts")?;
            files::secret_file(&path, text.as_bytes())?;
        }
        Self::read(folder)
    }

    /// Reads the keys in a folder.
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(FILE);
        let text = files::read(&path)?.ok_or_else(|| Error::Missing(path.clone()))?;
        let wrong = || Error::Content {
            path: path.clone(),
            wanted: "a key of P-256 in PEM",
        };
        let pair = sec1::from_pem(&text).ok_or_else(wrong)?;
        let random = secret::system();
        let der = pair.serialized_der();
        let signing = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random)
            .map_err(|_| wrong())?;
        let public = PublicKey::of(&pair);
        let path = folder.join(RETIRED);
        let retired: RetiredSet = match files::read(&path)? {
            None => RetiredSet::default(),
            Some(text) => serde_json::from_str(&text).map_err(|_| Error::Content {
                path,
                wanted: "public keys as JSON",
            })?,
        };
        // A rotation that was cut short has put aside the key that still signs.
        let others = retired.keys.into_iter().filter(|one| one.key != public);
        Ok(Self {
            signing,
            retired: others.collect(),
            public,
        })
    }

    /// Puts a new key in place of the one that signs, in the files of `folder`. Tokens of earlier keys hold
    /// until they have ended, or with `revoke` no longer. Returns the id of the new key, and until when the
    /// key that it replaces is taken.
    pub fn rotate(
        folder: &Path,
        revoke: bool,
        now: DateTime<Utc>,
    ) -> Result<(String, Option<DateTime<Utc>>), Error> {
        let keys = Self::read(folder)?;
        let until = now + LONGEST_TOKEN + MARGIN;
        let mut set = RetiredSet::default();
        if !revoke {
            let past = keys.retired.into_iter().filter(|one| one.until > now);
            set.keys.extend(past);
            set.keys.push(Retired {
                key: keys.public,
                until,
            });
        }
        let (pair, text) = sec1::make("the key of ServiceAccounts")?;
        let set = serde_json::to_string_pretty(&set).unwrap_or_default();
        files::secret_file(&folder.join(RETIRED), set.as_bytes())?;
        files::secret_file(&folder.join(FILE), text.as_bytes())?;
        Ok((PublicKey::of(&pair).kid, (!revoke).then_some(until)))
    }

    /// What the key that signs is known by.
    pub fn id(&self) -> &str {
        &self.public.kid
    }

    /// Signs claims: a token.
    pub fn sign(&self, claims: &Value) -> Result<String, Error> {
        let header = json!({"alg": "ES256", "kid": self.public.kid});
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(claims));
        let random = secret::system();
        let signature = self.signing.sign(&random, signed.as_bytes());
        let signature = signature.map_err(|_| Error::Key("a signature"))?;
        Ok(format!(
            "{signed}.{}",
            BASE64_URL_SAFE_NO_PAD.encode(signature)
        ))
    }

    /// The claims of a token of one of the keys; `None` for any other.
    pub fn verify(&self, token: &str, now: DateTime<Utc>) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header = BASE64_URL_SAFE_NO_PAD.decode(header).ok()?;
        let header: Value = serde_json::from_slice(&header).ok()?;
        if header["alg"] != "ES256" {
            return None;
        }
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        let mut keys = self.in_force(now);
        keys.find_map(|key| key.verify(signed.as_bytes(), &signature))?;
        let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?;
        serde_json::from_slice(&claims).ok()
    }

    /// The public halves, the one that signs first, for whoever verifies tokens without asking.
    pub fn key_set(&self, now: DateTime<Utc>) -> Value {
        let keys: Vec<Value> = self.in_force(now).map(PublicKey::value).collect();
        json!({"keys": keys})
    }

    fn in_force(&self, now: DateTime<Utc>) -> impl Iterator<Item = &PublicKey> {
        let past = self.retired.iter().filter(move |one| one.until > now);
        std::iter::once(&self.public).chain(past.map(|one| &one.key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> DateTime<Utc> {
        "2026-01-01T00:00:00Z".parse().expect("a time")
    }

    #[test]
    fn tokens_hold_only_for_their_key() {
        let (one, two) = (tempfile::tempdir(), tempfile::tempdir());
        let one = AccountKeys::open(one.expect("a folder").path()).expect("made");
        let two = AccountKeys::open(two.expect("a folder").path()).expect("made");
        let claims = json!({"sub": "x"});
        let token = one.sign(&claims).expect("signed");
        assert_eq!(one.verify(&token, now()), Some(claims));
        assert_eq!(two.verify(&token, now()), None);
        let none = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        let rest = token.split_once('.').expect("parts").1;
        assert_eq!(one.verify(&format!("{none}.{rest}"), now()), None);
        for bad in ["", ".", "..", "a.b.c", &token[..token.len() - 2]] {
            assert_eq!(one.verify(bad, now()), None, "{bad}");
        }
    }

    #[test]
    fn tokens_of_an_earlier_key_hold_until_they_have_ended() {
        let dir = tempfile::tempdir().expect("a folder");
        let claims = json!({"sub": "x"});
        let first = AccountKeys::open(dir.path()).expect("made");
        let old = first.sign(&claims).expect("signed");
        let (id, until) = AccountKeys::rotate(dir.path(), false, now()).expect("rotated");
        let until = until.expect("it goes on");
        assert!(until > now() + LONGEST_TOKEN);
        let second = AccountKeys::read(dir.path()).expect("read");
        assert!(second != first && second.public.kid == id);
        assert_eq!(second.verify(&old, now()), Some(claims.clone()));
        assert_eq!(second.verify(&old, until), None);
        let shown = |keys: &AccountKeys, at| {
            let set = keys.key_set(at);
            let kids = set["keys"].as_array().expect("keys").iter();
            kids.map(|k| k["kid"].as_str().expect("an id").to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            shown(&second, now()),
            [id.clone(), first.public.kid.clone()]
        );
        assert_eq!(shown(&second, until), std::slice::from_ref(&id));
        // Of a rotation only the first file was written.
        std::fs::write(
            dir.path().join(RETIRED),
            serde_json::to_string(&RetiredSet {
                keys: vec![Retired {
                    key: second.public.clone(),
                    until,
                }],
            })
            .expect("JSON"),
        )
        .expect("written");
        assert_eq!(
            shown(&AccountKeys::read(dir.path()).expect("read"), now()),
            [id]
        );

        // A key that others have: nothing of it counts any more.
        let stolen = second.sign(&claims).expect("signed");
        let (_, until) = AccountKeys::rotate(dir.path(), true, now()).expect("rotated");
        let third = AccountKeys::read(dir.path()).expect("read");
        assert_eq!((until, third.verify(&stolen, now())), (None, None));
        assert_eq!(third.verify(&old, now()), None);
    }
}
