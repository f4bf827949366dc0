//! A placement that is written with its binding, and what the scheduler says of it afterwards.

use super::decide::{Ahead, Decision, Seen, decide, place, said};
use super::{Placing, Scheduler};
use crate::controller::bindings::Bindings;
use crate::controller::notices::Notices;
use crate::scheduler::{Interner, Snapshot, from_api};
use crate::world::testing::unreachable;
use crate::world::{Binding, ObjectName, Record as _, World};
use chrono::DateTime;
use common::api::binding::ResourceBindingStatus;
use common::conditions;
use common::controller::{Controller, Reconcile as _};
use common::labels::{APPLIED_PLACEMENT, POLICY_PERMANENT_ID};
use common::queue::Queue;
use common::time::SystemClock;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::advance;

fn cluster(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": "1"}, "spec": spec, "status": {
        "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}]}})
}

fn snapshot(names: &[&str]) -> Snapshot {
    let mut interner = Interner::default();
    Snapshot::new(names.iter().map(|name| {
        let object = cluster(name, &json!({"syncMode": "Pull"}));
        let object = serde_json::from_value(object).expect("a Cluster");
        Arc::new(from_api::cluster(&object, &mut interner))
    }))
}

/// Divided by weights over these members.
fn placement(members: &[&str]) -> Value {
    json!({
        "clusterAffinity": {"clusterNames": members},
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted"},
    })
}

fn object(placement: &Value) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "web-deployment", "namespace": "n", "generation": 1, "resourceVersion": "7"},
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web", "uid": "u"},
            "replicas": 4,
            "placement": placement,
        },
    })
}

fn read(object: &Value) -> Binding {
    let read = Binding::read(&object.to_string());
    read.expect("an object").expect("held")
}

/// What is there once a binding is written as it was placed ahead.
fn written(object: &mut Value, snapshot: &Snapshot, is_new: bool) -> Option<Ahead> {
    let mut wanted = read(object);
    if is_new {
        wanted.generation = 0;
    }
    let ahead = place(&mut wanted, snapshot);
    object["spec"]["clusters"] = json!(wanted.binding.spec.clusters);
    object["metadata"]["annotations"] = json!(wanted.binding.annotations);
    ahead
}

fn decided(object: &Value, snapshot: &Snapshot, ahead: Option<&Ahead>) -> Decision {
    let held = read(object);
    let seen = Seen {
        held: &held,
        snapshot,
        ahead,
    };
    decide(DateTime::UNIX_EPOCH, &seen)
}

fn reasons(decision: &Decision) -> Vec<(&str, &str)> {
    let events = decision.events.iter();
    events.map(|it| (it.reason, it.message.as_str())).collect()
}

const DONE: &str = "Binding has been scheduled successfully. Result: {m1:2, m2:2}";

#[test]
fn a_new_binding_is_written_with_its_placement_and_its_status_follows_once() {
    let snapshot = snapshot(&["m1", "m2", "m3"]);
    let mut object = object(&placement(&["m1", "m2"]));
    let ahead = written(&mut object, &snapshot, true).expect("placed");
    let clusters = json!([{"name": "m1", "replicas": 2}, {"name": "m2", "replicas": 2}]);
    assert_eq!(object["spec"]["clusters"], clusters);
    let applied = &object["metadata"]["annotations"][APPLIED_PLACEMENT];
    let applied: Value = serde_json::from_str(applied.as_str().expect("noted")).expect("JSON");
    assert_eq!(
        applied["clusterAffinity"]["clusterNames"],
        json!(["m1", "m2"])
    );
    // A hub that ended in between says the same, from what it sees.
    for ahead in [Some(&ahead), None] {
        let decision = decided(&object, &snapshot, ahead);
        assert_eq!(decision.patch, None);
        assert_eq!(reasons(&decision), [("ScheduleBindingSucceed", DONE)]);
        let status = decision.status.expect("to be said");
        assert_eq!(status["conditions"][0]["reason"], "Success");
        assert_eq!(status["schedulerObservedGeneration"], 1);
        assert!(status["lastScheduledTime"].is_string());
        let mut settled = object.clone();
        settled["status"] = status;
        let at_rest = decided(&settled, &snapshot, None);
        assert_eq!((at_rest.patch, at_rest.status), (None, None));
        assert!(at_rest.events.is_empty());
    }
}

