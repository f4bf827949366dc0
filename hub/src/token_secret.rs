//! The Secret of a bootstrap token, as the hub reads it: limits, placement, and who used it.
//!
//! Pure. The annotations here say what a token is good for; the data keys are those of every bootstrap
//! token, so that the control plane's own controllers sign for it and clean it up. The secret half is
//! never read.

use chrono::{DateTime, SecondsFormat, Utc};
use common::identity::{BOOTSTRAP_GROUP, RegistrationId};
use common::labels::{
    TOKEN_CLUSTER, TOKEN_PLACEMENT, TOKEN_REPLACE, TOKEN_RESERVATIONS, TOKEN_USES,
};
use common::names::ClusterName;
use common::time::from_time;
use k8s_openapi::api::core::v1::Secret;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Namespace of bootstrap tokens.
pub const TOKEN_NAMESPACE: &str = "kube-system";
/// Type of their Secrets.
pub const TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";
/// How many uses one token may have: who used it lies in one annotation, and all of a Secret's together have a limit.
pub const USES_MAX: u32 = 1_000;
const NAME_PREFIX: &str = "bootstrap-token-";
/// Data key: when the token ends, RFC 3339.
pub const EXPIRATION: &str = "expiration";
/// Data key: comma list of groups beside `system:bootstrappers`.
pub const EXTRA_GROUPS: &str = "auth-extra-groups";
/// Data key: `true` when the token may authenticate.
pub const USAGE_AUTHENTICATION: &str = "usage-bootstrap-authentication";

/// Where the clusters of a token lie: an agent cannot place itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// `spec.provider`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// `spec.region`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// `spec.zones`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// `metadata.labels`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// One use of a token. It belongs to a key and a member: asking again costs nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reservation {
    /// The registration, which is that of a public key.
    pub registration: String,
    /// The cluster's name.
    pub cluster: String,
    /// The member's own identity.
    pub cluster_id: String,
}

/// Which token a registration came by. Of two tokens for one cluster the one that was made later is the later word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// When the token was made, to the second.
    pub created: DateTime<Utc>,
    /// Its public half.
    pub id: String,
    /// Tokens of the same second whose registrations it replaced.
    pub over: Vec<String>,
}

impl Origin {
    /// Reads what [`fmt::Display`] wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let created = DateTime::parse_from_rfc3339(words.next()?).ok()?.to_utc();
        let id = words.next()?.to_owned();
        let over = words.map(str::to_owned).collect();
        Some(Self { created, id, over })
    }

    /// The same in the place of what another one brought.
    pub fn after(mut self, before: Option<&Self>) -> Self {
        let before = before.filter(|it| it.created == self.created);
        let replaced = before
            .into_iter()
            .flat_map(|it| std::iter::once(&it.id).chain(&it.over));
        self.over = replaced.filter(|id| **id != self.id).cloned().collect();
        self
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let created = self.created.to_rfc3339_opts(SecondsFormat::Secs, true);
        write!(f, "{created} {}", self.id)?;
        self.over.iter().try_for_each(|it| write!(f, " {it}"))
    }
}

/// What the hub needs to know of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The public half.
    pub id: String,
    /// UID of the Secret.
    pub uid: String,
    /// resourceVersion of the Secret, which a reservation compares.
    pub resource_version: String,
    /// When the Secret was made.
    pub created: DateTime<Utc>,
    /// When the token ends; never, when absent.
    pub expires: Option<DateTime<Utc>>,
    /// The one name it may claim.
    pub cluster: Option<ClusterName>,
    /// Whether it may register that Cluster anew.
    pub replace: bool,
    /// How many registrations it is good for.
    pub uses: usize,
    /// Where its clusters lie.
    pub placement: Placement,
    /// Who used it.
    pub reservations: Vec<Reservation>,
}

/// Why a Secret is not a token that may be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// Another kind of Secret, or a token of somebody else.
    #[error("it is not a bootstrap token of the group {BOOTSTRAP_GROUP}")]
    NotOurs,
    /// A value that cannot be read; whatever it was meant to limit, nothing is allowed.
    #[error("its {0} cannot be read")]
    Unreadable(&'static str),
}

