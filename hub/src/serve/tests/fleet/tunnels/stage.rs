//! The processes of a run: the hub, two members, and their agents, whose owners opened them.

use super::super::super::super::*;
use super::super::super::rig::{SimulatedHub, ask};
use super::super::beats::Told;
use super::super::clocks::{ALL, Clocks};
use super::super::host::{Agent, HUB, Member, Stopped, address, chain, pool};
use super::super::image::{Image, by_files, image};
use super::super::wires::World;
use super::super::{CLUSTERS, get, post, watch};
use super::asks::{Asker, LARGE, MAPS, Records, large};
use super::plan::{Ask, MEMBERS, USERS};
use super::rights::{Rights, Word};
use crate::apiserver::authn::Peer;
use crate::apiserver::http::{Link, Protocol};
use crate::apiserver::keys::client;
use crate::apiserver::store::MemoryDisk;
use common::chance::secret;
use common::identity::CLUSTER_GROUP_PREFIX;
use common::labels::UNREGISTER;
use common::names::PROXY_NAME;
use common::tunnel::Begins;
use common::unregister::Mode;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use tempfile::TempDir;
use tokio::task::JoinSet;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// How long a pod takes to be started again.
const RESTART: Duration = Duration::from_secs(2);
/// What the owners of members say.
const OPEN: &str = "--proxy=impersonate";
/// For so long the end of an agent is a reason to be silent: the grace, and the wait for two Leases of 15 s.
const ENDS_TELL: Duration = Duration::from_secs(40 + 2 * 15);
/// How long what ends in order may take.
const ORDERLY: Duration = Duration::from_secs(10);
/// After so many milliseconds certificates are renewed at the latest: a third of their life, and a tenth of that.
const RENEWED_AFTER: i64 = 9 * 3_600_000;

/// The agent of a member.
enum Seat {
    Runs(Agent),
    /// It is started at this time.
    Ended(Stopped, Instant),
    /// It was told to leave, and does not come back.
    Leaves(Agent),
    Away,
}

struct Host {
    number: u8,
    disk: MemoryDisk,
    env: Env,
    member: Option<Member>,
    returns: Option<Instant>,
    seat: Seat,
    /// Agents in whose place another one was registered, each until some time.
    replaced: Vec<(Agent, Instant)>,
    /// How often that was.
    times: usize,
    /// When its agent ended.
    ends: Vec<Instant>,
}

pub(super) struct Stage {
    image: &'static Image,
    dir: TempDir,
    seed: u64,
    clocks: Clocks,
    pub(super) world: World,
    disk: MemoryDisk,
    hub_env: Env,
    hub: Option<SimulatedHub>,
    hub_returns: Option<Instant>,
    /// What the hub says of clusters.
    pub(super) told: Told,
    pub(super) rights: Rc<RefCell<Rights>>,
    /// Whose the rights of each cluster's agent are.
    registered: Registered,
    watches: JoinSet<()>,
    hosts: Vec<Host>,
    chains: BTreeMap<&'static str, Vec<CertificateDer<'static>>>,
    pub(super) records: Records,
    asks: JoinSet<usize>,
    _fixed: secret::Fixed,
}

fn hub_place() -> HostPort {
    HostPort::new(&HUB.ip().to_string(), HUB.port())
}

/// Whom an owner lets in.
fn rules(users: &[&str]) -> Value {
    match users {
        [] => json!([]),
        some => {
            json!([{"apiGroups": [""], "resources": ["users"], "resourceNames": some, "verbs": ["impersonate"]}])
        }
    }
}

fn role(name: &str, rules: Value) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
}

fn binding(name: &str, role: &str, users: &[&str]) -> Value {
    let group = "rbac.authorization.k8s.io";
    let subjects: Vec<Value> = users
        .iter()
        .map(|user| json!({"apiGroup": group, "kind": "User", "name": user}))
        .collect();
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role}, "subjects": subjects})
}

