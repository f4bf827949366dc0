//! What a user does, and how long it takes until the last Work says so.

use anyhow::{Context as _, Result, bail};
use futures::stream::{self, TryStreamExt as _};
use http::Method;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

use super::board::Board;
use crate::commands::figures::fill::cluster_name;
use crate::commands::figures::server::{Server, send};

/// Connections of the client; each has one request under way.
const CLIENTS: usize = 16;
const POLICIES: &str = "propagationpolicies";
/// How long at most what was made before is waited for, how long each look lasts, and how many writes it may show:
/// Leases are renewed all the time.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_secs(1);
const AT_REST: u64 = 5;

/// What something took.
pub(super) struct Cost {
    /// From the first request to the last Work.
    pub(super) took: Duration,
    /// From the first request to the last answer, where there were many.
    pub(super) sent: Option<Duration>,
    /// Revisions of the store meanwhile.
    pub(super) writes: u64,
    /// Used meanwhile, by process.
    pub(super) processor: Vec<(String, Duration)>,
}

/// What a hub has used when something begins.
pub(super) struct Mark {
    began: Instant,
    revision: u64,
    processor: BTreeMap<String, Duration>,
}

impl Mark {
    /// As of now.
    pub(super) async fn set(server: &mut Server, client: &Client) -> Result<Self> {
        Ok(Self {
            processor: server.processor_time()?.into_iter().collect(),
            revision: revision(client).await?,
            began: Instant::now(),
        })
    }

    /// What was used since.
    pub(super) async fn cost(
        self,
        server: &mut Server,
        client: &Client,
        sent: Option<Instant>,
        ended: Instant,
    ) -> Result<Cost> {
        let used = server.processor_time()?.into_iter().map(|(name, all)| {
            let before = self.processor.get(&name).copied().unwrap_or_default();
            (name, all.saturating_sub(before))
        });
        Ok(Cost {
            took: ended - self.began,
            sent: sent.map(|sent| sent - self.began),
            processor: used.collect(),
            writes: revision(client).await?.saturating_sub(self.revision),
        })
    }
}

/// Waits until what was asked for before is done to its last write, which follows the last Work.
async fn settled(client: &Client) -> Result<()> {
    let mut before = revision(client).await?;
    let deadline = Instant::now() + SETTLED_WITHIN;
    while Instant::now() < deadline {
        sleep(LOOK).await;
        let now = revision(client).await?;
        if now.saturating_sub(before) <= AT_REST {
            return Ok(());
        }
        before = now;
    }
    bail!("the hub goes on writing")
}

async fn revision(client: &Client) -> Result<u64> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace"));
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
    let page = all.list_metadata(&ListParams::default().limit(1)).await?;
    let version = page.metadata.resource_version.context("a list's version")?;
    Ok(version.parse()?)
}

/// Somebody with policies and templates.
pub(super) struct Rounds {
    clients: Vec<Client>,
    board: Board,
    name: &'static str,
    number: usize,
}

