//! Tries what registration needs, on the API server itself, and names what is missing.
//!
//! Nothing here reads a flag: providers hide them. Each probe does what an agent, a token or the hub
//! will do, with objects that are worth nothing, expire in minutes and are removed at once: a bootstrap
//! token of a group without rights, and a certificate for a user without rights.

mod certificate;
mod token;

use super::proof;
use common::client::{self, ClientOptions, Credentials, HubTarget};
use common::env::Env;
use kube::Client;
use std::time::Duration;

/// How long controllers of the API server may take before they count as missing.
const PATIENCE: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(200);

/// What was found about one need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The need, in a few words.
    pub need: &'static str,
    /// What is missing; `Ok` when nothing is.
    pub verdict: Result<(), Missing>,
}

/// A need that is not met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What was seen.
    pub seen: String,
    /// What to change.
    pub hint: String,
}

impl Missing {
    fn new(seen: impl Into<String>, hint: &str) -> Self {
        Self {
            seen: seen.into(),
            hint: hint.to_owned(),
        }
    }

    fn error(attempt: &str, error: &(dyn std::error::Error + 'static), hint: &str) -> Self {
        Self::new(format!("{attempt}: {}", common::errors::chain(error)), hint)
    }
}

/// How the probes reach the hub: as its administrator, and as somebody else.
#[derive(Clone)]
pub struct Reach {
    /// The administrator's client.
    pub client: Client,
    /// Address and CA; its credentials are replaced.
    pub target: HubTarget,
}

impl Reach {
    /// A client of the same hub for somebody else.
    fn somebody(&self, credentials: Credentials) -> Result<Client, client::Error> {
        let target = HubTarget {
            credentials,
            ..self.target.clone()
        };
        client::hub_client(&target, &ClientOptions::new("init probe"), &Env::system())
    }
}

/// Tries everything at once.
pub async fn run(reach: &Reach, clock: &dyn common::time::Clock) -> Vec<Finding> {
    let (policies, (tokens, signature), certificates, cleaner) = futures::join!(
        policies(&reach.client),
        token::probe(reach, clock),
        certificate::probe(reach),
        token::cleaner(&reach.client, clock),
    );
    [
        ("admission policies in force", policies),
        ("bootstrap tokens", tokens),
        ("signed cluster-info", signature),
        ("client certificates", certificates),
        ("removal of expired tokens", cleaner),
    ]
    .map(|(need, verdict)| Finding { need, verdict })
    .into()
}

async fn policies(client: &Client) -> Result<(), Missing> {
    proof::await_proof(client, PATIENCE).await.map_err(|unproven| {
        Missing::new(
            common::errors::chain(&unproven).to_string(),
            "Check that nothing removes the ValidatingAdmissionPolicies named towline-*, and that \
             this user may impersonate users and groups.",
        )
    })
}
