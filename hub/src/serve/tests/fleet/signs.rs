//! Signs of life between two renewals, over lines that lose one message in a hundred: nobody who lives is missed, whoever
//! dies is within three seconds, and whoever ends in order by its Lease alone.

mod roads;

use super::super::super::*;
use super::super::rig::{SimulatedHub, alone};
use super::asked::{given, on_all_cores};
use super::beats::{self, Told};
use super::host::{HUB, authority, pool};
use super::wires::World;
use crate::apiserver::authn::Peer;
use crate::apiserver::store::MemoryDisk;
use common::chance::secret;
use common::time::SimClock;
use roads::{Loss, Road};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often signs are given.
const INTERVAL: &str = "--liveness-interval=1s";
/// By then silence has been seen.
const SEEN_WITHIN: Duration = Duration::from_secs(3);
const SEED: u64 = 1;

/// So many clusters live for so long; then half of them end in order, and the others are killed.
async fn live(loss: Loss, clusters: usize, lasts: Duration) {
    common::tls::install_provider();
    let dir = tempfile::tempdir().expect("a folder");
    let clock = SimClock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
    let env = |host: u64| Env::seeded(Arc::new(clock.clone()), SEED * 1000 + host);
    let data = dir.path().join("hub");
    authority(&data, 0);
    let disk = MemoryDisk::default();
    let hub = SimulatedHub::on(&disk, &data, HUB, &[INTERVAL], &env(0), Router::client).await;
    let link = hub.served.router.link_of(Peer::Itself);
    let world = World::with(Default::default(), false);
    let began = Instant::now();
    let told = Told::new(began);
    let mut following = told.follow(&link);

    let mut agents = Vec::new();
    for number in 1..=clusters {
        let name = format!("m{number}");
        beats::make(&link, &name).await;
        beats::report(&link, &name, "").await;
        let env = env(u64::try_from(number).expect("few"));
        let line = world.within(&name, link.clone());
        let road = Road::new(loss, line, env.chance.shared_stream("road"));
        let context = beats::context(&name, Arc::new(road.clone()), &[INTERVAL], &env).await;
        let shutdown = context.shutdown.clone();
        let running = tokio::spawn(agent::heartbeat::run(context));
        agents.push((name, road, shutdown, running));
    }
    sleep(lasts).await;
    let unknown = told.unknown();
    assert!(
        unknown.is_empty(),
        "{loss:?}: missed, and live: {unknown:?}"
    );
    let asked: u64 = agents.iter().map(|(_, road, ..)| road.carried()).sum();
    let seconds = lasts.as_secs() * u64::try_from(clusters).expect("few");
    assert!(asked > seconds * 9 / 10, "{loss:?}: {asked} signs");

    let mut killed = BTreeMap::new();
    for (number, (name, road, shutdown, running)) in agents.into_iter().enumerate() {
        if number.is_multiple_of(2) {
            shutdown.cancel();
            running.await.expect("ends in order");
        } else {
            running.abort();
            // It says that it was aborted.
            let _ = running.await;
            killed.insert(name, road);
        }
        sleep(Duration::from_millis(130)).await;
    }
    sleep(2 * SEEN_WITHIN).await;
    for (name, at) in told.unknown() {
        let road = killed.remove(&name);
        let road = road.unwrap_or_else(|| panic!("{loss:?}: {name} ended in order"));
        let silent = at.saturating_sub(road.heard().duration_since(began));
        assert!(silent <= SEEN_WITHIN, "{loss:?}: {name} after {silent:?}");
    }
    assert!(killed.is_empty(), "{loss:?}: not missed");
    sleep(Duration::from_secs(45)).await;
    assert_eq!(told.unknown().len(), clusters, "{loss:?}: by their Leases");
    following.shutdown().await;
    hub.end().await;
    if given("TOWLINE_TELL").is_some() {
        eprintln!("{loss:?}: {asked} requests of {clusters} clusters");
        eprintln!("{loss:?} holds");
    }
}

/// Five minutes of two clusters for each kind of loss, or `TOWLINE_SIGNS` hours of twenty.
#[test]
fn nobody_who_lives_is_missed_at_a_loss_of_one_in_a_hundred() {
    let hours = given("TOWLINE_SIGNS").map(|it| it.parse::<u64>().expect("hours"));
    let (clusters, lasts) = match hours {
        Some(hours) => (20, Duration::from_secs(hours * 3600)),
        None => (2, Duration::from_secs(300)),
    };
    on_all_cores(&Loss::ALL, |loss| {
        let _fixed = secret::Fixed::begin(SEED, pool(SEED));
        alone(live(*loss, clusters, lasts));
    });
}
