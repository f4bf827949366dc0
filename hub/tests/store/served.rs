//! The whole hub under kills and power cuts, seen by clients: what it answered with 200 is there, no
//! resourceVersion comes twice, watches go on. It dies under load, and now and then while it starts.
//!
//! `STORE_RUN` is the number that a run is made from, and prints; `STORE_HUB` is another build of the hub;
//! `STORE_KILLS` is as for the store.

use super::World;
use super::model::Model;
use common::client::{ClientOptions, kubeconfig_client};
use common::env::Env;
use futures::StreamExt as _;
use http::{Method, Request};
use kube::Client;
use kube::core::WatchEvent;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const WRITERS: u64 = 6;
const OBJECTS: u64 = 12;

/// Nothing here takes so long, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A hub that runs, and what its clients note in the order in which they learn it.
struct Hub {
    child: Mutex<Child>,
    client: Client,
    told: Mutex<Told>,
    written: Notify,
}

#[derive(Default)]
struct Told {
    lines: Vec<String>,
    /// Objects as the watcher knows them.
    watched: BTreeMap<String, u64>,
    acks: usize,
    killed: bool,
}

impl Hub {
    fn kill(&self) {
        self.told.lock().expect("whole").killed = true;
        let mut child = self.child.lock().expect("whole");
        child.kill().expect("kills");
        child.wait().expect("ends");
    }

    fn say(&self, line: String) {
        self.told.lock().expect("whole").lines.push(line);
    }

    fn ack(&self, what: &str, name: &str, object: &Value) {
        let line = format!("{what} {name} {} {}", revision(object), count(object));
        let mut told = self.told.lock().expect("whole");
        told.lines.push(line);
        told.acks += 1;
        drop(told);
        self.written.notify_one();
    }

    /// What a request that failed means: nothing once the hub is killed.
    fn failed(&self, what: &str, error: &kube::Error) {
        let mut told = self.told.lock().expect("whole");
        if !told.killed {
            told.lines.push(format!("failed to {what}: {error}"));
        }
    }

    fn event(&self, event: &WatchEvent<Value>) -> Option<u64> {
        let (kind, object) = match event {
            WatchEvent::Added(object) => ("added", object),
            WatchEvent::Modified(object) => ("modified", object),
            WatchEvent::Deleted(object) => ("deleted", object),
            WatchEvent::Bookmark(_) => return None,
            WatchEvent::Error(status) => {
                self.say(format!("watch error {status:?}"));
                return None;
            }
        };
        let name = object["metadata"]["name"].as_str().expect("a name");
        let at = revision(object);
        if name.starts_with('w') {
            let mut told = self.told.lock().expect("whole");
            let before = told.watched.get(name).copied().unwrap_or_default();
            told.lines
                .push(format!("{kind} {before} {name} {at} {}", count(object)));
            if kind == "deleted" {
                told.watched.remove(name);
            } else {
                told.watched.insert(name.to_owned(), at);
            }
        }
        Some(at)
    }
}

fn revision(object: &Value) -> u64 {
    let revision = object["metadata"]["resourceVersion"]
        .as_str()
        .expect("a revision");
    revision.parse().expect("decimal")
}

fn count(object: &Value) -> String {
    let count = match object["kind"].as_str() {
        Some("Lease") => &object["metadata"]["annotations"]["count"],
        _ => &object["data"]["count"],
    };
    count.as_str().unwrap_or("0").to_owned()
}

fn map(name: &str, count: u64) -> Value {
    let filler = "x".repeat(usize::try_from(count * 7919 % 3000).expect("small"));
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"count": count.to_string(), "filler": filler},
    })
}

async fn call(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, kube::Error> {
    let body = body.map(Value::to_string).unwrap_or_default().into_bytes();
    let request = Request::builder().method(method).uri(path);
    let request = request
        .header("content-type", "application/json")
        .body(body);
    client.request(request.expect("a request")).await
}

/// Starts the hub's process.
fn spawn(world: &World, port: u16) -> Child {
    let hub = std::env::var_os("STORE_HUB");
    let mut command = Command::new(hub.unwrap_or_else(|| env!("CARGO_BIN_EXE_towline-hub").into()));
    let log = world.disk.with_file_name("hub.log");
    let log = File::options()
        .create(true)
        .append(true)
        .open(log)
        .expect("a log");
    command
        .args([
            "serve",
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--data-dir",
        ])
        .arg(&world.data)
        .env("LD_PRELOAD", &world.shim)
        .env("POWERCUT_DIR", &world.data)
        .env("POWERCUT_DISK", &world.disk)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log);
    command.spawn().expect("starts")
}