impl Stage {
    /// Everything is started, and every user may reach every member.
    pub(super) async fn begin(seed: u64, traced: bool) -> Self {
        let image = image(MEMBERS);
        let fixed = secret::Fixed::begin(seed, pool(seed));
        let mut clocks = Clocks::starting_at(image.at);
        let world = World::with(Default::default(), traced);
        let hub_env = Env::seeded(clocks.of("hub"), seed.wrapping_mul(100));
        let mut stage = Self {
            image,
            dir: image.unpack(),
            seed,
            told: Told::new(Instant::now()),
            world,
            disk: image.hub.copied(),
            hub_env,
            hub: None,
            hub_returns: None,
            rights: Rc::default(),
            registered: Registered::default(),
            watches: JoinSet::new(),
            hosts: Vec::new(),
            chains: BTreeMap::new(),
            records: Records::default(),
            asks: JoinSet::new(),
            clocks,
            _fixed: fixed,
        };
        stage.start_hub().await;
        stage.let_users_through().await;
        for number in 1..=MEMBERS {
            let env = stage.env(number, 0);
            let disk = image.members[usize::from(number - 1)].copied();
            let member = Member::on(&disk, stage.dir.path(), number, &stage.world, &env).await;
            furnish(&member).await;
            let agent_env = stage.env(number, 20);
            let (name, files) = (member.name.clone(), by_files(number));
            let (dir, hand, world) = (stage.dir.path(), &image.hands[0], &stage.world);
            let agent = Agent::on(
                dir,
                &member,
                hand,
                (&name, files),
                &[OPEN],
                world,
                &agent_env,
            );
            stage.hosts.push(Host {
                number,
                disk,
                env,
                member: Some(member),
                returns: None,
                seat: Seat::Runs(agent),
                replaced: Vec::new(),
                times: 0,
                ends: Vec::new(),
            });
        }
        let at = stage.world.age();
        for user in USERS {
            for number in 1..=MEMBERS {
                for word in [Word::Hub, Word::Member] {
                    stage.rights.borrow_mut().set(user, number, word, at, true);
                }
            }
        }
        stage
    }

    fn env(&mut self, number: u8, of: u64) -> Env {
        let stream = u64::from(number) + of;
        let seed = self.seed.wrapping_mul(100).wrapping_add(stream);
        Env::seeded(self.clocks.of(&format!("m{number}")), seed)
    }

    /// What the hub answers an operator by; none while it is away.
    fn link(&self) -> Option<Link> {
        let hub = self.hub.as_ref()?;
        Some(hub.served.router.link_of(Peer::Itself))
    }