impl Rounds {
    /// Connects; `name` is what its namespaces begin with.
    pub(super) async fn begin(server: &Server, name: &'static str) -> Result<Self> {
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            clients.push(server.writer().await?);
        }
        Ok(Self {
            board: Board::follow(server.writer().await?).await?,
            clients,
            name,
            number: 0,
        })
    }

    pub(super) fn board(&self) -> &Board {
        &self.board
    }

    pub(super) fn client(&self) -> &Client {
        &self.clients[0]
    }

    /// A namespace of its own for what is done next.
    pub(super) async fn namespace(&mut self) -> Result<String> {
        self.number += 1;
        let name = format!("{}-{}", self.name, self.number);
        let skip = json!({"namespace.karmada.io/skip-auto-propagation": "true"});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": skip}});
        self.post("/api/v1/namespaces", &namespace).await?;
        Ok(name)
    }

    /// Makes an object.
    pub(super) async fn post(&self, path: &str, object: &Value) -> Result<()> {
        let body = object.to_string().into_bytes();
        send(self.client(), Method::POST, path, body).await
    }

    /// Makes a policy for all ConfigMaps and Deployments of a namespace.
    pub(super) async fn policy(&self, namespace: &str, name: &str, spec: &Value) -> Result<()> {
        let path = policies(namespace);
        let policy = json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
            "metadata": {"name": name}, "spec": spec});
        self.post(&path, &policy).await
    }

    /// Makes ConfigMaps, some at a time, and says when the last one was there.
    pub(super) async fn maps(
        &self,
        namespace: &str,
        count: usize,
        labels: &(impl Fn(usize) -> Value + Sync),
    ) -> Result<Instant> {
        let path = &format!("/api/v1/namespaces/{namespace}/configmaps");
        let all = stream::iter((0..count).map(anyhow::Ok));
        all.try_for_each_concurrent(CLIENTS, |number| async move {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("cm-{number}"), "labels": labels(number)}, "data": {"k": "v".repeat(200)}});
            let client = &self.clients[number % CLIENTS];
            send(client, Method::POST, path, map.to_string().into_bytes()).await
        })
        .await?;
        Ok(Instant::now())
    }

    /// So many templates come to so many clusters each.
    pub(super) async fn place(
        &mut self,
        server: &mut Server,
        templates: usize,
        clusters: usize,
    ) -> Result<Cost> {
        let namespace = self.namespace().await?;
        self.policy(&namespace, "all", &everything(&names(0, clusters)))
            .await?;
        let mark = Mark::set(server, self.client()).await?;
        let sent = self.maps(&namespace, templates, &|_| json!({})).await?;
        let all = templates * clusters;
        let there = self.board.wait(&namespace, "there", all, |it| !it.leaving);
        let ended = there.await?;
        mark.cost(server, self.client(), Some(sent), ended).await
    }

    /// A Deployment on so many clusters gets another image.
    pub(super) async fn image(&mut self, server: &mut Server, clusters: usize) -> Result<Cost> {
        let namespace = self.namespace().await?;
        self.policy(&namespace, "all", &everything(&names(0, clusters)))
            .await?;
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
        self.post(&path, &deployment(1)).await?;
        let board = &self.board;
        let there = board.wait(&namespace, "there", clusters, |it| !it.leaving);
        there.await?;
        settled(self.client()).await?;
        let mark = Mark::set(server, self.client()).await?;
        let body = json!({"spec": deployment(2)["spec"]})
            .to_string()
            .into_bytes();
        send(self.client(), Method::PATCH, &format!("{path}/web"), body).await?;
        let changed = board.wait(&namespace, "changed", clusters, |it| it.generation > 1);
        let ended = changed.await?;
        mark.cost(server, self.client(), None, ended).await
    }

    /// So many templates move from one cluster to another because their policy says so.
    pub(super) async fn edit(&mut self, server: &mut Server, templates: usize) -> Result<Cost> {
        let namespace = self.namespace().await?;
        let [from, to] = [names(0, 1), names(1, 1)];
        self.policy(&namespace, "all", &everything(&from)).await?;
        self.maps(&namespace, templates, &|_| json!({})).await?;
        let board = &self.board;
        let there = board.wait(&namespace, "there", templates, |it| !it.leaving);
        there.await?;
        settled(self.client()).await?;
        let mark = Mark::set(server, self.client()).await?;
        let body = json!({"spec": {"placement": {"clusterAffinity": {"clusterNames": to}}}});
        let path = format!("{}/all", policies(&namespace));
        send(
            self.client(),
            Method::PATCH,
            &path,
            body.to_string().into_bytes(),
        )
        .await?;
        let new = board.wait(&namespace, "in their new cluster", templates, |it| {
            it.cluster == to[0] && !it.leaving
        });
        let new = new.await?;
        let old = board.wait(&namespace, "on their way out", templates, |it| {
            it.cluster == from[0] && it.leaving
        });
        let ended = new.max(old.await?);
        mark.cost(server, self.client(), None, ended).await
    }
}

/// Names of clusters, from the first on.
pub(super) fn names(first: usize, count: usize) -> Vec<String> {
    (first..first + count).map(cluster_name).collect()
}

fn policies(namespace: &str) -> String {
    format!("/apis/policy.karmada.io/v1alpha1/namespaces/{namespace}/{POLICIES}")
}

fn everything(clusters: &[String]) -> Value {
    json!({"placement": {"clusterAffinity": {"clusterNames": clusters}}, "resourceSelectors": [
        {"apiVersion": "v1", "kind": "ConfigMap"}, {"apiVersion": "apps/v1", "kind": "Deployment"}]})
}

fn deployment(image: u32) -> Value {
    let labels = json!({"app": "web"});
    let container = json!({"name": "web", "image": format!("example.org/web:{image}")});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}})
}
