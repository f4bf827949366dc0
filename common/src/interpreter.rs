//! What is known of built-in kinds, named as by Karmada's interpreter: the health of an object, the part of its
//! status that is reflected, the fields that a member retains, what a pod requests; and of a template its
//! replicas, how they are divided, what it refers to, what of it belongs to the hub alone, and how the statuses of
//! many members become its own.
//!
//! Pure. Rules of built-in kinds never fail: a live object is data of the member, and whatever it lacks counts as absent.
//! Those of [`custom`] are scripts, which may; [`layers`] says whose word counts.

pub mod aggregate;
pub mod completions;
pub mod custom;
pub mod dependencies;
pub mod guard;
pub mod health;
pub mod layers;
pub mod prune;
pub mod reflect;
pub mod replicas;
pub mod requests;
pub mod retain;

use crate::gvk::Gvk;

/// Kinds that never have a status, so that their objects are watched by metadata alone.
pub fn has_no_status(gvk: &Gvk) -> bool {
    matches!(
        (gvk.group.as_str(), gvk.kind.as_str()),
        (
            "",
            "ConfigMap"
                | "Secret"
                | "ServiceAccount"
                | "LimitRange"
                | "Endpoints"
                | "PodTemplate"
                | "Event"
        ) | ("rbac.authorization.k8s.io", _)
            | (
                "networking.k8s.io",
                "IngressClass" | "NetworkPolicy" | "IPAddress"
            )
            | (
                "storage.k8s.io",
                "StorageClass" | "CSIDriver" | "CSINode" | "CSIStorageCapacity"
            )
            | ("scheduling.k8s.io", "PriorityClass")
            | ("node.k8s.io", "RuntimeClass")
            | ("discovery.k8s.io", "EndpointSlice")
            | ("coordination.k8s.io", "Lease")
            | (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration"
                    | "MutatingWebhookConfiguration"
                    | "ValidatingAdmissionPolicyBinding"
            )
            | ("apps", "ControllerRevision")
    )
}
