//! Which bindings the scheduler looks at as clusters and bindings change, over a world, and how often it writes.

use super::super::{Placing, Scheduler};
use super::*;
use crate::controller::bindings::Bindings;
use crate::controller::notices::Notices;
use crate::world::testing::{nobody, unreachable};
use crate::world::{ObjectName, World};
use common::controller::{Controller, Reconcile as _};
use common::labels::POLICY_PERMANENT_ID;
use common::queue::Queue;
use common::time::SystemClock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::advance;

fn watching(placing: &Placing, world: &World) -> Controller<Arc<Scheduler>> {
    let bindings = Bindings::new(nobody(), world.clone(), Notices::default());
    Scheduler::watching(bindings, placing.clone(), Arc::new(SystemClock), world)
}

/// A binding that a policy holds.
fn claimed(placement: &Value) -> Value {
    let mut object = object(placement);
    object["metadata"]["labels"] = json!({POLICY_PERMANENT_ID: "p"});
    object
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
        let mut object = claimed(&placement(&["m2"]));
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
        let clusters = ["m1", "m2"].map(pulled);
        world.clusters.listed(&clusters).await;
        world.propagation.bindings.listed(&[]).await;
        let mut object = claimed(&placement(&["m1", "m2"]));
        let wanted = placing.place(&read(&object).binding, None);
        write(&mut object, &wanted);
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
    world.clusters.listed(&[pulled("m1")]).await;
    world.propagation.bindings.listed(&[]).await;
    let mut object = claimed(&placement(&["m1"]));
    let wanted = read(&object).binding;
    let (first, second) = (placing.place(&wanted, None), placing.place(&wanted, None));
    write(&mut object, &first);
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
    world.clusters.listed(&[pulled("m1")]).await;
    let then = placing.snapshot();
    assert!(placing.is_snapshot(&then));
    world.clusters.sent(&[roomy("m1", 2, 2)]).await;
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
    let mut object = claimed(&by_room(&["m1"]));
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
