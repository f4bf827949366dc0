//! As whom requests are passed on: by a ServiceAccount that may act as the users and groups that the member's owner
//! lists, and may do nothing else. Its token never leaves the agent, and the agent's own credential is never used.

use common::names::PROXY_NAME;
use common::tunnel::{Identity, PROXIED};
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

    /// As whom a user of the hub comes in: by their own name if it is listed; else, where that is, as the one user who
    /// stands for everybody in a group that is listed.
    pub(super) fn whom(&self, of: &Identity) -> Result<Whom, NotLetIn> {
        let groups = of.groups().iter().cloned();
        let (groups, left_out) = groups.partition::<Vec<_>, _>(|group| self.groups.has(group));
        let user = of.user().to_owned();
        if self.users.has(&user) {
            return Ok(Whom {
                user,
                named: None,
                groups,
                left_out,
            });
        }
        if !self.users.has(PROXIED) {
            return Err(NotLetIn::User(user));
        }
        if groups.is_empty() {
            return Err(NotLetIn::Groups);
        }
        Ok(Whom {
            user: PROXIED.to_owned(),
            named: Some(user),
            groups,
            left_out,
        })
    }
}

/// Who somebody is in the member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Whom {
    /// The user.
    pub(super) user: String,
    /// Who that is by their own name, where it is another one.
    pub(super) named: Option<String>,
    /// Their groups there.
    pub(super) groups: Vec<String>,
    /// Those that stay behind.
    pub(super) left_out: Vec<String>,
}

impl Whom {
    /// Whether they still may be who they were, with each of the groups.
    pub(super) fn holds(&self, now: &Result<Self, NotLetIn>) -> bool {
        now.as_ref().is_ok_and(|now| {
            let mut groups = self.groups.iter();
            (&self.user, &self.named) == (&now.user, &now.named)
                && groups.all(|group| now.groups.contains(group))
        })
    }
}

/// Why somebody does not come in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotLetIn {
    /// The user is not listed.
    #[error(
        "its owner lets no user {0:?} of the hub in; `towline register --proxy-user +{0}`, run on it, does"
    )]
    User(String),
    /// Nor is any of their groups.
    #[error(
        "its owner lets groups of the hub in, and you are in none of them; `towline register --proxy-group +NAME`, run \
         on it, lets one more in"
    )]
    Groups,
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
        let whom = |listed: &Listed, user: &str, groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(|it| (*it).to_owned()).collect();
            listed.whom(&Identity::of(user, &groups).expect("fit"))
        };
        let ann = whom(&some, "ann", &["dev", "ops"]).expect("let in");
        assert_eq!((ann.user.as_str(), &ann.named), ("ann", &None));
        assert_eq!(
            (ann.groups, ann.left_out),
            (vec!["dev".to_owned()], vec!["ops".to_owned()])
        );
        for user in ["bob", "dev"] {
            let refused = whom(&some, user, &["dev"]).expect_err("not listed");
            assert_eq!(refused, NotLetIn::User(user.to_owned()));
        }
        let all = listed(json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]));
        let ann = whom(&all, "ann", &["dev", "ops"]).expect("let in");
        assert_eq!((ann.user.as_str(), ann.left_out.len()), ("ann", 0));
    }

    #[test]
    fn members_of_groups_come_as_one_user_who_is_nobody_else() {
        let some = listed(json!([
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users"], "resourceNames": [PROXIED, "ann"]},
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["groups"], "resourceNames": ["dev", "web"]},
        ]));
        let whom = |user: &str, groups: &[&str]| {
            let groups: Vec<String> = groups.iter().map(|it| (*it).to_owned()).collect();
            some.whom(&Identity::of(user, &groups).expect("fit"))
        };
        let bob = whom("bob", &["dev", "ops"]).expect("let in");
        assert_eq!(
            (bob.user.as_str(), bob.named.as_deref()),
            (PROXIED, Some("bob"))
        );
        assert_eq!(
            (bob.groups.clone(), bob.left_out.clone()),
            (vec!["dev".to_owned()], vec!["ops".to_owned()])
        );
        assert_eq!(whom("ann", &["dev"]).expect("let in").user, "ann");
        assert_eq!(whom("bob", &["ops"]), Err(NotLetIn::Groups));
        assert_eq!(whom("bob", &[]), Err(NotLetIn::Groups));
        // Nobody of the hub has that name, whatever the hub says.
        assert!(Identity::of(PROXIED, &["dev".to_owned()]).is_err());

        assert!(bob.holds(&whom("bob", &["dev", "web"])));
        assert!(
            !bob.holds(&whom("bob", &["web"])),
            "a group that is let in no more"
        );
        assert!(!bob.holds(&whom("carl", &["dev"])));
        assert!(!bob.holds(&whom("bob", &[])));
    }
}
