//! The hosts: the hub's, and a machine for each member with its API server and its agent.

use super::super::super::rig::{Served, SimulatedHub, Trace, ask};
use super::super::host::{self, HUB, Hand};
use super::super::{SECRETS, TOKEN, get, token_secret};
use super::authority;
use super::plan::Plan;
use super::sockets::{Door, Simulated};
use crate::apiserver::authn::Peer;
use crate::apiserver::keys::{FOLDER, Keys};
use crate::apiserver::serve::Front;
use crate::apiserver::store::MemoryDisk;
use crate::serve::kubeconfig;
use chrono::{DateTime, Utc};
use common::discovery::CaPin;
use common::env::Env;
use common::errors::chain;
use common::time::{SharedClock, SimClock};
use std::collections::BTreeSet;
use std::future::pending;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use turmoil::Result;

const PORT: u16 = 6443;
/// The shortest life of a certificate that a hub gives: each is renewed once in a run.
const LIFE: u32 = 600;

/// What lasts when hosts die: files and disks. Clones share it.
#[derive(Clone)]
pub(super) struct Ground {
    dir: PathBuf,
    seed: u64,
    members: u8,
    hub: MemoryDisk,
    machines: Vec<MemoryDisk>,
    hand: Hand,
    /// Of each agent.
    ways: Vec<Simulated>,
    /// What happened.
    pub(super) trace: Trace,
}

impl Ground {
    /// Authorities, tokens and kubeconfigs as they are laid down before the first start.
    pub(super) fn new(dir: &Path, plan: &Plan) -> Self {
        let clock = clock(Duration::ZERO);
        let data = dir.join("hub");
        authority(&data, 0);
        let keys = Keys::open(&data, &clock).expect("keys");
        admin(dir, "hub", &keys, HUB, clock.now());
        let ca = std::fs::read(data.join(FOLDER).join("ca.crt")).expect("an authority");
        let pins = CaPin::of_pem(&ca).expect("pins");
        for number in 1..=plan.members {
            let data = host::data(dir, number);
            authority(&data, host::authority_of(number));
            let keys = Keys::open(&data, &clock).expect("keys");
            let at = SocketAddr::new(ip(number), PORT);
            admin(dir, &format!("member{number}"), &keys, at, clock.now());
            host::kubeconfig_of_agent(dir, number, &keys, clock.now());
        }
        let trace = Trace::default();
        let way = |number| Simulated::new(&format!("the agent of m{number}"), &trace);
        Self {
            dir: dir.to_owned(),
            seed: plan.seed,
            members: plan.members,
            hub: MemoryDisk::default(),
            machines: (0..plan.members).map(|_| MemoryDisk::default()).collect(),
            hand: Hand {
                token: TOKEN.to_owned(),
                pin: pins.first().expect("one").to_string(),
                life: LIFE,
            },
            ways: (1..=plan.members).map(way).collect(),
            trace,
        }
    }

    /// What a server or an operator has, from its start on.
    pub(super) fn env(&self, process: u64, name: &str) -> Env {
        self.through(process, &Simulated::new(name, &self.trace))
    }

    fn through(&self, process: u64, way: &Simulated) -> Env {
        let seed = self.seed.wrapping_mul(100).wrapping_add(process);
        Env::seeded(now(), seed).through(Arc::new(way.clone()))
    }

    /// How many connections each agent has.
    pub(super) fn connections(&self) -> Vec<usize> {
        self.ways.iter().map(Simulated::connections).collect()
    }

    /// The file by which an operator reaches an API server.
    pub(super) fn admin(&self, of: &str) -> PathBuf {
        self.dir.join(format!("{of}.admin"))
    }
}

fn admin(dir: &Path, of: &str, keys: &Keys, at: SocketAddr, now: DateTime<Utc>) {
    let url = format!("https://{at}");
    let masters = ["system:masters".to_owned()];
    let until = now + chrono::Duration::days(1);
    let made = kubeconfig::make(keys, &url, "operator", &masters, now, until);
    std::fs::write(dir.join(format!("{of}.admin")), made.expect("made")).expect("written");
}

fn clock(elapsed: Duration) -> SharedClock {
    let began: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().expect("a time");
    Arc::new(SimClock::starting_at(began + elapsed))
}

/// The time of day of a host that starts now.
fn now() -> SharedClock {
    clock(turmoil::sim_elapsed().unwrap_or_default())
}

pub(super) fn ip(number: u8) -> IpAddr {
    host::ip(number).into()
}

fn front(at: IpAddr) -> Front {
    Front {
        names: BTreeSet::from([at.to_string()]),
        certificate_lifetime: chrono::Duration::days(90),
        strangers_of_address: 250,
    }
}

/// The hub, until it dies.
pub(super) async fn hub(ground: Ground) -> Result {
    let env = ground.env(0, "the hub");
    let data = ground.dir.join("hub");
    let made = SimulatedHub::on(&ground.hub, &data, HUB, &[], &env, |router| router.client());
    let made = made.await;
    let link = made.served.router.link_of(Peer::Itself);
    let token = format!("{SECRETS}/bootstrap-token-{}", &TOKEN[..6]);
    if get(&link, &token).await.is_null() {
        let uses = u32::from(ground.members);
        ask(&link, "POST", SECRETS, token_secret(TOKEN, uses, &[])).await;
    }
    let door = Door::open(PORT).await?;
    let _serving = made.listen(door, HUB, front(HUB.ip()));
    pending().await
}

/// A member and its agent, until they die or the agent ends.
pub(super) async fn machine(ground: Ground, number: u8) -> Result {
    let env = ground.env(u64::from(number), &format!("m{number}"));
    let at = SocketAddr::new(ip(number), PORT);
    let disk = &ground.machines[usize::from(number - 1)];
    let data = host::data(&ground.dir, number);
    let served = Served::on(disk, &data, &at.to_string(), &env).await;
    let laid = crate::cli::register::lay_foundation(served.router.client(), &[]);
    laid.await.expect("laid");
    let door = Door::open(PORT).await?;
    let _serving = served.listen(door, at, front(at.ip()));
    let config = host::config(&ground.dir, number, &ground.hand, false);
    let way = &ground.ways[usize::from(number - 1)];
    let agent = ground.through(10 + u64::from(number), way);
    let ended = agent::run::run(config, agent, CancellationToken::new()).await;
    Err(match ended {
        Ok(()) => format!("the agent of m{number} ended").into(),
        Err(error) => format!("the agent of m{number} ended: {}", chain(&error)).into(),
    })
}
