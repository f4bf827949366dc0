//! Proves that the admission policies are in force: writes that RBAC allows and only a policy refuses.
//!
//! A policy works some 0.7 s after it is applied, and may be pruned by somebody's GitOps, so its
//! presence proves nothing. Two identities that no certificate and no token can ever have may patch one
//! empty ConfigMap; each tries it as a dry run, and must be told no by its policy's name.

use super::admission::{AGENTS_POLICY, TOKENS_POLICY};
use common::identity::{AGENTS_GROUP, BOOTSTRAP_GROUP};
use common::names::SYSTEM_NAMESPACE;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The ConfigMap that the proof tries to change.
pub const CONFIG_MAP: &str = "towline-policy-probe";
/// No cluster name holds a dot, so no agent's certificate has this name.
pub const AGENT_USER: &str = "system:karmada:agent:policy.probe";
/// A token's id has six characters, so no token has this name.
pub const TOKEN_USER: &str = "system:bootstrap:policy-probe";

const POLL: Duration = Duration::from_millis(200);
/// Behind one address there may be several API servers, each with its own view of the policies.
const REPEATS: usize = 3;

/// Why a policy is not proved.
#[derive(Debug, thiserror::Error)]
pub enum Unproven {
    /// The write went through.
    #[error("admission policy {policy:?} did not refuse a write that it must refuse")]
    NotInForce {
        /// The policy.
        policy: &'static str,
    },
    /// Something else refused the write, or it was not decided at all.
    #[error("failed to prove admission policy {policy:?} by an impersonated dry run")]
    Undecided {
        /// The policy.
        policy: &'static str,
        /// What came instead.
        #[source]
        source: Box<kube::Error>,
    },
}

/// Tries both policies once.
pub async fn prove(client: &Client) -> Result<(), Unproven> {
    attempt(client, AGENTS_POLICY, AGENT_USER, AGENTS_GROUP).await?;
    attempt(client, TOKENS_POLICY, TOKEN_USER, BOOTSTRAP_GROUP).await
}

/// Waits until the policies hold several times in a row.
pub async fn await_proof(client: &Client, patience: Duration) -> Result<(), Unproven> {
    let deadline = Instant::now() + patience;
    let mut held = 0;
    loop {
        match prove(client).await {
            Ok(()) => held += 1,
            Err(unproven) if Instant::now() >= deadline => return Err(unproven),
            Err(_) => held = 0,
        }
        if held == REPEATS {
            return Ok(());
        }
        sleep(POLL).await;
    }
}

async fn attempt(
    client: &Client,
    policy: &'static str,
    user: &str,
    group: &str,
) -> Result<(), Unproven> {
    let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps/{CONFIG_MAP}?dryRun=All");
    let request = http::Request::patch(path)
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .header("Impersonate-User", user)
        .header("Impersonate-Group", group)
        .body(br#"{"data":{"probe":"refuse-me"}}"#.to_vec())
        .expect("invariant: every part of the request is a constant");
    match client.request::<ConfigMap>(request).await {
        Ok(_) => Err(Unproven::NotInForce { policy }),
        Err(kube::Error::Api(status)) if refused_by(&status.message, policy) => Ok(()),
        Err(source) => Err(Unproven::Undecided {
            policy,
            source: Box::new(source),
        }),
    }
}

fn refused_by(message: &str, policy: &str) -> bool {
    message.contains(&format!("ValidatingAdmissionPolicy '{policy}'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::names::ClusterName;
    use common::token::BootstrapToken;

    #[test]
    fn nobody_can_have_the_identities_of_the_proof() {
        let cluster = AGENT_USER.strip_prefix(common::identity::AGENT_USER_PREFIX);
        assert!(ClusterName::parse(cluster.expect("an agent's prefix")).is_err());
        let id = TOKEN_USER.strip_prefix(common::identity::BOOTSTRAP_USER_PREFIX);
        let token = format!("{}.0123456789abcdef", id.expect("a token's prefix"));
        assert!(BootstrapToken::parse(&token).is_err());
    }

    #[test]
    fn only_the_named_policy_proves_anything() {
        let message = "configmaps \"towline-policy-probe\" is forbidden: ValidatingAdmissionPolicy \
                       'towline-agents' with binding 'towline-agents' denied request: no";
        assert!(refused_by(message, AGENTS_POLICY));
        assert!(!refused_by(message, TOKENS_POLICY));
        assert!(!refused_by("User cannot patch resource", AGENTS_POLICY));
    }
}
