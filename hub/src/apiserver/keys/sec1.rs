//! Private keys of P-256 as text. They are written as SEC1 (`EC PRIVATE KEY`, RFC 5915), which every
//! client reads, old ones of Java among them; PKCS#8, which earlier versions wrote, is read as well. Pure.

use super::der::{BIT_STRING, INTEGER, OCTET_STRING, OID, SEQUENCE, of, value};
use super::files::Error;
use common::chance::secret;
use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_parser::asn1_rs::{Any, FromDer as _};

const LABEL: &str = "EC PRIVATE KEY";
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// Context tags of an ECPrivateKey: the curve, and the public key.
const PARAMETERS: u8 = 0xa0;
const PUBLIC_KEY: u8 = 0xa1;

/// A new key, and its text.
pub(super) fn make(what: &'static str) -> Result<(KeyPair, String), Error> {
    let key = secret::key_pair().map_err(|error| Error::Make(what, error))?;
    let text = to_pem(&key).ok_or(Error::Key(what))?;
    Ok((key, text))
}

/// A key as text.
fn to_pem(key: &KeyPair) -> Option<String> {
    let [_, _, inner] = members(key.serialized_der())?;
    let [version, secret] = members(content(inner)?)?;
    let public = of(BIT_STRING, &[&[0], key.public_key_raw()]);
    let body = of(
        SEQUENCE,
        &[
            version,
            secret,
            &value(PARAMETERS, &value(OID, P256)),
            &value(PUBLIC_KEY, &public),
        ],
    );
    Some(super::authority::pem(LABEL, &body))
}

/// A key from its text, in either form.
pub(super) fn from_pem(text: &str) -> Option<KeyPair> {
    let der = match PrivateKeyDer::from_pem_slice(text.as_bytes()).ok()? {
        PrivateKeyDer::Sec1(key) => wrapped(key.secret_sec1_der()),
        PrivateKeyDer::Pkcs8(key) => key.secret_pkcs8_der().to_vec(),
        _ => return None,
    };
    let der = PrivatePkcs8KeyDer::from(der);
    KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_ECDSA_P256_SHA256).ok()
}

/// PKCS#8 around an ECPrivateKey, which is how the libraries take it.
fn wrapped(key: &[u8]) -> Vec<u8> {
    let algorithm = of(SEQUENCE, &[&value(OID, EC_PUBLIC_KEY), &value(OID, P256)]);
    of(
        SEQUENCE,
        &[&value(INTEGER, &[0]), &algorithm, &value(OCTET_STRING, key)],
    )
}

/// The first members of a sequence, each with its tag and length.
fn members<const N: usize>(sequence: &[u8]) -> Option<[&[u8]; N]> {
    let mut left = content(sequence)?;
    let mut found = [left; N];
    for place in &mut found {
        let (rest, _) = Any::from_der(left).ok()?;
        *place = &left[..left.len() - rest.len()];
        left = rest;
    }
    Some(found)
}

/// What a value holds.
fn content(der: &[u8]) -> Option<&[u8]> {
    let (_, value) = Any::from_der(der).ok()?;
    Some(value.data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_as_sec1_and_read_in_both_forms() {
        let (key, text) = make("a key").expect("made");
        assert!(
            text.starts_with("-----BEGIN EC PRIVATE KEY-----\n"),
            "{text}"
        );
        for form in [text, key.serialize_pem()] {
            let read = from_pem(&form).expect("read");
            assert_eq!(read.public_key_raw(), key.public_key_raw());
            // Clients give it to rustls as it is.
            let der = PrivateKeyDer::from_pem_slice(form.as_bytes()).expect("PEM");
            assert!(rustls::crypto::ring::sign::any_ecdsa_type(&der).is_ok());
        }
        for bad in [
            "",
            "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n",
        ] {
            assert!(from_pem(bad).is_none());
        }
    }
}
