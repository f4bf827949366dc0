//! A day of an ordinary hub in some seconds: agents renew and report, people change and delete, and what is
//! over goes away. After three hours the files are as large as they ever get.
//!
//! `STORE_DAY_CLUSTERS` is how many clusters there are, and their agents renew every ten seconds then; if it
//! is not set there is one, which renews every two minutes.

use super::time::Held;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use common::admin::AdminState;
use common::identity::SIGNER;
use common::time::{Clock as _, SimClock};
use futures::future::join_all;
use http::{Method, Request};
use hub::apiserver::http::server::STRANGERS_OF_ADDRESS;
use hub::apiserver::serve::{Options, Running};
use hub::apiserver::store::{Change, Class, Expect, Key, Write};
use hub::install::{crds, plan};
use kube::Client;
use rusqlite::{Connection, OpenFlags};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// What happens less often than heartbeats is looked at so often.
const STEP: Duration = Duration::from_secs(120);
const STEPS_AN_HOUR: u64 = 30;

/// From here on nothing may grow: the longest that anything is kept is an hour and a minute.
const SETTLED: u64 = 3;
const DAY: u64 = 24;

/// How much longer than an hour something may be there: an Event is told again after four minutes.
const SLACK: TimeDelta = TimeDelta::minutes(6);

/// SQLite's log is copied at 2048 pages, and what was written meanwhile comes on top.
const LOG_MAX: u64 = 12 << 20;

/// How much is written for a cluster in the five minutes of history, and what waits to be forgotten.
const PER_CLUSTER: i64 = 30;

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";
const NAMESPACES: &str = "/api/v1/namespaces";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const EVENTS: &str = "/api/v1/events";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// How many clusters there are, and how often each renews in a step.
fn scale() -> (u64, u32) {
    let set = std::env::var("STORE_DAY_CLUSTERS").ok();
    set.map_or((1, 1), |set| {
        (set.parse().expect("STORE_DAY_CLUSTERS is a number"), 12)
    })
}

fn text(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

async fn send(client: &Client, method: Method, path: &str, body: &Value) -> Value {
    let content = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method.clone())
        .uri(path)
        .header("content-type", content)
        .body(if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        })
        .expect("a request");
    let answer = client.request(request).await;
    assert!(answer.is_ok(), "{method} {path}: {answer:?}");
    answer.expect("was looked at")
}

/// A hub's API server over a day.
struct Day {
    running: Running,
    client: Client,
    clock: SimClock,
    request: String,
    dir: TempDir,
}

/// What an agent and the people who deliver to its cluster know.
struct Side {
    name: String,
    lease: Value,
    /// How many steps it is ahead of the others.
    phase: u64,
}

impl Day {
    async fn begin() -> Self {
        common::tls::install_provider();
        let dir = TempDir::new().expect("a folder");
        let start = "2026-01-01T00:00:00Z".parse().expect("a time");
        let clock = SimClock::starting_at(start);
        let options = Options {
            data_dir: dir.path().to_owned(),
            listen: "127.0.0.1:0".parse().expect("an address"),
            names: BTreeSet::from(["localhost".to_owned()]),
            certificate_lifetime: TimeDelta::days(90),
            address: String::new(),
            key_file: None,
            audit_log: None,
            strangers_of_address: STRANGERS_OF_ADDRESS,
            busy: None,
            new_database: false,
        };
        let env = common::env::Env::seeded(Arc::new(clock.clone()), 1);
        let running = Running::begin(options, AdminState::default(), env).await;
        let running = running.expect("serves");
        let client = running.router.client();
        for kind in crds::desired() {
            plan::enforce(&client, &kind).await.expect("a kind");
        }
        let established = async || {
            let missing = crds::await_established(&client, Duration::ZERO).await;
            missing.expect("lists").is_empty()
        };
        until("the kinds are served", established).await;
        Self {
            running,
            client,
            clock,
            request: certificate_request(),
            dir,
        }
    }

