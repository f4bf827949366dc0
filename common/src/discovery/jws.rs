//! The detached signature over cluster-info: HS256, keyed with a token's secret, named by its id. Pure.

use crate::token::BootstrapToken;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;
use serde::Deserialize;

/// Signs `content` with a token: `<header>..<signature>`.
pub fn sign_jws(token: &BootstrapToken, content: &str) -> String {
    let header = format!(r#"{{"alg":"HS256","kid":"{}"}}"#, token.id());
    let header = BASE64_URL_SAFE_NO_PAD.encode(header);
    let tag = hmac::sign(&key(token), signed(&header, content).as_bytes());
    format!("{header}..{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
}

/// Whether `jws` is a signature of `content` by this token. Compared in constant time.
pub fn verify_jws(token: &BootstrapToken, content: &str, jws: &str) -> bool {
    #[derive(Deserialize)]
    struct Header {
        alg: String,
        #[serde(default)]
        kid: String,
    }
    let mut parts = jws.trim().split('.');
    let (Some(header), Some(""), Some(tag), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let Some(named) = BASE64_URL_SAFE_NO_PAD
        .decode(header)
        .ok()
        .and_then(|json| serde_json::from_slice::<Header>(&json).ok())
    else {
        return false;
    };
    let Ok(tag) = BASE64_URL_SAFE_NO_PAD.decode(tag) else {
        return false;
    };
    named.alg == "HS256"
        && named.kid == token.id()
        && hmac::verify(&key(token), signed(header, content).as_bytes(), &tag).is_ok()
}

fn key(token: &BootstrapToken) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, token.secret().expose().as_bytes())
}

fn signed(header: &str, content: &str) -> String {
    format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> BootstrapToken {
        BootstrapToken::parse(text).expect("valid")
    }

    #[test]
    fn signatures_hold_only_for_token_and_content() {
        let mine = token("abcdef.0123456789abcdef");
        let jws = sign_jws(&mine, "content");
        assert!(verify_jws(&mine, "content", &jws));
        assert!(!verify_jws(&mine, "other", &jws));
        assert!(!verify_jws(
            &token("abcdef.0123456789abcdeg"),
            "content",
            &jws
        ));
        assert!(!verify_jws(
            &token("abcdeg.0123456789abcdef"),
            "content",
            &jws
        ));
        let none = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"abcdef"}"#);
        for bad in [
            "",
            "..",
            "a.b.c",
            &format!("{none}.."),
            &jws.replace("..", ".x."),
        ] {
            assert!(!verify_jws(&mine, "content", bad), "{bad}");
        }
    }

    #[test]
    fn header_and_form_are_those_of_the_bootstrap_signer() {
        let jws = sign_jws(&token("joshua.0123456789abcdef"), "payload");
        assert!(
            jws.starts_with("eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9.."),
            "{jws}"
        );
    }
}
