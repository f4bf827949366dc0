//! The processes of a run: the hub, the members, and their agents, which come and go.

mod tokens;

use super::super::super::*;
use super::super::rig::{NAMESPACES, SimulatedHub, ask};
use super::books::{Books, Key};
use super::clocks::{ALL, Clocks};
use super::crash::Crash;
use super::faults::Faults;
use super::get;
use super::history::History;
use super::host::{Agent, HUB, Hand, Member, Stopped, chain, pool};
use super::image::{Image, by_files, image};
use super::ledger::{Ledger, OF_HUB, OF_MEMBER};
use super::plan::{Plan, Trouble, What};
use super::pods;
use super::runs::Keep;
use super::steps::revisions::{revision, started};
use super::wires::World;
use crate::apiserver::authn::Peer;
use crate::apiserver::http::Link;
use crate::apiserver::store::{Fault, MemoryDisk};
use common::chance::secret;
use common::names::{AGENT_NAMESPACE, CREDENTIALS_SECRET};
use serde_json::Value;
use std::collections::BTreeMap;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

/// How long a pod takes to be started again.
const RESTART: Duration = Duration::from_secs(2);
/// What the hub does about lost clusters within a run.
const FLAGS: [&str; 2] = [
    "--failover-eviction-timeout=20s",
    "--graceful-eviction-timeout=20s",
];

/// After so many milliseconds certificates are renewed at the latest: a third of their life, and a tenth of that.
const RENEWED_AFTER: i64 = 9 * 3_600_000;

/// The agent of a member.
enum Seat {
    Runs(Agent),
    /// It was stopped, and is started by the plan.
    Stopped(Stopped),
    /// It ended by itself, and is started again at this time.
    Ended(Stopped, Instant),
    /// It was told to leave, and comes back at this time, or never.
    Leaves(Agent, Option<Instant>),
    /// It has left.
    Away(Option<Instant>),
    /// In between.
    Empty,
}

/// What draws for itself on the host of a member, by where its streams begin.
#[derive(Clone, Copy)]
enum Process {
    Member = 0,
    Agent = 20,
    Twin = 40,
}

pub(super) struct Stage {
    image: &'static Image,
    dir: TempDir,
    seed: u64,
    clocks: Clocks,
    /// When all clocks went on at a time at which certificates have to be renewed.
    aged: Option<Duration>,
    pub(super) world: World,
    pub(super) ledger: Ledger,
    disk: MemoryDisk,
    hub_env: Env,
    hub: Option<SimulatedHub>,
    /// When it is started again, if it was killed at a crash point.
    hub_returns: Option<Instant>,
    /// Until when its disk is full, slow or broken.
    disk_heals: Option<Instant>,
    watches: JoinSet<()>,
    pub(super) members: Vec<Member>,
    seats: Vec<Seat>,
    /// Second agents of members, each until some time.
    twins: Vec<(u8, Agent, Instant)>,
    /// How often each member came back.
    returns: Vec<usize>,
    /// What the agent of each was handed last.
    hands: Vec<Hand>,
    /// What each said for which it was handed a new token, and how often one was handed one.
    asked_for: Vec<(Value, u8)>,
    /// When that was the last time.
    pub(super) handed_over: Duration,
    /// What goes on beside the processes.
    beside: JoinSet<()>,
    _fixed: secret::Fixed,
}

impl Stage {
    /// Everything is started, from the image.
    pub(super) async fn begin(plan: &Plan, keep: Keep) -> Self {
        let image = image(plan.members);
        let seed = plan.seed;
        let fixed = secret::Fixed::begin(seed, pool(seed));
        let faults = Faults::new(seed, Instant::now(), plan.faults());
        let behind = plan
            .faults()
            .any(|(_, _, fault)| fault.way == "controllers");
        let lag = Duration::from_secs(if behind { 60 } else { 3 });
        let mut clocks = Clocks::starting_at(image.at);
        let mut stage = Self {
            image,
            dir: image.unpack(),
            seed,
            world: World::with(faults, keep == Keep::Trace),
            ledger: Ledger::new(lag),
            disk: image.hub.copied(),
            hub_env: Env::seeded(clocks.of("hub"), seed.wrapping_mul(100)),
            hub: None,
            hub_returns: None,
            watches: JoinSet::new(),
            members: Vec::new(),
            seats: Vec::new(),
            twins: Vec::new(),
            returns: vec![0; usize::from(plan.members)],
            hands: vec![image.hands[0].clone(); usize::from(plan.members)],
            asked_for: vec![(Value::Null, 0); usize::from(plan.members)],
            handed_over: Duration::ZERO,
            beside: JoinSet::new(),
            clocks,
            aged: None,
            disk_heals: None,
            _fixed: fixed,
        };
        let sets =
            |what: &What| matches!(what, What::Clock(host, _) if host == ALL || host == "hub");
        let is_timeless = plan.steps.iter().any(|it| sets(&it.what));
        stage.ledger.look(|books| books.is_timeless = is_timeless);
        if keep == Keep::History {
            stage
                .ledger
                .look(|books| books.history = Some(History::default()));
        }
        stage.beside.spawn_local(stage.ledger.clone().keep());
        stage.start_hub().await;
        for number in 1..=plan.members {
            stage.start_member(number).await;
        }
        for number in 1..=plan.members {
            let agent = stage.agent(number, Process::Agent);
            stage.seats.push(Seat::Runs(agent));
        }
        stage
    }