#[test]
fn a_placement_that_changes_moves_with_the_same_write() {
    let snapshot = snapshot(&["m1", "m2", "m3"]);
    let mut object = object(&placement(&["m3"]));
    let ahead = written(&mut object, &snapshot, true);
    object["status"] = decided(&object, &snapshot, ahead.as_ref())
        .status
        .expect("to be said");
    object["status"]["lastScheduledTime"] = json!("2020-01-01T00:00:00Z");
    object["spec"]["placement"] = placement(&["m1", "m2"]);
    let ahead = written(&mut object, &snapshot, false).expect("placed");
    assert!(ahead.moves);
    object["metadata"]["generation"] = json!(2);
    let decision = decided(&object, &snapshot, Some(&ahead));
    assert_eq!(decision.patch, None);
    assert_eq!(reasons(&decision), [("ScheduleBindingSucceed", DONE)]);
    let status = decision.status.expect("to be said");
    assert_eq!(status["schedulerObservedGeneration"], 2);
    assert_eq!(status["lastScheduledTime"], "1970-01-01T00:00:00Z");
    // Somebody scaled it meanwhile: what was written ahead is not what it wants any more.
    object["spec"]["replicas"] = json!(6);
    let moved = decided(&object, &snapshot, Some(&ahead)).patch;
    let moved = moved.expect("to be moved");
    assert_eq!(moved["spec"]["clusters"][0]["replicas"], 3);
}

#[test]
fn what_members_say_and_where_it_was_placed_is_one_status() {
    let snapshot = snapshot(&["m1", "m2"]);
    let mut object = object(&placement(&["m1", "m2"]));
    let ahead = written(&mut object, &snapshot, true).expect("placed");
    let now = DateTime::UNIX_EPOCH;
    let told = said(now, &read(&object), &ahead).expect("not told yet");
    let applied = conditions::new("FullyApplied", true, "FullyAppliedSuccess", "", now);
    let mut status = ResourceBindingStatus {
        conditions: vec![applied],
        ..ResourceBindingStatus::default()
    };
    told.write_into(now, &mut status);
    object["status"] = json!(status);
    let types = status.conditions.iter().map(|it| it.type_.as_str());
    assert!(types.eq(["FullyApplied", "Scheduled"]));
    // Nothing is left to be said.
    assert!(said(now, &read(&object), &ahead).is_none());
    let at_rest = decided(&object, &snapshot, None);
    assert_eq!((at_rest.patch, at_rest.status), (None, None));
    // Of another placement it is not told.
    object["spec"]["replicas"] = json!(6);
    assert!(said(now, &read(&object), &ahead).is_none());
}

