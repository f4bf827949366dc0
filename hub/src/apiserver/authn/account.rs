//! Tokens of ServiceAccounts: what is in them, and whether they still hold.

use super::Authenticator;
use super::certificate::CREDENTIAL_ID;
use crate::apiserver::authz::quoted_list;
use crate::apiserver::caller::Caller;
use crate::go::quote;
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
    /// What the account is called in it.
    pub name: &'a str,
    /// The account that is meant: one that is made anew has another.
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

/// A token that holds: whom it speaks for, and for which of the audiences that were asked.
pub(super) type Held = (Caller, Vec<String>);

impl Authenticator {
    /// `None` when the token is not of this server at all; otherwise whom it speaks for, or why it
    /// no longer does.
    pub(super) fn account_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Option<Result<Held, String>> {
        let claims = self.keys.account().verify(token, self.clock.now())?;
        (claims["iss"] == ISSUER).then(|| self.holds(&claims, audiences))
    }

    /// When a token of this server ends.
    pub(super) fn account_token_ends(&self, token: &str) -> Option<DateTime<Utc>> {
        let claims = self.keys.account().verify(token, self.clock.now())?;
        DateTime::from_timestamp(claims["exp"].as_i64()?, 0)
    }

    fn holds(&self, claims: &Value, audiences: &[String]) -> Result<Held, String> {
        let (mut caller, meant) = judge(claims, audiences, self.clock.now())?;
        let private = &claims[PRIVATE];
        let namespace = private["namespace"].as_str().unwrap_or_default();
        self.account_lives(namespace, &private["serviceaccount"])?;
        for (claim, resource, namespace) in [
            ("secret", "/secrets", namespace),
            ("pod", "/pods", namespace),
            ("node", "/nodes", ""),
        ] {
            let bound = &private[claim];
            if bound.is_null() {
                continue;
            }
            self.bound_lives(claim, resource, namespace, bound)?;
            for key in ["name", "uid"] {
                if claim != "secret"
                    && let Some(value) = bound[key].as_str()
                {
                    let extra = format!("authentication.kubernetes.io/{claim}-{key}");
                    caller.extra.insert(extra, vec![value.to_owned()]);
                }
            }
        }
        Ok((caller, meant))
    }

    fn account_lives(&self, namespace: &str, named: &Value) -> Result<(), String> {
        let name = named["name"].as_str().unwrap_or_default();
        let object = self
            .object("/serviceaccounts", namespace, name)
            .ok_or_else(|| format!("serviceaccounts {} not found", quote(name)))?;
        let (uid, wanted) = (text(&object["metadata"]["uid"]), text(&named["uid"]));
        if uid != wanted {
            return Err(format!(
                "service account UID ({uid}) does not match claim ({wanted})"
            ));
        }
        if is_going(&object) {
            return Err(format!(
                "service account {namespace}/{name} has been deleted"
            ));
        }
        Ok(())
    }

    /// Whether the object that a token is bound to is there, is that one, and is not going.
    fn bound_lives(
        &self,
        claim: &str,
        resource: &str,
        namespace: &str,
        named: &Value,
    ) -> Result<(), String> {
        let over = || "service account token has been invalidated".to_owned();
        let name = named["name"].as_str().unwrap_or_default();
        let object = self.object(resource, namespace, name).ok_or_else(over)?;
        let (uid, wanted) = (text(&object["metadata"]["uid"]), text(&named["uid"]));
        if uid != wanted {
            return Err(format!(
                "{claim} UID ({uid}) does not match service account {claim} ref claim ({wanted})"
            ));
        }
        if is_going(&object) {
            Err(over())
        } else {
            Ok(())
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn is_going(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Whom claims speak for, and for which of the audiences, as far as they themselves say.
fn judge(claims: &Value, audiences: &[String], now: DateTime<Utc>) -> Result<Held, String> {
    let named: Vec<String> = match &claims["aud"] {
        Value::Array(all) => all.iter().map(|one| text(one).to_owned()).collect(),
        _ => Vec::new(),
    };
    let meant: Vec<String> = audiences
        .iter()
        .filter(|audience| named.contains(audience))
        .cloned()
        .collect();
    if meant.is_empty() {
        return Err(format!(
            "token audiences {} is invalid for the target audiences {}",
            quoted_list(&named),
            quoted_list(audiences)
        ));
    }
    let now = now.timestamp();
    if claims["exp"].as_i64().is_none_or(|end| end <= now) {
        return Err("service account token has expired".to_owned());
    }
    if claims["nbf"].as_i64().is_some_and(|begin| begin > now) {
        return Err("service account token is not valid yet".to_owned());
    }
    let private = &claims[PRIVATE];
    let (namespace, account) = (text(&private["namespace"]), &private["serviceaccount"]);
    let (name, uid) = (text(&account["name"]), text(&account["uid"]));
    let user = format!("system:serviceaccount:{namespace}:{name}");
    if name.is_empty() || uid.is_empty() || claims["sub"] != user.as_str() {
        return Err("service account token claims could not be validated".to_owned());
    }
    let id = claims["jti"].as_str().map(|id| format!("JTI={id}"));
    let extra = id.map(|id| (CREDENTIAL_ID.to_owned(), vec![id]));
    let caller = Caller {
        user,
        uid: uid.to_owned(),
        groups: groups(namespace),
        extra: BTreeMap::from_iter(extra),
    };
    Ok((caller, meant))
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
        let refused = |claims: &Value, time: &str| judge(claims, &audiences, at(time)).is_err();
        assert!(refused(&claims, "2026-01-01T00:10:00Z"));
        assert!(refused(&claims, "2025-12-31T23:59:59Z"));
        assert_eq!(
            judge(&claims, &audiences[1..], at("2026-01-01T00:05:00Z")),
            Err("token audiences [\"https://kubernetes.default.svc\"] is invalid for the target audiences [\"other\"]".to_owned())
        );
        for (key, value) in [
            ("aud", json!("x")),
            ("sub", json!("system:admin")),
            ("exp", json!(null)),
        ] {
            let mut changed = claims.clone();
            changed[key] = value;
            assert!(refused(&changed, "2026-01-01T00:05:00Z"), "{key}");
        }
    }
}