    async fn let_users_through(&mut self) {
        let link = self.link().expect("just started");
        for number in 1..=MEMBERS {
            let name = format!("reach-m{number}");
            let rules = json!([{"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"],
                "resourceNames": [format!("m{number}")], "verbs": ["get", "create"]}]);
            post(&link, &format!("{RBAC}/clusterroles"), role(&name, rules)).await;
            for user in USERS {
                let bound = binding(&format!("{user}-m{number}"), &name, &[user]);
                post(&link, &format!("{RBAC}/clusterrolebindings"), bound).await;
            }
        }
        let hub = self.hub.as_ref().expect("just started");
        let authorities = hub.served.keys.authorities();
        let now = self.hub_env.clock.now();
        for user in USERS {
            let until = now + chrono::Duration::days(30);
            let issued = client::issue(&authorities.signer(), user, &[], now, until);
            let (certificate, _) = issued.expect("issued");
            let chain = common::tls::certificates(certificate.as_bytes()).expect("PEM");
            self.chains.insert(user, chain);
        }
    }

    async fn start_hub(&mut self) {
        let data = self.dir.path().join("hub");
        let (world, env) = (self.world.clone(), self.hub_env.clone());
        let hub = SimulatedHub::on(&self.disk, &data, HUB, &[], &env, move |router| {
            let link = router.link_of(Peer::Itself);
            Client::new(world.within("controllers", link), "default")
        });
        let hub = hub.await;
        let shown = chain(&hub.served.keys, HUB.ip(), env.clock.now());
        let router = hub.served.router.clone();
        let link = router.link_of(Peer::Itself);
        self.watches = self.told.follow(&link);
        let (rights, world) = (self.rights.clone(), self.world.clone());
        let follow = follow_registrations(link, self.registered.clone(), move |number| {
            rights.borrow_mut().register_anew(number, world.age());
        });
        self.watches.spawn_local(follow);
        self.world.add("hub", hub_place(), router, &shown);
        self.hub = Some(hub);
    }

    /// The hub ends, in order or not, and comes back.
    pub(super) async fn end_hub(&mut self, in_order: bool, lasts: u64) {
        let Some(hub) = self.hub.take() else { return };
        self.watches.shutdown().await;
        if in_order {
            self.world.close(&hub_place());
            let drained = async {
                while self
                    .world
                    .standing()
                    .keys()
                    .any(|way| way.contains(">hub "))
                {
                    sleep(RESTART / 20).await;
                }
            };
            // Whoever goes on is cut off.
            let _ = timeout(ORDERLY, drained).await;
            hub.end().await;
            self.world.kill(&hub_place());
        } else {
            self.world.kill(&hub_place());
            hub.kill().await;
        }
        self.hub_returns = Some(Instant::now() + Duration::from_millis(lasts));
    }

    pub(super) async fn end_member(&mut self, number: u8, in_order: bool, lasts: u64) {
        let host = &mut self.hosts[usize::from(number - 1)];
        let Some(member) = host.member.take() else {
            return;
        };
        if in_order {
            self.world.close(&address(number));
            member.end().await;
            self.world.kill(&address(number));
        } else {
            self.world.kill(&address(number));
            member.kill().await;
        }
        host.returns = Some(Instant::now() + Duration::from_millis(lasts));
    }

    pub(super) async fn end_agent(&mut self, number: u8, in_order: bool, lasts: u64) {
        let back = Instant::now() + Duration::from_millis(lasts);
        let host = &mut self.hosts[usize::from(number - 1)];
        if let Seat::Runs(_) = host.seat {
            host.ends.push(Instant::now());
        }
        host.seat = match std::mem::replace(&mut host.seat, Seat::Away) {
            Seat::Runs(agent) if in_order && !agent.has_ended() => {
                Seat::Ended(agent.stop().await, back)
            }
            Seat::Runs(agent) => Seat::Ended(agent.kill().await, back),
            other => other,
        };
    }

    /// Whether an agent's ends alone may have kept it from showing that it lives: one that takes the place of a killed
    /// one waits for the end of its Lease in the member from when it first saw it, and so does the next one when that
    /// ends meanwhile. Twice that, and a heartbeat that was due, are more than the grace.
    pub(super) fn may_be_silent(&self, number: u8) -> bool {
        let host = &self.hosts[usize::from(number - 1)];
        let lately = host.ends.iter().filter(|at| at.elapsed() < ENDS_TELL);
        lately.count() > 1
    }

    /// Another agent is registered elsewhere in the place of a member's, which goes on for a while. Its certificates may
    /// live for another number of seconds.
    pub(super) fn replace(&mut self, number: u8, lasts: u64, life: Option<u32>) {
        let at = usize::from(number - 1);
        let (env, mut hand) = (self.env(number, 40), self.image.replacing[at].clone());
        hand.life = life.unwrap_or(hand.life);
        let host = &mut self.hosts[at];
        let (Some(member), Seat::Runs(_)) = (&host.member, &host.seat) else {
            return;
        };
        host.times += 1;
        let name = format!("{}-{}", member.name, host.times);
        let (dir, world) = (self.dir.path(), &self.world);
        let agent = Agent::on(dir, member, &hand, (&name, true), &[OPEN], world, &env);
        if let Seat::Runs(old) = std::mem::replace(&mut host.seat, Seat::Runs(agent)) {
            let until = Instant::now() + Duration::from_millis(lasts);
            host.replaced.push((old, until));
        }
    }

    /// A cluster is unregistered; false while the hub is away.
    pub(super) async fn unregister(&mut self, number: u8) -> bool {
        let Some(link) = self.link() else {
            return false;
        };
        let path = format!("{CLUSTERS}/m{number}");
        let how =
            json!({"metadata": {"annotations": {UNREGISTER: Mode::RemoveWorkloads.as_str()}}});
        ask(&link, "PATCH", &path, how).await;
        ask(&link, "DELETE", &path, Value::Null).await;
        let host = &mut self.hosts[usize::from(number - 1)];
        host.seat = match std::mem::replace(&mut host.seat, Seat::Away) {
            Seat::Runs(agent) => Seat::Leaves(agent),
            Seat::Ended(stopped, _) => Seat::Leaves(stopped.start()),
            other => other,
        };
        true
    }

    /// A user may reach a member from now on, or no more, by the hub's word; false while it is away.
    pub(super) async fn set_right(&mut self, user: &str, number: u8, has: bool) -> bool {
        let Some(link) = self.link() else {
            return false;
        };
        let (bindings, name) = (
            format!("{RBAC}/clusterrolebindings"),
            format!("{user}-m{number}"),
        );
        let said = match has {
            true => {
                let bound = binding(&name, &format!("reach-m{number}"), &[user]);
                ask(&link, "POST", &bindings, bound).await
            }
            false => ask(&link, "DELETE", &format!("{bindings}/{name}"), Value::Null).await,
        };
        assert!(
            [200, 201, 404, 409].contains(&said.status().as_u16()),
            "{said:?}"
        );
        let at = self.world.age();
        self.rights
            .borrow_mut()
            .set(user, number, Word::Hub, at, has);
        true
    }

    /// The same by the word of the member's owner; false while its API server is away.
    pub(super) async fn let_in(&mut self, user: &str, number: u8, has: bool) -> bool {
        let Some(member) = &self.hosts[usize::from(number - 1)].member else {
            return false;
        };
        let link = member.link();
        let path = format!("{RBAC}/clusterroles/{PROXY_NAME}");
        let read = get(&link, &path).await;
        let names = read["rules"][0]["resourceNames"].as_array().cloned();
        let names = names.unwrap_or_default();
        let mut names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
        names.retain(|name| *name != user);
        names.extend(has.then_some(user));
        names.sort_unstable();
        let said = ask(&link, "PATCH", &path, json!({"rules": rules(&names)})).await;
        // One that was unregistered may have it no more.
        assert!([200, 404].contains(&said.status().as_u16()), "{said:?}");
        let at = self.world.age();
        self.rights
            .borrow_mut()
            .set(user, number, Word::Member, at, has);
        true
    }

    pub(super) fn renew(&mut self) {
        self.clocks.jump(ALL, RENEWED_AFTER);
    }

    /// The way of the tunnel of a member's agent, as it is now.
    pub(super) fn tunnel(&self, number: u8) -> super::super::wires::Way {
        self.world.way(
            &self.agent_host(number),
            "hub",
            Protocol::Tunnel(Begins::WhenAsked),
        )
    }

    /// The way from there to the member.
    pub(super) fn relay(&self, number: u8) -> super::super::wires::Way {
        let to = format!("member{number}");
        self.world
            .way(&self.agent_host(number), &to, Protocol::Http1)
    }

    fn agent_host(&self, number: u8) -> String {
        match self.hosts[usize::from(number - 1)].times {
            0 => format!("m{number}"),
            times => format!("m{number}-{times}"),
        }
    }

    /// A user begins to ask.
    pub(super) fn begin_to_ask(&mut self, ask: &Ask) {
        let chain = self.chains[ask.user.as_str()].clone();
        let asker = Asker {
            world: self.world.clone(),
            records: self.records.clone(),
        };
        self.asks.spawn_local(asker.ask(ask.clone(), chain));
    }

    /// How many ask.
    pub(super) fn asking(&self) -> usize {
        self.asks.len()
    }

    /// Who has asked to the end since this was asked the last time.
    pub(super) fn asked(&mut self) -> Vec<usize> {
        let mut asked = Vec::new();
        while let Some(ended) = self.asks.try_join_next() {
            asked.push(ended.expect("no panic"));
        }
        asked
    }

    /// Members whose clusters are there to stay.
    pub(super) fn open(&self) -> Vec<u8> {
        let stay = self.hosts.iter();
        let stay = stay.filter(|it| !matches!(it.seat, Seat::Leaves(_) | Seat::Away));
        stay.map(|it| it.number).collect()
    }

    /// What the hub says of itself, by the name of each metric with its labels; none while it is away.
    pub(super) async fn metrics(&self) -> Option<BTreeMap<String, f64>> {
        let said = ask(&self.link()?, "GET", "/metrics", Value::Null).await;
        let text = String::from_utf8_lossy(said.body()).into_owned();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pair = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Some(lines.filter_map(pair).collect())
    }

    /// What a member has under a path; none while it is away.
    pub(super) async fn member_has(&self, number: u8, path: &str) -> Option<Value> {
        let member = self.hosts[usize::from(number - 1)].member.as_ref()?;
        Some(get(&member.link(), path).await)
    }

    /// Who has ended is started again in time.
    pub(super) async fn look_after(&mut self) {
        if let Some(Err(error)) = self.watches.try_join_next() {
            std::panic::resume_unwind(error.into_panic());
        }
        let now = Instant::now();
        if self.hub_returns.is_some_and(|at| at <= now) {
            self.hub_returns = None;
            self.start_hub().await;
        }
        let dead = self.hub.as_ref().is_some_and(SimulatedHub::has_ended);
        assert!(!dead, "the hub's controllers ended by themselves");
        for host in &mut self.hosts {
            if host.returns.is_some_and(|at| at <= now) {
                host.returns = None;
                let (dir, world) = (self.dir.path(), &self.world);
                host.member =
                    Some(Member::on(&host.disk, dir, host.number, world, &host.env).await);
            }
            for (agent, until) in std::mem::take(&mut host.replaced) {
                match until <= now || agent.has_ended() {
                    true => drop(agent.kill().await),
                    false => host.replaced.push((agent, until)),
                }
            }
            host.seat = match std::mem::replace(&mut host.seat, Seat::Away) {
                Seat::Runs(agent) if agent.has_ended() => {
                    Seat::Ended(agent.kill().await, now + RESTART)
                }
                Seat::Ended(stopped, at) if at <= now => Seat::Runs(stopped.start()),
                Seat::Leaves(agent) if agent.has_ended() => {
                    drop(agent.kill().await);
                    Seat::Away
                }
                other => other,
            };
        }
    }
}

