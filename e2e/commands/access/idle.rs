//! Many tunnels on which nothing happens, and how soon they are back when the hub was restarted.

use anyhow::{Context as _, Result, ensure};
use common::tunnel::cause;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

use crate::commands::fleet::{Crew, Hub, room_for};
use crate::commands::up::Foundation;
use crate::commands::vitals::{mib, of_all, processor_time, resident};
use crate::env::{Scratch, ask, wait_for};

/// For the slowest part.
const WITHIN: Duration = Duration::from_secs(900);
/// How long the hub is left alone before it is looked at: it marks first who no longer renews a Lease, and five minutes
/// later that nothing is to run there.
const LOST: Duration = Duration::from_secs(450);
/// The same after the tunnels were dialled, or used: the connection by which an agent asked where the hub takes tunnels
/// is closed by its pool one or two minutes later.
const SETTLED: Duration = Duration::from_secs(150);
/// How long it is looked at.
const REST: Duration = Duration::from_secs(60);
/// How many members are asked for something at a time.
const ASKED_AT_ONCE: usize = 48;
/// How long an answer is waited for. The agent has nobody to ask in the member, and says so only after 10 s.
const ASKED_FOR: Duration = Duration::from_secs(1);
/// How many register at a time: fewer than strangers of one address may be connected.
const AT_ONCE: usize = 240;

/// Measures, and prints as it goes.
pub(super) async fn idle(count: usize) -> Result<()> {
    room_for(count)?;
    let scratch = Scratch::new("access-idle")?;
    let mut hub = Hub::start(Foundation::Builtin, None, &[], &scratch).await?;
    eprintln!("registering {count} agents …");
    let (crew, took) = Crew::register(&hub, &scratch, count, AT_ONCE).await?;
    println!("{count} agents registered in {:.0} s", took.as_secs_f64());
    crew.are_heard(AT_ONCE).await?;
    sleep(LOST).await;
    let without = at_rest(&mut hub).await?;
    let before = of_all(&hub.pids(), resident)?;
    let own = resident(std::process::id())?;
    let began = Instant::now();
    crew.tunnels().await?;
    standing(&hub, count).await?;
    println!(
        "{count} tunnels stand after {:.1} s",
        began.elapsed().as_secs_f64()
    );
    sleep(SETTLED).await;
    let (after, own_after) = (
        of_all(&hub.pids(), resident)?,
        resident(std::process::id())?,
    );
    let each = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1024.0 / count as f64;
    println!(
        "hub {:.0} MiB before and {:.0} with them, {:.1} KiB each; {:.1} KiB each on the agents' side",
        mib(before),
        mib(after),
        each(before, after),
        each(own, own_after)
    );
    println!(
        "at rest: {without:.1} % of a core before and {:.1} with them",
        at_rest(&mut hub).await?
    );
    asked_once(&hub, crew.names()).await?;
    sleep(SETTLED).await;
    let asked = of_all(&hub.pids(), resident)?;
    println!(
        "each was asked for something once: {:.0} MiB, {:.1} KiB each; at rest {:.1} % of a core",
        mib(asked),
        each(before, asked),
        at_rest(&mut hub).await?
    );
    hub.kill();
    let killed = Instant::now();
    hub.restart().await?;
    let ready = killed.elapsed();
    standing(&hub, count).await?;
    println!(
        "the hub was killed: ready again after {:.1} s, all tunnels back after {:.1} s, {:.0} MiB",
        ready.as_secs_f64(),
        killed.elapsed().as_secs_f64(),
        mib(of_all(&hub.pids(), resident)?)
    );
    crew.stop();
    hub.stop().await;
    scratch.passed();
    Ok(())
}

/// Asks each member for something, so that HTTP/2 begins in its tunnel. The agent lets nobody in.
async fn asked_once(hub: &Hub, clusters: Vec<String>) -> Result<()> {
    let client = hub.client().await?;
    let client = &client;
    let asks = clusters.into_iter().map(|cluster| async move {
        let path = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{cluster}/proxy/version");
        if let Ok(answer) = timeout(ASKED_FOR, ask(client, "GET", &path, None)).await {
            let answer = answer?;
            ensure!(!answer.body.contains(cause::NO_TUNNEL), "{answer:?}");
        }
        Ok(())
    });
    let asks = stream::iter(asks).buffer_unordered(ASKED_AT_ONCE);
    asks.try_collect::<()>().await
}

/// Which part of a core the hub uses, in percent.
async fn at_rest(hub: &mut Hub) -> Result<f64> {
    let used = of_all(&hub.pids(), processor_time)?;
    sleep(REST).await;
    let used = of_all(&hub.pids(), processor_time)?.saturating_sub(used);
    Ok(used.as_secs_f64() / REST.as_secs_f64() * 100.0)
}

/// Waits until so many tunnels stand.
async fn standing(hub: &Hub, count: usize) -> Result<()> {
    let client = hub.client().await?;
    wait_for("every tunnel", WITHIN, async || {
        let metrics = ask(&client, "GET", "/metrics", None).await?.ok()?;
        let lines = metrics.body.lines();
        let mut counts = lines.filter_map(|line| line.strip_prefix("towline_hub_tunnels "));
        let there: usize = counts.next().context("no such metric")?.parse()?;
        ensure!(there == count, "{there} of {count} stand");
        Ok(true)
    })
    .await
}
