//! Very many clusters: ten minutes of heartbeats, three in ten silent at once, back, and another hub.

use super::super::super::*;
use super::super::rig::{SimulatedHub, alone};
use super::asked::given;
use super::beats::{self, Told};
use super::host::{HUB, authority, pool};
use super::wires::World;
use crate::apiserver::authn::Peer;
use crate::apiserver::http::Link;
use crate::apiserver::store::MemoryDisk;
use agent::hub::Connect;
use common::chance::{SharedStream, secret};
use common::client::ClientOptions;
use common::lock::lock;
use common::network::Line;
use common::time::SimClock;
use futures::future::BoxFuture;
use http::Request;
use kube::client::Body;
use rand::Rng as _;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;

const SEED: u64 = 1;
/// Without being told another number.
const FEW: usize = 40;
/// How long a Cluster may be silent, and how long after that it is said at the latest.
const GRACE: Duration = Duration::from_secs(40);
const LATE: Duration = Duration::from_millis(200);
/// The longest way of a message, in milliseconds.
const LONGEST_WAY: u64 = 20;

/// The way to the hub of the moment; none while there is no hub. Clones share it.
#[derive(Clone)]
struct Way {
    line: Arc<Mutex<Option<Line>>>,
    draws: SharedStream,
}

impl Way {
    fn lead(&self, line: Option<Line>) {
        *lock(&self.line) = line;
    }

    fn line(&self) -> Option<Line> {
        let line = lock(&self.line);
        line.clone()
    }

    async fn pass(&self) {
        let way = self.draws.draw(|rng| rng.random_range(1..=LONGEST_WAY));
        sleep(Duration::from_millis(way)).await;
    }
}

/// One agent's: who was heard when.
#[derive(Clone)]
struct Agent {
    way: Way,
    heard: Arc<Mutex<Instant>>,
}

impl Agent {
    fn new(way: &Way) -> Self {
        Self {
            way: way.clone(),
            heard: Arc::new(Mutex::new(Instant::now())),
        }
    }

    fn heard(&self) -> Instant {
        *lock(&self.heard)
    }
}

impl Connect for Agent {
    fn connect(
        &self,
        _: ClientOptions,
    ) -> BoxFuture<'static, Result<Client, Box<dyn std::error::Error + Send + Sync>>> {
        let me = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let me = me.clone();
            async move {
                me.way.pass().await;
                let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
                let line = me.way.line().ok_or_else(refused)?;
                let answer = tower::ServiceExt::oneshot(line, request).await?;
                if answer.status().is_success() {
                    *lock(&me.heard) = Instant::now();
                }
                me.way.pass().await;
                Ok::<_, tower::BoxError>(answer)
            }
        });
        let client = Client::new(service, "default");
        Box::pin(async move { Ok(client) })
    }
}

/// Processor time and memory of this process.
fn taken() -> String {
    let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
    let status = read("/proc/self/status");
    let memory = status.lines().find(|line| line.starts_with("VmRSS"));
    let stat = read("/proc/self/stat");
    let ticks: Vec<u64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|it| it.parse().ok())
        .collect();
    let seconds = ticks.iter().sum::<u64>() / 100;
    format!(
        "{seconds} s of processor time, {}",
        memory.unwrap_or_default().replace('\t', " ")
    )
}

struct Fleet {
    count: usize,
    way: Way,
    clock: SimClock,
    agents: BTreeMap<String, (Agent, JoinHandle<()>)>,
}

impl Fleet {
    fn env(&self, host: usize) -> Env {
        let host = u64::try_from(host).expect("few");
        Env::seeded(Arc::new(self.clock.clone()), SEED * 1_000_000 + host)
    }

    /// Starts the heartbeat of a cluster within the time between two renewals.
    async fn start(&mut self, number: usize) {
        let name = name(number);
        let env = self.env(number);
        let agent = Agent::new(&self.way);
        let context = beats::context(&name, Arc::new(agent.clone()), &[], &env).await;
        let wait = env.chance.stream("wait").random_range(0..10_000);
        let running = tokio::spawn(async move {
            sleep(Duration::from_millis(wait)).await;
            agent::heartbeat::run(context).await;
        });
        self.agents.insert(name, (agent, running));
    }
}

fn name(number: usize) -> String {
    format!("c{number:05}")
}