/// What users find in a member, and what they may do there.
async fn furnish(member: &Member) {
    let link = member.link();
    let path = format!("{RBAC}/clusterroles/{PROXY_NAME}");
    let said = ask(&link, "PATCH", &path, json!({"rules": rules(&USERS)})).await;
    assert_eq!(said.status(), 200, "{said:?}");
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create"]}]);
    post(
        &link,
        &format!("{RBAC}/clusterroles"),
        role("people", rules),
    )
    .await;
    let bound = binding("people", "people", &USERS);
    post(&link, &format!("{RBAC}/clusterrolebindings"), bound).await;
    let small = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "small"},
        "data": {"told": member.name}});
    post(&link, MAPS, small).await;
    for number in 0..LARGE {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("large-{number}"), "labels": {"size": "large"}},
            "data": {"large": large(number)}});
        post(&link, MAPS, map).await;
    }
}

/// By the name of each cluster's binding.
type Registered = Rc<RefCell<BTreeMap<String, Value>>>;

/// Tells of every change of whose the rights of a cluster's agent are.
async fn follow_registrations(link: Link, registered: Registered, anew: impl Fn(u8)) {
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/karmada-cluster/rolebindings";
    watch(link, path, |events| {
        for event in events.lines() {
            let event: Value = serde_json::from_str(event).expect("an event");
            let object = &event["object"];
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let number = name
                .strip_prefix(CLUSTER_GROUP_PREFIX)
                .and_then(|it| it.strip_prefix('m'));
            let Some(number) = number.and_then(|it| it.parse().ok()) else {
                continue;
            };
            let subject = match event["type"].as_str() {
                Some("DELETED") => Value::Null,
                _ => object["subjects"][0]["name"].clone(),
            };
            let before = registered
                .borrow_mut()
                .insert(name.to_owned(), subject.clone());
            if before.is_some_and(|it| it != subject) {
                anew(number);
            }
        }
    })
    .await;
}
