//! A fleet whose members have registered, stopped and kept: every run begins with a copy of it.

use super::super::super::*;
use super::super::rig::{CLUSTERS, SimulatedHub, alone, ask};
use super::host::{Agent, HUB, Hand, Member, authority, chain, first_keys};
use super::plan::SPACES;
use super::wires::World;
use super::{intruders, is_ready, make_token, post, until};
use crate::apiserver::authn::Peer;
use crate::apiserver::store::MemoryDisk;
use chrono::{DateTime, Utc};
use common::chance::secret;
use common::discovery::CaPin;
use common::labels::{TOKEN_CLUSTER, TOKEN_REPLACE};
use common::time::SimClock;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::LocalSet;

/// The seed of the run that makes it.
const SEED: u64 = 1;
/// How often a member can come back.
const RETURNS: u32 = 5;
/// How many seconds certificates live: longer than any run.
const LIFE: u32 = 24 * 3600;

/// How many agents each of its tokens lets in: whoever lost its certificate needs another use.
const USES: u32 = 100;

/// How many agents a token lets in, by its id.
pub(super) fn uses(id: &str) -> usize {
    let uses = match id {
        _ if intruders::TOKEN.starts_with(id) => intruders::USES,
        _ if id.starts_with(ANEW) => 1,
        _ => USES,
    };
    usize::try_from(uses).unwrap_or(usize::MAX)
}

/// How tokens begin that are good for one cluster's name, which follows by its number.
const REPLACING: &str = "repla";
/// And those that are handed over in a run, of which the number of the token is last.
pub(super) const ANEW: &str = "anew";

/// The cluster that a token is good for, if it is bound to one.
pub(super) fn bound(id: &str) -> Option<String> {
    let number = id.strip_prefix(REPLACING);
    let number = number.or_else(|| id.strip_prefix(ANEW)?.get(..1));
    let number = u8::from_str_radix(number?, 16).ok()?;
    Some(format!("m{number}"))
}

/// What is left of a fleet when all of its processes have ended.
pub(super) struct Image {
    pub(super) hub: MemoryDisk,
    pub(super) members: Vec<MemoryDisk>,
    /// What an agent is handed: the first, and one for each time that its member comes back, as a person makes it.
    pub(super) hands: Vec<Hand>,
    /// What it is handed when its member has lost what the agent was registered with.
    pub(super) replacing: Vec<Hand>,
    /// When it ended.
    pub(super) at: DateTime<Utc>,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

/// The one of so many members, made once in a process and in a world of its own.
pub(super) fn image(members: u8) -> &'static Image {
    static IMAGES: Mutex<BTreeMap<u8, &'static Image>> = Mutex::new(BTreeMap::new());
    let mut images = IMAGES.lock().unwrap_or_else(PoisonError::into_inner);
    images.entry(members).or_insert_with(|| {
        let _fixed = secret::Fixed::begin(SEED, first_keys());
        Box::leak(Box::new(alone(LocalSet::new().run_until(make(members)))))
    })
}

impl Image {
    /// Its files, in a folder of their own.
    pub(super) fn unpack(&self) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        for (path, content) in &self.files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("in a folder")).expect("made");
            let mut file = fs::OpenOptions::new();
            let file = file.write(true).create(true).mode(0o600).open(path);
            std::io::Write::write_all(&mut file.expect("made"), content).expect("written");
        }
        dir
    }
}

