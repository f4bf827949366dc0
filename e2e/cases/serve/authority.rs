//! Certificates that end and an authority that is replaced, while the agent stays Ready.

use anyhow::{Context as _, Result, ensure};
use common::time::{Clock as _, SystemClock};
use common::tls;
use std::time::Duration;

use super::rig::{Hub, LONG, Side, ask, passed, two_ports};
use crate::env::{Relay, Scratch, client, wait_for};

/// Life of the server's certificate: some are made and end in the course of the test.
const LIFE: Duration = Duration::from_secs(15);

/// The first certificate of a PEM, when it ends, and who issued it.
fn leaf(pem: &str) -> Result<(Vec<u8>, chrono::DateTime<chrono::Utc>, String)> {
    let first = tls::certificates(pem.as_bytes())?.swap_remove(0);
    let (_, ends) = tls::validity(&first)?;
    Ok((first.to_vec(), ends, tls::issuer(&first)?))
}

/// Who issued the certificate by which the agent works.
fn issuer_of(side: &Side) -> Result<String> {
    let kept = side.kept("certificate")?;
    Ok(leaf(kept.as_str().context("no certificate is kept")?)?.2)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_certificate_ends_and_agents_stay_ready() -> Result<()> {
    let scratch = Scratch::new("serve-certificate")?;
    let (ports, addresses) = two_ports()?;
    let life = format!("--server-certificate-lifetime={}s", LIFE.as_secs());
    let data = scratch.join("data");
    let hub = Hub::start(scratch.path(), &data, ports[0], &addresses[..1], &[&life]).await?;
    // Whatever comes later has to shake hands anew: no connection outlives a certificate.
    let relay = Relay::start(&hub.address).await?;
    let side = Side::join(scratch.path(), &hub, &relay.address().to_string()).await?;
    let before = hub.ready().await?;

    for _ in 0..2 {
        let (first, ends, _) = leaf(&hub.key_file("server.crt")?)?;
        wait_for("the end of a server certificate", LONG, async || {
            let (now, _, _) = leaf(&hub.key_file("server.crt")?)?;
            Ok(SystemClock.now() > ends && now != first)
        })
        .await?;
        let connections = relay.accepted();
        relay.close_established();
        hub.heartbeat().await?;
        ensure!(relay.accepted() > connections, "nothing was connected anew");
    }
    ensure!(hub.ready().await? == before, "Ready has changed meanwhile");
    passed(scratch, hub, side).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_authority_is_replaced_and_agents_stay_ready() -> Result<()> {
    let scratch = Scratch::new("serve-authority")?;
    let (ports, addresses) = two_ports()?;
    let data = scratch.join("data");
    let hub = Hub::start(scratch.path(), &data, ports[0], &addresses[..1], &[]).await?;
    let relay = Relay::start(&hub.address).await?;
    let mut side = Side::join(scratch.path(), &hub, &relay.address().to_string()).await?;
    let before = hub.ready().await?;
    let old_kubeconfig = scratch.join("old.kubeconfig");
    std::fs::copy(hub.kubeconfig(), &old_kubeconfig)?;
    let old = leaf(&hub.key_file("ca.crt")?)?.2;
    let anew = async |hub: &Hub| {
        relay.close_established();
        hub.heartbeat().await
    };

    // Both are published; the old one signs.
    let said = hub.command(&["ca", "rotate"]).await?.ok()?.stdout;
    ensure!(said.contains("still signs"), "{said}");
    let trusts = |count: usize| {
        move |kept: &serde_json::Value| {
            let pem = kept.as_str().unwrap_or_default().as_bytes();
            tls::certificates(pem).is_ok_and(|kept| kept.len() == count)
        }
    };
    side.wait_kept("ca", "the agent to trust both", trusts(2))
        .await?;
    ensure!(issuer_of(&side)? == old, "it renewed for nothing");
    anew(&hub).await?;

    // The new one signs; agents do not wait for the end of their certificates.
    hub.command(&["ca", "rotate"]).await?.ok()?;
    wait_for("a certificate by the new authority", LONG, async || {
        Ok(issuer_of(&side)? != old && leaf(&hub.key_file("server.crt")?)?.2 != old)
    })
    .await?;
    anew(&hub).await?;

    // Only the new one is left.
    let said = hub.command(&["ca", "rotate"]).await?.ok()?.stdout;
    ensure!(said.contains("complete"), "{said}");
    side.wait_kept("ca", "the agent to let go of the old one", trusts(1))
        .await?;
    anew(&hub).await?;
    hub.deliver("after-rotation").await?;
    ensure!(side.holds("after-rotation").await?, "nothing was delivered");
    let stale = client(&old_kubeconfig).await?;
    let refused = ask(&stale, "/version").await;
    ensure!(
        refused.is_err(),
        "the old authority still counts: {refused:?}"
    );

    // What it keeps is enough for a new start.
    side.restart()?;
    hub.heartbeat().await?;
    ensure!(hub.ready().await? == before, "Ready has changed meanwhile");
    passed(scratch, hub, side).await
}
