//! The status of an object is written by itself, and by itself only.

use super::Meta;
use crate::apiserver::scheme::Resource;
use crate::apiserver::value::{at, copy, put};
use serde_json::{Value, json};

/// A new object has the status that its kind begins with, whatever the body says.
pub(super) fn reset_on_create(resource: &Resource, object: &mut Value) {
    let first = match (resource.group.as_ref(), resource.plural.as_ref()) {
        // Their bodies may bring one, or their own strategy says it.
        ("", "namespaces" | "nodes") | ("apiextensions.k8s.io" | "certificates.k8s.io", _) => {
            return;
        }
        ("", "persistentvolumes" | "persistentvolumeclaims") => Some(json!({"phase": "Pending"})),
        ("", "pods") => Some(json!({"phase": "Pending", "qosClass": "BestEffort"})),
        ("", "services") => Some(json!({"loadBalancer": {}})),
        ("networking.k8s.io", "ingresses") => Some(json!({"loadBalancer": {}})),
        ("apps", "deployments") => Some(json!({})),
        ("apps", "replicasets") | ("", "replicationcontrollers") => Some(json!({"replicas": 0})),
        ("apps", "statefulsets") => Some(json!({"replicas": 0, "availableReplicas": 0})),
        ("apps", "daemonsets") => Some(json!({
            "currentNumberScheduled": 0,
            "numberMisscheduled": 0,
            "desiredNumberScheduled": 0,
            "numberReady": 0,
        })),
        ("autoscaling", "horizontalpodautoscalers") => Some(match resource.version.as_ref() {
            "v1" => json!({"currentReplicas": 0, "desiredReplicas": 0}),
            _ => json!({"desiredReplicas": 0, "currentMetrics": null}),
        }),
        ("policy", "poddisruptionbudgets") => Some(json!({
            "disruptionsAllowed": 0,
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "expectedPods": 0,
        })),
        _ if resource.is_custom() => None,
        _ => Some(json!({})),
    };
    put(object, &["status"], first);
}

/// A write to `/status` changes the status and, of the metadata, what the kind lets it.
pub(super) fn keep_the_rest(metadata: Meta, object: &mut Value, old: &Value) {
    let status = at(object, &["status"]).cloned();
    let mut kept = old.clone();
    match metadata {
        Meta::Kept => {
            copy(&mut kept, object, &["metadata", "managedFields"]);
            copy(&mut kept, object, &["metadata", "resourceVersion"]);
        }
        Meta::Labels => {
            copy(&mut kept, object, &["metadata"]);
            copy(&mut kept, old, &["metadata", "labels"]);
        }
        Meta::Free => copy(&mut kept, object, &["metadata"]),
    }
    put(&mut kept, &["status"], status);
    *object = kept;
}
