//! Rows A4 and A10 of the behaviour that agents of the reference show; A2 and A3 stand among the
//! errors of registration.

use anyhow::{Context as _, Result, ensure};
use common::api::cluster::{Cluster, READY};
use common::names::CLUSTER_NAMESPACE;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use kube::api::Api;
use std::time::Duration;
use tokio::time::Instant;

use super::registration_fire::hand_over;
use crate::env::{
    Fleet, Lab, LabOptions, Parts, Process, Scratch, Seat, Wish, shared, wait_for, wait_for_some,
};

const WITHIN: Duration = Duration::from_secs(150);

/// A4: a restarted agent of the same name and id is accepted, and nothing of its Cluster but the
/// status is written.
#[tokio::test(flavor = "multi_thread")]
async fn a4_a_restart_is_accepted_without_a_write() -> Result<()> {
    let scratch = Scratch::new("rows-a4")?;
    let shared = shared().await?;
    let fleet = &shared.fleet;
    let member = shared.member().await?;
    let token = fleet.token(&["--cluster", "a4"]).await?;
    let seat = Seat::new(scratch.path(), "agent")?;
    let wish = Wish::new(fleet, &member.kubeconfig, "a4", &token);
    let mut agent = seat.start(&wish, &[])?;
    fleet.wait_ready("a4", "True", WITHIN).await?;
    let hub = fleet.client().await?;
    let clusters: Api<Cluster> = Api::all(hub.clone());
    let leases: Api<Lease> = Api::namespaced(hub, CLUSTER_NAMESPACE);
    let beat = async || Ok::<_, anyhow::Error>(leases.get("a4").await?.resource_version());
    // What the hub's own controllers still do to a new Cluster is done when it is Ready and untainted.
    wait_for("a Cluster without taints", WITHIN, async || {
        Ok(clusters.get("a4").await?.spec.taints.is_empty())
    })
    .await?;
    let before = clusters.get("a4").await?;
    let stored = seat.stored();

    agent.restart()?;
    let last = beat().await?;
    wait_for("a heartbeat", WITHIN, async || Ok(beat().await? != last)).await?;
    fleet.wait_ready("a4", "True", WITHIN).await?;
    let after = clusters.get("a4").await?;
    ensure!(
        after.metadata.generation == before.metadata.generation,
        "the spec was written"
    );
    ensure!(after.annotations() == before.annotations() && after.uid() == before.uid());
    ensure!(seat.stored() == stored, "the registration was stored anew");

    let said = fleet.cli(&["unregister", "a4", "--yes"]).await?.ok()?;
    ensure!(
        said.stdout == "cluster.cluster.karmada.io/a4 is unregistered\n",
        "{said:?}"
    );
    fleet.wait_gone("a4", WITHIN).await?;
    ensure!(
        agent.wait_ended(WITHIN).await?.success(),
        "it did not end well"
    );
    member.give_back();
    scratch.passed();
    Ok(())
}

/// A10 and A11, with two replicas: the member's API goes away, Ready turns False after the threshold
/// and not before, the Lease goes on; the API comes back, Ready is True, one replica leads.
#[tokio::test(flavor = "multi_thread")]
async fn a10_a_member_out_of_reach_keeps_its_lease() -> Result<()> {
    let scratch = Scratch::new("rows-a10")?;
    let parts = Parts::from_env()?;
    let mut lab = Lab::start(&parts, scratch.path(), &LabOptions::new(1)).await?;
    let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
    let token = fleet.token(&["--cluster", "a10"]).await?;
    let member = &lab.members[0];
    hand_over(&member.client().await?, &fleet, "a10", &token).await?;
    let mut replicas = Vec::new();
    for name in ["one", "two"] {
        let spec = Seat::new(scratch.path(), name)?.bare_spec(&member.kubeconfig)?;
        replicas.push(Process::start(spec.env("HOSTNAME", name).args([
            "--cluster-failure-threshold=6s",
            "--cluster-status-update-frequency=1s",
            "--cluster-lease-duration=4s",
            "--leader-elect-lease-duration=4s",
            "--leader-elect-renew-deadline=3s",
            "--leader-elect-retry-period=500ms",
        ]))?);
    }
    fleet.wait_ready("a10", "True", WITHIN).await?;

    lab.members[0].kill_api();
    let killed = Instant::now();
    let clusters: Api<Cluster> = Api::all(fleet.client().await?);
    let not_ready = wait_for_some("Ready=False", WITHIN, async || {
        let found = clusters.get("a10").await?;
        let ready = found.condition(READY).context("no condition Ready")?;
        Ok((ready.status != "True").then(|| (ready.status.clone(), ready.reason.clone())))
    })
    .await?;
    let after = killed.elapsed();
    ensure!(
        not_ready == ("False".into(), "ClusterNotReachable".into()),
        "{not_ready:?}"
    );
    ensure!(after >= Duration::from_secs(6), "False after {after:?}");
    let leases: Api<Lease> = Api::namespaced(fleet.client().await?, CLUSTER_NAMESPACE);
    for _ in 0..3 {
        let last = leases.get("a10").await?.resource_version();
        wait_for("a renewal without the member", WITHIN, async || {
            Ok(leases.get("a10").await?.resource_version() != last)
        })
        .await?;
    }

    lab.members[0].restart_api().await?;
    fleet.wait_ready("a10", "True", WITHIN).await?;
    for replica in &mut replicas {
        replica.check()?;
    }
    drop(replicas);
    lab.stop().await;
    scratch.passed();
    Ok(())
}