    /// Of a member, or of its agent, which is on the same host.
    fn env(&mut self, number: u8, of: Process) -> Env {
        let stream = u64::from(number) + of as u64;
        let seed = self.seed.wrapping_mul(100).wrapping_add(stream);
        Env::seeded(self.clocks.of(&format!("m{number}")), seed)
    }

    async fn start_member(&mut self, number: u8) {
        let disk = self.image.members[usize::from(number - 1)].copied();
        let env = self.env(number, Process::Member);
        let member = Member::on(&disk, self.dir.path(), number, &self.world, &env).await;
        for (kind, path) in OF_MEMBER {
            let (ledger, name) = (self.ledger.clone(), member.name.clone());
            let watch = ledger.follow_member(name, member.link(), kind, path);
            self.beside.spawn_local(watch);
        }
        let draws = env.chance.shared_stream("pods");
        self.beside.spawn_local(pods::run(member.link(), draws));
        self.members.push(member);
    }

    /// A new agent of a member, by the token that it was handed last.
    fn agent(&mut self, number: u8, of: Process) -> Agent {
        let at = usize::from(number - 1);
        let env = self.env(number, of);
        let (member, hand) = (&self.members[at], &self.hands[at]);
        let by_files = by_files(number);
        Agent::begin(self.dir.path(), member, hand, by_files, &self.world, &env)
    }

    /// What the hub answers an operator by; none while it is away.
    pub(super) fn link(&self) -> Option<Link> {
        let hub = self.hub.as_ref()?;
        Some(hub.served.router.link_of(Peer::Itself))
    }

    /// What it answers somebody by who shows no certificate.
    pub(super) fn strangers_link(&self) -> Option<Link> {
        let hub = self.hub.as_ref()?;
        let from = std::net::Ipv4Addr::new(203, 0, 113, 1);
        Some(hub.served.router.link(from.into(), &[]))
    }

    pub(super) async fn start_hub(&mut self) {
        if self.hub.is_some() {
            return;
        }
        // It would be started again and again.
        if let Some(at) = self.disk_heals {
            sleep_until(at).await;
            self.heal_disk();
        }
        let data = self.dir.path().join("hub");
        let world = self.world.clone();
        let env = self.hub_env.clone();
        let hub = SimulatedHub::on(&self.disk, &data, HUB, &FLAGS, &env, move |router| {
            let link = router.link_of(Peer::Itself);
            Client::new(world.within("controllers", link), "default")
        });
        let hub = tokio::select! {
            biased;
            () = self.world.crashes.is_due_of("hub") => None,
            hub = hub => Some(hub),
        };
        let Some(hub) = hub else {
            // Killed while it started; what it wrote is there.
            self.disk.lose_power(usize::MAX);
            self.world.crashes.is_done();
            self.hub_returns = Some(Instant::now() + RESTART);
            return;
        };
        let keys = &hub.served.keys;
        let shown = chain(keys, HUB.ip(), env.clock.now());
        let router = hub.served.router.clone();
        let link = router.link_of(Peer::Itself);
        self.world.add("hub", place(), router, &shown);
        for (kind, path) in OF_HUB {
            let watch = self.ledger.clone().follow_hub(link.clone(), kind, path);
            self.watches.spawn_local(watch);
        }
        self.hub = Some(hub);
        let mut there = BTreeMap::new();
        for (kind, path) in OF_HUB {
            let list = get(&link, path).await;
            let items = list["items"].as_array();
            let each = items.into_iter().flatten();
            there.extend(each.map(|it| (Key::of(kind, it), revision(it))));
        }
        self.ledger.look(|books| started(books, &there));
    }

    /// The clocks of a host, or of all, are set.
    pub(super) fn set_clock(&mut self, host: &str, by: i64) {
        self.clocks.jump(host, by);
        if host == ALL && by >= RENEWED_AFTER {
            self.aged = Some(self.world.age());
        }
    }

