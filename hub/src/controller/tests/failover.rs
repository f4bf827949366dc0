//! What Karmada was recorded to do about NoExecute taints and ClusterTaintPolicies (e2e/reference), played against the
//! decisions of taint policies, of eviction and of the scheduler.
//!
//! A scenario begins with the bindings that were recorded after its first step. Then only clusters, policies of taints
//! and what members report come from the record; taints, tasks and targets are compared after every step.

use crate::controller::eviction::brake::Word;
use crate::controller::eviction::decide::{Around, Options, Seen, decide};
use crate::controller::taint_policy::decide as taints;
use crate::scheduler::from_api::{Observed, demand, previous, rules, target_clusters};
use crate::scheduler::{Snapshot, schedule};
use crate::world::{Binding, Cluster, Record as _};
use chrono::{DateTime, Utc};
use common::api::policy::ClusterPurgeMode;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Steps in which we mean to differ.
const MEANT: [(&str, usize); 4] = [
    // What found no other place is given back to its cluster when that is well again.
    ("s0641", 2),
    // Members say that they are healthy with fewer replicas than they were given: the former copy stays.
    ("s0630", 2),
    ("s0632", 2),
    ("s0634", 2),
];
/// More rounds than any step needs to come to rest.
const ROUNDS: usize = 6;

#[test]
fn taints_move_what_does_not_tolerate_them() {
    play("eviction", 11);
}

#[test]
fn conditions_bring_taints() {
    play("cluster-taint-policy", 5);
}

fn play(area: &str, scenarios: usize) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../e2e/reference/{area}.json"));
    let text = fs::read_to_string(&file).expect("the record is there");
    let area: Value = serde_json::from_str(&text).expect("JSON");
    let all = area["scenarios"].as_array().expect("scenarios");
    assert_eq!(all.len(), scenarios);
    let wrong: Vec<String> = all.iter().flat_map(differences).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

struct Hub {
    now: DateTime<Utc>,
    clusters: BTreeMap<String, Value>,
    policies: Vec<Arc<taints::Policy>>,
    bindings: BTreeMap<String, Value>,
}

fn differences(scenario: &Value) -> Vec<String> {
    let id = scenario["id"].as_str().expect("an id");
    let mut hub = Hub::new(scenario);
    let mut before = json!({});
    let mut wrong = Vec::new();
    let steps = scenario["steps"].as_array().expect("steps");
    for (number, step) in steps.iter().enumerate() {
        let mut recorded = scenario["expect"][number].clone();
        for part in recorded["same"].as_array().cloned().unwrap_or_default() {
            let part = part.as_str().expect("a part");
            recorded[part] = before[part].clone();
        }
        for action in step["actions"].as_array().expect("actions") {
            hub.act(action);
        }
        hub.settle(Duration::from_secs(0));
        hub.settle(Duration::from_secs(step["settle"].as_u64().unwrap_or(2)));
        if number == 0 {
            hub.bind(&recorded["bindings"]);
        }
        let found = hub.compare(&recorded);
        let meant = MEANT.contains(&(id, number));
        if meant && found.is_empty() {
            wrong.push(format!("{id} step {number}: no longer differs"));
        }
        if !meant {
            wrong.extend(
                found
                    .into_iter()
                    .map(|it| format!("{id} step {number}: {it}")),
            );
        }
        before = recorded;
    }
    wrong
}

