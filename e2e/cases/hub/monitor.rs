//! Rows H2 to H7, and the monitor's promises against a real API server.

use anyhow::{Context as _, Result};
use common::api::cluster::{Cluster, READY};
use common::chance::Chance;
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use kube::Client;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

use super::play::{FLAGS, GRACE, Played, Rig, SOON, STARTUP, rig, start};
use crate::env::{Relay, Scratch, start_hub};

/// From deadline to the write being seen, on a machine that runs nothing else.
const PROMISE: Duration = Duration::from_millis(200);

#[tokio::test]
async fn h2_a_cluster_that_never_posts_is_unknown_after_the_startup_grace() -> Result<()> {
    let rig = rig().await?;
    let client = rig.client().await?;
    let before = Instant::now();
    let played = Played::create(&client, "h2").await?;
    played
        .wait_ready("Unknown", "ClusterStatusNeverUpdated")
        .await?;
    assert!(before.elapsed() >= STARTUP, "after {:?}", before.elapsed());
    let cluster = played.get().await?;
    let message = &cluster.condition(READY).context("no Ready")?.message;
    assert_eq!(
        message,
        "Cluster status controller never posted cluster status."
    );
    played
        .wait_taints(&["cluster.karmada.io/unreachable:NoSchedule"])
        .await
}

#[tokio::test]
async fn h3_to_h7_ready_follows_the_agent_and_taints_follow_ready() -> Result<()> {
    let rig = rig().await?;
    let client = rig.client().await?;
    let played = Played::create(&client, "h3").await?;
    played
        .wait_taints(&["cluster.karmada.io/not-ready:NoSchedule"])
        .await?;

    // H3: renewed only, it stays True.
    let renewing = played.keep_renewing();
    played.post(true, "up").await?;
    played.wait_taints(&[]).await?;
    played
        .wait_event(
            "TaintClusterSucceed",
            "Taint cluster succeed: cluster now does not have taints.",
        )
        .await?;
    stays(&played, GRACE * 2 + Duration::from_secs(1), "True").await?;

    // H4: silent, it is Unknown.
    drop(renewing);
    played.wait_ready("Unknown", "ClusterStatusUnknown").await?;
    let cluster = played.get().await?;
    let message = &cluster.condition(READY).context("no Ready")?.message;
    assert_eq!(
        message,
        "Cluster status controller stopped posting cluster status."
    );
    played
        .wait_taints(&["cluster.karmada.io/unreachable:NoSchedule"])
        .await?;

    // H5: renewals alone do not bring it back, and nothing flaps.
    let _renewing = played.keep_renewing();
    let version = played.get().await?.metadata.resource_version;
    stays(&played, GRACE + Duration::from_secs(2), "Unknown").await?;
    assert_eq!(
        played.get().await?.metadata.resource_version,
        version,
        "it was written"
    );

    // H6, H7.
    played.post(true, "up again").await?;
    played.wait_taints(&[]).await?;
    played.post(false, "down").await?;
    played
        .wait_taints(&["cluster.karmada.io/not-ready:NoSchedule"])
        .await
}

/// Ready has a status, and keeps it for a while.
async fn stays(played: &Played, how_long: Duration, want: &str) -> Result<()> {
    let until = Instant::now() + how_long;
    let clusters = Collection::of::<Cluster>(None);
    let config = WatchConfig {
        field_selector: Some(format!("metadata.name={}", played.name)),
        ..WatchConfig::new(&Chance::from_os())
    };
    let mut events = pin!(watch::<Cluster>(played.client.clone(), clusters, config));
    while let Ok(Some(event)) = timeout_at(until, events.next()).await {
        if let Event::Applied(cluster) = event {
            let status = cluster.condition(READY).map(|ready| ready.status.as_str());
            anyhow::ensure!(status == Some(want), "it became {status:?}");
        }
    }
    Ok(())
}

/// A machine with other things to do holds most clusters of a round up. A monitor that looked around at
/// intervals would be in time for two of five in no round.
const ROUNDS: usize = 10;

#[tokio::test]
async fn silent_clusters_are_unknown_within_200_ms_of_their_deadlines() -> Result<()> {
    let rig = rig().await?;
    let client = rig.client().await?;
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let late = lateness(&client, round).await?;
        eprintln!("from deadline to the write being seen: {late:?}");
        if late[1] <= PROMISE {
            return Ok(());
        }
        rounds.push(late);
    }
    anyhow::bail!("in no round were two clusters in time: {rounds:?}")
}

