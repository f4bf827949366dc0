//! Defaults that only code knows, by type: a pod in a template gets the same as one by itself.

mod pods;
mod workloads;

use crate::apiserver::schema::{Schema, builtin};
use serde_json::{Map, Value, json};

/// Puts defaults into an object of a built-in kind, from the outside in.
pub(super) fn apply(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(object) => {
            if let Some(number) = schema.definition() {
                let name = &builtin::definition(number).name;
                let short = name.strip_prefix("io.k8s.api.").unwrap_or(name);
                by_type(short, object);
            }
            schema.default_fields(object);
            for (key, inner) in object {
                if let Some(child) = schema.child(key) {
                    apply(child, inner);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = schema.items() {
                list.iter_mut().for_each(|item| apply(items, item));
            }
        }
        _ => {}
    }
}

/// Whether there is nothing: no field, a null, or an empty text.
fn is_missing(object: &Map<String, Value>, key: &str) -> bool {
    match object.get(key) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    }
}

/// Puts a value where nothing is.
fn fill(object: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    if is_missing(object, key) {
        object.insert(key.to_owned(), value.into());
    }
}

/// The object under a key, made if there is none.
fn inner<'a>(object: &'a mut Map<String, Value>, key: &str) -> Option<&'a mut Map<String, Value>> {
    if is_missing(object, key) {
        object.insert(key.to_owned(), json!({}));
    }
    object.get_mut(key).and_then(Value::as_object_mut)
}

fn text<'a>(object: &'a Map<String, Value>, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or("")
}

fn by_type(name: &str, object: &mut Map<String, Value>) {
    match name {
        "core.v1.Pod" => pods::pod(object),
        "core.v1.PodSpec" => pods::spec(object),
        "core.v1.Container" | "core.v1.EphemeralContainer" => pods::container(object),
        "core.v1.Volume" => pods::volume(object),
        "core.v1.Probe" => {
            for (key, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                fill(object, key, value);
            }
        }
        "core.v1.HTTPGetAction" => {
            fill(object, "path", "/");
            fill(object, "scheme", "HTTP");
        }
        "core.v1.SecretVolumeSource"
        | "core.v1.ConfigMapVolumeSource"
        | "core.v1.DownwardAPIVolumeSource"
        | "core.v1.ProjectedVolumeSource" => fill(object, "defaultMode", 0o644),
        "core.v1.ServiceAccountTokenProjection" => fill(object, "expirationSeconds", 3600),
        "core.v1.ObjectFieldSelector" => fill(object, "apiVersion", "v1"),
        // Here the empty text is the default: a type that nobody checks.
        "core.v1.HostPathVolumeSource" if object.get("type").is_none_or(Value::is_null) => {
            object.insert("type".to_owned(), json!(""));
        }
        "core.v1.PersistentVolumeClaimSpec" => fill(object, "volumeMode", "Filesystem"),
        "core.v1.PersistentVolumeClaim" => phase(object, "Pending"),
        "core.v1.PersistentVolume" => {
            phase(object, "Pending");
            if let Some(spec) = inner(object, "spec") {
                fill(spec, "persistentVolumeReclaimPolicy", "Retain");
                fill(spec, "volumeMode", "Filesystem");
            }
        }
        "core.v1.Service" => workloads::service(object),
        "core.v1.Secret" => fill(object, "type", "Opaque"),
        "core.v1.Namespace" => {
            phase(object, "Active");
            let metadata = inner(object, "metadata");
            if let Some(metadata) = metadata
                && !is_missing(metadata, "name")
            {
                let name = metadata["name"].clone();
                if let Some(labels) = inner(metadata, "labels") {
                    labels.insert("kubernetes.io/metadata.name".to_owned(), name);
                }
            }
        }
        "core.v1.NodeSpec" => pod_ranges(object),
        "core.v1.NodeStatus" => {
            if let Some(capacity) = object.get("capacity").cloned() {
                fill(object, "allocatable", capacity);
            }
        }
        "core.v1.LimitRangeItem" => limit_range(object),
        "core.v1.ReplicationController" => workloads::replication_controller(object),
        "apps.v1.Deployment" => workloads::deployment(object),
        "apps.v1.DaemonSet" => workloads::daemon_set(object),
        "apps.v1.StatefulSet" => workloads::stateful_set(object),
        "apps.v1.ReplicaSetSpec" => fill(object, "replicas", 1),
        "batch.v1.Job" => workloads::job(object),
        "batch.v1.CronJobSpec" => {
            fill(object, "concurrencyPolicy", "Allow");
            fill(object, "suspend", false);
            fill(object, "successfulJobsHistoryLimit", 3);
            fill(object, "failedJobsHistoryLimit", 1);
        }
        "batch.v1.PodFailurePolicyOnPodConditionsPattern" => fill(object, "status", "True"),
        "autoscaling.v1.HorizontalPodAutoscaler" => workloads::autoscaler_v1(object),
        "autoscaling.v2.HorizontalPodAutoscalerSpec" => workloads::autoscaler(object),
        "networking.v1.NetworkPolicyPort" | "core.v1.EndpointPort" => {
            fill(object, "protocol", "TCP");
        }
        "networking.v1.NetworkPolicySpec" => network_policy(object),
        "networking.v1.IngressClassParametersReference" => fill(object, "scope", "Cluster"),
        "storage.v1.StorageClass" => {
            fill(object, "reclaimPolicy", "Delete");
            fill(object, "volumeBindingMode", "Immediate");
        }
        "storage.v1.CSIDriverSpec" => csi_driver(object),
        "scheduling.v1.PriorityClass" => fill(object, "preemptionPolicy", "PreemptLowerPriority"),
        "discovery.v1.EndpointPort" => {
            if object.get("name").is_none_or(Value::is_null) {
                object.insert("name".to_owned(), json!(""));
            }
            fill(object, "protocol", "TCP");
        }
        CRD => crd(object),
        "rbac.v1.RoleRef" => fill(object, "apiGroup", "rbac.authorization.k8s.io"),
        "rbac.v1.Subject" => {
            if matches!(text(object, "kind"), "User" | "Group") {
                fill(object, "apiGroup", "rbac.authorization.k8s.io");
            }
        }
        _ => {}
    }
}

