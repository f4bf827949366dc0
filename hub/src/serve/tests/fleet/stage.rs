//! The processes of a run: the hub, the members, and their agents, which come and go.

use super::super::super::*;
use super::super::rig::SimulatedHub;
use super::faults::Faults;
use super::host::{Agent, HUB, Member, Stopped, chain, pool};
use super::image::{Image, by_files, image};
use super::ledger::{Ledger, OF_HUB, OF_MEMBER};
use super::plan::{MEMBERS, Plan};
use super::pods;
use super::wires::World;
use crate::apiserver::authn::Peer;
use crate::apiserver::http::Link;
use crate::apiserver::store::MemoryDisk;
use common::chance::secret;
use common::time::SimClock;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::task::JoinSet;

/// How long a pod takes to be started again.
const RESTART: Duration = Duration::from_secs(2);
/// What the hub does about lost clusters within a run.
const FLAGS: [&str; 2] = [
    "--failover-eviction-timeout=20s",
    "--graceful-eviction-timeout=20s",
];

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

pub(super) struct Stage {
    image: &'static Image,
    dir: TempDir,
    seed: u64,
    clock: SimClock,
    pub(super) world: World,
    pub(super) ledger: Ledger,
    disk: MemoryDisk,
    hub_env: Env,
    hub: Option<SimulatedHub>,
    watches: JoinSet<()>,
    pub(super) members: Vec<Member>,
    seats: Vec<Seat>,
    /// How often each member came back.
    returns: Vec<usize>,
    /// What goes on beside the processes.
    beside: JoinSet<()>,
    _fixed: secret::Fixed,
}

impl Stage {
    /// Everything is started, from the image.
    pub(super) async fn begin(plan: &Plan, traced: bool) -> Self {
        let image = image();
        let seed = plan.seed;
        let fixed = secret::Fixed::begin(seed, pool(seed));
        let faults = Faults::new(seed, Instant::now(), plan.faults());
        let behind = plan
            .faults()
            .any(|(_, _, fault)| fault.way == "controllers");
        let lag = Duration::from_secs(if behind { 60 } else { 3 });
        let clock = SimClock::starting_at(image.at);
        let mut stage = Self {
            image,
            dir: image.unpack(),
            seed,
            world: World::with(faults, traced),
            ledger: Ledger::new(lag),
            disk: image.hub.copied(),
            hub_env: Env::seeded(Arc::new(clock.clone()), seed.wrapping_mul(100)),
            hub: None,
            watches: JoinSet::new(),
            members: Vec::new(),
            seats: Vec::new(),
            returns: vec![0; usize::from(MEMBERS)],
            beside: JoinSet::new(),
            clock,
            _fixed: fixed,
        };
        stage.beside.spawn_local(stage.ledger.clone().keep());
        stage.start_hub().await;
        for number in 1..=MEMBERS {
            stage.start_member(number).await;
        }
        for number in 1..=MEMBERS {
            let agent = stage.agent(number);
            stage.seats.push(Seat::Runs(agent));
        }
        stage
    }

    fn env(&self, host: u64) -> Env {
        let seed = self.seed.wrapping_mul(100).wrapping_add(host);
        Env::seeded(Arc::new(self.clock.clone()), seed)
    }

    async fn start_member(&mut self, number: u8) {
        let disk = self.image.members[usize::from(number - 1)].copied();
        let env = self.env(number.into());
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

    /// A new agent of a member, by the token that it is handed now.
    fn agent(&self, number: u8) -> Agent {
        let at = usize::from(number - 1);
        let member = &self.members[at];
        let env = self.env(10 + u64::from(number));
        let hands = &self.image.hands;
        let hand = &hands[self.returns[at].min(hands.len() - 1)];
        let by_files = by_files(number);
        Agent::begin(self.dir.path(), member, hand, by_files, &self.world, &env)
    }

    /// What the hub answers an operator by; none while it is away.
    pub(super) fn link(&self) -> Option<Link> {
        let hub = self.hub.as_ref()?;
        Some(hub.served.router.link_of(Peer::Itself))
    }

    pub(super) async fn start_hub(&mut self) {
        if self.hub.is_some() {
            return;
        }
        let data = self.dir.path().join("hub");
        let world = self.world.clone();
        let env = self.hub_env.clone();
        let hub = SimulatedHub::on(&self.disk, &data, HUB, &FLAGS, &env, move |router| {
            let link = router.link_of(Peer::Itself);
            Client::new(world.within("controllers", link), "default")
        })
        .await;
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
    }

    pub(super) async fn kill_hub(&mut self) {
        if let Some(hub) = self.hub.take() {
            self.watches.shutdown().await;
            self.world.kill(&place());
            hub.kill().await;
        }
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
        let dead = self.hub.as_ref().is_some_and(SimulatedHub::has_ended);
        assert!(!dead, "the hub's controllers ended by themselves");
        let now = Instant::now();
        for number in 1..=MEMBERS {
            let name = format!("m{number}");
            let is_gone = self.ledger.look(|books| books.cluster(&name).is_none());
            let seat = match self.take(number) {
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
                Seat::Away(Some(at)) if at <= now && is_gone && self.hub.is_some() => {
                    let at = usize::from(number - 1);
                    self.members[at].lay_foundation().await;
                    self.returns[at] += 1;
                    Seat::Runs(self.agent(number))
                }
                other => other,
            };
            self.put(number, seat);
        }
    }

    /// Who is not where they are to be at the end.
    pub(super) fn unsettled(&self) -> Option<String> {
        if self.hub.is_none() {
            return Some("the hub is away".to_owned());
        }
        let mut seats = (1..).zip(&self.seats);
        seats.find_map(|(number, seat)| {
            let what = match seat {
                Seat::Runs(_) | Seat::Away(None) => return None,
                Seat::Stopped(_) => "is stopped".to_owned(),
                Seat::Ended(stopped, _) => {
                    format!("ended: {}", stopped.error().unwrap_or_default())
                }
                Seat::Leaves(..) => "does not leave".to_owned(),
                Seat::Away(Some(_)) => "has left, and cannot come back".to_owned(),
                Seat::Empty => "is nowhere".to_owned(),
            };
            Some(format!("the agent of m{number} {what}"))
        })
    }
}

fn place() -> HostPort {
    HostPort::new(&HUB.ip().to_string(), HUB.port())
}
