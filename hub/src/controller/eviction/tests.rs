//! What one binding does about the clusters that it is placed on, as a table; and a property over all of them.

use super::brake::Word;
use super::decide::{Around, Decision, Options, Seen, decide};
use super::unhealthy::Since;
use crate::world::{Binding, Cluster, Record as _};
use chrono::{DateTime, Utc};
use common::api::policy::ClusterPurgeMode;
use common::labels::{TAINT_NOT_READY, TAINT_UNREACHABLE};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const OPTIONS: Options = Options {
    purge_mode: ClusterPurgeMode::Gracefully,
    timeout: Duration::from_secs(600),
};
/// When the taints of these tests were added.
const TAINTED: &str = "2026-01-01T00:00:00Z";

fn at(seconds: i64) -> DateTime<Utc> {
    let tainted: DateTime<Utc> = TAINTED.parse().expect("a time");
    tainted + chrono::Duration::seconds(seconds)
}

fn binding(spec: &Value, status: &Value) -> Binding {
    let mut object = json!({
        "metadata": {"name": "web-deployment", "namespace": "n", "resourceVersion": "7", "generation": 3},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web"},
            "placement": {},
        },
        "status": status,
    });
    json_patch::merge(&mut object["spec"], spec);
    let read = Binding::read(&object.to_string());
    read.expect("an object").expect("held")
}

