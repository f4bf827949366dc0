//! The Lease: rows A7 and A8.

use anyhow::{Context as _, Result, ensure};
use chrono::TimeDelta;

use super::rig::{SHORT, forget, lease, quiet, renewals, start_agent, wait_condition};
use crate::env::{Scratch, shared};

/// A7: the Lease is held by the cluster, 40 s long and owned by the Cluster, which is Ready.
#[tokio::test(flavor = "multi_thread")]
async fn status_a7_lease_and_ready() -> Result<()> {
    let (lab, scratch) = (shared().await?, Scratch::new("status-a7")?);
    let member = lab.member().await?;
    let fleet = &lab.fleet;
    let agent = start_agent(fleet, &scratch, &member.kubeconfig, "a7", &quiet(&[])).await?;
    let cluster = wait_condition(fleet, "a7", "Ready", "True ClusterReady").await?;
    renewals(fleet, "a7", 1).await?;
    let lease = lease(fleet, "a7").await?;
    let spec = lease.spec.context("a Lease has a spec")?;
    ensure!(spec.holder_identity.as_deref() == Some("a7"), "{spec:?}");
    ensure!(spec.lease_duration_seconds == Some(40), "{spec:?}");
    let owners = lease.metadata.owner_references.unwrap_or_default();
    let owned = owners
        .iter()
        .any(|o| o.kind == "Cluster" && Some(&o.uid) == cluster.metadata.uid.as_ref());
    ensure!(owned, "{owners:?}");
    drop(agent);
    forget(fleet, "a7").await?;
    scratch.passed();
    member.give_back();
    Ok(())
}

/// A8: renewals are a quarter of the duration apart, and at most 4 % more; an 8 s Lease shows it as
/// well as one of 40 s.
#[tokio::test(flavor = "multi_thread")]
async fn status_a8_renewals_keep_their_distance() -> Result<()> {
    let (lab, scratch) = (shared().await?, Scratch::new("status-a8")?);
    let member = lab.member().await?;
    let fleet = &lab.fleet;
    let agent = start_agent(fleet, &scratch, &member.kubeconfig, "a8", &quiet(&SHORT)).await?;
    let times = renewals(fleet, "a8", 8).await?;
    // The first look may have come between two renewals of the start. A busy machine may wake the agent
    // late, or let a renewal fail that is tried again at once, but not most of the time.
    let mut gaps: Vec<_> = times
        .windows(2)
        .skip(1)
        .map(|pair| pair[1] - pair[0])
        .collect();
    gaps.sort();
    let middle = gaps[gaps.len() / 2];
    let (least, most) = (1990, 2080 + 900);
    ensure!(
        (TimeDelta::milliseconds(least)..=TimeDelta::milliseconds(most)).contains(&middle),
        "{middle}: {times:?}"
    );
    drop(agent);
    forget(fleet, "a8").await?;
    scratch.passed();
    member.give_back();
    Ok(())
}
