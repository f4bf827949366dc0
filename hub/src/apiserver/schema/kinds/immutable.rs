//! What may not change once an object is there.

use super::check::Errors;
use crate::apiserver::error::FieldError;
use serde_json::Value;

const FIXED: &str = "field is immutable";

/// Fields that stay as they were, by kind.
fn fixed(group: &str, kind: &str) -> &'static [&'static str] {
    match (group, kind) {
        ("apps", "Deployment" | "DaemonSet" | "ReplicaSet") => &["spec.selector"],
        ("apps", "ControllerRevision") => &["data"],
        ("batch", "Job") => &[
            "spec.selector",
            "spec.template",
            "spec.completionMode",
            "spec.podFailurePolicy",
            "spec.backoffLimitPerIndex",
            "spec.managedBy",
            "spec.successPolicy",
        ],
        ("storage.k8s.io", "StorageClass") => &[
            "parameters",
            "provisioner",
            "reclaimPolicy",
            "volumeBindingMode",
        ],
        ("scheduling.k8s.io", "PriorityClass") => &["preemptionPolicy"],
        ("networking.k8s.io", "IngressClass") => &["spec.controller"],
        ("node.k8s.io", "RuntimeClass") => &["handler"],
        ("discovery.k8s.io", "EndpointSlice") => &["addressType"],
        _ => &[],
    }
}

/// What a StatefulSet may change of its spec.
const CHANGING: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, key| &value[key])
}

/// A spec without what may change of it.
fn rest(object: &Value, changing: &[&str]) -> Value {
    let mut spec = object["spec"].clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.retain(|key, value| !changing.contains(&key.as_str()) && !value.is_null());
    }
    spec
}

pub(super) fn check(group: &str, kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    for path in fixed(group, kind) {
        if at(new, path) != at(old, path) {
            errors.push(FieldError::invalid(*path, at(new, path).clone(), FIXED));
        }
    }
    match (group, kind) {
        ("apps", "StatefulSet") if rest(new, &CHANGING) != rest(old, &CHANGING) => {
            let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', \
                          'template', 'updateStrategy', 'revisionHistoryLimit', \
                          'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
            errors.push(FieldError::forbidden("spec", detail));
        }
        ("batch", "Job") => {
            // The one that counts by index may grow or shrink together with its parallelism.
            let elastic = new["spec"]["completionMode"] == "Indexed"
                && new["spec"]["completions"] == new["spec"]["parallelism"];
            let completions = &new["spec"]["completions"];
            if *completions != old["spec"]["completions"] && !elastic {
                let error = FieldError::invalid("spec.completions", completions.clone(), FIXED);
                errors.push(error);
            }
        }
        ("scheduling.k8s.io", "PriorityClass") if new["value"] != old["value"] => {
            errors.push(FieldError::forbidden(
                "value",
                "may not be changed in an update.",
            ));
        }
        _ => {}
    }
}