fn cluster(name: &str, ready: &str, taints: &Value) -> Cluster {
    let object = json!({
        "metadata": {"name": name},
        "spec": {"syncMode": "Pull", "taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    });
    let read = Cluster::read(&object.to_string());
    read.expect("an object").expect("held")
}

fn tainted() -> Value {
    json!([{"key": "x", "value": "1", "effect": "NoExecute", "timeAdded": TAINTED}])
}

/// A fleet in which m1 is tainted, m2 and m3 are well.
fn fleet(word: Word) -> BTreeMap<String, Around> {
    let none = json!([]);
    let taints = [("m1", tainted()), ("m2", none.clone()), ("m3", none)];
    let all = taints.map(|(name, taints)| {
        let around = Around {
            cluster: Arc::new(cluster(name, "True", &taints)),
            word,
        };
        (name.to_owned(), around)
    });
    all.into()
}

fn at_ten(held: &Binding, clusters: &BTreeMap<String, Around>, turn: bool) -> Decision {
    let seen = Seen {
        held,
        clusters,
        unhealthy: &Since::new(),
        turn,
    };
    decide(at(10), OPTIONS, seen)
}

fn placed() -> Value {
    json!({"clusters": [{"name": "m1", "replicas": 3}, {"name": "m2", "replicas": 1}]})
}

fn spec_of(decision: &Decision) -> Value {
    let binding = decision.binding.as_ref().expect("it changes");
    serde_json::to_value(&binding.spec).expect("encodes")
}

#[test]
fn what_is_not_tolerated_is_left() {
    let held = binding(&placed(), &json!({}));
    let decision = at_ten(&held, &fleet(Word::Go), true);
    assert_eq!(decision.left, ["m1"]);
    let spec = spec_of(&decision);
    assert_eq!(spec["clusters"], json!([{"name": "m2", "replicas": 1}]));
    assert_eq!(
        spec["gracefulEvictionTasks"],
        json!([{"fromCluster": "m1", "purgeMode": "Gracefully", "replicas": 3, "reason": "TaintUntolerated",
            "producer": "TaintManager", "creationTimestamp": "2026-01-01T00:00:10Z"}])
    );
    assert_eq!(decision.events.len(), 1);
}

#[test]
fn nothing_leaves_a_cluster_for_a_silence_that_is_over() {
    // Whether it is ready, the taint that it has, whether it is left.
    let cases = [
        ("Unknown", TAINT_UNREACHABLE, true),
        ("True", TAINT_UNREACHABLE, false),
        ("False", TAINT_NOT_READY, true),
        ("True", TAINT_NOT_READY, false),
        ("True", "x", true),
    ];
    for (ready, key, leaves) in cases {
        let taint = json!([{"key": key, "effect": "NoExecute", "timeAdded": TAINTED}]);
        let mut clusters = fleet(Word::Go);
        let around = Around {
            cluster: Arc::new(cluster("m1", ready, &taint)),
            word: Word::Go,
        };
        clusters.insert("m1".to_owned(), around);
        let decision = at_ten(&binding(&placed(), &json!({})), &clusters, true);
        assert_eq!(decision.left.len(), usize::from(leaves), "{ready} {key}");
    }
}

#[test]
fn a_binding_says_itself_how_it_leaves() {
    for (failover, want) in [
        (json!(null), "Gracefully"),
        (json!({"cluster": {"purgeMode": "Directly"}}), "Directly"),
        (
            json!({"cluster": {"purgeMode": "Gracefully"}}),
            "Gracefully",
        ),
    ] {
        let mut spec = placed();
        spec["failover"] = failover;
        let decision = at_ten(&binding(&spec, &json!({})), &fleet(Word::Go), true);
        let task = &spec_of(&decision)["gracefulEvictionTasks"][0];
        assert_eq!(task["purgeMode"], want);
    }
}

#[test]
fn what_has_replicas_of_no_number_leaves_without_one() {
    let spec = json!({"clusters": [{"name": "m1"}, {"name": "m2"}]});
    let decision = at_ten(&binding(&spec, &json!({})), &fleet(Word::Go), true);
    assert_eq!(
        spec_of(&decision)["gracefulEvictionTasks"][0].get("replicas"),
        None
    );
}

#[test]
fn it_waits_for_its_turn_and_for_the_brake() {
    let held = binding(&placed(), &json!({}));
    let waits = at_ten(&held, &fleet(Word::Go), false);
    assert!(waits.wants_turn && waits.binding.is_none(), "{waits:?}");
    let braked = at_ten(&held, &fleet(Word::Held), true);
    assert_eq!((braked.held, braked.binding), (vec!["m1".to_owned()], None));
    let wait = Duration::from_secs(9);
    let early = at_ten(&held, &fleet(Word::Wait(wait)), true);
    assert_eq!((early.again, early.binding), (Some(wait), None));
}

#[test]
fn tolerations_hold_it_as_long_as_they_say() {
    let tolerates = |seconds: Value| {
        let mut spec = placed();
        spec["placement"] = json!({"clusterTolerations": [
            {"key": "x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]});
        at_ten(&binding(&spec, &json!({})), &fleet(Word::Go), true)
    };
    assert_eq!(tolerates(json!(null)), Decision::default());
    let later = tolerates(json!(30));
    assert_eq!(later.again, Some(Duration::from_millis(20_001)));
    assert_eq!(later.binding, None);
    assert_eq!(tolerates(json!(9)).left, ["m1"]);
}

#[test]
fn a_cluster_that_it_leaves_already_only_goes_from_its_targets() {
    let mut spec = placed();
    let task = json!({"fromCluster": "m1", "reason": "R", "producer": "P", "suppressDeletion": true,
        "creationTimestamp": TAINTED});
    spec["gracefulEvictionTasks"] = json!([task]);
    let decision = at_ten(&binding(&spec, &json!({})), &fleet(Word::Go), true);
    let after = spec_of(&decision);
    assert_eq!(after["clusters"], json!([{"name": "m2", "replicas": 1}]));
    assert_eq!(after["gracefulEvictionTasks"], json!([task]));
}

#[test]
fn what_nobody_would_place_again_stays() {
    let mut spec = placed();
    spec["placement"] = json!(null);
    let decision = at_ten(&binding(&spec, &json!({})), &fleet(Word::Go), true);
    assert_eq!(decision, Decision::default());
}

fn scheduled(status: &str) -> Value {
    json!({"schedulerObservedGeneration": 3, "conditions": [{"type": "Scheduled", "status": status,
        "reason": "R", "message": "", "lastTransitionTime": TAINTED, "observedGeneration": 3}]})
}

fn leaving(clusters: &Value) -> Value {
    json!({"clusters": clusters, "gracefulEvictionTasks": [{"fromCluster": "m1", "replicas": 3,
        "purgeMode": "Gracefully", "reason": "TaintUntolerated", "producer": "TaintManager",
        "creationTimestamp": TAINTED}]})
}

#[test]
fn tasks_end_with_a_healthy_replacement_and_wait_for_one() {
    let spec = leaving(&json!([{"name": "m2", "replicas": 4}]));
    let mut status = scheduled("True");
    let waits = at_ten(&binding(&spec, &status), &fleet(Word::Go), true);
    assert_eq!(waits.again, Some(Duration::from_millis(590_001)));
    assert_eq!(waits.binding, None);
    status["aggregatedStatus"] = json!([{"clusterName": "m2", "health": "Healthy"}]);
    let ends = at_ten(&binding(&spec, &status), &fleet(Word::Go), true);
    assert_eq!(spec_of(&ends).get("gracefulEvictionTasks"), None);
    assert_eq!(ends.events.len(), 1);
}

#[test]
fn what_was_tolerated_for_a_while_does_not_come_back_as_long_as_the_taint_is_there() {
    let mut spec = leaving(&json!([{"name": "m2", "replicas": 4}]));
    spec["placement"] = json!({"clusterTolerations": [
        {"key": "x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}]});
    let mut status = scheduled("True");
    status["aggregatedStatus"] = json!([{"clusterName": "m2", "health": "Healthy"}]);
    let mut held = binding(&spec, &status);
    let mut clusters = fleet(Word::Go);
    let mut with = |ready: &str, taints: &Value, held: &Binding| {
        let around = Around {
            cluster: Arc::new(cluster("m1", ready, taints)),
            word: Word::Go,
        };
        clusters.insert("m1".to_owned(), around);
        at_ten(held, &clusters, true)
    };
    assert_eq!(
        with("Unknown", &tainted(), &held).binding,
        None,
        "nobody is there"
    );
    let emptied = with("True", &tainted(), &held);
    let tasks = &spec_of(&emptied)["gracefulEvictionTasks"];
    assert_eq!(
        (tasks[0]["purgeMode"].as_str(), &tasks[1]),
        (Some("Directly"), &Value::Null)
    );
    assert_eq!(tasks[0]["suppressDeletion"], false, "nobody waits for it");
    held.binding = emptied.binding.expect("it changes");
    assert_eq!(with("True", &tainted(), &held).binding, None);
    let ends = with("True", &json!([]), &held);
    assert_eq!(spec_of(&ends).get("gracefulEvictionTasks"), None);
}

#[test]
fn what_goes_directly_is_waited_for_until_its_time_is_over() {
    let mut spec = leaving(&json!([{"name": "m2", "replicas": 4}]));
    spec["placement"] = json!({"clusterTolerations": [
        {"key": "x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3}]});
    spec["gracefulEvictionTasks"][0]["purgeMode"] = json!("Directly");
    // How long it lasts, how ready its cluster is, whether it is let go at ten seconds.
    let cases = [
        (600, "Unknown", false),
        (600, "True", false),
        (9, "Unknown", true),
        (9, "True", true),
    ];
    for (grace, ready, goes) in cases {
        spec["gracefulEvictionTasks"][0]["gracePeriodSeconds"] = json!(grace);
        let held = binding(&spec, &scheduled("True"));
        let mut clusters = fleet(Word::Go);
        let around = Around {
            cluster: Arc::new(cluster("m1", ready, &tainted())),
            word: Word::Go,
        };
        clusters.insert("m1".to_owned(), around);
        let decision = at_ten(&held, &clusters, true);
        assert_eq!(decision.binding.is_some(), goes, "{grace} {ready}");
        let Some(after) = decision.binding else {
            continue;
        };
        let task = &after.spec.graceful_eviction_tasks[0];
        let found = (task.suppress_deletion, task.grace_period_seconds);
        assert_eq!(found, (Some(false), None), "{grace} {ready}");
        let again = Binding::new(after, 4, held.status.clone());
        let again = at_ten(&again, &clusters, true);
        assert_eq!(again, Decision::default(), "{grace} {ready}");
    }
}

#[test]
fn what_found_no_other_place_returns_when_the_taint_goes() {
    let held = binding(&leaving(&json!([])), &scheduled("False"));
    let mut clusters = fleet(Word::Go);
    assert_eq!(at_ten(&held, &clusters, true), Decision::default());
    let well = Around {
        cluster: Arc::new(cluster("m1", "True", &json!([]))),
        word: Word::Go,
    };
    clusters.insert("m1".to_owned(), well);
    let spec = spec_of(&at_ten(&held, &clusters, true));
    assert_eq!(spec["clusters"], json!([{"name": "m1", "replicas": 3}]));
    assert_eq!(spec.get("gracefulEvictionTasks"), None);
    let silent = Around {
        cluster: Arc::new(cluster("m1", "Unknown", &json!([]))),
        word: Word::Go,
    };
    clusters.insert("m1".to_owned(), silent);
    assert_eq!(at_ten(&held, &clusters, true), Decision::default());
}

/// What is decided of a binding with this `failover.application` that m1 calls unhealthy since 0, as many seconds later.
fn failing(application: &Value, status: &Value, seconds: i64) -> Decision {
    let mut spec = placed();
    spec["propagateDeps"] = json!(true);
    spec["failover"] = json!({"application": application});
    let items = json!([{"clusterName": "m1", "health": "Unhealthy", "status": status}]);
    let held = binding(&spec, &json!({"aggregatedStatus": items}));
    let mut clusters = fleet(Word::Go);
    let well = cluster("m1", "True", &json!([]));
    clusters.insert(
        "m1".to_owned(),
        Around {
            cluster: Arc::new(well),
            word: Word::Go,
        },
    );
    let seen = Seen {
        held: &held,
        clusters: &clusters,
        unhealthy: &Since::from([("m1".to_owned(), at(0))]),
        turn: true,
    };
    decide(at(seconds), OPTIONS, seen)
}

#[test]
fn what_is_unhealthy_for_too_long_leaves_as_its_policy_says() {
    let tolerates = json!({"decisionConditions": {"tolerationSeconds": 30}});
    let waits = failing(&tolerates, &json!(null), 10);
    assert_eq!(
        (waits.binding, waits.again),
        (None, Some(Duration::from_millis(20_001)))
    );
    // What the policy says of the way in which it leaves, and what the task says.
    let cases = [
        (
            json!({"purgeMode": "Directly"}),
            json!({"purgeMode": "Directly"}),
        ),
        (
            json!({"purgeMode": "Gracefully", "gracePeriodSeconds": 60}),
            json!({"purgeMode": "Gracefully", "gracePeriodSeconds": 60}),
        ),
        (
            json!({"purgeMode": "Never"}),
            json!({"purgeMode": "Never", "suppressDeletion": true}),
        ),
        (
            json!({"purgeMode": "Directly",
                "statePreservation": {"rules": [{"aliasLabelName": "job", "jsonPath": "{.id}"}]}}),
            json!({"purgeMode": "Directly", "preservedLabelState": {"job": "a1"},
                "clustersBeforeFailover": ["m1", "m2"]}),
        ),
    ];
    for (says, mut want) in cases {
        let mut application = tolerates.clone();
        json_patch::merge(&mut application, &says);
        let decision = failing(&application, &json!({"id": "a1"}), 31);
        let spec = spec_of(&decision);
        let common = json!({"fromCluster": "m1", "replicas": 3, "reason": "ApplicationFailure",
            "producer": "resource-binding-application-failover-controller",
            "creationTimestamp": "2026-01-01T00:00:31Z"});
        json_patch::merge(&mut want, &common);
        assert_eq!(spec["gracefulEvictionTasks"], json!([want]), "{says}");
        assert_eq!(spec["clusters"], json!([{"name": "m2", "replicas": 1}]));
        assert_eq!(decision.events[0].reason, "ApplicationFailure");
    }
}

#[test]
fn what_failed_in_every_cluster_goes_on_there_when_its_time_is_over() {
    let fails = |name: &str| json!({"clusterName": name, "health": "Unhealthy"});
    let mut status = json!({"aggregatedStatus": [fails("m1"), fails("m2")]});
    let mut spec = placed();
    spec["propagateDeps"] = json!(true);
    spec["failover"] = json!({"application": {"decisionConditions": {"tolerationSeconds": 30},
        "purgeMode": "Gracefully", "gracePeriodSeconds": 60}});
    let mut clusters = fleet(Word::Go);
    let well = Around {
        cluster: Arc::new(cluster("m1", "True", &json!([]))),
        word: Word::Go,
    };
    clusters.insert("m1".to_owned(), well);
    let look = |held: &Binding, since: i64, seconds: i64| {
        let since = ["m1", "m2"].map(|it| (it.to_owned(), at(since)));
        let seen = Seen {
            held,
            clusters: &clusters,
            unhealthy: &Since::from(since),
            turn: true,
        };
        decide(at(seconds), OPTIONS, seen)
    };
    let left = look(&binding(&spec, &status), 0, 31);
    assert_eq!(left.left, ["m1", "m2"]);
    let left = spec_of(&left);
    assert_eq!(left.get("clusters"), None);
    json_patch::merge(&mut status, &scheduled("False"));
    // No cluster takes it as long as it leaves all of them.
    let held = binding(&left, &status);
    let waits = look(&held, 0, 91);
    assert_eq!(
        (waits.binding, waits.again),
        (None, Some(Duration::from_millis(1)))
    );
    let back = look(&held, 0, 92);
    let after = spec_of(&back);
    assert_eq!(after["clusters"], spec["clusters"]);
    assert_eq!(after.get("gracefulEvictionTasks"), None);
    let reasons = back.events.iter().map(|it| it.reason);
    let want = ["EvictWorkloadFromClusterCancelled"; 2];
    assert_eq!(reasons.collect::<Vec<_>>(), want);
    // From then on it counts anew.
    let held = binding(&after, &status);
    assert_eq!(look(&held, 92, 122).binding, None);
    assert_eq!(look(&held, 92, 123).left, ["m1", "m2"]);
}

#[test]
fn what_cannot_be_told_to_the_next_copy_holds_a_failing_one_and_no_lost_one() {
    let rules = json!({"rules": [{"aliasLabelName": "job", "jsonPath": "{.id}"},
        {"aliasLabelName": "n", "jsonPath": "{.n}"}]});
    let application =
        json!({"decisionConditions": {"tolerationSeconds": 0}, "statePreservation": rules});
    let held = failing(&application, &json!({"n": 1}), 1);
    assert_eq!(held.binding, None);
    assert!(
        held.blocked[0].message.contains("{.id}: leads to nothing"),
        "{held:?}"
    );
    let mut spec = placed();
    spec["failover"] = json!({"cluster": {"statePreservation": rules}});
    let status = json!({"aggregatedStatus": [{"clusterName": "m1", "status": {"n": 1}}]});
    let lost = at_ten(&binding(&spec, &status), &fleet(Word::Go), true);
    let task = &spec_of(&lost)["gracefulEvictionTasks"][0];
    assert_eq!(task["preservedLabelState"], json!({"n": "1"}));
}

#[test]
fn a_task_of_a_cluster_that_is_gone_ends() {
    let held = binding(&leaving(&json!([])), &scheduled("False"));
    let ends = at_ten(&held, &BTreeMap::new(), true);
    assert_eq!(spec_of(&ends).get("gracefulEvictionTasks"), None);
}

proptest! {
    /// Whatever is tainted and held: a cluster that is left has a task, its replicas are in it, nothing else moves, and
    /// what was decided once is not decided again.
    #[test]
    fn nothing_is_lost_on_the_way(
        places in proptest::collection::btree_map("m[1-5]", (0_i32..4, any::<bool>(), any::<bool>()), 0..5),
    ) {
        let clusters: Vec<Value> = places.iter()
            .map(|(name, (replicas, _, _))| json!({"name": name, "replicas": replicas}))
            .collect();
        let around: BTreeMap<String, Around> = places.iter().map(|(name, (_, evicts, held))| {
            let taints = if *evicts { tainted() } else { json!([]) };
            let around = Around {
                cluster: Arc::new(cluster(name, "True", &taints)),
                word: if *held { Word::Held } else { Word::Go },
            };
            (name.clone(), around)
        }).collect();
        let held = binding(&json!({ "clusters": clusters }), &json!({}));
        let decision = at_ten(&held, &around, true);
        let Some(after) = &decision.binding else {
            prop_assert!(decision.left.is_empty());
            return Ok(());
        };
        for (name, (replicas, evicts, held)) in &places {
            let leaves = *evicts && !*held;
            let stays = after.spec.clusters.iter().any(|it| it.name == *name);
            let task = after.spec.graceful_eviction_tasks.iter().find(|it| it.from_cluster == *name);
            prop_assert_eq!((stays, task.is_some()), (!leaves, leaves));
            if let Some(task) = task {
                prop_assert_eq!(task.replicas.unwrap_or(0), *replicas);
            }
        }
        let again = Binding::new(after.clone(), 4, held.status.clone());
        prop_assert_eq!(at_ten(&again, &around, true).binding, None);
    }
}
