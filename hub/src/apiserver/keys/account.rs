//! The key that signs tokens of ServiceAccounts.

use super::files::{self, Error};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::{KeyPair, PublicKeyData as _};
use ring::digest::{SHA256, digest};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};
use std::fmt;
use std::path::Path;

const FILE: &str = "service-account.key";

/// A key of P-256.
pub struct AccountKey {
    key: EcdsaKeyPair,
    public: Vec<u8>,
    id: String,
}

impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccountKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl AccountKey {
    /// Reads the key in a folder, or makes it.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(FILE);
        let pair = match files::read(&path)? {
            Some(text) => KeyPair::from_pem(&text).map_err(|_| Error::Content {
                path: path.clone(),
                wanted: "a key as PKCS#8 in PEM",
            })?,
            None => {
                let made = KeyPair::generate()
                    .map_err(|error| Error::Make("the key of ServiceAccounts", error))?;
                files::secret_file(&path, made.serialize_pem().as_bytes())?;
                made
            }
        };
        let random = ring::rand::SystemRandom::new();
        let der = pair.serialized_der();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random)
            .map_err(|_| Error::Content {
                path,
                wanted: "a key of P-256",
            })?;
        let id = digest(&SHA256, &pair.subject_public_key_info());
        Ok(Self {
            key,
            public: pair.public_key_raw().to_vec(),
            id: BASE64_URL_SAFE_NO_PAD.encode(id),
        })
    }

    /// Signs claims: a token.
    pub fn sign(&self, claims: &Value) -> Result<String, Error> {
        let header = json!({"alg": "ES256", "kid": self.id});
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(claims));
        let random = ring::rand::SystemRandom::new();
        let signature = self.key.sign(&random, signed.as_bytes());
        let signature = signature.map_err(|_| Error::Key("a signature"))?;
        Ok(format!(
            "{signed}.{}",
            BASE64_URL_SAFE_NO_PAD.encode(signature)
        ))
    }

    /// The claims of a token of this key; `None` for any other.
    pub fn verify(&self, token: &str) -> Option<Value> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let header = BASE64_URL_SAFE_NO_PAD.decode(header).ok()?;
        let header: Value = serde_json::from_slice(&header).ok()?;
        if header["alg"] != "ES256" {
            return None;
        }
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.public)
            .verify(signed.as_bytes(), &signature)
            .ok()?;
        let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?;
        serde_json::from_slice(&claims).ok()
    }

    /// The public half, for whoever verifies tokens without asking.
    pub fn key_set(&self) -> Value {
        // An uncompressed point: one byte, then both coordinates.
        let coordinate =
            |range| BASE64_URL_SAFE_NO_PAD.encode(self.public.get(range).unwrap_or_default());
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.id, "crv": "P-256", "alg": "ES256",
            "x": coordinate(1..33), "y": coordinate(33..65),
        }]})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_hold_only_for_their_key() {
        let (one, two) = (tempfile::tempdir(), tempfile::tempdir());
        let one = AccountKey::open(one.expect("a folder").path()).expect("made");
        let two = AccountKey::open(two.expect("a folder").path()).expect("made");
        let claims = json!({"sub": "x"});
        let token = one.sign(&claims).expect("signed");
        assert_eq!(one.verify(&token), Some(claims));
        assert_eq!(two.verify(&token), None);
        let none = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        let rest = token.split_once('.').expect("parts").1;
        assert_eq!(one.verify(&format!("{none}.{rest}")), None);
        for bad in ["", ".", "..", "a.b.c", &token[..token.len() - 2]] {
            assert_eq!(one.verify(bad), None, "{bad}");
        }
    }
}
