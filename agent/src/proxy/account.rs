//! As whom requests are passed on: by a ServiceAccount that may act as the users and groups that the member's owner
//! lists, and may do nothing else. Its token never leaves the agent, and the agent's own credential is never used.

use common::names::PROXY_NAME;
use common::tunnel::Identity;
use http::HeaderValue;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::api::PostParams;
use kube::{Api, Client};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Lifetime that is asked for a token.
const LIFETIME: Duration = Duration::from_secs(3600);
/// How long one is used: an API server may grant less than was asked for, and not less than this.
const USED: Duration = Duration::from_secs(480);
/// How long what was read of the role holds.
const READ: Duration = Duration::from_secs(5);

/// Why nobody can be acted as.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// No token.
    #[error(
        "failed to get a token for ServiceAccount {PROXY_NAME:?} (`towline register`, run on the cluster, makes it)"
    )]
    Token(#[source] Box<kube::Error>),
    /// A token that cannot be sent.
    #[error("the API server gave a token that no header may have")]
    Unusable,
    /// No role.
    #[error(
        "failed to get ClusterRole {PROXY_NAME:?}, which lists who may be acted as (`towline register` makes it)"
    )]
    Role(#[source] Box<kube::Error>),
}

/// Whom the member's owner lets users of the hub be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Listed {
    users: Names,
    groups: Names,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Names {
    All,
    These(BTreeSet<String>),
}

impl Default for Names {
    fn default() -> Self {
        Self::These(BTreeSet::new())
    }
}

impl Names {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::These(names) => names.contains(name),
        }
    }

    fn add(&mut self, names: Option<&Vec<String>>) {
        match (self, names.filter(|names| !names.is_empty())) {
            (Self::These(all), Some(names)) => all.extend(names.iter().cloned()),
            (this, None) => *this = Self::All,
            (Self::All, Some(_)) => {}
        }
    }
}

impl Listed {
    /// What rules of a role say, as RBAC reads them.
    pub(super) fn of(rules: &[PolicyRule]) -> Self {
        let mut listed = Self::default();
        let has = |list: &[String], one: &str| list.iter().any(|item| item == one || item == "*");
        for rule in rules {
            let in_core = has(rule.api_groups.as_deref().unwrap_or_default(), "");
            if !has(&rule.verbs, "impersonate") || !in_core {
                continue;
            }
            let resources = rule.resources.as_deref().unwrap_or_default();
            for (kind, names) in [("users", &mut listed.users), ("groups", &mut listed.groups)] {
                if has(resources, kind) {
                    names.add(rule.resource_names.as_ref());
                }
            }
        }
        listed
    }

    /// Whether this user may come in.
    pub(super) fn has_user(&self, user: &str) -> bool {
        self.users.has(user)
    }

    /// Those of a user's groups that come with them, and those that do not.
    pub(super) fn groups<'a>(&self, of: &'a Identity) -> (Vec<&'a str>, Vec<&'a str>) {
        let groups = of.groups().iter().map(String::as_str);
        groups.partition(|group| self.groups.has(group))
    }
}

/// What it takes to act as somebody now.
#[derive(Debug, Clone)]
pub(super) struct Acting {
    /// The header `Authorization`; never shown.
    pub(super) bearer: HeaderValue,
    pub(super) listed: Arc<Listed>,
}

/// The ServiceAccount. Whoever asks first reads for all who ask meanwhile.
#[derive(Debug)]
pub(super) struct Account {
    accounts: Api<ServiceAccount>,
    roles: Api<ClusterRole>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    token: Option<(HeaderValue, Instant)>,
    listed: Option<(Arc<Listed>, Instant)>,
}

impl Account {
    /// That of the agent in `namespace`.
    pub(super) fn new(member: Client, namespace: &str) -> Self {
        Self {
            accounts: Api::namespaced(member.clone(), namespace),
            roles: Api::all(member),
            state: Mutex::default(),
        }
    }

    /// What holds now.
    pub(super) async fn acting(&self) -> Result<Acting, Error> {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        let bearer = match &state.token {
            Some((bearer, until)) if now < *until => bearer.clone(),
            _ => {
                let bearer = self.token().await?;
                state.token = Some((bearer.clone(), now + USED));
                bearer
            }
        };
        let listed = match &state.listed {
            Some((listed, until)) if now < *until => listed.clone(),
            _ => {
                let role = self.roles.get_opt(PROXY_NAME).await;
                let role = role.map_err(|error| Error::Role(Box::new(error)))?;
                // Without the role nobody is let in.
                let rules = role.and_then(|role| role.rules).unwrap_or_default();
                let listed = Arc::new(Listed::of(&rules));
                state.listed = Some((listed.clone(), now + READ));
                listed
            }
        };
        Ok(Acting { bearer, listed })
    }

    async fn token(&self) -> Result<HeaderValue, Error> {
        let wanted = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: i64::try_from(LIFETIME.as_secs()).ok(),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let params = PostParams::default();
        let made = self
            .accounts
            .create_token_request(PROXY_NAME, &params, &wanted)
            .await
            .map_err(|error| Error::Token(Box::new(error)))?;
        let token = made.status.map(|status| status.token).unwrap_or_default();
        let bearer = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut bearer = bearer.map_err(|_| Error::Unusable)?;
        bearer.set_sensitive(true);
        Ok(bearer)
    }

    /// A token that the member no longer takes is not used again.
    pub(super) async fn forget_token(&self) {
        self.state.lock().await.token = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn listed(rules: Value) -> Listed {
        let rules: Vec<PolicyRule> = serde_json::from_value(rules).expect("rules");
        Listed::of(&rules)
    }

    #[test]
    fn whom_a_role_lists_may_come_in_and_nobody_else() {
        assert_eq!(listed(json!([])), Listed::default());
        let some = listed(json!([
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["ann"]},
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups"], "resourceNames": ["dev"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["users"], "resourceNames": ["bob"]},
            {"verbs": ["impersonate"], "apiGroups": ["x"], "resources": ["users"]},
        ]));
        assert!(some.has_user("ann") && !some.has_user("bob") && !some.has_user("dev"));
        let groups = ["dev".to_owned(), "ops".to_owned()];
        let ann = Identity::of("ann", &groups).expect("fit");
        assert_eq!(some.groups(&ann), (vec!["dev"], vec!["ops"]));
        let all = listed(json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]));
        assert!(all.has_user("ann"));
        assert_eq!(all.groups(&ann).1, Vec::<&str>::new());
    }
}