    async fn side(&self, number: u64) -> Side {
        let name = format!("m{number}");
        let cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name}, "spec": {"syncMode": "Pull"},
        });
        send(&self.client, Method::POST, CLUSTERS, &cluster).await;
        let namespace = json!({"metadata": {"name": format!("karmada-es-{name}")}});
        send(&self.client, Method::POST, NAMESPACES, &namespace).await;
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": name, "leaseDurationSeconds": 40},
        });
        let lease = send(&self.client, Method::POST, LEASES, &lease).await;
        // Not everybody does everything at once.
        Side {
            name,
            lease,
            phase: number,
        }
    }

    /// A heartbeat.
    async fn renew(&self, side: &mut Side) {
        let path = format!("{LEASES}/{}", side.name);
        let now = self
            .clock
            .now()
            .to_rfc3339_opts(SecondsFormat::Micros, true);
        side.lease["spec"]["renewTime"] = json!(now);
        side.lease = send(&self.client, Method::PUT, &path, &side.lease).await;
    }

    /// Whatever else happens in a step.
    async fn act(&self, step: u64, side: &Side) {
        let step = step + side.phase;
        let every = |steps: u64| step.is_multiple_of(steps).then_some(step / steps);
        if let Some(number) = every(2) {
            self.tell(number, &side.name).await;
        }
        if let Some(number) = every(5) {
            let path = format!("{CLUSTERS}/{}/status", side.name);
            let pods = json!({"allocated": {"pods": number.to_string()}});
            let status = json!({"status": {"resourceSummary": pods}});
            send(&self.client, Method::PATCH, &path, &status).await;
        }
        if let Some(number) = every(10) {
            self.deliver(number, &side.name).await;
        }
        if let Some(number) = every(STEPS_AN_HOUR) {
            self.certify(number, &side.name).await;
            self.invite(number, side.phase).await;
        }
    }

    /// An Event; every other one is told again when the next one comes.
    async fn tell(&self, number: u64, name: &str) {
        let now = text(self.clock.now());
        let events = format!("{NAMESPACES}/karmada-es-{name}/events");
        let before = format!("{events}/{name}.{}", number.saturating_sub(1));
        if !number.is_multiple_of(2) && self.exists(&before).await {
            let again = json!({"count": 2, "lastTimestamp": now});
            send(&self.client, Method::PATCH, &before, &again).await;
        }
        let body = json!({
            "metadata": {"name": format!("{name}.{number}")},
            "type": "Normal", "reason": "SyncSucceed", "count": 1,
            "message": filler(number, 300), "firstTimestamp": now, "lastTimestamp": now,
            "involvedObject": {
                "kind": "Work", "namespace": format!("karmada-es-{name}"), "name": "w",
            },
        });
        send(&self.client, Method::POST, &events, &body).await;
    }

    async fn exists(&self, path: &str) -> bool {
        let request = Request::get(path).body(Vec::new()).expect("a request");
        self.client.request::<Value>(request).await.is_ok()
    }

    /// A Work that is made, reported on and changed; the third before it goes.
    async fn deliver(&self, number: u64, name: &str) {
        let works = format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{name}/works");
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "default"}, "data": {"text": filler(number, 9000)},
        });
        let spec = json!({"workload": {"manifests": [map]}});
        let work = json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": format!("w{number}")}, "spec": spec,
        });
        send(&self.client, Method::POST, &works, &work).await;
        let path = format!("{works}/w{number}");
        for reason in ["AppliedSuccessful", "AppliedFailed"] {
            let condition = json!({
                "type": "Applied", "status": "True", "reason": reason, "message": "",
                "lastTransitionTime": text(self.clock.now()),
            });
            let status = json!({"status": {"conditions": [condition]}});
            let path = format!("{path}/status");
            send(&self.client, Method::PATCH, &path, &status).await;
        }
        let more = json!({"metadata": {"annotations": {"changed": number.to_string()}}});
        send(&self.client, Method::PATCH, &path, &more).await;
        let third = format!("{works}/w{}", number.saturating_sub(3));
        if number > 3 && self.exists(&third).await {
            send(&self.client, Method::DELETE, &third, &Value::Null).await;
        }
    }

    /// A request for a certificate that is approved, and signed by the server.
    async fn certify(&self, number: u64, name: &str) {
        let request = json!({
            "metadata": {"name": format!("{name}-{number}")},
            "spec": {
                "request": self.request, "signerName": SIGNER, "usages": ["client auth"],
            },
        });
        let mut made = send(&self.client, Method::POST, REQUESTS, &request).await;
        made["status"] = json!({"conditions": [{
            "type": "Approved", "status": "True", "reason": "AutoApproved",
            "lastUpdateTime": text(self.clock.now()),
        }]});
        let path = format!("{REQUESTS}/{name}-{number}/approval");
        send(&self.client, Method::PUT, &path, &made).await;
    }

    /// A token that is good for an hour.
    async fn invite(&self, number: u64, phase: u64) {
        let id = format!("{:06}", number * 1000 + phase);
        let secret = json!({
            "metadata": {"name": format!("bootstrap-token-{id}")},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "token-id": id, "token-secret": "0123456789abcdef",
                "expiration": text(self.clock.now() + TimeDelta::hours(1)),
                "usage-bootstrap-authentication": "true",
            },
        });
        send(&self.client, Method::POST, SECRETS, &secret).await;
    }

    /// How large the database is with everything in it.
    async fn whole(&self) -> u64 {
        let empty = async || {
            self.nudge().await;
            self.size("hub.db-wal") == 0
        };
        until("the log is copied and empty", empty).await;
        self.size("hub.db")
    }

    /// Lets the writer look at the time: to a write that cannot be made.
    async fn nudge(&self) {
        let write = Write {
            resource: "/configmaps".into(),
            key: Key::new("default", "none"),
            expect: Expect::Absent,
            change: Change::Delete,
            class: Class::Durable,
        };
        let made = self.running.store.commit(write).await;
        assert!(made.is_err(), "there is nothing to delete");
    }

    fn size(&self, name: &str) -> u64 {
        fs::metadata(self.dir.path().join(name)).map_or(0, |found| found.len())
    }

    /// Which objects of a list are older than they may become.
    async fn overdue(&self, path: &str, named: &str) -> Vec<String> {
        let list = send(&self.client, Method::GET, path, &Value::Null).await;
        let items = list["items"].as_array().expect("items").iter();
        let field = |item: &Value, field: &str| item["metadata"][field].as_str().map(str::to_owned);
        let made = items
            .filter_map(|item| Some((field(item, "name")?, field(item, "creationTimestamp")?)));
        let ours: Vec<_> = made.filter(|(name, _)| name.starts_with(named)).collect();
        assert!(!ours.is_empty(), "{path} has some of the last hour");
        let latest = text(self.clock.now() - TimeDelta::hours(1) - SLACK);
        let late = ours.into_iter().filter(|(_, time)| *time < latest);
        late.map(|(name, _)| name).collect()
    }
}

