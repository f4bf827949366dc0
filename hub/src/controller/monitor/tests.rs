//! The real shell under paused time, over a scripted API server.

mod world;

use super::*;
use chrono::{DateTime, Utc};
use common::env::Env;
use common::time::{Clock, SimClock};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use tokio::time::sleep;
use world::{Mode, World, agent};

const GRACE: Grace = Grace {
    running: Duration::from_secs(40),
    startup: Duration::from_secs(60),
    signs: None,
};
/// Reading and writing take three answers of a millisecond each; timers round up to one more.
const SLACK: Duration = Duration::from_millis(8);

/// A clock of day that a test can set.
struct Jumping {
    clock: SimClock,
    offset: Arc<Mutex<i64>>,
}

impl Clock for Jumping {
    fn now(&self) -> DateTime<Utc> {
        let offset = *self.offset.lock().expect("lock");
        self.clock.now() + chrono::Duration::seconds(offset)
    }
}

struct Hub {
    /// The views.
    _views: JoinSet<()>,
    stop: CancellationToken,
    offset: Arc<Mutex<i64>>,
    task: tokio::task::JoinHandle<()>,
}

fn start(world: &World) -> Hub {
    let (_, leading) = signal::channel(true);
    start_while(world, leading)
}

fn start_while(world: &World, leading: signal::Receiver<bool>) -> Hub {
    let offset = Arc::new(Mutex::new(0));
    let base = DateTime::from_timestamp(1_700_000_000, 0).expect("in range");
    let clock = Jumping {
        clock: SimClock::starting_at(base),
        offset: Arc::clone(&offset),
    };
    let env = Env::seeded(Arc::new(clock), 1);
    let views = crate::world::World::new(&world.client(), &env.chance, Arc::default());
    let monitor = Monitor::new(world.client(), env, GRACE, Metrics::default(), &views);
    let mut running = JoinSet::new();
    let (clusters, leases) = (views.clusters, views.leases);
    running.spawn(async move { clusters.run().await });
    running.spawn(async move { leases.run().await });
    let stop = CancellationToken::new();
    let task = tokio::spawn(monitor.run(leading, stop.clone()));
    Hub {
        _views: running,
        stop,
        offset,
        task,
    }
}

impl Hub {
    async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect("ends");
    }
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn until(world: &World, at: Duration) {
    sleep(at.saturating_sub(world.elapsed())).await;
}

#[track_caller]
fn assert_at(mark: &world::Mark, name: &str, deadline: Duration) {
    assert_eq!(mark.name, name);
    assert!(
        mark.at >= deadline,
        "{name} marked at {:?}, before {deadline:?}",
        mark.at
    );
    assert!(
        mark.at <= deadline + SLACK,
        "{name} marked at {:?}, long after {deadline:?}",
        mark.at
    );
}

