//! Signs of life between renewals: an agent that stands still is missed long before its Lease would tell, and one that
//! is stopped in order is not.

use anyhow::{Result, ensure};
use std::slice::from_ref;
use std::time::Duration;

use super::rig::{CLUSTER, Hub, Side, end, passed, two_ports};
use crate::env::{Scratch, Towline, wait_for};

/// Long enough for a machine that is busy with other tests.
const INTERVAL: &str = "--liveness-interval=4s";
/// Far less than the silence that a Lease is allowed here.
const MISSED_WITHIN: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread")]
async fn who_stands_still_is_missed_before_the_lease_tells() -> Result<()> {
    let scratch = Scratch::new("serve-signs")?;
    let (ports, [address, _]) = two_ports()?;
    let (dir, data) = (scratch.path(), scratch.join("data"));
    let hub = Hub::start(dir, &data, ports[0], from_ref(&address), &[INTERVAL]).await?;
    let mut side = Side::join_with(CLUSTER, dir, &hub, &address, &[INTERVAL]).await?;
    hub.heartbeat().await?;
    let before = hub.ready().await?;

    side.stop_in_order().await?;
    side.restart()?;
    hub.heartbeat().await?;
    ensure!(
        hub.ready().await? == before,
        "it was missed though it ended in order"
    );

    missed(&hub, &side).await?;
    side.thaw();
    hub.wait_cluster().await?;
    passed(scratch, hub, side).await
}

/// What leaves without its agent's answer is told as that, and what does not is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_did_not_answer_as_it_left_is_named() -> Result<()> {
    let scratch = Scratch::new("serve-left")?;
    let (ports, addresses) = two_ports()?;
    let (dir, data) = (scratch.path(), scratch.join("data"));
    let mut hub = Hub::start(dir, &data, ports[0], &addresses[..1], &[INTERVAL]).await?;
    let mut silent = Side::join_with(CLUSTER, dir, &hub, &addresses[0], &[INTERVAL]).await?;
    hub.heartbeat().await?;
    missed(&hub, &silent).await?;
    let kubeconfig = hub.kubeconfig().display().to_string();
    let leave = ["unregister", CLUSTER, "--yes", "--kubeconfig", &kubeconfig];
    let towline = Towline::new(dir)?;
    let said = towline.cli(leave).await?.ok()?;
    ensure!(
        said.stdout == "cluster.cluster.karmada.io/m1 is unregistered; its agent did not answer\n"
            && said.stderr.contains("--member-kubeconfig FILE"),
        "{said:?}"
    );
    end(&mut hub, &mut silent).await?;
    scratch.passed();
    Ok(())
}

/// Its agent stands still until the hub says so.
async fn missed(hub: &Hub, side: &Side) -> Result<()> {
    side.freeze();
    wait_for("the cluster to be missed", MISSED_WITHIN, async || {
        let ready = hub.ready().await?;
        ensure!(ready.0 == "Unknown", "it is {ready:?}");
        Ok(true)
    })
    .await
}
