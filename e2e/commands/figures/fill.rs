//! A hub as it is with many clusters: Clusters with a status, their namespaces, and Works.

use anyhow::{Context as _, Result, ensure};
use common::names::EXECUTION_PREFIX;
use futures::stream::{self, TryStreamExt as _};
use http::Method;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::cell::Cell;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, interval_at};

use super::server::{Server, send};
use super::writers::make_namespace;
use crate::env::wait_for;

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
/// A real server is only as fast as many ask it at once; more than so many only wait.
const AT_ONCE: usize = 96;
const CONNECTIONS: usize = 12;
/// How often it is told how far it has come.
const TELL: Duration = Duration::from_secs(5);
/// For the slowest part on a machine that does other things as well.
const WITHIN: Duration = Duration::from_secs(900);
/// Clusters, their namespaces and what every namespace has: told apart from what is filled in.
const REST: &str = "filled-up";

/// Fills one server.
pub(in crate::commands) struct Fill {
    clients: Vec<Client>,
}

impl Fill {
    /// Over connections of its own.
    pub(in crate::commands) async fn new(server: &Server) -> Result<Self> {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(server.writer().await?);
        }
        Ok(Self { clients })
    }

    fn client(&self, number: usize) -> &Client {
        &self.clients[number % self.clients.len()]
    }

    /// So many Clusters, and Works that are spread over them.
    pub(in crate::commands) async fn clusters(&self, count: usize, works: usize) -> Result<()> {
        let status = &status();
        every("Clusters", count, async |number| {
            let client = self.client(number);
            let name = cluster_name(number);
            let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": name}, "spec": {"syncMode": "Pull", "id": format!("id-{name}")}});
            send(client, Method::POST, CLUSTERS, bytes(&cluster)).await?;
            let path = format!("{CLUSTERS}/{name}/status");
            send(client, Method::PATCH, &path, bytes(status)).await
        })
        .await?;
        self.wait_for_namespaces(count).await?;
        every("Works", works, async |number| {
            let namespace = format!("{EXECUTION_PREFIX}{}", cluster_name(number % count));
            let path = format!("/apis/work.karmada.io/v1alpha1/namespaces/{namespace}/works");
            send(
                self.client(number),
                Method::POST,
                &path,
                bytes(&work(number)),
            )
            .await
        })
        .await
    }

    async fn wait_for_namespaces(&self, count: usize) -> Result<()> {
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> =
            Api::all(self.client(0).clone());
        wait_for("the namespaces of all Clusters", WITHIN, async || {
            let all = namespaces.list_metadata(&ListParams::default()).await?;
            let ours = all.iter().filter(|n| {
                let name = n.metadata.name.as_deref().unwrap_or_default();
                name.starts_with(EXECUTION_PREFIX)
            });
            let there = ours.count();
            ensure!(there >= count, "{there} of {count} are there");
            Ok(true)
        })
        .await
    }

    /// ConfigMaps beside them, until there are so many objects.
    pub(in crate::commands) async fn up_to(&self, objects: usize) -> Result<()> {
        make_namespace(self.client(0), REST).await?;
        let mut there = 0;
        for (group, version, kind) in [
            ("", "v1", "ConfigMap"),
            ("", "v1", "Namespace"),
            ("", "v1", "ServiceAccount"),
            ("coordination.k8s.io", "v1", "Lease"),
            ("cluster.karmada.io", "v1alpha1", "Cluster"),
            ("work.karmada.io", "v1alpha1", "Work"),
        ] {
            there += self
                .count(&GroupVersionKind::gvk(group, version, kind))
                .await?;
        }
        let path = format!("/api/v1/namespaces/{REST}/configmaps");
        every(
            "ConfigMaps",
            objects.saturating_sub(there),
            async |number| {
                let map = map(&format!("m-{number}"), REST);
                send(self.client(number), Method::POST, &path, bytes(&map)).await
            },
        )
        .await
    }

    async fn count(&self, kind: &GroupVersionKind) -> Result<usize> {
        let api: Api<DynamicObject> =
            Api::all_with(self.client(0).clone(), &ApiResource::from_gvk(kind));
        let page = api.list_metadata(&ListParams::default().limit(1)).await;
        let page = page.with_context(|| format!("failed to count {}", kind.kind))?;
        let rest = page.metadata.remaining_item_count.unwrap_or_default();
        Ok(page.items.len() + usize::try_from(rest)?)
    }
}

/// Does something for each of so many numbers, some at a time, and tells how far it is.
async fn every(what: &str, count: usize, one: impl AsyncFn(usize) -> Result<()>) -> Result<()> {
    let (one, done) = (&one, &Cell::new(0_usize));
    let began = Instant::now();
    let tell = || {
        let (done, seconds) = (done.get(), began.elapsed().as_secs_f64());
        eprintln!("  {done} of {count} {what} after {seconds:.0} s");
    };
    let all = stream::iter((0..count).map(anyhow::Ok)).try_for_each_concurrent(
        AT_ONCE,
        |number| async move {
            let made = one(number).await;
            made.with_context(|| format!("failed to make number {number} of {count} {what}"))?;
            done.set(done.get() + 1);
            Ok(())
        },
    );
    let mut all = pin!(all);
    let mut looks = interval_at(began + TELL, TELL);
    loop {
        tokio::select! {
            biased;
            ended = &mut all => {
                tell();
                return ended;
            }
            _ = looks.tick() => tell(),
        }
    }
}

/// A cluster's name.
pub(in crate::commands) fn cluster_name(number: usize) -> String {
    format!("filled-{number:05}")
}

fn bytes(object: &Value) -> Vec<u8> {
    object.to_string().into_bytes()
}

/// What an agent says of a cluster with a few operators.
fn status() -> Value {
    let apis: Vec<Value> = (0..20)
        .map(|group| {
            let kinds = (0..8).map(|n| json!({"name": format!("r{n}s"), "kind": format!("R{n}")}));
            json!({"groupVersion": format!("g{group}.example.io/v1"),
                "resources": kinds.collect::<Vec<_>>()})
        })
        .collect();
    let own = [
        ("v1", "configmaps", "ConfigMap"),
        ("apps/v1", "deployments", "Deployment"),
    ];
    let own = own.map(|(version, name, kind)| json!({"groupVersion": version, "resources": [{"name": name, "kind": kind}]}));
    let apis = [apis, own.to_vec()].concat();
    json!({"status": {"kubernetesVersion": "v1.36.3", "apiEnablements": apis,
        "nodeSummary": {"totalNum": 3, "readyNum": 3},
        "conditions": [{"type": "Ready", "status": "True", "reason": "ClusterReady",
            "message": "cluster is healthy and ready to accept workloads",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

fn map(name: &str, namespace: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace}, "data": {"k": "v".repeat(200)}})
}

fn work(number: usize) -> Value {
    let name = format!("w-{number}");
    json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": name, "finalizers": [common::labels::WORK_FINALIZER]},
        "spec": {"workload": {"manifests": [map(&name, "default")]}}})
}