/// Starts the hub and waits until it answers.
async fn start(world: &World, port: u16) -> Hub {
    let child = Mutex::new(spawn(world, port));
    let options = ClientOptions::new("kill test").with_timeout(PATIENCE);
    let kubeconfig = world.data.join("admin.kubeconfig");
    let answers = async {
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let made = kubeconfig_client(Some(&kubeconfig), None, &options, &Env::system()).await;
            let Ok((client, _)) = made else {
                continue;
            };
            if call(&client, Method::GET, MAPS, None).await.is_ok() {
                return client;
            }
        }
    };
    let client = tokio::time::timeout(PATIENCE, answers)
        .await
        .expect("the hub answers");
    Hub {
        child,
        client,
        told: Mutex::default(),
        written: Notify::new(),
    }
}

/// One life of the hub, from its start until it is killed after so many answered writes.
async fn live(hub: &Arc<Hub>, since: u64, seed: u64, writes: usize) {
    let list = call(&hub.client, Method::GET, MAPS, None)
        .await
        .expect("lists");
    hub.say(format!("open {}", revision(&list)));
    let leases = format!("{LEASES}?watch=1&resourceVersion={since}&timeoutSeconds=5");
    let first = watch(hub, &leases).await.next().await;
    let gone = matches!(&first, Some(Ok(WatchEvent::Error(status))) if status.code == 410);
    hub.say(format!("leases {}", if gone { "gone" } else { "resumed" }));

    // A write that the watcher has to come to: before it lies everything that it missed.
    let last = format!("{MAPS}/w-last");
    let number = seed * 1_000_000;
    hub.say(format!("try last w-last {number}"));
    let object = map("w-last", number);
    let last = match call(&hub.client, Method::PUT, &last, Some(&object)).await {
        Ok(object) => object,
        Err(_) => call(&hub.client, Method::POST, MAPS, Some(&object))
            .await
            .expect("creates"),
    };
    hub.ack("ack", "w-last", &last);
    let path = format!("{MAPS}?watch=1&resourceVersion={since}&timeoutSeconds=300");
    let mut events = watch(hub, &path).await;
    if since > 0 {
        while let Some(event) = events.next().await {
            if hub.event(&event.expect("an event")) >= Some(revision(&last)) {
                break;
            }
        }
    } else {
        hub.say("gone".to_owned());
    }
    for (what, path) in [("has", MAPS), ("lease", LEASES)] {
        let list = call(&hub.client, Method::GET, path, None)
            .await
            .expect("lists");
        for item in list["items"].as_array().expect("items") {
            let name = item["metadata"]["name"].as_str().expect("a name");
            if name.starts_with(if what == "has" { 'w' } else { 'l' }) {
                let mut item = item.clone();
                item["kind"] = json!(if what == "has" { "ConfigMap" } else { "Lease" });
                hub.say(format!(
                    "{what} {name} {} {}",
                    revision(&item),
                    count(&item)
                ));
                if since == 0 && what == "has" {
                    let mut told = hub.told.lock().expect("whole");
                    told.watched.insert(name.to_owned(), revision(&item));
                }
            }
        }
    }
    hub.say(format!("seen {}", revision(&last)));
    if since == 0 {
        let path = format!("{MAPS}?watch=1&resourceVersion={}", revision(&last));
        events = watch(hub, &path).await;
    }
    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        tasks.push(tokio::spawn(write(hub.clone(), writer, seed + writer)));
    }
    tasks.push(tokio::spawn(renew(hub.clone(), number)));
    let follower = hub.clone();
    tasks.push(tokio::spawn(async move {
        while let Some(Ok(event)) = events.next().await {
            follower.event(&event);
        }
    }));
    let enough = async {
        while hub.told.lock().expect("whole").acks < writes {
            hub.written.notified().await;
        }
    };
    let enough = tokio::time::timeout(PATIENCE, enough).await;
    hub.kill();
    for task in tasks {
        task.await.expect("no panic");
    }
    let told = hub.told.lock().expect("whole");
    assert!(
        enough.is_ok(),
        "the hub stood still: {:?}",
        told.lines.last()
    );
}

async fn watch(
    hub: &Hub,
    path: &str,
) -> std::pin::Pin<Box<dyn futures::Stream<Item = Result<WatchEvent<Value>, kube::Error>> + Send>> {
    let request = Request::get(path).body(Vec::new()).expect("a request");
    let events = hub
        .client
        .request_events::<Value>(request)
        .await
        .expect("a watch");
    Box::pin(events)
}

