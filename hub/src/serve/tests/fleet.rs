//! A whole fleet on one thread under simulated time: a hub, three members, and the agents that ship, from
//! registration to unregister. For the same seed every request, answer and event is the same at the same time.
//!
//! `seeds` runs propagation in it while everything goes wrong: `draw` makes a `plan` of a seed, `runs` plays it on a
//! `stage` (`acts` is what people do, `faults` what lines do, `pods` what runs in members), and `ledger` keeps `books`,
//! on which `steps` says what holds after every event and `rest` what holds at the end. `returns` has a hub come back.
//! `fewer` makes a plan that fails smaller.
//! `bytes` has TCP, TLS and HTTP between fewer hosts, and breaks connections.
//! `points` kills a process at each of its requests and commits (`crash`), one after the other.
//! `tunnels` has users ask members through what their agents dialled, over connections of bytes.
//! `signs` has agents show more often than by their Leases that they live, and `many` has very many; there they are
//! their heartbeats alone (`beats`).

mod acts;
mod asked;
mod beats;
mod books;
mod bytes;
mod clocks;
mod crash;
mod draw;
mod essence;
mod faults;
mod fewer;
mod filters;
mod history;
mod host;
mod image;
mod intruders;
mod ledger;
mod many;
mod plan;
mod pods;
mod points;
mod rest;
mod returns;
mod runs;
mod seeds;
mod signs;
mod stage;
mod steps;
mod tunnels;
mod wires;

use super::super::*;
use super::rig::{CLUSTERS, LEASES, NAMESPACES, SimulatedHub, alone, ask, assert_same, watch};
use crate::apiserver::authn::Peer;
use crate::apiserver::http::Link;
use crate::apiserver::store::MemoryDisk;
use common::chance::secret;
use common::discovery::CaPin;
use common::identity::BOOTSTRAP_GROUP;
use common::labels::{TOKEN_USES, UNREGISTER};
use common::time::SimClock;
use common::unregister::Mode;
use essence::essence;
use host::{Agent, HUB, Hand, Member, authority, chain, pool};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::task::{JoinSet, LocalSet};
use wires::World;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const WORKS: &str = "/apis/work.karmada.io/v1alpha1/works";
/// Where tokens are.
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
const TOKEN: &str = "abcdef.0123456789abcdef";
/// Where a Work's ConfigMap comes to be in a member.
const TOLD: &str = "/api/v1/namespaces/default/configmaps/told";

/// An object, or null when there is none.
async fn get(link: &Link, path: &str) -> Value {
    let read = ask(link, "GET", path, Value::Null).await;
    match read.status().as_u16() {
        404 => Value::Null,
        _ => serde_json::from_slice(read.body()).expect("JSON"),
    }
}

async fn post(link: &Link, path: &str, object: Value) {
    let made = ask(link, "POST", path, object).await;
    assert_eq!(made.status(), 201, "{made:?}");
}

/// Whether a condition of an object is True.
async fn is_true(link: &Link, path: &str, condition: &str) -> bool {
    let object = get(link, path).await;
    let all = object["status"]["conditions"].as_array();
    all.is_some_and(|all| {
        let holds = |one: &Value| one["type"] == condition && one["status"] == "True";
        all.iter().any(holds)
    })
}

async fn is_ready(link: &Link, cluster: &str) -> bool {
    is_true(link, &format!("{CLUSTERS}/{cluster}"), "Ready").await
}

async fn is_applied(link: &Link, cluster: &str) -> bool {
    is_true(link, &work(cluster), "Applied").await
}

fn works(cluster: &str) -> String {
    format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{cluster}/works")
}

fn work(cluster: &str) -> String {
    format!("{}/told", works(cluster))
}

/// Looks twice a second until it holds, or fails after a minute.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let wait = async {
        while !holds().await {
            sleep(Duration::from_millis(500)).await;
        }
    };
    let held = timeout(Duration::from_secs(60), wait).await;
    held.unwrap_or_else(|_| panic!("not within a minute: {what}"));
}

/// Writes every event of the hub's own collections down.
fn observe(link: &Link, world: &World) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    for path in [CLUSTERS, LEASES, NAMESPACES, REQUESTS, WORKS] {
        let world = world.clone();
        let note = move |events: &str| {
            for event in events.lines() {
                world.note(&format!("hub {path} {}", essence(event.as_bytes())));
            }
        };
        watches.spawn(watch(link.clone(), path, note));
    }
    watches
}

/// A token for so many clusters, as `towline token create` makes it, with these annotations besides.
fn token_secret(token: &str, uses: u32, more: &[(&str, &str)]) -> Value {
    let (id, secret) = token.split_once('.').expect("two halves");
    let mut token = json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": format!("bootstrap-token-{id}"), "annotations": {TOKEN_USES: uses.to_string()}},
        "stringData": {"token-id": id, "token-secret": secret, "auth-extra-groups": BOOTSTRAP_GROUP,
            "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true"}});
    for (name, value) in more {
        token["metadata"]["annotations"][*name] = json!(value);
    }
    token
}

async fn make_token(hub: &Link, token: &str, uses: u32, more: &[(&str, &str)]) {
    post(hub, SECRETS, token_secret(token, uses, more)).await;
}

/// A Work with one ConfigMap that says whose it is.
async fn make_work(hub: &Link, cluster: &str) {
    let told = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "told", "namespace": "default"}, "data": {"cluster": cluster}});
    let made = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "told"}, "spec": {"workload": {"manifests": [told]}}});
    post(hub, &works(cluster), made).await;
}