/// Lets time pass until something holds.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let mut seconds = 0;
    while !holds().await {
        assert!(
            seconds < 600,
            "not within ten minutes of the test's time: {what}"
        );
        seconds += 1;
        tokio::time::advance(Duration::from_secs(1)).await;
    }
}

fn filler(number: u64, most: u64) -> String {
    "x".repeat(usize::try_from(number * 7919 % most).expect("small"))
}

fn certificate_request() -> String {
    use base64::Engine as _;
    let key = common::chance::secret::key_pair().expect("a key");
    let mut params = rcgen::CertificateParams::default();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "somebody");
    let request = params
        .serialize_request(&key)
        .and_then(|request| request.pem());
    base64::engine::general_purpose::STANDARD.encode(request.expect("a request"))
}

/// How many rows of history there are in a database that is closed.
fn history(file: &Path) -> i64 {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY);
    let count = connection
        .expect("opens")
        .query_row("SELECT count(*) FROM log", [], |row| row.get(0));
    count.expect("counts")
}

#[tokio::test(start_paused = true)]
async fn a_day_leaves_the_files_as_large_as_three_hours() {
    let _held = Held::time();
    let (clusters, renewals) = scale();
    let day = Day::begin().await;
    let mut sides = Vec::new();
    for number in 0..clusters {
        sides.push(day.side(number).await);
    }
    let mut settled = 0;
    for hour in 1..=DAY {
        for step in (hour - 1) * STEPS_AN_HOUR..hour * STEPS_AN_HOUR {
            for _ in 0..renewals {
                tokio::time::advance(STEP / renewals).await;
                join_all(sides.iter_mut().map(|side| day.renew(side))).await;
            }
            join_all(sides.iter().map(|side| day.act(step, side))).await;
        }
        for (path, named) in [
            (EVENTS, "m"),
            (REQUESTS, "m"),
            (SECRETS, "bootstrap-token-"),
        ] {
            let what = format!("nothing of {path} is left that is over");
            until(&what, async || day.overdue(path, named).await.is_empty()).await;
        }
        let log = day.size("hub.db-wal");
        assert!(
            log <= LOG_MAX,
            "SQLite's log has {log} bytes in hour {hour}"
        );
        if hour == SETTLED {
            settled = day.whole().await;
        }
    }
    let after = day.whole().await;
    println!("{settled} bytes after {SETTLED} hours, {after} after {DAY}");
    assert!(
        after <= settled + settled / 8,
        "{settled} bytes became {after}"
    );
    let Day { running, dir, .. } = day;
    running.end().await;
    let kept = history(&dir.path().join("hub.db"));
    let most = PER_CLUSTER * i64::try_from(clusters).expect("few");
    assert!(kept <= most, "{kept} entries of history are left");
}
