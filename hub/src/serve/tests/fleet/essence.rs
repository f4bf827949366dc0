//! What of a body two runs of one seed have in common: everything but signatures, which are drawn by a library
//! that takes its chance from nobody. Of certificates and their requests what was signed is left.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::digest::{SHA256, digest};
use serde_json::Value;
use std::fmt::Write as _;
use x509_parser::prelude::{FromDer as _, X509Certificate, X509CertificationRequest};

/// Shorter texts are no base64 around a certificate.
const SHORTEST: usize = 64;
/// How a caller's certificate is named: what follows is a digest of all of it, its signature too.
const DIGEST: &str = "X509SHA256=";
/// How a token of a ServiceAccount begins: with JSON.
const TOKEN: &str = "eyJ";
const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";

/// A digest of a body without the signatures in it.
pub(super) fn essence(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    short(unsigned(&text).as_bytes())
}

fn short(bytes: &[u8]) -> String {
    let sum = digest(&SHA256, bytes);
    sum.as_ref()
        .iter()
        .take(6)
        .fold(String::new(), |mut all, byte| {
            // Writing to a String cannot fail.
            let _ = write!(all, "{byte:02x}");
            all
        })
}

/// A text, JSON or not, without the signatures in it.
fn unsigned(text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Ok(mut value @ (Value::Object(_) | Value::Array(_))) => {
            walk(&mut value);
            value.to_string()
        }
        _ => without_pem(text),
    }
}

fn walk(value: &mut Value) {
    match value {
        Value::String(text) => *text = within(text),
        Value::Array(all) => all.iter_mut().for_each(walk),
        Value::Object(all) => all.values_mut().for_each(walk),
        _ => {}
    }
}

/// One text of an object: base64 around other text, PEM, or neither.
fn within(text: &str) -> String {
    if text.starts_with(DIGEST) {
        return DIGEST.to_owned();
    }
    // Of a token, too, what was signed is left.
    if text.starts_with(TOKEN)
        && text.split('.').count() == 3
        && let Some((signed, _)) = text.rsplit_once('.')
    {
        return signed.to_owned();
    }
    let decoded = (text.len() >= SHORTEST)
        .then(|| BASE64_STANDARD.decode(text).ok())
        .flatten();
    match decoded.and_then(|bytes| String::from_utf8(bytes).ok()) {
        Some(inner) => unsigned(&inner),
        None => without_pem(text),
    }
}

/// Each block of PEM that is signed replaced by a digest of what was signed.
fn without_pem(text: &str) -> String {
    let mut left = text;
    let mut all = String::with_capacity(text.len());
    while let Some((before, rest)) = left.split_once(BEGIN) {
        all.push_str(before);
        let block = rest.split_once(END).and_then(|(block, after)| {
            let (_, encoded) = block.split_once("-----")?;
            let encoded: String = encoded.split_whitespace().collect();
            let signed = signed(&BASE64_STANDARD.decode(encoded).ok()?)?;
            Some((short(&signed), after))
        });
        match block {
            Some((signed, after)) => {
                all.push_str(&signed);
                left = after;
            }
            None => {
                all.push_str(BEGIN);
                left = rest;
            }
        }
    }
    all + left
}

/// What is signed of a certificate or of a request for one.
fn signed(der: &[u8]) -> Option<Vec<u8>> {
    if let Ok((_, certificate)) = X509Certificate::from_der(der) {
        return Some(certificate.tbs_certificate.as_ref().to_vec());
    }
    let (_, request) = X509CertificationRequest::from_der(der).ok()?;
    Some(request.certification_request_info.raw.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::chance::secret;
    use rcgen::{CertificateParams, PublicKeyData as _};
    use serde_json::json;

    #[test]
    fn only_signatures_are_left_out() {
        let (key, other) = (secret::key_pair(), secret::key_pair());
        let (key, other) = (key.expect("a key"), other.expect("a key"));
        assert_ne!(
            key.subject_public_key_info(),
            other.subject_public_key_info()
        );
        let request = |key| {
            let made = CertificateParams::default().serialize_request(key);
            made.expect("made").pem().expect("PEM")
        };
        let secret = |pem: &str| {
            let inner = json!({"certificate": pem, "at": 1}).to_string();
            json!({"data": {"document": BASE64_STANDARD.encode(inner)}}).to_string()
        };
        let plain = |pem: &str| json!({"request": BASE64_STANDARD.encode(pem)}).to_string();
        let within = |pem: &str| format!("before\n{pem}after");
        let (one, again) = (request(&key), request(&key));
        assert_ne!(one, again, "signatures are drawn");
        for form in [&secret as &dyn Fn(&str) -> String, &plain, &within] {
            assert_eq!(
                essence(form(&one).as_bytes()),
                essence(form(&again).as_bytes())
            );
            let others = form(&request(&other));
            assert_ne!(essence(form(&one).as_bytes()), essence(others.as_bytes()));
        }
        let token = |text: &str| json!({"status": {"token": text}}).to_string();
        assert_eq!(
            essence(token("eyJh.eyJi.c").as_bytes()),
            essence(token("eyJh.eyJi.d").as_bytes())
        );
        for (one, other) in [
            (&*token("eyJh.eyJi.c"), &*token("eyJh.eyJj.c")),
            ("a", "b"),
            (r#"{"a":1}"#, r#"{"a":2}"#),
            ("-----BEGIN a", "-----BEGIN b"),
        ] {
            assert_ne!(essence(one.as_bytes()), essence(other.as_bytes()));
        }
    }
}