    pub(super) fn trouble_disk(&mut self, trouble: Trouble, lasts: u64) {
        match trouble {
            Trouble::Full => self.disk.set_fault(Some(Fault::Full)),
            Trouble::Broken => self.disk.set_fault(Some(Fault::Broken)),
            Trouble::Slow(each) => self.disk.set_latency(Duration::from_millis(each)),
        }
        self.disk_heals = Some(Instant::now() + Duration::from_millis(lasts));
    }

    fn heal_disk(&mut self) {
        self.disk.set_fault(None);
        self.disk.set_latency(Duration::ZERO);
        self.disk_heals = None;
    }

    /// The hub's host loses its power.
    pub(super) async fn lose_power(&mut self) {
        self.kill_hub().await;
        self.disk.lose_power(0);
    }

    pub(super) async fn kill_hub(&mut self) {
        if let Some(hub) = self.hub.take() {
            self.watches.shutdown().await;
            self.world.kill(&place());
            hub.kill().await;
        }
    }

    fn numbers(&self) -> std::ops::RangeInclusive<u8> {
        1..=u8::try_from(self.seats.len()).expect("few")
    }

    /// From now on a process is killed at one of its requests or commits.
    pub(super) fn arm(&self, crash: &Crash) {
        let crashes = self.world.crashes.clone();
        crashes.arm(crash);
        self.disk
            .set_killer(move |moment| crashes.at_commit(moment));
    }

    /// Kills whoever is at its crash point; it is started again as it would be.
    async fn crash(&mut self) {
        let Some(of) = self.world.crashes.due() else {
            return;
        };
        let back = Instant::now() + RESTART;
        let member = self.members.iter().find(|it| it.name == of);
        let Some(number) = member.map(|it| it.number) else {
            self.kill_hub().await;
            self.hub_returns = Some(back);
            return self.world.crashes.is_done();
        };
        let seat = match self.take(number) {
            Seat::Runs(agent) => Seat::Ended(agent.kill().await, back),
            Seat::Leaves(agent, returns) => {
                let stopped = agent.kill().await;
                self.world.crashes.is_done();
                Seat::Leaves(stopped.start(), returns)
            }
            other => other,
        };
        self.world.crashes.is_done();
        self.put(number, seat);
    }

    fn take(&mut self, number: u8) -> Seat {
        let seat = &mut self.seats[usize::from(number - 1)];
        std::mem::replace(seat, Seat::Empty)
    }

    fn put(&mut self, number: u8, seat: Seat) {
        self.seats[usize::from(number - 1)] = seat;
    }

    pub(super) async fn kill_agent(&mut self, number: u8) {
        let seat = match self.take(number) {
            Seat::Runs(agent) => Seat::Stopped(agent.kill().await),
            Seat::Ended(stopped, _) => Seat::Stopped(stopped),
            other => other,
        };
        self.put(number, seat);
    }

    pub(super) fn start_agent(&mut self, number: u8) {
        let seat = match self.take(number) {
            Seat::Stopped(stopped) => Seat::Runs(stopped.start()),
            other => other,
        };
        self.put(number, seat);
    }

    /// What a member's agent was registered with is gone, and it is registered in its own place.
    pub(super) async fn forget(&mut self, number: u8) {
        let at = usize::from(number - 1);
        let agent = match self.take(number) {
            Seat::Runs(agent) => agent,
            other => return self.put(number, other),
        };
        drop(agent.kill().await);
        if by_files(number) {
            let files = self.dir.path().join(format!("m{number}.state"));
            std::fs::remove_dir_all(files).expect("removed");
        } else {
            let path = format!("/api/v1/namespaces/{AGENT_NAMESPACE}/secrets/{CREDENTIALS_SECRET}");
            let said = ask(&self.members[at].link(), "DELETE", &path, Value::Null).await;
            assert!([200, 404].contains(&said.status().as_u16()), "{said:?}");
        }
        self.hands[at] = self.image.replacing[at].clone();
        let agent = self.agent(number, Process::Agent);
        self.put(number, Seat::Runs(agent));
    }

    /// A second agent, which waits to lead. One that keeps what is its own in files has none.
    pub(super) fn start_twin(&mut self, number: u8, lasts: u64) {
        if by_files(number) || !self.stays(number) {
            return;
        }
        let until = Instant::now() + Duration::from_millis(lasts);
        let agent = self.agent(number, Process::Twin);
        self.twins.push((number, agent, until));
    }

    /// Ends the second agents whose time is over, or whose member leaves.
    async fn end_twins(&mut self) {
        for (number, agent, until) in std::mem::take(&mut self.twins) {
            if until <= Instant::now() || !self.stays(number) {
                agent.kill().await;
            } else {
                self.twins.push((number, agent, until));
            }
        }
    }

