//! Bootstrap tokens: what a Secret of `kube-system` says about one.

use super::Authenticator;
use crate::apiserver::caller::Caller;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use common::token::BootstrapToken;
use serde_json::Value;

const GROUP: &str = "system:bootstrappers";
const TYPE: &str = "bootstrap.kubernetes.io/token";

impl Authenticator {
    pub(super) fn bootstrap_token(&self, token: &str) -> Option<Caller> {
        let token = BootstrapToken::parse(token).ok()?;
        judge(&self.bootstrap_secret(&token)?, &token, self.clock.now())
    }

    /// When a bootstrap token ends, if it does.
    pub(super) fn bootstrap_token_ends(&self, token: &str) -> Option<DateTime<Utc>> {
        let token = BootstrapToken::parse(token).ok()?;
        let ends = data(&self.bootstrap_secret(&token)?, "expiration")?;
        let ends = DateTime::parse_from_rfc3339(&ends).ok()?;
        Some(ends.to_utc())
    }

    fn bootstrap_secret(&self, token: &BootstrapToken) -> Option<Value> {
        let name = format!("bootstrap-token-{}", token.id());
        self.object("/secrets", "kube-system", &name)
    }
}

/// A text in a Secret.
fn data(secret: &Value, key: &str) -> Option<String> {
    let bytes = STANDARD.decode(secret["data"][key].as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

/// Whom a token speaks for, if this Secret is its own and still holds.
pub fn judge(secret: &Value, token: &BootstrapToken, now: DateTime<Utc>) -> Option<Caller> {
    let data = |key: &str| data(secret, key);
    if secret["type"] != TYPE || !secret["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let stored = data("token-secret")?;
    if !same(stored.as_bytes(), token.secret().expose().as_bytes())
        || data("token-id").as_deref() != Some(token.id())
        || data("usage-bootstrap-authentication").as_deref() != Some("true")
    {
        return None;
    }
    if let Some(ends) = data("expiration") {
        let ends = DateTime::parse_from_rfc3339(&ends).ok()?;
        if ends <= now {
            return None;
        }
    }
    let mut groups = vec![GROUP.to_owned()];
    for group in data("auth-extra-groups").unwrap_or_default().split(',') {
        let group = group.trim();
        if group.is_empty() || groups.iter().any(|known| known == group) {
            continue;
        }
        if !is_group(group) {
            return None;
        }
        groups.push(group.to_owned());
    }
    Some(Caller {
        user: format!("system:bootstrap:{}", token.id()),
        groups,
        ..Caller::default()
    })
}

/// Groups of tokens are told apart from all others by their beginning.
fn is_group(group: &str) -> bool {
    let Some(name) = group.strip_prefix("system:bootstrappers:") else {
        return false;
    };
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b':' | b'-');
    let bytes = name.as_bytes();
    (1..=256).contains(&bytes.len())
        && bytes.iter().all(inner)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

/// Compares in a time that tells nothing of where two values differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secret(change: &[(&str, Option<&str>)]) -> Value {
        let mut data = json!({
            "token-id": "abcdef", "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:towline, system:bootstrappers:a-b",
            "expiration": "2026-01-01T01:00:00Z",
        });
        for (key, value) in change {
            data[*key] = json!(value);
        }
        let encoded: serde_json::Map<String, Value> = data
            .as_object()
            .expect("a map")
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), json!(STANDARD.encode(value.as_str()?)))))
            .collect();
        json!({"type": TYPE, "metadata": {}, "data": encoded})
    }

    fn decide(secret: &Value) -> Option<Caller> {
        let token = BootstrapToken::parse("abcdef.0123456789abcdef").expect("a token");
        judge(
            secret,
            &token,
            "2026-01-01T00:00:00Z".parse().expect("a time"),
        )
    }

    #[test]
    fn a_token_that_holds_has_its_groups() {
        let caller = decide(&secret(&[])).expect("holds");
        assert_eq!(caller.user, "system:bootstrap:abcdef");
        assert_eq!(
            caller.groups,
            [
                GROUP,
                "system:bootstrappers:towline",
                "system:bootstrappers:a-b"
            ]
        );
        assert!(decide(&secret(&[("expiration", None)])).is_some());
    }

    #[test]
    fn a_token_that_does_not_is_nobody() {
        for change in [
            ("token-secret", Some("0123456789abcdeX")),
            ("token-secret", Some("0123456789abcdef0")),
            ("token-id", Some("abcdeg")),
            ("usage-bootstrap-authentication", Some("false")),
            ("usage-bootstrap-authentication", None),
            ("expiration", Some("2026-01-01T00:00:00Z")),
            ("expiration", Some("soon")),
            ("auth-extra-groups", Some("system:masters")),
            ("auth-extra-groups", Some("system:bootstrappers:")),
        ] {
            assert_eq!(decide(&secret(&[change])), None, "{change:?}");
        }
        let mut other = secret(&[]);
        other["type"] = json!("Opaque");
        assert_eq!(decide(&other), None);
        let mut going = secret(&[]);
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(decide(&going), None);
    }
}
