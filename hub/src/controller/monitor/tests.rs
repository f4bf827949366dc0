//! The real shell under paused time, over a scripted API server.

mod away;
mod histories;
mod world;

use super::*;
use chrono::{DateTime, Utc};
use common::env::Env;
use common::time::{Clock, SimClock};
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

/// A hub of clusters that are Ready.
fn posted(names: impl IntoIterator<Item: AsRef<str>>) -> World {
    let world = World::new();
    for name in names {
        world.create(name.as_ref());
        world.post(name.as_ref(), "up");
    }
    world
}

/// Has the agent of a cluster renew for so long.
fn begin(world: &World, name: &str, lasts: Duration) {
    let until = Instant::now() + lasts;
    tokio::spawn(agent(world.clone(), name.to_owned(), until));
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
    begin(&world, "live", s(1000));
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
async fn values_that_cannot_be_read_blind_nobody() {
    let world = posted(["hostile", "lease", "dead"]);
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
    let world = posted((0..CLUSTERS).map(|number| format!("c{number}")));
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
