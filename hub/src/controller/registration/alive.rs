//! Whether all agents of a token have shown a sign of life.
//!
//! A spent token goes when they have, and each of its requests looks until then: thousands of requests, each by an agent
//! of its own. Whoever looks begins with the agent that the last one found silent, so that one that never comes costs
//! each look one read, and not one for each agent.

use super::Error;
use crate::token_secret::{Reservation, Token};
use common::lock::lock;
use common::names::CLUSTER_NAMESPACE;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use std::collections::HashMap;
use std::sync::Mutex;

/// Of so many tokens it is known. It decides nothing and saves reads, so it may be forgotten.
const TOKENS: usize = 1_000;

/// The cluster of each token whose agent was silent when somebody looked last.
#[derive(Debug, Default)]
pub(super) struct Silent(Mutex<HashMap<String, String>>);

impl Silent {
    /// All uses of a token, in the order in which to look at them.
    fn in_turn<'a>(&self, token: &'a Token) -> impl Iterator<Item = &'a Reservation> + use<'a> {
        let uses = &token.reservations;
        let first = lock(&self.0)
            .get(&token.id)
            .and_then(|silent| uses.iter().position(|used| used.cluster == *silent));
        let (before, after) = uses.split_at(first.unwrap_or(0));
        after.iter().chain(before)
    }

    /// Notes whose agent is silent, if one is.
    fn note(&self, token: &Token, cluster: Option<&str>) {
        let mut silent = lock(&self.0);
        let Some(cluster) = cluster else {
            silent.remove(&token.id);
            return;
        };
        if silent.len() >= TOKENS && !silent.contains_key(&token.id) {
            silent.clear();
        }
        silent.insert(token.id.clone(), cluster.to_owned());
    }
}

/// Whether the Lease of every registration by this token was renewed since `csr` was signed.
///
/// "Since" is the API server's own order of writes: the time in a Lease is an agent's word.
pub(super) async fn are_alive(
    client: &Client,
    silent: &Silent,
    token: &Token,
    csr: &CertificateSigningRequest,
) -> Result<bool, Error> {
    let leases = ApiResource::erase::<Lease>(&());
    let leases: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), CLUSTER_NAMESPACE, &leases);
    let revision = |version: Option<&String>| version.and_then(|v| v.parse::<u64>().ok());
    let signed = revision(csr.metadata.resource_version.as_ref());
    for used in silent.in_turn(token) {
        let read = leases.get_opt(&used.cluster).await;
        // A Lease that is gone has nobody waiting for it.
        let Some(lease) = read.map_err(Error::request("read Lease", &used.cluster))? else {
            continue;
        };
        let renewed = !lease.data["spec"]["renewTime"].is_null()
            && revision(lease.metadata.resource_version.as_ref()) > signed;
        if !renewed {
            silent.note(token, Some(&used.cluster));
            return Ok(false);
        }
    }
    silent.note(token, None);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token_secret::Placement;
    use kube::client::Body;
    use serde_json::json;
    use std::collections::BTreeSet;
    use std::sync::Arc;

    const USES: usize = 40;
    const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases/";

    fn token(id: &str) -> Token {
        let used = |number: usize| Reservation {
            registration: format!("r{number}"),
            cluster: format!("m{number}"),
            cluster_id: format!("id-{number}"),
        };
        Token {
            id: id.to_owned(),
            uid: "t".to_owned(),
            resource_version: "1".to_owned(),
            created: chrono::DateTime::UNIX_EPOCH,
            expires: None,
            cluster: None,
            replace: false,
            uses: USES,
            placement: Placement::default(),
            reservations: (0..USES).map(used).collect(),
        }
    }

    /// An API server whose Leases were all renewed lately, but for those of some clusters.
    #[derive(Clone, Default)]
    struct Played {
        silent: Arc<Mutex<BTreeSet<String>>>,
        reads: Arc<Mutex<usize>>,
    }

    impl Played {
        fn client(&self) -> Client {
            let Self { silent, reads } = self.clone();
            let service = tower::service_fn(move |request: http::Request<Body>| {
                let cluster = request.uri().path().trim_start_matches(PATH);
                *lock(&reads) += 1;
                // The request was signed at 5.
                let version = if lock(&silent).contains(cluster) {
                    "4"
                } else {
                    "6"
                };
                let lease = json!({"metadata": {"name": cluster, "resourceVersion": version},
                    "spec": {"renewTime": "t"}});
                let body = Body::from(lease.to_string().into_bytes());
                async move { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
            });
            Client::new(service, "default")
        }

        fn are_silent(&self, clusters: &[&str]) {
            *lock(&self.silent) = clusters.iter().map(|&name| name.to_owned()).collect();
        }

        fn reads(&self) -> usize {
            std::mem::take(&mut *lock(&self.reads))
        }
    }

    #[tokio::test]
    async fn one_silent_agent_costs_each_look_one_read() {
        let (played, known) = (Played::default(), Silent::default());
        let (client, token) = (played.client(), token("abcdef"));
        let csr = json!({"metadata": {"resourceVersion": "5"},
            "spec": {"request": "", "signerName": "s"}});
        let csr: CertificateSigningRequest = serde_json::from_value(csr).expect("a request");
        let look = async || {
            let alive = are_alive(&client, &known, &token, &csr).await;
            alive.expect("it is read")
        };
        played.are_silent(&["m30"]);
        for _ in 0..USES {
            assert!(!look().await);
        }
        assert_eq!(played.reads(), 31 + (USES - 1), "found once");
        // It comes, and others are silent: behind it, and before it.
        played.are_silent(&["m35"]);
        assert!(!look().await && !look().await);
        assert_eq!(played.reads(), 6 + 1);
        played.are_silent(&["m2"]);
        assert!(!look().await);
        assert_eq!(played.reads(), 5 + 3);
        // All have come, and all are looked at before that is believed.
        played.are_silent(&[]);
        assert!(look().await);
        assert_eq!(played.reads(), USES);
        assert!(lock(&known.0).is_empty());
    }

    #[test]
    fn what_is_known_is_bounded() {
        let known = Silent::default();
        for number in 0..=TOKENS {
            known.note(&token(&number.to_string()), Some("m1"));
        }
        assert_eq!(lock(&known.0).len(), 1);
        let token = token("elsewhere");
        known.note(&token, Some("not one of its own"));
        let order: Vec<_> = known.in_turn(&token).collect();
        assert_eq!(order, token.reservations.iter().collect::<Vec<_>>());
    }
}