#[test]
fn a_cluster_that_went_since_takes_its_replicas_elsewhere() {
    for how in ["Divided", "Duplicated"] {
        let mut placement = placement(&["m1", "m2"]);
        placement["replicaScheduling"]["replicaSchedulingType"] = json!(how);
        let mut object = object(&placement);
        let ahead = written(&mut object, &snapshot(&["m1", "m2"]), true).expect("placed");
        let both = decided(&object, &snapshot(&["m1", "m2"]), Some(&ahead));
        assert_eq!(both.patch, None, "{how}");
        let mut interner = Interner::default();
        let all = ["m1", "m2"].map(|name| {
            let mut object = cluster(name, &json!({"syncMode": "Pull"}));
            if name == "m2" {
                object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            let object = serde_json::from_value(object).expect("a Cluster");
            Arc::new(from_api::cluster(&object, &mut interner))
        });
        let one = decided(&object, &Snapshot::new(all), Some(&ahead));
        let moved = one.patch.expect("to be moved");
        let clusters = json!([{"name": "m1", "replicas": 4}]);
        assert_eq!(moved["spec"]["clusters"], clusters, "{how}");
    }
}

/// Nobody may have looked while it went, as where scheduling was suspended.
#[test]
fn a_cluster_that_is_not_there_any_more_keeps_no_replicas() {
    for how in ["Divided", "Duplicated"] {
        let mut placement = placement(&["m1", "m2"]);
        placement["replicaScheduling"]["replicaSchedulingType"] = json!(how);
        let mut object = object(&placement);
        let both = snapshot(&["m1", "m2"]);
        let ahead = written(&mut object, &both, true).expect("placed");
        let mut told = object.clone();
        told["status"] = json!(decided(&object, &both, Some(&ahead)).status);
        let at_rest = decided(&told, &both, None);
        assert_eq!((at_rest.patch, at_rest.status), (None, None), "{how}");
        let left = snapshot(&["m1"]);
        for (object, ahead) in [(&object, Some(&ahead)), (&told, None)] {
            let moved = decided(object, &left, ahead).patch.expect("to be moved");
            let clusters = json!([{"name": "m1", "replicas": 4}]);
            assert_eq!(moved["spec"]["clusters"], clusters, "{how}");
        }
    }
}

/// One is no longer meant, and the other has no room for more: what runs goes on running.
#[test]
fn what_asks_for_more_than_fits_loses_nothing() {
    let mut interner = Interner::default();
    let clusters = ["m1", "m2"].map(|name| {
        let mut object = cluster(name, &json!({"syncMode": "Pull"}));
        object["status"]["resourceSummary"] = json!({"allocatable": {"pods": "5"}});
        let object = serde_json::from_value(object).expect("a Cluster");
        Arc::new(from_api::cluster(&object, &mut interner))
    });
    let mut asked = placement(&["m2"]);
    asked["replicaScheduling"]["weightPreference"] = json!({"dynamicWeight": "AvailableReplicas"});
    let mut object = object(&asked);
    object["spec"]["replicas"] = json!(12);
    object["spec"]["clusters"] =
        json!([{"name": "m1", "replicas": 4}, {"name": "m2", "replicas": 4}]);
    let decision = decided(&object, &Snapshot::new(clusters), None);
    assert_eq!(decision.patch, None);
    let status = decision.status.expect("to be said");
    assert_eq!(status["conditions"][0]["reason"], "Unschedulable");
}

/// Divided by room over these members.
fn by_room(members: &[&str]) -> Value {
    let mut placement = placement(members);
    placement["replicaScheduling"]["weightPreference"] =
        json!({"dynamicWeight": "AvailableReplicas"});
    placement
}

/// With room for so many pods.
fn roomy(name: &str, version: u32, pods: u32) -> Value {
    let mut object = cluster(name, &json!({"syncMode": "Pull"}));
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    object["status"]["resourceSummary"] = json!({"allocatable": {"pods": pods.to_string()}});
    object
}

#[test]
fn a_message_with_other_numbers_is_known_as_such() {
    let roomy = serde_json::from_value(roomy("m1", 1, 1)).expect("a Cluster");
    let roomy = Arc::new(from_api::cluster(&roomy, &mut Interner::default()));
    let snapshot = Snapshot::new([roomy]);
    let mut object = object(&by_room(&["m1"]));
    let first = decided(&object, &snapshot, None);
    assert!(!first.numbers_only);
    let said = first.status.expect("to be said");
    let message = said["conditions"][0]["message"].as_str().expect("said");
    assert!(message.contains(" replicas 1 are "), "{message}");
    // What is said already; whether something is to be said, and only other numbers.
    let cases = [
        ("Unschedulable", message.to_owned(), false, false),
        ("Unschedulable", message.replace(" 1 ", " 37 "), true, true),
        ("Unschedulable", message.replace(" 1 ", " m1 "), true, false),
        (
            "Unschedulable",
            message.replace("scale up", "do fresh scale"),
            true,
            false,
        ),
        (
            "SchedulerError",
            message.replace(" 1 ", " 37 "),
            true,
            false,
        ),
    ];
    for (reason, message, is_said, numbers_only) in cases {
        object["status"] = said.clone();
        object["status"]["conditions"][0]["reason"] = json!(reason);
        object["status"]["conditions"][0]["message"] = json!(message);
        let mut decision = decided(&object, &snapshot, None);
        assert_eq!(decision.status.is_some(), is_said, "{reason} {message}");
        assert_eq!(decision.numbers_only, numbers_only, "{reason} {message}");
        decision.hold_back();
        assert!(decision.status.is_none() && decision.events.is_empty());
    }
}

#[test]
fn what_fits_nowhere_is_written_as_it_is() {
    let snapshot = snapshot(&["m1"]);
    let mut object = object(&placement(&["m9"]));
    assert!(written(&mut object, &snapshot, true).is_none());
    assert_eq!(object["metadata"]["annotations"], json!({}));
    assert_eq!(object["spec"]["clusters"], json!([]));
}

fn watching(placing: &Placing, world: &World) -> Controller<Arc<Scheduler>> {
    let client = {
        let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nobody is there"))
        });
        kube::Client::new(nobody, "default")
    };
    let bindings = Bindings::new(client, world.clone(), Notices::default());
    Scheduler::watching(bindings, placing.clone(), Arc::new(SystemClock), world)
}

