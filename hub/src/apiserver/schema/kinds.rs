//! What is particular to single kinds: defaults that only code knows, and what is refused.

mod changes;
mod check;
mod containers;
mod crd;
mod cron;
mod defaults;
mod immutable;
mod limits;
pub(crate) mod meta;
mod network;
mod pods;
mod service;
mod statuses;
mod storage;
mod volumes;
mod workloads;

pub(in crate::apiserver) use crd::unknown_formats;

use super::Schema;
use crate::apiserver::error::FieldErrors;
use serde_json::Value;

/// Puts defaults into an object of a built-in kind.
pub(crate) fn apply_defaults(object: &mut Value, schema: &Schema) {
    defaults::apply(schema, object);
}

/// What is wrong with an object of a built-in kind, apart from its metadata. Kinds with a strategy
/// of their own are looked at there.
pub(crate) fn validate(
    group: &str,
    version: &str,
    kind: &str,
    object: &Value,
    old: Option<&Value>,
) -> FieldErrors {
    let mut errors = FieldErrors::new();
    // Of some kinds a real server first tells what may not change.
    let first = matches!(kind, "Service" | "IngressClass");
    if let Some(old) = old.filter(|_| first) {
        immutable::check(group, kind, object, old, &mut errors);
    }
    let all = &mut errors;
    if (group, kind) == ("", "Service") {
        let addresses = service::addresses(object);
        // The real server gives out addresses before it looks at anything else.
        if !addresses.is_empty() {
            return addresses;
        }
    }
    match (group, kind) {
        ("apps", "Deployment") => workloads::deployment(object, all),
        ("apps", "DaemonSet") => workloads::daemon_set(object, all),
        ("apps", "ReplicaSet") => workloads::replica_set(object, all),
        ("apps", "StatefulSet") => workloads::stateful_set(object, all),
        ("apps", "ControllerRevision") => workloads::revision(object, all),
        ("batch", "Job") => workloads::job(object, old.is_some(), all),
        ("batch", "CronJob") => workloads::cron_job(object, all),
        ("policy", "PodDisruptionBudget") => workloads::disruption_budget(object, all),
        ("autoscaling", "HorizontalPodAutoscaler") => limits::autoscaler(object, version, all),
        ("", "ReplicationController") => workloads::replication_controller(object, all),
        ("", "Pod") => pods::spec(&object["spec"], "spec", all),
        ("", "PodTemplate") => pods::template(&object["template"], "template", all),
        ("", "Service") => service::service(object, all),
        ("", "Endpoints") => network::endpoints(object, all),
        ("", "Node") => limits::node(object, all),
        ("", "ResourceQuota") => limits::quota(object, all),
        ("", "LimitRange") => limits::limit_range(object, all),
        ("", "PersistentVolumeClaim") => storage::claim(object, all),
        ("", "PersistentVolume") => {
            storage::volume(object, all);
            // A change is looked at once more.
            if old.is_some() {
                storage::volume(object, all);
            }
        }
        ("discovery.k8s.io", "EndpointSlice") => network::slice(object, all),
        ("networking.k8s.io", "Ingress") => network::ingress(object, all),
        ("networking.k8s.io", "IngressClass") => network::ingress_class(object, all),
        ("networking.k8s.io", "NetworkPolicy") => network::policy(object, all),
        ("storage.k8s.io", "StorageClass") => storage::class(object, all),
        ("storage.k8s.io", "VolumeAttachment") => storage::attachment(object, all),
        ("scheduling.k8s.io", "PriorityClass") => limits::priority(object, all),
        ("node.k8s.io", "RuntimeClass") => limits::runtime_class(object, all),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => crd::check(object, old, all),
        _ => {}
    }
    if let Some(old) = old.filter(|_| !first) {
        immutable::check(group, kind, object, old, &mut errors);
    }
    errors
}

/// What is wrong with an object of a built-in kind whose status changed.
pub(crate) fn validate_status(group: &str, kind: &str, object: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    statuses::check(group, kind, object, old, &mut errors);
    let all = &mut errors;
    match (group, kind) {
        ("", "Node") => changes::node(object, old, all),
        ("", "Service") => network::service_status(object, all),
        ("networking.k8s.io", "Ingress") => network::balancer(object, all),
        ("", "ResourceQuota") => limits::quota_status(object, all),
        _ => {}
    }
    errors
}

#[cfg(test)]
#[path = "kinds/tests.rs"]
mod tests;