impl Token {
    /// Itself, as what a registration came by.
    pub fn origin(&self) -> Origin {
        Origin {
            created: self.created,
            id: self.id.clone(),
            over: Vec::new(),
        }
    }

    /// Reads a Secret.
    pub fn read(secret: &Secret) -> Result<Self, Unusable> {
        let data = |key: &str| {
            let bytes = secret.data.as_ref().and_then(|data| data.get(key));
            bytes.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned())
        };
        let groups = data(EXTRA_GROUPS).unwrap_or_default();
        if secret.type_.as_deref() != Some(TOKEN_TYPE)
            || data(USAGE_AUTHENTICATION).as_deref() != Some("true")
            || !groups
                .split(',')
                .any(|group| group.trim() == BOOTSTRAP_GROUP)
        {
            return Err(Unusable::NotOurs);
        }
        let annotation = |key: &str| secret.metadata.annotations.as_ref()?.get(key);
        let expires = match data(EXPIRATION) {
            None => None,
            Some(text) => Some(
                DateTime::parse_from_rfc3339(&text)
                    .map_err(|_| Unusable::Unreadable("expiration"))?
                    .to_utc(),
            ),
        };
        let cluster = match annotation(TOKEN_CLUSTER) {
            None => None,
            Some(name) => {
                Some(ClusterName::parse(name).map_err(|_| Unusable::Unreadable("cluster name"))?)
            }
        };
        let uses = match annotation(TOKEN_USES) {
            None => 1,
            Some(uses) => uses
                .parse()
                .map_err(|_| Unusable::Unreadable("number of uses"))?,
        };
        let created = secret
            .metadata
            .creation_timestamp
            .as_ref()
            .and_then(from_time);
        let id = secret
            .metadata
            .name
            .as_deref()
            .and_then(|name| name.strip_prefix(NAME_PREFIX));
        Ok(Self {
            id: id.ok_or(Unusable::NotOurs)?.to_owned(),
            uid: secret.metadata.uid.clone().unwrap_or_default(),
            resource_version: secret.metadata.resource_version.clone().unwrap_or_default(),
            created: created.ok_or(Unusable::Unreadable("creation time"))?,
            expires,
            cluster,
            replace: annotation(TOKEN_REPLACE).is_some_and(|replace| replace == "true"),
            uses,
            placement: json(annotation(TOKEN_PLACEMENT))
                .ok_or(Unusable::Unreadable("placement"))?,
            reservations: json(annotation(TOKEN_RESERVATIONS))
                .ok_or(Unusable::Unreadable("list of uses"))?,
        })
    }

    /// Whether the token has ended.
    pub fn is_expired(&self, now: DateTime<Utc>) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Whether no use is left.
    pub fn is_spent(&self) -> bool {
        self.reservations.len() >= self.uses
    }

    /// The use that belongs to a registration.
    pub fn reservation(&self, registration: &RegistrationId) -> Option<&Reservation> {
        self.reservations
            .iter()
            .find(|used| used.registration == registration.as_str())
    }
}

