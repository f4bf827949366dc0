//! Signs of life between renewals: an agent that stands still is missed long before its Lease would tell, and one that
//! is stopped in order is not.

use anyhow::{Result, ensure};
use std::slice::from_ref;
use std::time::Duration;

use super::rig::{CLUSTER, Hub, Side, passed, two_ports};
use crate::env::{Scratch, wait_for};

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

    side.freeze();
    wait_for("the cluster to be missed", MISSED_WITHIN, async || {
        let ready = hub.ready().await?;
        ensure!(ready.0 == "Unknown", "it is {ready:?}");
        Ok(true)
    })
    .await?;
    side.thaw();
    hub.wait_cluster().await?;
    passed(scratch, hub, side).await
}