#[tokio::test(start_paused = true)]
async fn silent_clusters_are_marked_at_their_deadlines_and_once() {
    let world = World::new();
    for name in ["never", "posted", "renewed", "live"] {
        world.create(name);
    }
    let hub = start(&world);
    tokio::spawn(agent(
        world.clone(),
        "live".into(),
        Instant::now() + s(1000),
    ));
    until(&world, s(3)).await;
    for name in ["posted", "renewed", "live"] {
        world.post(name, "up");
    }
    until(&world, s(20)).await;
    world.renew("renewed", "9999-12-31T23:59:59.999999Z");
    until(&world, s(400)).await;
    let marks = world.marks();
    assert_eq!(marks.len(), 3, "{marks:?}");
    assert_at(&marks[0], "posted", s(43));
    let find = |name: &str| marks.iter().find(|mark| mark.name == name).expect("marked");
    assert_at(find("renewed"), "renewed", s(60));
    assert_at(find("never"), "never", s(60));
    assert_eq!(find("never").reason, decide::NEVER);
    assert_eq!(find("renewed").reason, decide::STOPPED);
    // Only a post brings it back, and then silence counts anew.
    world.renew("posted", "later");
    until(&world, s(401)).await;
    world.post("posted", "up again");
    until(&world, s(500)).await;
    assert_at(&world.marks()[3], "posted", s(441));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_does_not_lead_yet_hears_and_marks_nobody() {
    let world = World::new();
    for name in ["lost", "silent"] {
        world.create(name);
    }
    let (leads, leading) = signal::channel(false);
    let hub = start_while(&world, leading);
    until(&world, s(3)).await;
    world.post("lost", "up");
    until(&world, s(30)).await;
    world.post("silent", "up");
    until(&world, s(50)).await;
    assert!(world.marks().is_empty(), "{:?}", world.marks());
    leads.send_replace(true);
    until(&world, s(100)).await;
    let marks = world.marks();
    assert_eq!(marks.len(), 2, "{marks:?}");
    assert_at(&marks[0], "lost", s(50));
    assert_at(&marks[1], "silent", s(70));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_marked_because_the_hub_was_away_before_it_leads() {
    for mode in [Mode::Hole, Mode::Refuse, Mode::Broken] {
        let world = World::new();
        for name in ["live", "dead"] {
            world.create(name);
            world.post(name, "up");
        }
        let (leads, leading) = signal::channel(false);
        let hub = start_while(&world, leading);
        tokio::spawn(agent(
            world.clone(),
            "live".into(),
            Instant::now() + s(1000),
        ));
        until(&world, s(15)).await;
        world.set_mode(mode);
        until(&world, s(75)).await;
        world.set_mode(Mode::Up);
        // The Lease is taken as soon as the API server is there.
        leads.send_replace(true);
        until(&world, s(900)).await;
        let marks = world.marks();
        let names: Vec<&str> = marks.iter().map(|mark| mark.name.as_str()).collect();
        assert_eq!(names, ["dead"], "{mode:?}: {marks:?}");
        assert!(marks[0].at >= s(40 + 60 - 8), "{mode:?}: {marks:?}");
        hub.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_the_whole_process_counts_for_nobody() {
    let world = World::new();
    world.create("live");
    let hub = start(&world);
    until(&world, s(3)).await;
    world.post("live", "up");
    until(&world, s(20)).await;
    // Nothing in this process does anything for five minutes, and everything is due at once.
    tokio::time::advance(s(300)).await;
    until(&world, s(342)).await;
    let marks = world.marks();
    assert!(marks.is_empty(), "{marks:?}");
    // From the last turn before the pause on nothing counted; then silence does, for a grace at most.
    until(&world, s(400)).await;
    let marks = world.marks();
    assert_eq!(marks.len(), 1, "{marks:?}");
    let at = marks[0].at;
    assert!(s(343) <= at && at <= s(360) + SLACK, "at {at:?}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_hub_gives_full_grace_and_falsely_marks_nobody() {
    let world = World::new();
    for name in ["live", "dead"] {
        world.create(name);
        world.post(name, "up");
    }
    tokio::spawn(agent(
        world.clone(),
        "live".into(),
        Instant::now() + s(2000),
    ));
    for round in 0..10 {
        let hub = start(&world);
        // Long enough for a renewal, too short for a deadline, and longer and longer apart.
        until(&world, world.elapsed() + s(30)).await;
        hub.stop().await;
        until(&world, world.elapsed() + s(10 * round)).await;
    }
    assert_eq!(world.marks(), []);
    let begun = world.elapsed();
    let hub = start(&world);
    until(&world, begun + s(100)).await;
    let marks = world.marks();
    assert_eq!(marks.len(), 1);
    assert_at(&marks[0], "dead", begun + s(40));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_marked_because_the_hub_was_away() {
    for mode in [Mode::Hole, Mode::Refuse, Mode::Broken] {
        for outage in [3, 20, 39, 41, 90, 300] {
            let world = World::new();
            for name in ["live", "dead"] {
                world.create(name);
                world.post(name, "up");
            }
            let hub = start(&world);
            tokio::spawn(agent(
                world.clone(),
                "live".into(),
                Instant::now() + s(1000),
            ));
            until(&world, s(15)).await;
            world.set_mode(mode);
            until(&world, s(15 + outage)).await;
            assert_eq!(world.marks(), [], "{mode:?} for {outage} s");
            world.set_mode(Mode::Up);
            until(&world, s(900)).await;
            let marks = world.marks();
            let names: Vec<&str> = marks.iter().map(|mark| mark.name.as_str()).collect();
            assert_eq!(names, ["dead"], "{mode:?} for {outage} s");
            assert!(marks[0].at >= s(40), "{mode:?} for {outage} s: {marks:?}");
            // Moved by no more than the outage, the quiet before it and one relist's backoff.
            let latest = s(40 + outage) + QUIET + RETRY * 2 + s(35);
            assert!(marks[0].at <= latest, "{mode:?} for {outage} s: {marks:?}");
            if outage >= 20 {
                assert!(
                    marks[0].at >= s(40 + outage - 8),
                    "{mode:?} for {outage} s: {marks:?}"
                );
            }
            hub.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_resumed_watch_is_no_gap_and_a_relist_is_no_sign_of_life() {
    let world = World::new();
    for name in ["a", "live"] {
        world.create(name);
        world.post(name, "up");
    }
    tokio::spawn(agent(
        world.clone(),
        "live".into(),
        Instant::now() + s(1000),
    ));
    let hub = start(&world);
    until(&world, s(10)).await;
    world.break_watches();
    until(&world, s(20)).await;
    world.compact();
    world.break_watches();
    until(&world, s(100)).await;
    let marks = world.marks();
    assert_eq!(marks.len(), 1, "{marks:?}");
    assert_eq!(marks[0].name, "a");
    // The relist came at once, so the gap it left is not longer than what was unheard before it.
    assert!((s(40)..=s(52)).contains(&marks[0].at), "{marks:?}");
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn jumps_of_the_clock_decide_nothing() {
    let world = World::new();
    for name in ["live", "dead"] {
        world.create(name);
        world.post(name, "up");
    }
    tokio::spawn(agent(
        world.clone(),
        "live".into(),
        Instant::now() + s(1000),
    ));
    let hub = start(&world);
    for (at, offset) in [(5, 3600), (15, -3600), (25, 7200), (39, -7200), (60, 0)] {
        until(&world, s(at)).await;
        *hub.offset.lock().expect("lock") = offset;
    }
    until(&world, s(300)).await;
    let marks = world.marks();
    assert_eq!(marks.len(), 1, "{marks:?}");
    assert_at(&marks[0], "dead", s(40));
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn values_that_cannot_be_read_blind_nobody() {
    let world = World::new();
    for name in ["hostile", "lease", "dead"] {
        world.create(name);
        world.post(name, "up");
    }
    let hub = start(&world);
    until(&world, s(5)).await;
    world.put(
        "clusters",
        "hostile",
        serde_json::json!({"spec": 7, "status": [1]}),
    );
    world.put(
        "leases",
        "lease",
        serde_json::json!({"spec": {"renewTime": {"odd": 1}}}),
    );
    until(&world, s(200)).await;
    let marks = world.marks();
    let names: BTreeSet<&str> = marks.iter().map(|mark| mark.name.as_str()).collect();
    assert_eq!(names, ["dead", "lease"].into());
    for mark in &marks {
        assert!((s(40)..=s(40) + SLACK * 2).contains(&mark.at), "{mark:?}");
    }
    hub.stop().await;
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_clusters_that_fall_silent_at_once_are_all_marked() {
    const CLUSTERS: usize = 10_000;
    let world = World::new();
    for number in 0..CLUSTERS {
        let name = format!("c{number}");
        world.create(&name);
        world.post(&name, "up");
    }
    let hub = start(&world);
    until(&world, s(100)).await;
    let marks = world.marks();
    let names: BTreeSet<&str> = marks.iter().map(|mark| mark.name.as_str()).collect();
    assert_eq!(names.len(), CLUSTERS);
    assert_eq!(marks.len(), CLUSTERS, "nobody is marked twice");
    assert!(marks.iter().all(|mark| mark.at >= s(40)));
    // Three answers of a millisecond each for 64 at a time.
    assert!(
        marks.iter().all(|mark| mark.at <= s(42)),
        "{:?}",
        marks.last()
    );
    // Two reads for each place, two watches and one question.
    let most = world.most.load(Ordering::SeqCst);
    assert!(most <= 2 * CONCURRENCY + 3, "{most} requests at once");
    hub.stop().await;
}

/// What befalls the hub in a random history.
#[derive(Debug, Clone)]
enum Trouble {
    Hole(u64),
    Refuse(u64),
    Broken(u64),
    BreakWatches,
    Relist,
    Restart,
    Jump(i64),
}

fn troubles() -> impl Strategy<Value = Vec<(u64, Trouble)>> {
    let trouble = prop_oneof![
        (1_u64..200).prop_map(Trouble::Hole),
        (1_u64..200).prop_map(Trouble::Refuse),
        (1_u64..200).prop_map(Trouble::Broken),
        Just(Trouble::BreakWatches),
        Just(Trouble::Relist),
        Just(Trouble::Restart),
        (-3600_i64..3600).prop_map(Trouble::Jump),
    ];
    proptest::collection::vec((0_u64..60, trouble), 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever befalls the hub: an agent that renews while it can is never marked; one that fell
    /// silent is marked once, not before its grace in which the hub could hear it, and in the end.
    #[test]
    fn live_agents_are_never_marked_and_silent_ones_always(
        troubles in troubles(),
        falls_silent in 0_u64..120,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let (marks, away) = runtime.block_on(play(troubles, falls_silent));
        let names: Vec<&str> = marks.iter().map(|mark| mark.name.as_str()).collect();
        prop_assert_eq!(names, ["silent"], "{:?}", marks);
        // Its last renewal came at most ten seconds before it fell silent.
        let earliest = s(falls_silent.saturating_sub(10) + 40);
        prop_assert!(marks[0].at >= earliest, "{:?} before {:?}", marks, earliest);
        prop_assert!(marks[0].at <= s(falls_silent + 60) + away + s(60), "{:?} {:?}", marks, away);
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_lists_may_go_unanswered() {
    let (marks, _) = play(vec![(0, Trouble::Hole(1))], 0).await;
    let names: Vec<&str> = marks.iter().map(|mark| mark.name.as_str()).collect();
    assert_eq!(names, ["silent"], "{marks:?}");
}

#[tokio::test(start_paused = true)]
async fn a_relist_moves_a_deadline_by_what_the_quieter_watch_had_not_heard() {
    let relists = [35, 51, 46].map(|pause| (pause, Trouble::Relist));
    let (marks, _) = play(relists.into(), 30).await;
    assert_eq!(marks.len(), 1, "{marks:?}");
    // Renewed last at 20 or 30 s; nothing was told of Clusters between one list and the next.
    let gaps = s(35 + 51 + 46);
    assert!(
        (s(20 + 40) + gaps..=s(30 + 40) + gaps + RETRY).contains(&marks[0].at),
        "{marks:?}"
    );
}

/// Plays a history; returns the marks, and how long the hub may count as away at most.
async fn play(troubles: Vec<(u64, Trouble)>, falls_silent: u64) -> (Vec<world::Mark>, Duration) {
    let world = World::new();
    for name in ["live", "silent"] {
        world.create(name);
        world.post(name, "up");
    }
    tokio::spawn(agent(
        world.clone(),
        "live".into(),
        Instant::now() + s(4000),
    ));
    tokio::spawn(agent(
        world.clone(),
        "silent".into(),
        Instant::now() + s(falls_silent),
    ));
    let mut hub = start(&world);
    let mut away = Duration::ZERO;
    for (pause, trouble) in troubles {
        sleep(s(pause)).await;
        let outage = match trouble {
            Trouble::Hole(length) => Some((Mode::Hole, length)),
            Trouble::Refuse(length) => Some((Mode::Refuse, length)),
            Trouble::Broken(length) => Some((Mode::Broken, length)),
            Trouble::BreakWatches => {
                world.break_watches();
                None
            }
            Trouble::Relist => {
                world.compact();
                world.break_watches();
                // What the quieter watch had not heard since its last bookmark is lost, and a reconnect delay.
                away += s(60 + 30);
                None
            }
            Trouble::Restart => {
                hub.stop().await;
                hub = start(&world);
                away += s(pause + 60);
                None
            }
            Trouble::Jump(offset) => {
                *hub.offset.lock().expect("lock") = offset;
                None
            }
        };
        if let Some((mode, length)) = outage {
            world.set_mode(mode);
            sleep(s(length)).await;
            world.set_mode(Mode::Up);
            // The quiet before it was noticed, and a reconnect delay of at most half a minute.
            away += s(length + 45);
        }
    }
    sleep(s(1500)).await;
    hub.stop().await;
    (world.marks(), away)
}
