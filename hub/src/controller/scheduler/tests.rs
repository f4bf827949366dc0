//! What the scheduler's controller makes of bindings and clusters.

mod ahead;
mod placed;
mod untold;
mod woken;

use super::decide::{Ahead, Decision, Seen, decide, place};
use crate::propagation;
use crate::scheduler::{Interner, Snapshot, from_api};
use crate::world::{Binding, Record as _};
use chrono::DateTime;
use serde_json::{Value, json};
use std::sync::Arc;

fn cluster(name: &str, spec: &Value) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": "1"}, "spec": spec, "status": {
        "apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]}]}})
}

/// In mode Pull.
fn pulled(name: &str) -> Value {
    cluster(name, &json!({"syncMode": "Pull"}))
}

fn snapshot(names: &[&str]) -> Snapshot {
    of_clusters(names.iter().map(|name| pulled(name)))
}

fn of_clusters(objects: impl IntoIterator<Item = Value>) -> Snapshot {
    let mut interner = Interner::default();
    Snapshot::new(objects.into_iter().map(|object| {
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

/// Writes where a binding is placed into the object.
fn write(object: &mut Value, placed: &propagation::Binding) {
    object["spec"]["clusters"] = json!(placed.spec.clusters);
    object["metadata"]["annotations"] = json!(placed.annotations);
}

/// What is there once a binding is written as it was placed ahead.
fn written(object: &mut Value, snapshot: &Snapshot, is_new: bool) -> Option<Ahead> {
    let mut wanted = read(object);
    if is_new {
        wanted.generation = 0;
    }
    let ahead = place(&mut wanted, snapshot);
    write(object, &wanted.binding);
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

/// Divided by room over these members.
fn by_room(members: &[&str]) -> Value {
    let mut placement = placement(members);
    placement["replicaScheduling"]["weightPreference"] =
        json!({"dynamicWeight": "AvailableReplicas"});
    placement
}

/// With room for so many pods.
fn roomy(name: &str, version: u32, pods: u32) -> Value {
    let mut object = pulled(name);
    object["metadata"]["resourceVersion"] = json!(version.to_string());
    object["status"]["resourceSummary"] = json!({"allocatable": {"pods": pods.to_string()}});
    object
}
