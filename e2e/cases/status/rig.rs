//! What the cases share: agents with short thresholds, and looks at the Cluster and its Lease.

use anyhow::{Context as _, Result};
use common::api::cluster::Cluster;
use common::names::CLUSTER_NAMESPACE;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use std::path::Path;
use std::time::Duration;

use crate::env::{Fleet, Process, Scratch, wait_for_some, write_private};

/// Long enough for a machine that is busy with other labs.
pub(super) const SOON: Duration = Duration::from_secs(120);
/// Ticks and thresholds as short as a test can bear; the proportions are the defaults'.
pub(super) const SHORT: [&str; 4] = [
    "--cluster-status-update-frequency=1s",
    "--cluster-success-threshold=4s",
    "--cluster-failure-threshold=4s",
    "--cluster-lease-duration=8s",
];

/// Starts an agent by a new token for `cluster`; nothing is waited for.
pub(super) async fn start_agent(
    fleet: &Fleet,
    scratch: &Scratch,
    member: &Path,
    cluster: &str,
    flags: &[&str],
) -> Result<Process> {
    let token = fleet.token(&["--cluster", cluster]).await?;
    let file = scratch.join(format!("{cluster}.token"));
    write_private(&file, &token)?;
    let spec = fleet
        .towline
        .agent_spec(&format!("agent-{cluster}"), member, flags)?
        .args(["--hub", &fleet.address, "--cluster-name", cluster])
        .args(["--discovery-token-ca-cert-hash", &fleet.pin])
        .arg("--token-file")
        .arg(file);
    Process::start(spec)
}

/// Flags of an agent that serves nothing.
pub(super) fn quiet<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    let off = ["--health-probe-bind-address=0", "--metrics-bind-address=0"];
    off.into_iter().chain(flags.iter().copied()).collect()
}

/// Status and reason of a condition, as `True ClusterReady`.
pub(super) fn condition(cluster: &Cluster, type_: &str) -> String {
    match cluster.condition(type_) {
        Some(found) => format!("{} {}", found.status, found.reason),
        None => "none".to_owned(),
    }
}

/// Waits until a condition says `wanted`, and returns the Cluster that says so.
pub(super) async fn wait_condition(
    fleet: &Fleet,
    cluster: &str,
    type_: &str,
    wanted: &str,
) -> Result<Cluster> {
    let api: Api<Cluster> = Api::all(fleet.client().await?);
    wait_for_some(
        &format!("{type_}={wanted} of {cluster}"),
        SOON,
        async || {
            let found = api.get_opt(cluster).await?.context("no Cluster yet")?;
            let says = condition(&found, type_);
            anyhow::ensure!(says == wanted, "it says {says}");
            Ok(Some(found))
        },
    )
    .await
}

/// The Lease of a cluster.
pub(super) async fn lease(fleet: &Fleet, cluster: &str) -> Result<Lease> {
    let api: Api<Lease> = Api::namespaced(fleet.client().await?, CLUSTER_NAMESPACE);
    Ok(api.get(cluster).await?)
}

/// The next `count` different times of renewal, by the agent's own clock.
pub(super) async fn renewals(
    fleet: &Fleet,
    cluster: &str,
    count: usize,
) -> Result<Vec<chrono::DateTime<chrono::Utc>>> {
    let mut seen = Vec::new();
    while seen.len() < count {
        let what = format!("renewal {} of {cluster}", seen.len());
        let next = wait_for_some(&what, SOON, async || {
            let lease = lease(fleet, cluster).await?;
            let at = lease
                .spec
                .and_then(|s| common::time::from_micro_time(&s.renew_time?));
            Ok(at.filter(|at| seen.last() != Some(at)))
        });
        let next = next.await?;
        seen.push(next);
    }
    Ok(seen)
}

/// Takes a cluster off the hub without its agent.
pub(super) async fn forget(fleet: &Fleet, cluster: &str) -> Result<()> {
    fleet
        .cli(&["unregister", cluster, "--yes", "--force"])
        .await?
        .ok()?;
    Ok(())
}
