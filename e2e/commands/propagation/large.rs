//! A hub with many clusters and many templates: what it keeps, a cluster that is lost, and a restart.

use anyhow::{Result, ensure};
use http::Method;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, interval};

use super::rounds::{Cost, Mark, Rounds, names};
use crate::commands::figures::fill::cluster_name;
use crate::commands::figures::server::{Ends, Server, send};

/// Policies among which the templates are shared: each has its share of the clusters.
const POLICIES: usize = 10;
/// Clusters that a template is on.
const EACH: usize = 3;
const GROUP: &str = "group";
/// How long a decision is waited for, and how often it is looked for.
const DECIDED_WITHIN: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(50);

/// How long after its end a hub came back to what it does.
pub(super) struct Restart {
    /// A new template's clusters were chosen.
    pub(super) decided: Duration,
    /// It had its Works.
    pub(super) written: Duration,
}

/// What the hub was filled with.
pub(super) struct Large {
    rounds: Rounds,
    namespace: String,
    templates: usize,
    /// Clusters of each policy.
    share: usize,
}

impl Large {
    /// Places so many templates, and waits until every Work is there.
    pub(super) async fn fill(server: &Server, templates: usize, clusters: usize) -> Result<Self> {
        let share = clusters / POLICIES;
        ensure!(
            share > EACH,
            "a large fleet has more than {} clusters",
            POLICIES * EACH
        );
        let mut rounds = Rounds::begin(server, "large").await?;
        let namespace = rounds.namespace().await?;
        for group in 0..POLICIES {
            let one = spec(group, &names(group * share, share));
            rounds
                .policy(&namespace, &format!("g{group}"), &one)
                .await?;
        }
        let labels = |number: usize| json!({GROUP: format!("g{}", number % POLICIES)});
        let filled = Self {
            namespace,
            templates,
            share,
            rounds,
        };
        filled
            .rounds
            .maps(&filled.namespace, templates, &labels)
            .await?;
        filled.wait(templates * EACH).await?;
        Ok(filled)
    }

    async fn wait(&self, works: usize) -> Result<Instant> {
        let board = self.rounds.board();
        let there = board.wait(&self.namespace, "there", works, |it| !it.leaving);
        there.await
    }

    /// How many templates have a copy in the cluster that is lost.
    pub(super) fn there(&self) -> usize {
        self.templates / POLICIES
    }

    /// A cluster is lost: each of its templates gets a copy elsewhere.
    pub(super) async fn lose(&self, server: &mut Server) -> Result<Cost> {
        let client = self.rounds.client();
        let lost = cluster_name(0);
        let mark = Mark::set(server, client).await?;
        let taint =
            json!({"spec": {"taints": [{"key": "example.org/lost", "effect": "NoExecute"}]}});
        let path = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{lost}");
        send(client, Method::PATCH, &path, taint.to_string().into_bytes()).await?;
        // The copy that is lost stays until another is healthy.
        let ended = self.wait(self.templates * EACH + self.there()).await?;
        mark.cost(server, client, None, ended).await
    }

    /// The hub ends and comes back, and a template is made then.
    pub(super) async fn restart(&self, server: &mut Server, how: Ends) -> Result<Restart> {
        let began = Instant::now();
        server.decide_again(how).await?;
        let name = match how {
            Ends::InOrder => "anew",
            Ends::Killed => "again",
        };
        let mut rounds = Rounds::begin(server, name).await?;
        let namespace = rounds.namespace().await?;
        rounds
            .policy(&namespace, "all", &spec(0, &names(self.share, self.share)))
            .await?;
        rounds
            .maps(&namespace, 1, &|_| json!({GROUP: "g0"}))
            .await?;
        let decided = decided(rounds.client(), &namespace).await?;
        let there = rounds
            .board()
            .wait(&namespace, "there", EACH, |it| !it.leaving);
        Ok(Restart {
            decided: decided - began,
            written: there.await? - began,
        })
    }
}

/// Waits until the only binding of a namespace says which clusters its template is for.
async fn decided(client: &Client, namespace: &str) -> Result<Instant> {
    let deadline = Instant::now() + DECIDED_WITHIN;
    let kind = GroupVersionKind::gvk("work.karmada.io", "v1alpha2", "ResourceBinding");
    let kind = ApiResource::from_gvk(&kind);
    let bindings: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &kind);
    let mut looks = interval(LOOK);
    loop {
        looks.tick().await;
        let found = bindings.list(&ListParams::default()).await?.items;
        let mut clusters = found
            .iter()
            .filter_map(|it| it.data["spec"]["clusters"].as_array());
        if clusters.any(|it| it.len() == EACH) {
            return Ok(Instant::now());
        }
        ensure!(
            Instant::now() < deadline,
            "nothing was decided within {DECIDED_WITHIN:?}"
        );
    }
}

/// Three of these clusters, for one group of ConfigMaps.
fn spec(group: usize, clusters: &[String]) -> Value {
    let selector = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "labelSelector": {"matchLabels": {GROUP: format!("g{group}")}}});
    json!({"resourceSelectors": [selector], "placement": {
        "clusterAffinity": {"clusterNames": clusters},
        "spreadConstraints": [{"spreadByField": "cluster", "minGroups": EACH, "maxGroups": EACH}]}})
}