/// How long after their deadlines clusters that fall silent are marked, in order; none is marked before.
async fn lateness(client: &Client, round: usize) -> Result<Vec<Duration>> {
    const CLUSTERS: usize = 5;
    let mut played = Vec::new();
    for number in 0..CLUSTERS {
        let cluster = Played::create(client, &format!("exact{round}-{number}")).await?;
        cluster.post(true, "up").await?;
        played.push(cluster);
    }
    let config = WatchConfig::new(&Chance::from_os());
    let mut events = pin!(watch::<Cluster>(
        client.clone(),
        Collection::of::<Cluster>(None),
        config
    ));
    // The last renewals, a little apart, each between two moments.
    let mut renewals = BTreeMap::new();
    let mut apart = tokio::time::interval(Duration::from_millis(300));
    for cluster in &played {
        apart.tick().await;
        let sent = Instant::now();
        cluster.renew().await?;
        renewals.insert(cluster.name.clone(), (sent, Instant::now()));
    }
    let mut late = Vec::new();
    let until = Instant::now() + GRACE + SOON;
    while late.len() < CLUSTERS {
        let event = timeout_at(until, events.next())
            .await
            .context("not all became Unknown")?;
        let Some(Event::Applied(cluster)) = event else {
            continue;
        };
        let name = cluster.metadata.name.clone().unwrap_or_default();
        let unknown = cluster
            .condition(READY)
            .is_some_and(|ready| ready.status == "Unknown");
        if !unknown {
            continue;
        }
        let Some((sent, done)) = renewals.remove(&name) else {
            continue;
        };
        let now = Instant::now();
        anyhow::ensure!(
            now >= sent + GRACE,
            "{name} was marked {:?} after its renewal",
            now - sent
        );
        late.push(now.saturating_duration_since(done + GRACE));
    }
    late.sort();
    Ok(late)
}

#[tokio::test]
async fn nobody_is_marked_while_the_hub_is_cut_off_or_restarted() -> Result<()> {
    let scratch = Scratch::new("hub-cut-off")?;
    let mut rig = start(scratch.path()).await?;
    if rig.plane.options.builtin {
        nobody_is_marked_while_a_built_in_hub_is_away(&mut rig).await?;
        scratch.passed();
        return Ok(());
    }
    let client = rig.client().await?;
    // The hub that Fleet started reaches the plane directly; ours goes through a relay.
    rig.fleet.hub.stop(Duration::from_secs(60)).await?;
    let relay = Relay::start(&rig.plane.address()).await?;
    let through = scratch.join("relay.kubeconfig");
    let identity = rig.plane.pki.client("admin", &["system:masters"])?;
    rig.plane
        .kubeconfig_at(&through, &relay.address().to_string(), &identity)?;
    let (mut hub, _) = start_hub(&rig.fleet.towline, "hub-by-relay", &through, &FLAGS).await?;

    let live = Played::create(&client, "live").await?;
    let dead = Played::create(&client, "dead").await?;
    let _renewing = live.keep_renewing();
    live.post(true, "up").await?;
    dead.post(true, "up").await?;

    // Five graces of silence on the hub's own connections, one agent alive, one not.
    relay.black_hole(true);
    relay.silence_established();
    stays(&live, GRACE * 5, "True").await?;
    assert_eq!(
        dead.ready().await?.map(|(status, _)| status).as_deref(),
        Some("True")
    );
    relay.black_hole(false);
    dead.wait_ready("Unknown", "ClusterStatusUnknown").await?;
    stays(&live, GRACE * 2, "True").await?;

    // Killed and started again, over and over: full grace each time.
    for _ in 0..3 {
        hub.kill();
        (hub, _) = start_hub(&rig.fleet.towline, "hub-by-relay", &through, &FLAGS).await?;
    }
    stays(&live, GRACE * 2, "True").await?;
    hub.stop(Duration::from_secs(60)).await?;
    scratch.passed();
    Ok(())
}

/// A hub with an API server of its own cannot be cut off from it, but both can stand still, as in a
/// machine that is paused: nobody could renew meanwhile.
async fn nobody_is_marked_while_a_built_in_hub_is_away(rig: &mut Rig) -> Result<()> {
    let client = rig.client().await?;
    let live = Played::create(&client, "live").await?;
    let dead = Played::create(&client, "dead").await?;
    let renewing = live.keep_renewing();
    live.post(true, "up").await?;
    dead.post(true, "up").await?;
    rig.plane.apiserver.signal(Signal::STOP);
    tokio::time::sleep(GRACE * 3).await;
    rig.plane.apiserver.signal(Signal::CONT);
    dead.wait_ready("Unknown", "ClusterStatusUnknown").await?;
    let ready = live.ready().await?.map(|(status, _)| status);
    assert_eq!(ready.as_deref(), Some("True"), "after a pause");
    stays(&live, GRACE * 2, "True").await?;

    // Killed and started again, over and over: full grace each time. The agent goes on all the while.
    for _ in 0..3 {
        rig.plane.kill_api();
        rig.plane.restart_api().await?;
    }
    let live = Played::known(&rig.client().await?, "live");
    stays(&live, GRACE * 2, "True").await?;
    drop(renewing);
    live.wait_ready("Unknown", "ClusterStatusUnknown").await
}