fn json<T: for<'a> Deserialize<'a> + Default>(annotation: Option<&String>) -> Option<T> {
    match annotation {
        None => Some(T::default()),
        Some(text) => serde_json::from_str(text).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secret(edit: impl FnOnce(&mut serde_json::Value)) -> Secret {
        let mut value = json!({
            "metadata": {
                "name": "bootstrap-token-abcdef", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": {
                    TOKEN_CLUSTER: "m1", TOKEN_REPLACE: "true", TOKEN_USES: "2",
                    TOKEN_PLACEMENT: r#"{"region":"r1","zones":["z1"],"labels":{"a":"b"}}"#,
                    TOKEN_RESERVATIONS:
                        r#"[{"registration":"00","cluster":"m1","clusterId":"id"}]"#,
                },
            },
            "type": TOKEN_TYPE,
            "data": {
                // "true", the group among others, and a time.
                "usage-bootstrap-authentication": "dHJ1ZQ==",
                "auth-extra-groups": "YSwgc3lzdGVtOmJvb3RzdHJhcHBlcnM6dG93bGluZQ==",
                "expiration": "MjAyNi0wMS0wMlQwMDowMDowMFo=",
            },
        });
        edit(&mut value);
        serde_json::from_value(value).expect("a Secret")
    }

    #[test]
    fn a_token_reads_back() {
        let token = Token::read(&secret(|_| {})).expect("ours");
        assert_eq!(token.cluster.as_ref().map(ClusterName::as_str), Some("m1"));
        assert!(token.replace);
        assert_eq!((token.uses, token.reservations.len()), (2, 1));
        assert!(!token.is_spent());
        assert_eq!(token.placement.region.as_deref(), Some("r1"));
        let expires = token.expires.expect("expires");
        assert!(token.is_expired(expires));
        assert!(!token.is_expired(expires - chrono::Duration::seconds(1)));
    }

    /// The longest names and ids there are, within what an API server takes.
    #[test]
    fn every_use_that_a_token_may_have_can_be_noted() {
        const ANNOTATIONS_MAX: usize = 256 * 1024;
        let used = Reservation {
            registration: RegistrationId::of_public_key(b"k").as_str().to_owned(),
            cluster: "m".repeat(common::names::CLUSTER_NAME_MAX),
            cluster_id: "i".repeat(crate::approver::CLUSTER_ID_MAX),
        };
        let all = serde_json::to_string(&vec![used; USES_MAX as usize]).expect("text");
        assert!(all.len() + 16 * 1024 < ANNOTATIONS_MAX, "{}", all.len());
    }

    #[test]
    fn a_token_without_limits_is_good_for_one_use() {
        let plain = secret(|s| s["metadata"]["annotations"] = json!({}));
        let token = Token::read(&plain).expect("ours");
        assert_eq!((token.uses, token.cluster, token.replace), (1, None, false));
    }

    #[test]
    fn what_cannot_be_read_allows_nothing() {
        let annotate = |key: &str, value: &str| {
            Token::read(&secret(|s| {
                s["metadata"]["annotations"][key] = json!(value);
            }))
        };
        for (key, value) in [
            (TOKEN_CLUSTER, "M1"),
            (TOKEN_USES, "many"),
            (TOKEN_USES, "-1"),
            (TOKEN_PLACEMENT, "{"),
            (TOKEN_PLACEMENT, r#"{"taints":[]}"#),
            (TOKEN_RESERVATIONS, "[7]"),
        ] {
            assert!(
                matches!(annotate(key, value), Err(Unusable::Unreadable(_))),
                "{key}={value}"
            );
        }
        let changed =
            |key: &str, value: serde_json::Value| Token::read(&secret(|s| s["data"][key] = value));
        assert!(matches!(
            changed("expiration", json!("eA==")),
            Err(Unusable::Unreadable(_))
        ));
        assert!(matches!(
            changed("auth-extra-groups", json!("eA==")),
            Err(Unusable::NotOurs)
        ));
        assert!(matches!(
            changed(USAGE_AUTHENTICATION, json!("eA==")),
            Err(Unusable::NotOurs)
        ));
        let other = Token::read(&secret(|s| s["type"] = json!("Opaque")));
        assert!(matches!(other, Err(Unusable::NotOurs)));
    }

    #[test]
    fn an_origin_reads_back() {
        let of = |text: &str| Origin::parse(text).expect("an origin");
        let [first, other, later] = [
            "2026-01-01T00:00:00Z bbbbbb",
            "2026-01-01T00:00:00Z aaaaaa",
            "2026-01-01T00:00:01Z cccccc",
        ];
        let both = of(other).after(Some(&of(first)));
        assert_eq!(both.to_string(), "2026-01-01T00:00:00Z aaaaaa bbbbbb");
        assert_eq!(of(&both.to_string()), both);
        assert_eq!(of(later).after(Some(&both)).to_string(), later);
        // Another use of the same token.
        assert_eq!(of(other).after(Some(&both)), both);
        let back = of(first).after(Some(&both));
        assert_eq!(back.to_string(), "2026-01-01T00:00:00Z bbbbbb aaaaaa");
        for damaged in ["", "abcdef", "today abcdef"] {
            assert_eq!(Origin::parse(damaged), None, "{damaged:?}");
        }
    }
}