const CRD: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition";

/// Names that follow from the kind, no conversion, and the version that is stored first.
fn crd(object: &mut Map<String, Value>) {
    let Some(spec) = inner(object, "spec") else {
        return;
    };
    fill(spec, "conversion", json!({"strategy": "None"}));
    if let Some(names) = inner(spec, "names") {
        let kind = text(names, "kind").to_owned();
        if !kind.is_empty() {
            fill(names, "singular", kind.to_lowercase());
            fill(names, "listKind", format!("{kind}List"));
        }
    }
    let versions = spec.get("versions").and_then(Value::as_array);
    let mut versions = versions.into_iter().flatten();
    let stored = versions.find(|version| version["storage"] == Value::Bool(true));
    if let Some(name) = stored.and_then(|version| version.get("name")).cloned()
        && let Some(status) = inner(object, "status")
    {
        let known = status.get("storedVersions").and_then(Value::as_array);
        if known.is_none_or(Vec::is_empty) {
            status.insert("storedVersions".to_owned(), json!([name]));
        }
    }
}

/// The first of many and the only one are the same range.
fn pod_ranges(spec: &mut Map<String, Value>) {
    let all = spec.get("podCIDRs").and_then(Value::as_array);
    let first = all.and_then(|all| all.first()).cloned();
    // The older field says which it is where the two differ.
    match (first, is_missing(spec, "podCIDR")) {
        (Some(first), true) => fill(spec, "podCIDR", first),
        (first, false) if first.as_ref() != spec.get("podCIDR") => {
            let only = json!([spec["podCIDR"]]);
            spec.insert("podCIDRs".to_owned(), only);
        }
        _ => {}
    }
}

fn phase(object: &mut Map<String, Value>, phase: &str) {
    if let Some(status) = inner(object, "status") {
        fill(status, "phase", phase);
    }
}

/// Limits stand in for requests, and the largest for the default.
fn limit_range(item: &mut Map<String, Value>) {
    if text(item, "type") != "Container" {
        return;
    }
    for (from, to) in [
        ("max", "default"),
        ("default", "defaultRequest"),
        ("min", "defaultRequest"),
    ] {
        let given = item.get(from).and_then(Value::as_object).cloned();
        for (resource, quantity) in given.into_iter().flatten() {
            if let Some(target) = inner(item, to) {
                fill(target, &resource, quantity);
            }
        }
    }
}

fn network_policy(spec: &mut Map<String, Value>) {
    let count = |spec: &Map<String, Value>, key: &str| {
        spec.get(key).and_then(Value::as_array).map_or(0, Vec::len)
    };
    if count(spec, "policyTypes") == 0 {
        let mut types = vec!["Ingress"];
        if count(spec, "egress") > 0 {
            types.push("Egress");
        }
        spec.insert("policyTypes".to_owned(), json!(types));
    }
}

fn csi_driver(spec: &mut Map<String, Value>) {
    fill(spec, "attachRequired", true);
    for key in [
        "podInfoOnMount",
        "storageCapacity",
        "requiresRepublish",
        "seLinuxMount",
    ] {
        fill(spec, key, false);
    }
    fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    let modes = spec.get("volumeLifecycleModes").and_then(Value::as_array);
    if modes.is_none_or(Vec::is_empty) {
        spec.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
    }
}

#[cfg(test)]
#[path = "defaults/tests.rs"]
mod tests;