    /// It was told to leave.
    pub(super) fn leaves(&mut self, number: u8, back: Option<u64>) {
        let back = back.map(|after| Instant::now() + Duration::from_millis(after));
        let seat = match self.take(number) {
            Seat::Runs(agent) => Seat::Leaves(agent, back),
            Seat::Stopped(stopped) | Seat::Ended(stopped, _) => Seat::Leaves(stopped.start(), back),
            other => other,
        };
        self.put(number, seat);
    }

    /// Whether a member's agent is there, and stays.
    pub(super) fn stays(&self, number: u8) -> bool {
        let seat = &self.seats[usize::from(number - 1)];
        matches!(seat, Seat::Runs(_) | Seat::Stopped(_) | Seat::Ended(..))
    }

    /// Who has ended or left is started again in time.
    pub(super) async fn look_after(&mut self) {
        for beside in [&mut self.beside, &mut self.watches] {
            if let Some(Err(error)) = beside.try_join_next() {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        if self.disk_heals.is_some_and(|at| at <= Instant::now()) {
            self.heal_disk();
        }
        self.end_twins().await;
        self.crash().await;
        if self.hub_returns.is_some_and(|at| at <= Instant::now()) {
            self.hub_returns = None;
            self.start_hub().await;
        }
        self.hand_over().await;
        let dead = self.hub.as_ref().is_some_and(SimulatedHub::has_ended);
        assert!(!dead, "the hub's controllers ended by themselves");
        let now = Instant::now();
        for number in self.numbers() {
            let name = format!("m{number}");
            let is_gone = self.ledger.look(|books| books.cluster(&name).is_none());
            let seat = self.take(number);
            let is_free = is_gone
                && matches!(seat, Seat::Away(Some(_)))
                && !self.is_being_cleared(number).await;
            let seat = match seat {
                Seat::Runs(agent) if agent.has_ended() => {
                    Seat::Ended(agent.kill().await, now + RESTART)
                }
                Seat::Ended(stopped, at) if at <= now => Seat::Runs(stopped.start()),
                Seat::Leaves(agent, back) if agent.has_ended() => {
                    let stopped = agent.kill().await;
                    // It may well end before the hub is through with it; or it could not go on, and is started again.
                    if is_gone || stopped.error().is_none() {
                        Seat::Away(back)
                    } else {
                        Seat::Leaves(stopped.start(), back)
                    }
                }
                // It never heard of it, and does not learn it from a hub that takes its certificate no more.
                Seat::Leaves(agent, back) if is_gone && self.says_expired(number).await => {
                    drop(agent.kill().await);
                    Seat::Away(back)
                }
                Seat::Away(Some(at)) if at <= now && is_free && self.hub.is_some() => {
                    let at = usize::from(number - 1);
                    self.members[at].lay_foundation().await;
                    self.returns[at] += 1;
                    let hands = &self.image.hands;
                    self.hands[at] = hands[self.returns[at].min(hands.len() - 1)].clone();
                    Seat::Runs(self.agent(number, Process::Agent))
                }
                other => other,
            };
            self.put(number, seat);
        }
    }

    /// Whether the namespace of the agent that left a member is still being deleted; nobody installs another into that.
    async fn is_being_cleared(&self, number: u8) -> bool {
        let member = &self.members[usize::from(number - 1)];
        let path = format!("{NAMESPACES}/{AGENT_NAMESPACE}");
        let namespace = get(&member.link(), &path).await;
        !namespace["metadata"]["deletionTimestamp"].is_null()
    }

    /// Whether the certificate of a member's agent is older than it may be.
    fn is_due(&self, number: u8) -> bool {
        let issued = |books: &mut Books| books.certified.get(&format!("m{number}")).copied();
        self.aged
            .is_some_and(|aged| self.ledger.look(issued).unwrap_or_default() < aged)
    }

    /// Who is not where they are to be at the end.
    pub(super) fn unsettled(&self) -> Option<String> {
        if self.hub.is_none() {
            return Some("settled: the hub is away".to_owned());
        }
        let mut seats = (1..).zip(&self.seats);
        seats.find_map(|(number, seat)| {
            let who = format!("the agent of m{number}");
            Some(match seat {
                Seat::Runs(_) if self.is_due(number) => {
                    format!("certificates: {who} has not renewed its own")
                }
                Seat::Runs(_) | Seat::Away(None) => return None,
                Seat::Stopped(_) => format!("settled: {who} is stopped"),
                Seat::Ended(stopped, _) => {
                    let error = stopped.error().unwrap_or_default();
                    format!("settled: {who} ended: {error}")
                }
                Seat::Leaves(..) => format!("settled: {who} does not leave"),
                Seat::Away(Some(_)) => format!("settled: {who} has left, and cannot come back"),
                Seat::Empty => format!("settled: {who} is nowhere"),
            })
        })
    }
}

fn place() -> HostPort {
    HostPort::new(&HUB.ip().to_string(), HUB.port())
}