/// The bindings that a change of m1 wakes, of those on m1, on m2, and for m1 but not placed.
async fn woken(before: &Value, after: &Value) -> Vec<String> {
    let world = unreachable();
    let placing = Placing::watching(&world);
    let scheduler = watching(&placing, &world);
    let queue = scheduler.queue();
    let of = |name: &str, members: &[&str], on: &[&str]| {
        let mut object = object(&placement(members));
        object["metadata"]["name"] = json!(name);
        object["spec"]["clusters"] = on.iter().map(|it| json!({"name": it})).collect();
        object
    };
    let all = [
        of("on-1", &["m1"], &["m1"]),
        of("on-2", &["m2"], &["m2"]),
        of("on-neither", &["m1", "m2"], &[]),
    ];
    world.clusters.listed(std::slice::from_ref(before)).await;
    world.propagation.bindings.listed(&all).await;
    while let Some(name) = queue.try_next() {
        queue.done(&name);
    }
    world.clusters.sent(std::slice::from_ref(after)).await;
    std::iter::from_fn(|| queue.try_next())
        .map(|it| it.name.to_string())
        .collect()
}

#[tokio::test]
async fn a_cluster_wakes_who_is_there_and_who_would_go_there_and_nobody_else() {
    let cluster = |version: u32, taints: &Value, pods: u32| {
        json!({
            "metadata": {"name": "m1", "resourceVersion": version.to_string()},
            "spec": {"syncMode": "Pull", "taints": taints},
            "status": {"resourceSummary": {"allocatable": {"pods": pods.to_string()}}},
        })
    };
    let none = json!([]);
    let tainted = json!([{"key": "k", "effect": "NoSchedule"}]);
    let gained = woken(&cluster(1, &tainted, 1), &cluster(2, &none, 1)).await;
    assert_eq!(gained, ["on-1", "on-neither"]);
    let lost = woken(&cluster(1, &none, 1), &cluster(2, &tainted, 1)).await;
    assert_eq!(lost, ["on-1"]);
    let room = woken(&cluster(1, &none, 1), &cluster(2, &none, 2)).await;
    assert!(room.is_empty(), "{room:?}");
}

#[tokio::test]
async fn nothing_is_moved_ahead_from_a_cluster_that_cannot_be_read() {
    let readable = json!({"syncMode": "Pull"});
    for (spec, on) in [(&readable, "m2"), (&json!(7), "m1")] {
        let world = unreachable();
        let placing = Placing::watching(&world);
        let clusters = [cluster("m1", spec), cluster("m2", &readable)];
        world.clusters.listed(&clusters).await;
        let mut object = object(&placement(&["m2"]));
        object["metadata"]["labels"] = json!({POLICY_PERMANENT_ID: "p"});
        object["spec"]["clusters"] = json!([{"name": "m1", "replicas": 4}]);
        let held = read(&object);
        let wanted = placing.place(&held.binding, Some(&held));
        let names = wanted.spec.clusters.iter().map(|it| it.name.as_str());
        assert!(names.eq([on]), "{spec}");
    }
}

#[tokio::test]
async fn a_binding_that_was_placed_on_other_clusters_is_looked_at() {
    // When a cluster changes: not at all, before the binding is known, and after.
    for (changes, looked_at) in [(None, false), (Some(false), true), (Some(true), true)] {
        let world = unreachable();
        let placing = Placing::watching(&world);
        let scheduler = watching(&placing, &world);
        let queue = scheduler.queue();
        let clusters = ["m1", "m2"].map(|it| cluster(it, &json!({"syncMode": "Pull"})));
        world.clusters.listed(&clusters).await;
        world.propagation.bindings.listed(&[]).await;
        let mut object = object(&placement(&["m1", "m2"]));
        object["metadata"]["labels"] = json!({POLICY_PERMANENT_ID: "p"});
        let wanted = placing.place(&read(&object).binding, None);
        object["spec"]["clusters"] = json!(wanted.spec.clusters);
        object["metadata"]["annotations"] = json!(wanted.annotations);
        let mut leaves = clusters[1].clone();
        leaves["metadata"]["resourceVersion"] = json!("2");
        leaves["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        if changes == Some(false) {
            world.clusters.sent(std::slice::from_ref(&leaves)).await;
        }
        world.propagation.bindings.sent(&[object]).await;
        if changes == Some(true) {
            world.clusters.sent(std::slice::from_ref(&leaves)).await;
        }
        assert_eq!(queue.try_next().is_some(), looked_at, "{changes:?}");
    }
}

