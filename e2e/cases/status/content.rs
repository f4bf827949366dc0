//! What the status says, and what the process serves: rows A14 and A35.

use anyhow::{Context as _, Result, ensure};
use common::api::cluster::Cluster;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::time::Duration;

use super::rig::{SHORT, SOON, condition, forget, quiet, start_agent, wait_condition};
use crate::env::{Scratch, free_port, http_get, shared, wait_for, wait_for_some};

/// A14: version, sorted APIs without subresources, counts and sums; sums move when pods do.
#[tokio::test(flavor = "multi_thread")]
async fn status_a14_content() -> Result<()> {
    let (lab, scratch) = (shared().await?, Scratch::new("status-a14")?);
    let member = lab.member().await?;
    let fleet = &lab.fleet;
    let agent = start_agent(fleet, &scratch, &member.kubeconfig, "a14", &quiet(&SHORT)).await?;
    let cluster = wait_condition(fleet, "a14", "CompleteResourceSummary", "True Complete").await?;
    ensure!(condition(&cluster, "Ready") == "True ClusterReady");
    ensure!(condition(&cluster, "CompleteAPIEnablements") == "True Complete");
    let status = cluster.status.context("a status")?;
    let client = member.client().await?;
    let version = client.apiserver_version().await?.git_version;
    ensure!(
        status.kubernetes_version.as_deref() == Some(version.as_str()),
        "{version}"
    );

    let versions: Vec<_> = status
        .api_enablements
        .iter()
        .map(|a| &a.group_version)
        .collect();
    ensure!(
        versions.is_sorted() && versions.iter().any(|v| *v == "apps/v1"),
        "{versions:?}"
    );
    for api in &status.api_enablements {
        let names: Vec<_> = api.resources.iter().map(|r| &r.name).collect();
        ensure!(
            names.is_sorted() && !names.iter().any(|n| n.contains('/')),
            "{names:?}"
        );
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let count = i64::try_from(nodes.list(&Default::default()).await?.items.len())?;
    let summary = status.node_summary.context("a node summary")?;
    ensure!(
        (summary.total_num, summary.ready_num) == (count, count),
        "{summary:?}"
    );
    let sums = status.resource_summary.context("sums")?;
    for name in ["cpu", "memory", "pods"] {
        ensure!(
            sums.allocatable.contains_key(name),
            "{:?}",
            sums.allocatable
        );
    }
    let graded: i64 = sums.allocatable_modelings.iter().map(|m| m.count).sum();
    ensure!(
        sums.allocatable_modelings.len() == 9 && graded == count,
        "{sums:?}"
    );
    let agent_info = status.agent.context("the agent itself")?;
    ensure!(agent_info.version.is_some() && agent_info.certificate_expiration_time.is_some());

    let clusters: Api<Cluster> = Api::all(fleet.client().await?);
    sums_follow(&clusters, &client).await?;
    drop(agent);
    forget(fleet, "a14").await?;
    scratch.passed();
    member.give_back();
    Ok(())
}

/// A pod that waits for a node is allocating; a node that comes is counted.
async fn sums_follow(clusters: &Api<Cluster>, client: &kube::Client) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "waits"},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{
                "name": "c", "image": "registry.invalid/c",
                "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}},
            }],
            "initContainers": [{
                "name": "i", "image": "registry.invalid/i",
                "resources": {"requests": {"cpu": "2", "memory": "1Mi"}},
            }],
        },
    }))?;
    pods.create(&PostParams::default(), &pod).await?;
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "never-ready"},
    });
    nodes
        .patch(
            "never-ready",
            &PatchParams::apply("test"),
            &Patch::Apply(&node),
        )
        .await?;
    // Sums alone are written at most once a minute.
    let within = SOON + Duration::from_secs(60);
    let sums = wait_for_some("the pod in the sums", within, async || {
        let status = clusters.get("a14").await?.status.context("a status")?;
        let sums = status.resource_summary.context("sums")?;
        Ok((!sums.allocating.is_empty()).then_some(sums))
    });
    let allocating = sums.await?.allocating;
    let value = |name: &str| allocating.get(name).map(|q| q.0.as_str());
    ensure!(
        (value("cpu"), value("memory"), value("pods")) == (Some("2"), Some("1Gi"), Some("1")),
        "{allocating:?}"
    );
    wait_for("the node in the counts", SOON, async || {
        let status = clusters.get("a14").await?.status.context("a status")?;
        let nodes = status.node_summary.context("a node summary")?;
        Ok(nodes.total_num == nodes.ready_num + 1)
    })
    .await?;
    nodes
        .delete("never-ready", &DeleteParams::default())
        .await?;
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    pods.delete("waits", &now).await?;
    Ok(())
}

/// A35: `/healthz` and `/metrics` under the reference's names. The ports are free ones here; that
/// 10357 and 8080 are the defaults is held by a unit test.
#[tokio::test(flavor = "multi_thread")]
async fn status_a35_health_and_metrics() -> Result<()> {
    let (lab, scratch) = (shared().await?, Scratch::new("status-a35")?);
    let member = lab.member().await?;
    let fleet = &lab.fleet;
    let (health, metrics) = (
        format!("127.0.0.1:{}", free_port()?),
        format!("127.0.0.1:{}", free_port()?),
    );
    let (health_flag, metrics_flag) = (
        format!("--health-probe-bind-address={health}"),
        format!("--metrics-bind-address={metrics}"),
    );
    let flags = [SHORT.as_slice(), &[&health_flag, &metrics_flag]].concat();
    let agent = start_agent(fleet, &scratch, &member.kubeconfig, "a35", &flags).await?;
    wait_condition(fleet, "a35", "CompleteResourceSummary", "True Complete").await?;
    for path in ["/healthz", "/livez", "/readyz"] {
        let (code, body) = http_get(&health, path).await?;
        ensure!(code == 200, "{path}: {code} {body}");
    }
    let (code, body) = http_get(&metrics, "/metrics").await?;
    ensure!(code == 200, "{code}");
    for name in [
        "cluster_ready_state",
        "cluster_node_number",
        "cluster_ready_node_number",
        "cluster_memory_allocatable_bytes",
        "cluster_cpu_allocatable_number",
        "cluster_pod_allocatable_number",
        "cluster_memory_allocated_bytes",
        "cluster_cpu_allocated_number",
        "cluster_pod_allocated_number",
        "cluster_sync_status_duration_seconds_count",
    ] {
        let line = format!("{name}{{member_cluster=\"a35\"}} ");
        ensure!(body.contains(&line), "{name} is missing in\n{body}");
    }
    ensure!(
        body.contains("towline_lease_renewal_seconds_count"),
        "{body}"
    );
    drop(agent);
    forget(fleet, "a35").await?;
    scratch.passed();
    member.give_back();
    Ok(())
}