async fn write(hub: Arc<Hub>, writer: u64, seed: u64) {
    let mut versions: BTreeMap<String, Option<u64>> = BTreeMap::new();
    for turn in seed * 1_000_000.. {
        let step = turn.wrapping_mul(6_364_136_223_846_793_005).rotate_left(17);
        let name = format!("w{writer}-{}", step % OBJECTS);
        let path = format!("{MAPS}/{name}");
        let there = match versions.get(&name) {
            Some(known) => *known,
            None => match call(&hub.client, Method::GET, &path, None).await {
                Ok(object) => Some(revision(&object)),
                Err(kube::Error::Api(status)) if status.code == 404 => None,
                Err(error) => return hub.failed("get", &error),
            },
        };
        let delete = there.is_some() && step.is_multiple_of(5);
        let wanted = if delete {
            "gone".to_owned()
        } else {
            turn.to_string()
        };
        hub.say(format!("try {writer} {name} {wanted}"));
        let mut object = map(&name, turn);
        let answer = match there {
            None => call(&hub.client, Method::POST, MAPS, Some(&object)).await,
            Some(_) if delete => call(&hub.client, Method::DELETE, &path, None).await,
            Some(at) => {
                object["metadata"]["resourceVersion"] = json!(at.to_string());
                call(&hub.client, Method::PUT, &path, Some(&object)).await
            }
        };
        match answer {
            Err(error) => return hub.failed("write", &error),
            Ok(_) if delete => {
                // The answer to a deletion has no revision to speak of.
                let mut told = hub.told.lock().expect("whole");
                told.lines.push(format!("ack-gone {name}"));
                told.acks += 1;
                versions.insert(name, None);
            }
            Ok(object) => {
                hub.ack("ack", &name, &object);
                versions.insert(name, Some(revision(&object)));
            }
        }
    }
}

/// Moves `renewTime` of one Lease and nothing else.
async fn renew(hub: Arc<Hub>, first: u64) {
    let path = format!("{LEASES}/l0");
    let mut lease = match call(&hub.client, Method::GET, &path, None).await {
        Ok(lease) => lease,
        Err(_) => {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "l0"}, "spec": {"holderIdentity": "me"},
            });
            match call(&hub.client, Method::POST, LEASES, Some(&lease)).await {
                Ok(lease) => lease,
                Err(error) => return hub.failed("create a Lease", &error),
            }
        }
    };
    for turn in first.. {
        let micros = turn % 1_000_000;
        lease["spec"]["renewTime"] = json!(format!("2026-01-01T00:00:00.{micros:06}Z"));
        match call(&hub.client, Method::PUT, &path, Some(&lease)).await {
            Ok(answer) => lease = answer,
            Err(error) => return hub.failed("renew", &error),
        }
        hub.ack("ack-renewal", "l0", &lease);
    }
}

/// Starts the hub and kills it at any moment, most likely before it answers anybody.
async fn stumble(world: &World, port: u16, after: Duration) {
    let mut child = spawn(world, port);
    tokio::time::sleep(after).await;
    let ended = child.try_wait().expect("looks");
    child.kill().expect("kills");
    child.wait().expect("ends");
    assert!(ended.is_none(), "it ended by itself: {ended:?}");
}

fn torment(kills: u64, power: bool) {
    let run = std::env::var("STORE_RUN").ok();
    let run = run.map_or_else(
        || common::chance::secret::rng().random(),
        |run| run.parse().expect("a number"),
    );
    println!("STORE_RUN={run}");
    let mut random = StdRng::seed_from_u64(run);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let world = World::new();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    let port = port.expect("a port").port();
    let mut model = Model::default();
    let mut watched = BTreeMap::new();
    let (mut starts, mut lives) = (Vec::new(), Vec::new());
    for seed in 1..=kills {
        let began = Instant::now();
        let hub = Arc::new(runtime.block_on(start(&world, port)));
        let up = Instant::now();
        starts.push(up - began);
        hub.told.lock().expect("whole").watched = std::mem::take(&mut watched);
        let writes = random.random_range(40..440);
        runtime.block_on(live(&hub, model.seen, seed, writes));
        lives.push(up.elapsed());
        let mut told = hub.told.lock().expect("whole");
        watched = std::mem::take(&mut told.watched);
        model.run(&told.lines);
        let after =
            |what: &Model| format!("STORE_RUN={run}, after {seed} kills: {:#?}", what.broken);
        assert!(model.broken.is_empty(), "{}", after(&model));
        if power {
            world.cut_power();
        }
        world.settle();
        if random.random_ratio(1, 2) {
            let longest = starts.iter().max().copied().unwrap_or_default();
            let moment = random.random_range(Duration::ZERO..longest.max(Duration::from_millis(1)));
            runtime.block_on(stumble(&world, port, moment));
            if power {
                world.cut_power();
            }
            world.settle();
        }
    }
    let middle = |mut times: Vec<Duration>| {
        times.sort();
        times.get(times.len() / 2).copied().unwrap_or_default()
    };
    println!(
        "{kills} kills of a hub, power cut: {power}: {} writes, {} renewals, {} watches went on; \
         median start {:?}, median life {:?}",
        model.writes,
        model.renewals,
        model.resumed,
        middle(starts),
        middle(lives)
    );
    assert!(
        model.resumed >= kills - 1,
        "watches go on where the log covers it"
    );
}

#[test]
fn a_hub_that_is_killed_lost_nothing() {
    torment(super::kills(), false);
}

#[test]
fn a_hub_whose_power_is_cut_lost_nothing() {
    torment(super::kills(), true);
}
