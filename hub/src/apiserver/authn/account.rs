//! Tokens of ServiceAccounts: what is in them, and whether they still hold.

use super::Authenticator;
use super::certificate::CREDENTIAL_ID;
use crate::apiserver::caller::Caller;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Who issues the tokens.
pub const ISSUER: &str = "https://kubernetes.default.svc";
/// The audience that this server is.
pub const API_AUDIENCE: &str = ISSUER;
/// The claim with what a token is bound to.
const PRIVATE: &str = "kubernetes.io";

/// What a token is to say.
#[derive(Debug, Clone)]
pub struct Claims<'a> {
    /// Namespace of the ServiceAccount.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// Whom the token is for.
    pub audiences: &'a [String],
    /// The Secret, Pod or Node with which it ends: claim, name, uid.
    pub bound: Option<(&'static str, &'a str, &'a str)>,
    /// From when it holds.
    pub now: DateTime<Utc>,
    /// For how many seconds.
    pub seconds: i64,
    /// What tells it from all others.
    pub id: &'a str,
}

impl Claims<'_> {
    /// As they are signed.
    pub fn to_value(&self) -> Value {
        let mut private = json!({
            "namespace": self.namespace,
            "serviceaccount": {"name": self.name, "uid": self.uid},
        });
        if let Some((claim, name, uid)) = self.bound {
            private[claim] = json!({"name": name, "uid": uid});
        }
        let now = self.now.timestamp();
        json!({
            "aud": self.audiences,
            "exp": now + self.seconds,
            "iat": now,
            "iss": ISSUER,
            "jti": self.id,
            PRIVATE: private,
            "nbf": now,
            "sub": format!("system:serviceaccount:{}:{}", self.namespace, self.name),
        })
    }
}

impl Authenticator {
    pub(super) fn account_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Option<(Caller, Vec<String>)> {
        let claims = self.keys.account().verify(token)?;
        let mut found = judge(&claims, audiences, self.clock.now())?;
        let private = &claims[PRIVATE];
        let namespace = private["namespace"].as_str()?;
        let account = &private["serviceaccount"];
        if !self.lives("/serviceaccounts", namespace, account) {
            return None;
        }
        for (claim, resource, namespace) in [
            ("secret", "/secrets", namespace),
            ("pod", "/pods", namespace),
            ("node", "/nodes", ""),
        ] {
            let bound = &private[claim];
            if bound.is_null() {
                continue;
            }
            if !self.lives(resource, namespace, bound) {
                return None;
            }
            for key in ["name", "uid"] {
                if claim != "secret"
                    && let Some(value) = bound[key].as_str()
                {
                    let extra = format!("authentication.kubernetes.io/{claim}-{key}");
                    found.0.extra.insert(extra, vec![value.to_owned()]);
                }
            }
        }
        Some(found)
    }

    /// Whether the object that a token names is there, is that one, and is not going.
    fn lives(&self, resource: &str, namespace: &str, named: &Value) -> bool {
        let Some(name) = named["name"].as_str() else {
            return false;
        };
        let Some(object) = self.object(resource, namespace, name) else {
            return false;
        };
        object["metadata"]["uid"] == named["uid"]
            && object["metadata"]["deletionTimestamp"].is_null()
    }
}

/// Whom claims speak for, and for which of the audiences, as far as they themselves say.
fn judge(
    claims: &Value,
    audiences: &[String],
    now: DateTime<Utc>,
) -> Option<(Caller, Vec<String>)> {
    let now = now.timestamp();
    if claims["iss"] != ISSUER
        || claims["exp"].as_i64().is_none_or(|end| end <= now)
        || claims["nbf"].as_i64().is_some_and(|begin| begin > now)
    {
        return None;
    }
    let meant = claims["aud"].as_array()?;
    let meant: Vec<String> = audiences
        .iter()
        .filter(|audience| meant.iter().any(|one| one == audience.as_str()))
        .cloned()
        .collect();
    if meant.is_empty() {
        return None;
    }
    let private = &claims[PRIVATE];
    let namespace = private["namespace"].as_str()?;
    let account = &private["serviceaccount"];
    let (name, uid) = (account["name"].as_str()?, account["uid"].as_str()?);
    let user = format!("system:serviceaccount:{namespace}:{name}");
    if claims["sub"] != user.as_str() {
        return None;
    }
    let id = claims["jti"].as_str().map(|id| format!("JTI={id}"));
    let extra = id.map(|id| (CREDENTIAL_ID.to_owned(), vec![id]));
    let caller = Caller {
        user,
        uid: uid.to_owned(),
        groups: groups(namespace),
        extra: BTreeMap::from_iter(extra),
    };
    Some((caller, meant))
}

/// The groups of every ServiceAccount of a namespace.
pub(super) fn groups(namespace: &str) -> Vec<String> {
    vec![
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().expect("a time")
    }

    #[test]
    fn claims_hold_for_their_time_and_audience() {
        let audiences = [API_AUDIENCE.to_owned(), "other".to_owned()];
        let claims = Claims {
            namespace: "a",
            name: "s",
            uid: "u",
            audiences: &audiences[..1],
            bound: None,
            now: at("2026-01-01T00:00:00Z"),
            seconds: 600,
            id: "i",
        }
        .to_value();
        let (caller, meant) =
            judge(&claims, &audiences, at("2026-01-01T00:05:00Z")).expect("holds");
        assert_eq!(caller.user, "system:serviceaccount:a:s");
        assert_eq!(meant, [API_AUDIENCE]);
        let refused = |claims: &Value, time: &str| judge(claims, &audiences, at(time)).is_none();
        assert!(refused(&claims, "2026-01-01T00:10:00Z"));
        assert!(refused(&claims, "2025-12-31T23:59:59Z"));
        assert!(judge(&claims, &audiences[1..], at("2026-01-01T00:05:00Z")).is_none());
        for (key, value) in [
            ("iss", json!("x")),
            ("sub", json!("system:admin")),
            ("exp", json!(null)),
        ] {
            let mut changed = claims.clone();
            changed[key] = value;
            assert!(refused(&changed, "2026-01-01T00:05:00Z"), "{key}");
        }
    }
}
