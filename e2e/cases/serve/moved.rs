//! A hub that moves: both addresses are advertised first, then the old one is gone.

use anyhow::{Result, ensure};
use std::slice::from_ref;

use super::rig::{Hub, Side, passed, two_ports};
use crate::env::Scratch;

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_moves_and_agents_stay_ready() -> Result<()> {
    let scratch = Scratch::new("serve-moved")?;
    let (ports, [old, new]) = two_ports()?;
    let (dir, data) = (scratch.path(), scratch.join("data"));
    let mut hub = Hub::start(dir, &data, ports[0], from_ref(&old), &[]).await?;
    let mut side = Side::join(dir, &hub, &old).await?;
    hub.deliver("before").await?;
    let before = hub.ready().await?;

    hub.stop().await?;
    let both = [old.clone(), new.clone()];
    let mut hub = Hub::start(dir, &data, ports[0], &both, &[]).await?;
    side.wait_address(&new).await?;
    hub.heartbeat().await?;

    hub.stop().await?;
    let hub = Hub::start(dir, &data, ports[1], from_ref(&new), &[]).await?;
    hub.heartbeat().await?;
    hub.deliver("after").await?;
    ensure!(side.holds("before").await?, "something was deleted");
    ensure!(side.holds("after").await?, "nothing was delivered");
    let first = |kept: &serde_json::Value| kept[0] == *new;
    side.wait_kept("servers", "the new address to come first", first)
        .await?;

    side.restart()?;
    hub.heartbeat().await?;
    ensure!(hub.ready().await? == before, "Ready has changed meanwhile");
    passed(scratch, hub, side).await
}