/// What a member has room on.
pub(super) fn node(processors: u32) -> serde_json::Value {
    let amounts = json!({"cpu": processors.to_string(), "memory": "16Gi", "pods": "40"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"},
        "status": {"capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
}

async fn make(count: u8) -> Image {
    common::tls::install_provider();
    let dir = tempfile::tempdir().expect("a folder");
    let world = World::new();
    let clock = SimClock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
    let env = |host: u64| Env::seeded(Arc::new(clock.clone()), SEED * 100 + host);
    let data = dir.path().join("hub");
    authority(&data, 0);
    let (disk, hub_env) = (MemoryDisk::default(), env(0));
    let hub = SimulatedHub::on(&disk, &data, HUB, &[], &hub_env, Router::client).await;
    let shown = chain(&hub.served.keys, HUB.ip(), hub_env.clock.now());
    let at = HostPort::new(&HUB.ip().to_string(), HUB.port());
    world.add("hub", at, hub.served.router.clone(), &shown);
    let link = hub.served.router.link_of(Peer::Itself);
    let tokens: Vec<String> = (0..=RETURNS)
        .map(|number| format!("abcde{number}.0123456789abcdef"))
        .collect();
    for token in &tokens {
        make_token(&link, token, USES, &[]).await;
    }
    make_token(&link, intruders::TOKEN, intruders::USES, &[]).await;
    let replacing: Vec<String> = (1..=count)
        .map(|number| format!("{REPLACING}{number:x}.0123456789abcdef"))
        .collect();
    for (number, token) in (1..).zip(&replacing) {
        let bound = [
            (TOKEN_CLUSTER, format!("m{number}")),
            (TOKEN_REPLACE, "true".to_owned()),
        ];
        let bound = bound
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        make_token(&link, token, USES, &bound).await;
    }
    for space in SPACES {
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}});
        post(&link, "/api/v1/namespaces", space).await;
    }
    let pins = CaPin::of_pem(hub.served.keys.authorities().bundle().as_bytes()).expect("pins");
    let hand = |token| Hand {
        token,
        pin: pins.first().expect("one").to_string(),
        life: LIFE,
    };
    let hands: Vec<Hand> = tokens.into_iter().map(hand).collect();
    let replacing = replacing.into_iter().map(hand).collect();
    let (mut members, mut agents, mut disks) = (Vec::new(), Vec::new(), Vec::new());
    for number in 1..=count {
        let disk = MemoryDisk::default();
        let member = Member::begin(&disk, dir.path(), number, &world, &env(number.into())).await;
        disks.push(disk);
        post(&member.link(), "/api/v1/nodes", node(u32::from(number) + 1)).await;
        let agent_env = env(10 + u64::from(number));
        let agent = Agent::begin(
            dir.path(),
            &member,
            &hands[0],
            by_files(number),
            &world,
            &agent_env,
        );
        agents.push(agent);
        members.push(member);
    }
    for member in &members {
        let name = &member.name;
        until("a cluster is Ready", async || is_ready(&link, name).await).await;
        let regions = ["north", "south", "south"];
        let region = regions[usize::from(member.number - 1) % regions.len()];
        let told = json!({"metadata": {"labels": {"tier": if member.number == 1 { "lead" } else { "gold" }}},
            "spec": {"region": region, "provider": "here"}});
        let said = ask(&link, "PATCH", &format!("{CLUSTERS}/{name}"), told).await;
        assert_eq!(said.status(), 200, "{said:?}");
    }
    sleep(Duration::from_secs(15)).await;
    for agent in agents {
        agent.stop().await;
    }
    for member in members {
        member.end().await;
    }
    hub.end().await;
    let mut files = BTreeMap::new();
    collect(dir.path(), dir.path(), &mut files);
    Image {
        hub: disk,
        members: disks,
        hands,
        replacing,
        at: hub_env.clock.now(),
        files,
    }
}

/// Whether an agent keeps what is theirs in files, and not in its member.
pub(super) fn by_files(number: u8) -> bool {
    number.is_multiple_of(3)
}

fn collect(root: &Path, dir: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(dir).expect("read") {
        let path = entry.expect("read").path();
        if path.is_dir() {
            collect(root, &path, files);
        } else {
            let name = path.strip_prefix(root).expect("within").to_owned();
            files.insert(name, fs::read(&path).expect("read"));
        }
    }
}