impl Hub {
    fn new(scenario: &Value) -> Self {
        let clusters = scenario["clusters"].as_array().expect("clusters");
        let clusters = clusters.iter().map(|it| {
            let name = it["name"].as_str().expect("a name").to_owned();
            let mut spec = it["spec"].clone();
            spec["syncMode"] = json!("Pull");
            let mut status = it["status"].clone();
            let mut conditions = vec![json!({"type": "Ready", "status": it["ready"]})];
            conditions.extend(it["conditions"].as_array().into_iter().flatten().cloned());
            status["conditions"] = json!(conditions);
            let object = json!({
                "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": name, "labels": it["labels"]},
                "spec": spec, "status": status,
            });
            (name, object)
        });
        Self {
            now: DateTime::from_timestamp(1_800_000_000, 0).expect("in range"),
            clusters: clusters.collect(),
            policies: Vec::new(),
            bindings: BTreeMap::new(),
        }
    }

    fn act(&mut self, action: &Value) {
        let text = |key: &str| action[key].as_str();
        if action["create"]["kind"] == "ClusterTaintPolicy" {
            let policy = serde_json::from_value(action["create"].clone()).expect("a policy");
            self.policies.push(Arc::new(policy));
        } else if let Some(name) = text("patch").and_then(|it| it.strip_prefix("Cluster/")) {
            let cluster = self.clusters.get_mut(name).expect("there");
            json_patch::merge(cluster, &action["with"]);
        } else if let Some(name) = text("cluster") {
            let mut conditions = vec![json!({"type": "Ready", "status": "True"})];
            conditions.extend(
                action["with"]["conditions"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .cloned(),
            );
            let cluster = self.clusters.get_mut(name).expect("there");
            cluster["status"]["conditions"] = json!(conditions);
        } else if let Some(name) = text("report") {
            for binding in self.bindings.values_mut() {
                let items = &mut binding["status"]["aggregatedStatus"];
                let mut all = items.as_array().cloned().unwrap_or_default();
                all.retain(|it| it["clusterName"] != name);
                all.push(json!({"clusterName": name, "health": action["health"], "status": action["status"]}));
                *items = json!(all);
            }
        }
    }

    /// Takes over the bindings of the first step.
    fn bind(&mut self, recorded: &Value) {
        for (key, binding) in recorded.as_object().expect("bindings") {
            let scheduled = &binding["conditions"]["Scheduled"];
            let condition = json!({"type": "Scheduled", "status": scheduled["status"], "reason": "R",
                "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let object = json!({
                "metadata": {"name": key, "generation": 1, "resourceVersion": "1"},
                "spec": binding["spec"],
                "status": {"conditions": [condition], "schedulerObservedGeneration": 1,
                    "aggregatedStatus": binding.get("aggregatedStatus").cloned().unwrap_or_else(|| json!([]))},
            });
            self.bindings.insert(key.clone(), object);
        }
    }

    /// Time passes, and everything is decided until nothing changes.
    fn settle(&mut self, passes: Duration) {
        self.now += passes;
        for round in 0.. {
            assert!(round < ROUNDS, "it does not come to rest");
            let tainted = self.taint();
            let clusters = self.read();
            let mut moved = false;
            for key in self.bindings.keys().cloned().collect::<Vec<_>>() {
                moved |= self.evict(&key, &clusters);
                self.place(&key, &clusters);
            }
            if !tainted && !moved {
                break;
            }
        }
    }

    fn read(&self) -> BTreeMap<String, Arc<Cluster>> {
        let read = self.clusters.iter().map(|(name, object)| {
            let cluster = Cluster::read(&object.to_string()).expect("an object");
            (name.clone(), Arc::new(cluster.expect("held")))
        });
        read.collect()
    }

    fn taint(&mut self) -> bool {
        let mut changed = false;
        taints::in_order(&mut self.policies);
        for (name, cluster) in self.read() {
            let object = self.clusters.get_mut(&name).expect("there");
            if let Some(taints) = taints::decide(self.now, false, &cluster, &self.policies) {
                object["spec"]["taints"] = json!(taints);
                changed = true;
            }
            // As the cluster controller does it.
            let all = object["spec"]["taints"].as_array_mut();
            for taint in all.into_iter().flatten() {
                if taint["effect"] == "NoExecute" && taint.get("timeAdded").is_none() {
                    taint["timeAdded"] = json!(self.now.to_rfc3339());
                }
            }
        }
        changed
    }

    fn evict(&mut self, key: &str, clusters: &BTreeMap<String, Arc<Cluster>>) -> bool {
        let held = held(&self.bindings[key]);
        let around = clusters.iter().map(|(name, cluster)| {
            let around = Around {
                cluster: Arc::clone(cluster),
                word: Word::Go,
            };
            (name.clone(), around)
        });
        let options = Options {
            purge_mode: ClusterPurgeMode::Gracefully,
            timeout: Duration::from_secs(600),
        };
        let seen = Seen {
            held: &held,
            clusters: &around.collect(),
            unhealthy: &BTreeMap::new(),
            turn: true,
        };
        let decision = decide(self.now, options, seen);
        let Some(wanted) = decision.binding else {
            return false;
        };
        let object = self.bindings.get_mut(key).expect("there");
        object["spec"] = serde_json::to_value(&wanted.spec).expect("encodes");
        object["metadata"]["generation"] = json!(held.generation + 1);
        true
    }

    /// What the scheduler does when a binding's generation is new to it.
    fn place(&mut self, key: &str, clusters: &BTreeMap<String, Arc<Cluster>>) {
        let held = held(&self.bindings[key]);
        if held.status.scheduler_observed_generation == Some(held.generation) {
            return;
        }
        let spec = &held.binding.spec;
        let placing = clusters.values().filter_map(|it| it.placing.clone());
        let placement = spec.placement.clone().unwrap_or_default();
        let observed = Observed {
            generation: held.generation,
            deleting: false,
            applied: None,
            status: Some(&held.status),
        };
        let asked = demand(spec, Arc::new(rules(&placement)));
        let before = previous(spec, observed);
        let result = schedule(&Snapshot::new(placing), &asked, Some(&before));
        let object = self.bindings.get_mut(key).expect("there");
        let status = match result {
            Ok(placed) => {
                object["spec"]["clusters"] = json!(target_clusters(&placed.targets));
                object["status"]["schedulerObservedGeneration"] = json!(held.generation);
                "True"
            }
            Err(stuck) => {
                object["spec"]["clusters"] = json!(target_clusters(&stuck.kept));
                "False"
            }
        };
        let condition = &mut object["status"]["conditions"][0];
        condition["status"] = json!(status);
        condition["observedGeneration"] = json!(held.generation);
    }

    fn compare(&self, recorded: &Value) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut tell = |what: &str, ours: Value, theirs: Value| {
            if ours != theirs {
                wrong.push(format!("{what}: ours {ours}, theirs {theirs}"));
            }
        };
        for (key, binding) in &self.bindings {
            let theirs = &recorded["bindings"][key]["spec"];
            let ours = &binding["spec"];
            tell(key, by_name(ours), by_name(theirs));
            tell(key, tasks(ours), tasks(theirs));
            let scheduled = &recorded["bindings"][key]["conditions"]["Scheduled"]["status"];
            let said = &binding["status"]["conditions"][0]["status"];
            tell(key, said.clone(), scheduled.clone());
        }
        for (name, cluster) in &self.clusters {
            let ours = cluster["spec"]["taints"].as_array();
            let ours = ours.into_iter().flatten().map(|it| {
                let text = |key: &str| it[key].as_str().unwrap_or_default();
                format!("{}={}:{}", text("key"), text("value"), text("effect"))
            });
            let ours: Vec<String> = ours.collect();
            tell(
                name,
                json!(ours),
                recorded["clusters"][name]["taints"].clone(),
            );
        }
        wrong
    }
}

fn held(object: &Value) -> Binding {
    let read = Binding::read(&object.to_string());
    read.expect("an object").expect("held")
}

fn by_name(spec: &Value) -> Value {
    let mut all = spec["clusters"].as_array().cloned().unwrap_or_default();
    all.sort_by_key(|it| it["name"].to_string());
    json!(all)
}

/// Tasks, but for the time at which they were made.
fn tasks(spec: &Value) -> Value {
    let mut all = spec["gracefulEvictionTasks"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for task in &mut all {
        task["creationTimestamp"] = json!(task.get("creationTimestamp").is_some());
    }
    json!(all)
}
