//! What may not change once an object is there.

use super::changes;
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
            "spec.completionMode",
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

fn stays(path: &str, new: &Value, old: &Value, errors: &mut Errors) {
    if at(new, path) != at(old, path) {
        errors.push(FieldError::invalid(path, at(new, path).clone(), FIXED));
    }
}

pub(super) fn check(group: &str, kind: &str, new: &Value, old: &Value, errors: &mut Errors) {
    if (group, kind) == ("batch", "Job") {
        job(new, old, errors);
    }
    for path in fixed(group, kind) {
        stays(path, new, old, errors);
    }
    match (group, kind) {
        ("", "Pod") => changes::pod(new, old, errors),
        ("", "PersistentVolumeClaim") => changes::claim(new, old, errors),
        ("", "PersistentVolume") => changes::volume(new, old, errors),
        ("", "Service") => changes::service(new, old, errors),
        ("", "Node") => changes::node(new, old, errors),
        ("", "ResourceQuota") => changes::quota(new, old, errors),
        ("apps", "StatefulSet") if rest(new, &CHANGING) != rest(old, &CHANGING) => {
            let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', \
                          'template', 'updateStrategy', 'revisionHistoryLimit', \
                          'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
            errors.push(FieldError::forbidden("spec", detail));
        }
        ("scheduling.k8s.io", "PriorityClass") if new["value"] != old["value"] => {
            errors.push(FieldError::forbidden(
                "value",
                "may not be changed in an update.",
            ));
            stays("preemptionPolicy", new, old, errors);
        }
        ("scheduling.k8s.io", "PriorityClass") => stays("preemptionPolicy", new, old, errors),
        _ => {}
    }
}

fn job(new: &Value, old: &Value, errors: &mut Errors) {
    let completions = &new["spec"]["completions"];
    if *completions != old["spec"]["completions"] {
        // The one that counts by index may grow or shrink together with its parallelism.
        let detail = match new["spec"]["completionMode"].as_str() {
            Some("Indexed") if *completions == new["spec"]["parallelism"] => None,
            Some("Indexed") if completions.is_null() => None,
            Some("Indexed") => Some("can only be modified in tandem with spec.parallelism"),
            _ => Some(FIXED),
        };
        let told = |detail| FieldError::invalid("spec.completions", completions.clone(), detail);
        errors.extend(detail.map(told));
    }
    stays("spec.selector", new, old, errors);
    changes::job_template(new, old, errors);
    changes::failure_policy(new, old, errors);
}
