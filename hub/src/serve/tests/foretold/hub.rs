//! A hub with all its controllers and clusters without agents: what these would do is done for them, as far as it is
//! waited for.

use super::super::super::*;
use super::super::rig::{CLUSTERS, NAMESPACES, SimulatedHub, ask};
use super::draw::{self, MEMBERS, SPACES, Wanted};
use crate::apiserver::authn::Peer;
use crate::apiserver::http::Link;
use crate::apiserver::store::MemoryDisk;
use crate::controller::detector::skip::Skips;
use crate::controller::eviction;
use crate::plan::{self, Change, Options, Plan, Subject};
use crate::snapshot::trial::{LAST_APPLIED, Outcome, Trial};
use crate::snapshot::{Reader, Scope, Snapshot};
use chrono::{DateTime, Utc};
use common::api::policy::ClusterPurgeMode;
use common::chance::Chance;
use common::gvk::Gvk;
use common::labels::UNREGISTER;
use common::time::SimClock;
use common::unregister::Mode;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const WORKS: &str = "/apis/work.karmada.io/v1alpha1/works";
const FLAGS: [&str; 4] = [
    "--cluster-monitor-grace-period=20000h",
    "--cluster-startup-grace-period=20000h",
    "--resource-eviction-rate=1000",
    "--graceful-eviction-timeout=30s",
];
const BINDINGS: &str = "/apis/work.karmada.io/v1alpha2/resourcebindings";
const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";
const CLUSTER_BINDINGS: &str = "/apis/work.karmada.io/v1alpha2/clusterresourcebindings";
/// Longer than anything takes that waits for no time, and shorter than anything that does.
const SOON: Duration = Duration::from_secs(3);
/// Longer than anything waits in these walks: what is tolerated for a while, and copies that are left.
const LONG: Duration = Duration::from_secs(75);
/// Longer than a hub has ever taken to come to rest.
const PATIENCE: usize = 400;

pub(super) struct Fleet {
    hub: SimulatedHub,
    pub(super) link: Link,
    reader: Reader,
    options: Options,
    env: Env,
    chance: Chance,
    applied: bool,
    _dir: tempfile::TempDir,
}

/// What plans are made of.
pub(super) struct Asked<'f> {
    now: DateTime<Utc>,
    options: &'f Options,
    snapshot: Snapshot,
}

impl Asked<'_> {
    pub(super) fn plan(&self, changes: &[Change]) -> Plan {
        plan::plan(self.now, self.options, &self.snapshot, changes)
    }

    /// The plans of all that nobody can know before.
    pub(super) fn each(&self, changes: &[Change], one_by_one: bool) -> Vec<Plan> {
        plan::each(self.now, self.options, &self.snapshot, changes, one_by_one)
    }
}