/// Two templates whose bindings have one name: what is told of the first's may be taken for what was written for the other.
#[tokio::test]
async fn a_binding_that_somebody_else_could_not_write_is_looked_at() {
    let world = unreachable();
    let placing = Placing::watching(&world);
    let scheduler = watching(&placing, &world);
    let queue = scheduler.queue();
    let cluster = cluster("m1", &json!({"syncMode": "Pull"}));
    world.clusters.listed(&[cluster]).await;
    world.propagation.bindings.listed(&[]).await;
    let mut object = object(&placement(&["m1"]));
    object["metadata"]["labels"] = json!({POLICY_PERMANENT_ID: "p"});
    let wanted = read(&object).binding;
    let (first, second) = (placing.place(&wanted, None), placing.place(&wanted, None));
    object["spec"]["clusters"] = json!(first.spec.clusters);
    object["metadata"]["annotations"] = json!(first.annotations);
    world.propagation.bindings.sent(&[object]).await;
    assert!(queue.try_next().is_none(), "it is taken for placed");
    let refused = placing.noted(&second, Err::<(), _>("already exists"));
    assert_eq!(refused, Err("already exists"));
    let woken = queue.try_next().map(|it| it.name.to_string());
    assert_eq!(woken, Some(second.name));
}

#[tokio::test]
async fn what_was_decided_before_a_cluster_changed_is_known_as_such() {
    let world = unreachable();
    let placing = Placing::watching(&world);
    let cluster = cluster("m1", &json!({"syncMode": "Pull"}));
    world.clusters.listed(std::slice::from_ref(&cluster)).await;
    let then = placing.snapshot();
    assert!(placing.is_snapshot(&then));
    let mut roomier = cluster;
    roomier["metadata"]["resourceVersion"] = json!("2");
    roomier["status"]["resourceSummary"] = json!({"allocatable": {"pods": "2"}});
    world.clusters.sent(&[roomier]).await;
    assert!(!placing.is_snapshot(&then));
}

/// Whether the scheduler had something to look at, and did.
async fn looks(scheduler: &Scheduler, queue: &Queue<ObjectName>) -> bool {
    let Some(name) = queue.try_next() else {
        return false;
    };
    scheduler.reconcile(&name).await.expect("written");
    queue.done(&name);
    true
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_room_is_looked_at_where_it_comes_and_written_ever_less_often() {
    let world = unreachable();
    let placing = Placing::watching(&world);
    let written = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&written);
    let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        counted.fetch_add(1, Ordering::Relaxed);
        // Of a version that nobody waits for.
        let body = json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "web-deployment", "resourceVersion": "x"}});
        let body = kube::client::Body::from(body.to_string().into_bytes());
        async { Ok::<_, std::io::Error>(http::Response::new(body)) }
    });
    let client = kube::Client::new(service, "default");
    let bindings = Bindings::new(client, world.clone(), Notices::default());
    let clock = Arc::new(SystemClock);
    let (scheduler, controller) = Scheduler::wired(bindings, placing.clone(), clock, &world);
    let queue = controller.queue();
    world
        .clusters
        .listed(&[roomy("m1", 1, 1), roomy("m2", 1, 1)])
        .await;
    let mut object = object(&by_room(&["m1"]));
    object["metadata"]["labels"] = json!({POLICY_PERMANENT_ID: "p"});
    world
        .propagation
        .bindings
        .listed(std::slice::from_ref(&object))
        .await;
    assert!(looks(&scheduler, &queue).await);
    let mut told = written.load(Ordering::Relaxed);
    assert_eq!(told, 1);
    object["status"] = json!(decided(&object, &placing.snapshot(), None).status);
    object["metadata"]["resourceVersion"] = json!("8");
    world
        .propagation
        .bindings
        .sent(std::slice::from_ref(&object))
        .await;
    // After so many seconds the room that m1 has and m2; whether it is looked at then, and how often it is written by now.
    let steps = [
        (2, 1, 9, false, 1),
        (2, 1, 1, false, 1),
        (0, 2, 1, true, 2),
        // It was just looked at.
        (0, 3, 1, false, 2),
        // It was just written; four seconds after that it is again.
        (2, 3, 1, true, 2),
        (2, 3, 1, true, 3),
        (2, 2, 1, false, 3),
        (2, 0, 1, false, 3),
        // Whatever happens, and with nothing to be written the second time.
        (300, 0, 1, true, 4),
        (300, 0, 1, true, 4),
    ];
    for (step, (seconds, m1, m2, is_looked_at, writes)) in (9_u32..).zip(steps) {
        advance(Duration::from_secs(seconds)).await;
        let both = [roomy("m1", step, m1), roomy("m2", step, m2)];
        world.clusters.sent(&both).await;
        let said = decided(&object, &placing.snapshot(), None).status;
        assert_eq!(looks(&scheduler, &queue).await, is_looked_at, "{step}");
        assert_eq!(written.load(Ordering::Relaxed), writes, "{step}");
        if writes > told {
            told = writes;
            object["status"] = json!(said);
            object["metadata"]["resourceVersion"] = json!(step.to_string());
            world
                .propagation
                .bindings
                .sent(std::slice::from_ref(&object))
                .await;
        }
    }
}
