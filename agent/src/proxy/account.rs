//! As whom requests are passed on: by a ServiceAccount that may act as the users and groups that the member's owner
//! lists, and may do nothing else. Its token never leaves the agent, and the agent's own credential is never used.

use super::listed::Listed;
use common::names::{PROXY_NAME, USERS_NAMESPACE};
use http::HeaderValue;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule, Role};
use kube::api::PostParams;
use kube::{Api, Client};
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

/// How long a failure is told to whoever asks, before it is tried again: those who waited for it ask one after the other.
const FAILED: Duration = Duration::from_secs(1);

/// Why nobody can be acted as.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Error {
    /// No token.
    #[error(
        "failed to get a token for ServiceAccount {PROXY_NAME:?} (`towline register`, run on the cluster, makes it)"
    )]
    Token(#[source] Arc<kube::Error>),
    /// A token that cannot be sent.
    #[error("the API server gave a token that no header may have")]
    Unusable,
    /// No role.
    #[error(
        "failed to get ClusterRole {PROXY_NAME:?}, which lists who may be acted as (`towline register` makes it)"
    )]
    Role(#[source] Arc<kube::Error>),
    /// No role in the namespace of users.
    #[error(
        "failed to get Role \"{USERS_NAMESPACE}/{PROXY_NAME}\", which says which ServiceAccounts may be acted as"
    )]
    Accounts(#[source] Arc<kube::Error>),
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
    of_users: Api<Role>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    token: Option<(HeaderValue, Instant)>,
    listed: Option<(Arc<Listed>, Instant)>,
    failed: Option<(Error, Instant)>,
}

impl Account {
    /// That of the agent in `namespace`.
    pub(super) fn new(member: Client, namespace: &str) -> Self {
        Self {
            accounts: Api::namespaced(member.clone(), namespace),
            roles: Api::all(member.clone()),
            of_users: Api::namespaced(member, USERS_NAMESPACE),
            state: Mutex::default(),
        }
    }

    /// What holds now.
    pub(super) async fn acting(&self) -> Result<Acting, Error> {
        let mut state = self.state.lock().await;
        if let Some((error, until)) = &state.failed
            && Instant::now() < *until
        {
            return Err(error.clone());
        }
        let acting = self.look(&mut state).await;
        state.failed = acting
            .as_ref()
            .err()
            .map(|error| (error.clone(), Instant::now() + FAILED));
        acting
    }

    async fn look(&self, state: &mut State) -> Result<Acting, Error> {
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
                let (everywhere, of_accounts) = self.rules().await?;
                let listed = Arc::new(Listed::of(&everywhere, &of_accounts));
                state.listed = Some((listed.clone(), now + READ));
                listed
            }
        };
        Ok(Acting { bearer, listed })
    }

    /// The rules of both roles. Without them nobody is let in.
    async fn rules(&self) -> Result<(Vec<PolicyRule>, Vec<PolicyRule>), Error> {
        let (everywhere, of_accounts) = tokio::join!(
            self.roles.get_opt(PROXY_NAME),
            self.of_users.get_opt(PROXY_NAME)
        );
        let everywhere = everywhere.map_err(|error| Error::Role(Arc::new(error)))?;
        let of_accounts = match of_accounts {
            // An installation that knows nothing of it gives no right to read it.
            Err(kube::Error::Api(status)) if status.code == 403 => None,
            read => read.map_err(|error| Error::Accounts(Arc::new(error)))?,
        };
        Ok((
            everywhere.and_then(|role| role.rules).unwrap_or_default(),
            of_accounts.and_then(|role| role.rules).unwrap_or_default(),
        ))
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
            .map_err(|error| Error::Token(Arc::new(error)))?;
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
    use crate::testing::{json, service};
    use futures::future::join_all;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Each would wait for as long as the first did, after the one before it.
    #[tokio::test(start_paused = true)]
    async fn who_waits_for_what_fails_is_told_with_the_first() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let member = service(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            async {
                tokio::time::sleep(Duration::from_secs(30)).await;
                let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": 503, "reason": "ServiceUnavailable", "message": "away"});
                json(503, &status)
            }
        });
        let account = Account::new(member, "towline-system");
        let since = Instant::now();
        let all = join_all((0..20).map(|_| account.acting())).await;
        assert!(all.iter().all(Result::is_err));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert_eq!(since.elapsed().as_secs(), 30);
        tokio::time::sleep(2 * FAILED).await;
        assert!(account.acting().await.is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