impl Fleet {
    pub(super) async fn begin(seed: u64, applied: bool) -> Self {
        common::tls::install_provider();
        let dir = tempfile::tempdir().expect("a folder");
        let clock = SimClock::starting_at("2026-01-01T00:00:00Z".parse().expect("a time"));
        let env = Env::seeded(Arc::new(clock), seed);
        let address = SocketAddr::from(([192, 0, 2, 1], 6443));
        let disk = MemoryDisk::default();
        let hub = SimulatedHub::on(&disk, dir.path(), address, &FLAGS, &env, Router::client).await;
        let link = hub.served.router.link_of(Peer::Itself);
        let skips = Skips::parse("", ["kube-.*"]).expect("sound");
        let fleet = Self {
            reader: Reader::new(hub.served.router.client(), skips.clone()),
            options: Options {
                skips,
                eviction: eviction::Options {
                    enabled: true,
                    purge_mode: ClusterPurgeMode::Gracefully,
                    rate: 1000.0,
                    timeout: Duration::from_secs(30),
                    lost_share: 0.5,
                },
            },
            hub,
            link,
            env,
            chance: Chance::seeded(seed),
            applied,
            _dir: dir,
        };
        for space in SPACES {
            let object =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}});
            fleet.must("POST", NAMESPACES, object).await;
        }
        fleet.rejoin().await;
        fleet
    }

    pub(super) async fn end(self) {
        self.hub.end().await;
    }

    async fn must(&self, method: &str, path: &str, body: Value) -> Value {
        let answer = ask(&self.link, method, path, body.clone()).await;
        assert!(
            answer.status().is_success(),
            "{method} {path} {body}: {answer:?}"
        );
        serde_json::from_slice(answer.body()).expect("JSON")
    }

    pub(super) async fn get(&self, path: &str) -> Value {
        self.must("GET", path, Value::Null).await
    }

    /// Has every member that is not there join.
    pub(super) async fn rejoin(&self) {
        let mut joins = false;
        for name in MEMBERS {
            let path = format!("{CLUSTERS}/{name}");
            if ask(&self.link, "GET", &path, Value::Null).await.status() == 200 {
                continue;
            }
            joins = true;
            let mut rng = self.chance.stream(&format!("member {name}"));
            let (object, status) = draw::joining(&mut rng, name);
            self.must("POST", CLUSTERS, object).await;
            self.must("PATCH", &format!("{path}/status"), status).await;
        }
        if joins {
            self.rest().await;
        }
    }

    /// Of what is wanted, what can be: what goes is there, once; each object is changed once.
    pub(super) async fn possible(&self, wanted: Vec<Wanted>) -> Vec<Wanted> {
        let mut known = BTreeSet::new();
        let mut possible = Vec::new();
        for wanted in wanted {
            let trial = self.trial(wanted.object()).await;
            let key = (wanted.object()["kind"].to_string(), trial.name.clone());
            let is_there = trial.live.is_some();
            let sound = is_there || matches!(wanted, Wanted::Apply(_)) && key.0 != "\"Cluster\"";
            if known.insert(key) {
                // What cannot go comes.
                let object = wanted.object().clone();
                possible.push(if sound { wanted } else { Wanted::Apply(object) });
            }
        }
        possible
    }

    async fn trial(&self, object: &Value) -> Trial {
        let mut object = object.clone();
        if self.applied {
            object["metadata"]["annotations"] = json!({LAST_APPLIED: object.to_string()});
        }
        let trial = self.reader.trial(&object, "default").await;
        trial.expect("read").expect("served")
    }

    /// What a plan is made of, as `towline plan` does it; with what the hub refuses.
    pub(super) async fn asked(&self, wanted: &[Wanted]) -> (Asked<'_>, Vec<Change>, Vec<usize>) {
        let kinds = wanted.iter().filter_map(|it| {
            let object = it.object();
            Gvk::new(object["apiVersion"].as_str()?, object["kind"].as_str()?)
        });
        let scope = Scope {
            kinds: kinds.filter(plan::foretells).collect(),
            ..Scope::default()
        };
        let mut snapshot = self.reader.read(&scope).await.expect("read");
        assert!(snapshot.unreadable.is_empty(), "{:?}", snapshot.unreadable);
        let (mut changes, mut refused) = (Vec::new(), Vec::new());
        for (number, wanted) in wanted.iter().enumerate() {
            let trial = self.trial(wanted.object()).await;
            match wanted {
                Wanted::Delete(_) => {
                    changes.push(Change::Delete(
                        Subject::of(&trial.as_written()).expect("sound"),
                    ));
                }
                Wanted::Apply(_) => match self.reader.attempt(&trial).await.expect("an answer") {
                    Outcome::Made(object) => changes.push(Change::Apply(object)),
                    Outcome::Refused(_) => refused.push(number),
                    Outcome::Unknown(why) => panic!("{why}"),
                },
            }
        }
        let now = self.env.clock.now();
        loop {
            let lacks = plan::lacks(now, &self.options, &snapshot, &changes);
            if lacks.is_empty() {
                let options = &self.options;
                let asked = Asked {
                    now,
                    options,
                    snapshot,
                };
                return (asked, changes, refused);
            }
            for kind in lacks {
                let read = self.reader.templates(&kind, &mut snapshot).await;
                read.expect("read");
            }
        }
    }

    pub(super) async fn snapshot(&self) -> Snapshot {
        let kinds = [
            ("apps/v1", "Deployment"),
            ("v1", "ConfigMap"),
            ("batch/v1", "Job"),
            ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ];
        let kinds = kinds
            .iter()
            .filter_map(|(version, kind)| Gvk::new(version, kind));
        let scope = Scope {
            kinds: kinds.collect(),
            ..Scope::default()
        };
        self.reader.read(&scope).await.expect("read")
    }

    pub(super) async fn works(&self) -> Vec<Value> {
        let mut list = self.get(WORKS).await;
        serde_json::from_value(list["items"].take()).expect("a list")
    }

    /// Makes changes, and waits until nothing moves; what was refused otherwise than foretold comes back.
    pub(super) async fn carry_out(
        &self,
        wanted: &[Wanted],
        refused: &[usize],
        one_by_one: bool,
    ) -> Vec<String> {
        let mut wrong = Vec::new();
        for (number, one) in wanted.iter().enumerate() {
            // Read anew: a change before may have changed it.
            let trial = self.trial(one.object()).await;
            match one {
                Wanted::Apply(_) => {
                    let made = self.reader.send(&trial, "").await;
                    if made.is_err() != refused.contains(&number) {
                        wrong.push(format!("{}: {made:?}", one.shown()));
                    }
                }
                Wanted::Delete(object) => {
                    if object["kind"] == "Cluster" {
                        let said = json!({"metadata": {"annotations": {UNREGISTER: Mode::Force.as_str()}}});
                        self.must("PATCH", &trial.uri(), said).await;
                    }
                    // As kubectl does. Whoever says nothing of what a Job owns would leave its binding, and what
                    // members have of it.
                    let options = json!({"propagationPolicy": "Background"});
                    self.must("DELETE", &trial.uri(), options).await;
                }
            }
            if one_by_one {
                self.quiet(SOON).await;
            }
        }
        // For a class that comes nobody is woken.
        let classes = wanted
            .iter()
            .any(|it| it.object()["kind"] == "PriorityClass");
        if classes {
            self.quiet(LONG).await;
        }
        self.rest().await;
        wrong
    }

    /// Waits until nothing moves any more, whatever time it takes.
    async fn rest(&self) {
        self.quiet(SOON).await;
        let evicting = |cluster: &Value| {
            let taints = cluster["spec"]["taints"].as_array();
            taints.is_some_and(|all| all.iter().any(|it| it["effect"] == "NoExecute"))
        };
        let leaving = |binding: &Value| !binding["spec"]["gracefulEvictionTasks"].is_null();
        if self.any(CLUSTERS, evicting).await
            || self.any(BINDINGS, leaving).await
            || self.any(CLUSTER_BINDINGS, leaving).await
        {
            self.quiet(LONG).await;
        }
    }

    async fn any(&self, path: &str, is: impl Fn(&Value) -> bool) -> bool {
        let list = self.get(path).await;
        list["items"]
            .as_array()
            .is_some_and(|all| all.iter().any(is))
    }

    /// Waits until nothing was decided for so long.
    async fn quiet(&self, quiet: Duration) {
        let (mut last, mut since) = (BTreeMap::new(), Instant::now());
        for _ in 0..PATIENCE {
            self.let_go().await;
            let versions = self.versions().await;
            if versions != last {
                (last, since) = (versions, Instant::now());
            } else if since.elapsed() >= quiet {
                return;
            }
            sleep(quiet / 5).await;
        }
        panic!("the hub does not come to rest: {last:?}");
    }

    /// What decisions write, as far as it was written.
    async fn versions(&self) -> BTreeMap<String, String> {
        let mut versions = BTreeMap::new();
        for path in [WORKS, BINDINGS, CLUSTER_BINDINGS, CLUSTERS, DEPLOYMENTS] {
            let list = self.get(path).await;
            for object in list["items"].as_array().into_iter().flatten() {
                let text = |key: &str| object["metadata"][key].to_string();
                versions.insert(text("uid") + &text("name"), text("resourceVersion"));
            }
        }
        versions
    }

    /// Works that go are let go, as their agents do it.
    async fn let_go(&self) {
        for work in self.works().await {
            let metadata = &work["metadata"];
            if metadata["deletionTimestamp"].is_null() || metadata["finalizers"].is_null() {
                continue;
            }
            let text = |key: &str| metadata[key].as_str().expect("text").to_owned();
            let path = format!(
                "/apis/work.karmada.io/v1alpha1/namespaces/{}/works/{}",
                text("namespace"),
                text("name")
            );
            let none = json!({"metadata": {"finalizers": null}});
            let answer = ask(&self.link, "PATCH", &path, none).await;
            assert!(matches!(answer.status().as_u16(), 200 | 404), "{answer:?}");
        }
    }
}