/// Ten minutes: three clusters register, live, and are given a Work each; the second agent is started anew,
/// every certificate is renewed, and the first cluster is unregistered.
async fn ten_minutes(seed: u64) -> String {
    common::tls::install_provider();
    let dir = tempfile::tempdir().expect("a folder");
    let world = World::new();
    let began = Instant::now();
    let reaches = |seconds| sleep(Duration::from_secs(seconds).saturating_sub(began.elapsed()));
    let clock = SimClock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
    // Each host draws for itself.
    let env = |host: u64| Env::seeded(Arc::new(clock.clone()), seed * 100 + host);

    let data = dir.path().join("hub");
    authority(&data, 0);
    let within = world.clone();
    let hub_env = env(0);
    let hub = SimulatedHub::begin(&data, HUB, &hub_env, move |router| {
        let link = router.link_of(Peer::Itself);
        Client::new(within.within("controllers", link), "default")
    });
    let hub = hub.await;
    let keys = &hub.served.keys;
    let shown = chain(keys, HUB.ip(), hub_env.clock.now());
    let at = HostPort::new(&HUB.ip().to_string(), HUB.port());
    world.add("hub", at, hub.served.router.clone(), &shown);
    let link = hub.served.router.link_of(Peer::Itself);
    let mut watches = observe(&link, &world);
    make_token(&link, TOKEN, 3, &[]).await;

    let pins = CaPin::of_pem(keys.authorities().bundle().as_bytes()).expect("pins");
    let hand = Hand {
        token: TOKEN.to_owned(),
        pin: pins.first().expect("one").to_string(),
        // The shortest that there is.
        life: 600,
    };
    let (mut members, mut agents) = (Vec::new(), Vec::new());
    for number in 1..=3 {
        let disk = MemoryDisk::default();
        let member = Member::begin(&disk, dir.path(), number, &world, &env(number.into())).await;
        // Two keep what is theirs in the member, one beside it.
        let by_files = number == 3;
        let agent_env = env(10 + u64::from(number));
        agents.push(Agent::begin(
            dir.path(),
            &member,
            &hand,
            by_files,
            &world,
            &agent_env,
        ));
        members.push(member);
    }
    let names: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
    for name in &names {
        until("a cluster is Ready", async || is_ready(&link, name).await).await;
        make_work(&link, name).await;
    }
    for (name, member) in names.iter().zip(&members) {
        until("a Work is Applied", async || is_applied(&link, name).await).await;
        let told = get(&member.link(), TOLD).await;
        assert_eq!(told["data"]["cluster"], name.as_str(), "{told}");
    }

    reaches(150).await;
    world.note("the second agent ends");
    let again = agents.remove(1).stop().await;
    sleep(Duration::from_secs(5)).await;
    world.note("and is started anew");
    agents.insert(1, again.start());

    reaches(420).await;
    for name in &names {
        assert!(is_ready(&link, name).await, "{name} is not Ready");
    }
    world.note("the first cluster is unregistered");
    let leaving = format!("{CLUSTERS}/{}", names[0]);
    let how = json!({"metadata": {"annotations": {UNREGISTER: Mode::RemoveWorkloads.as_str()}}});
    let said = ask(&link, "PATCH", &leaving, how).await;
    assert_eq!(said.status(), 200, "{said:?}");
    let deleted = ask(&link, "DELETE", &leaving, Value::Null).await;
    assert_eq!(deleted.status(), 200, "{deleted:?}");
    until("the first Cluster is gone", async || {
        get(&link, &leaving).await.is_null()
    })
    .await;
    agents.remove(0).left().await;
    assert!(get(&members[0].link(), TOLD).await.is_null(), "left behind");
    let space = format!("{NAMESPACES}/karmada-es-{}", names[0]);
    assert!(get(&link, &space).await.is_null(), "left behind");

    reaches(600).await;
    for (name, member) in names.iter().zip(&members).skip(1) {
        assert!(is_ready(&link, name).await, "{name} is not Ready");
        assert!(
            is_applied(&link, name).await,
            "the Work of {name} is not Applied"
        );
        assert!(!get(&member.link(), TOLD).await.is_null(), "lost in {name}");
    }
    for agent in agents {
        agent.stop().await;
    }
    watches.shutdown().await;
    for member in members {
        member.end().await;
    }
    hub.end().await;
    world.told()
}

/// Two runs of one seed are one; another seed is another run.
#[test]
fn a_seed_says_every_request_of_a_fleet() {
    let [one, again, other] = [7, 7, 8].map(|seed| {
        let _fixed = secret::Fixed::begin(seed, pool(seed));
        alone(LocalSet::new().run_until(ten_minutes(seed)))
    });
    assert_same(&one, &again);
    assert_ne!(one, other);
    for number in 1..=3 {
        let heartbeat =
            format!(" m{number}>hub system:karmada:agent:m{number} PATCH {LEASES}/m{number}?");
        let count = |what: &str| one.lines().filter(|line| line.contains(what)).count();
        assert!(count(&heartbeat) > 35, "few heartbeats of m{number}");
        let renewal = format!(" m{number}>hub system:karmada:agent:m{number} POST {REQUESTS}");
        assert!(count(&renewal) > 0, "no renewal of m{number}");
        let applied = format!(" m{number}>member{number} ");
        assert!(
            count(&applied) > 100,
            "few requests to the member of m{number}"
        );
    }
}
