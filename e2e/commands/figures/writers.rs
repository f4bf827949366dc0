//! Rounds of writes by clients that each have a connection of their own and wait for every answer.

use anyhow::{Context as _, Result};
use common::names::{CLUSTER_NAMESPACE, EXECUTION_PREFIX};
use common::time::{Clock as _, SystemClock};
use futures::future::try_join_all;
use http::Method;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

use super::server::{Server, send};
use crate::commands::latency::Latency;
use crate::env::wait_for;

/// Leases that are renewed, each by one of the writers.
const LEASES: usize = 1000;
/// About the size of a Work of one small manifest.
const DATA: usize = 900;

/// For the slowest server.
const GONE_WITHIN: Duration = Duration::from_secs(600);

/// What a round came to.
pub(in crate::commands) struct Round {
    latencies: Vec<Duration>,
    took: Duration,
}

impl Round {
    /// Writes a second.
    pub(in crate::commands) fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.took.as_secs_f64()
    }

    /// How long one took.
    pub(in crate::commands) fn latency(&self) -> Latency {
        Latency::of(&self.latencies)
    }
}

/// Creates ConfigMaps for so long.
pub(in crate::commands) async fn creates(
    server: &Server,
    count: usize,
    within: Duration,
) -> Result<Round> {
    let data = "v".repeat(DATA);
    create(server, count, within, "/api/v1", "configmaps", |name| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"k": data}})
    })
    .await
}

/// Creates Works for so long, each of a Deployment as the hub renders it, but where no member looks.
pub(in crate::commands) async fn creates_works(
    server: &Server,
    count: usize,
    within: Duration,
) -> Result<Round> {
    let api = "/apis/work.karmada.io/v1alpha1";
    create(server, count, within, api, "works", |name| {
        let labels = json!({"app": name});
        let container = json!({"name": "c", "image": "registry.example.com/app:1"});
        json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {
                "name": name,
                "labels": {"example.com/permanent-id": "11111111-2222-3333-4444-555555555555"},
                "annotations": {"example.com/name": name, "example.com/namespace": "default"},
            },
            "spec": {"workload": {"manifests": [{
                "apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": name, "namespace": "default", "labels": labels},
                "spec": {"replicas": 2, "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}},
            }]}},
        })
    })
    .await
}

async fn create(
    server: &Server,
    count: usize,
    within: Duration,
    api: &str,
    plural: &str,
    object: impl Fn(&str) -> Value,
) -> Result<Round> {
    let namespace = namespace_of(count);
    make_namespace(&server.writer().await?, &namespace).await?;
    let path = format!("{api}/namespaces/{namespace}/{plural}");
    round(server, count, within, async |client, writer, number| {
        let body = object(&format!("c-{writer}-{number}"));
        send(client, Method::POST, &path, body.to_string().into_bytes()).await
    })
    .await
}

/// As of a cluster: Works are refused elsewhere.
fn namespace_of(count: usize) -> String {
    format!("{EXECUTION_PREFIX}creates-{count}")
}

/// Deletes what a round of creations left, a hundred thousand objects perhaps, and waits until it is gone.
pub(in crate::commands) async fn clear(server: &Server, count: usize) -> Result<()> {
    let client = server.writer().await?;
    let namespaces: Api<Namespace> = Api::all(client);
    let name = namespace_of(count);
    let deleted = namespaces.delete(&name, &DeleteParams::default()).await;
    deleted.with_context(|| format!("failed to delete namespace {name}"))?;
    wait_for(&format!("the end of {name}"), GONE_WITHIN, async || {
        Ok(namespaces.get_metadata_opt(&name).await?.is_none())
    })
    .await
}

/// Renews Leases for so long, as agents do.
pub(in crate::commands) async fn renewals(
    server: &Server,
    count: usize,
    within: Duration,
) -> Result<Round> {
    let client = server.writer().await?;
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{CLUSTER_NAMESPACE}/leases");
    let name = |number: usize| format!("figures-{count}-{number}");
    for number in 0..LEASES {
        let name = name(number);
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40,
                "renewTime": "2026-01-01T00:00:00.000000Z"}});
        send(&client, Method::POST, &path, lease.to_string().into_bytes()).await?;
    }
    let each = (LEASES / count).max(1);
    round(server, count, within, async |client, writer, number| {
        let name = name((writer + number % each * count) % LEASES);
        let at = SystemClock
            .now()
            .to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        let body = json!({"spec": {"renewTime": at}}).to_string().into_bytes();
        send(client, Method::PATCH, &format!("{path}/{name}"), body).await
    })
    .await
}

async fn round(
    server: &Server,
    count: usize,
    within: Duration,
    write: impl AsyncFn(&Client, usize, usize) -> Result<()>,
) -> Result<Round> {
    let clients = try_join_all((0..count).map(|_| async {
        let client = server.writer().await?;
        // Connected before the clock runs.
        send(&client, Method::GET, "/version", Vec::new()).await?;
        anyhow::Ok(client)
    }))
    .await?;
    let began = Instant::now();
    let write = &write;
    let all = clients
        .iter()
        .enumerate()
        .map(|(writer, client)| async move {
            let mut latencies = Vec::new();
            while began.elapsed() < within {
                let sent = Instant::now();
                write(client, writer, latencies.len()).await?;
                latencies.push(sent.elapsed());
            }
            anyhow::Ok(latencies)
        });
    let latencies = try_join_all(all).await?.concat();
    Ok(Round {
        latencies,
        took: began.elapsed(),
    })
}

/// Makes a namespace.
pub(in crate::commands) async fn make_namespace(client: &Client, name: &str) -> Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let body = body.to_string().into_bytes();
    send(client, Method::POST, "/api/v1/namespaces", body).await
}