fn tell(what: &str, began: Instant) {
    if given("TOWLINE_TELL").is_some() {
        let at = began.elapsed().as_secs();
        eprintln!("after {at} s: {what}; {}", taken());
    }
}

async fn live(count: usize, lasts: Duration) {
    common::tls::install_provider();
    let dir = tempfile::tempdir().expect("a folder");
    let clock = SimClock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
    let data = dir.path().join("hub");
    authority(&data, 0);
    let disk = MemoryDisk::default();
    let hub_env = Env::seeded(Arc::new(clock.clone()), SEED);
    let world = World::with(Default::default(), false);
    let way = Way {
        line: Arc::default(),
        draws: hub_env.chance.shared_stream("way"),
    };
    let mut fleet = Fleet {
        count,
        way: way.clone(),
        clock,
        agents: BTreeMap::new(),
    };
    let start = async || {
        let hub = SimulatedHub::on(&disk, &data, HUB, &[], &hub_env, Router::client).await;
        let link = hub.served.router.link_of(Peer::Itself);
        way.lead(Some(world.within("fleet", link.clone())));
        (hub, link)
    };
    let (hub, link) = start().await;
    let began = Instant::now();
    let told = Told::new(began);
    let mut following = told.follow(&link);
    for number in 0..count {
        beats::make(&link, &name(number)).await;
        beats::report(&link, &name(number), "").await;
        fleet.start(number).await;
    }
    tell("all are there", began);
    sleep(lasts).await;
    let unknown = told.unknown();
    assert!(unknown.is_empty(), "missed, and live: {unknown:?}");
    tell("they lived", began);

    let silent = fall_silent(&mut fleet, &told, began).await;
    tell("three in ten fell silent", began);
    come_back(&mut fleet, &link, &told, silent).await;
    tell("they are back", began);

    way.lead(None);
    following.shutdown().await;
    hub.kill().await;
    sleep(Duration::from_secs(30)).await;
    let (hub, link) = start().await;
    let mut following = told.follow(&link);
    sleep(3 * GRACE).await;
    let unknown = told.unknown();
    assert!(unknown.is_empty(), "missed by the next hub: {unknown:?}");
    tell("another hub is there", began);
    for (_, running) in fleet.agents.into_values() {
        running.abort();
    }
    following.shutdown().await;
    hub.end().await;
    if given("TOWLINE_TELL").is_some() {
        eprintln!("{count} clusters holds");
    }
}

/// Three in ten end at once; each is marked at its own deadline, and nobody else.
async fn fall_silent(fleet: &mut Fleet, told: &Told, began: Instant) -> Vec<usize> {
    let silent: Vec<usize> = (0..fleet.count).filter(|it| it % 10 < 3).collect();
    let mut ended = BTreeMap::new();
    for number in &silent {
        let (agent, running) = fleet.agents.remove(&name(*number)).expect("there");
        running.abort();
        ended.insert(name(*number), agent.heard().duration_since(began));
    }
    sleep(GRACE + Duration::from_secs(2)).await;
    let unknown = told.unknown();
    for (name, at) in &unknown {
        let heard = ended.get(name).unwrap_or_else(|| panic!("{name} lives"));
        let after = at.saturating_sub(*heard);
        assert!(after >= GRACE, "{name} after {after:?}");
        assert!(after <= GRACE + LATE, "{name} after {after:?}");
    }
    assert_eq!(unknown.len(), silent.len(), "not missed");
    silent
}

/// They renew again and say that they are Ready, and are believed.
async fn come_back(fleet: &mut Fleet, link: &Link, told: &Told, silent: Vec<usize>) {
    for number in silent {
        fleet.start(number).await;
        beats::report(link, &name(number), "again").await;
    }
    sleep(2 * GRACE).await;
    let unknown = told.unknown();
    assert!(unknown.is_empty(), "not back: {unknown:?}");
}

/// A few clusters and minutes, or as many as `TOWLINE_CLUSTERS` says for ten minutes.
#[test]
fn a_large_fleet_falls_silent_in_part_and_comes_back() {
    let wanted = given("TOWLINE_CLUSTERS").map(|it| it.parse::<usize>().expect("a number"));
    let (count, lasts) = match wanted.filter(|it| *it > FEW) {
        Some(count) => (count, Duration::from_secs(600)),
        None => (FEW, Duration::from_secs(60)),
    };
    let _fixed = secret::Fixed::begin(SEED, pool(SEED));
    alone(live(count, lasts));
}
