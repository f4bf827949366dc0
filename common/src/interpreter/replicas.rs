//! How many replicas a template asks for, what one of them needs, and how a member's share is written into its
//! manifest.
//!
//! Pure. Kinds without a rule have no replicas; every member gets them as they are.

use super::requests::{Amounts, PodSpec};
use crate::api::binding::{NodeClaim, ReplicaRequirements};
use crate::gvk::Gvk;
use crate::quantity::{Format, Quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

/// What a template asks for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Replicas {
    /// How many replicas in all.
    pub replicas: i32,
    /// What one of them needs; none when it needs nothing in particular.
    pub requirements: Option<ReplicaRequirements>,
}

/// Where a kind keeps its replicas.
enum Rule {
    /// In `spec.replicas`.
    Workload,
    /// In `spec.parallelism`, and no more than `spec.completions`.
    Job,
    /// It is one.
    Pod,
}

fn rule(gvk: &Gvk) -> Option<Rule> {
    match (gvk.group.as_str(), gvk.version.as_str(), gvk.kind.as_str()) {
        ("apps", "v1", "Deployment" | "ReplicaSet" | "StatefulSet") => Some(Rule::Workload),
        ("batch", "v1", "Job") => Some(Rule::Job),
        ("", "v1", "Pod") => Some(Rule::Pod),
        _ => None,
    }
}

/// The replicas of a template; none when its kind has none.
pub fn get(gvk: &Gvk, template: &Value) -> Option<Replicas> {
    let number = |pointer: &str| {
        let number = template.pointer(pointer).and_then(Value::as_i64)?;
        i32::try_from(number.clamp(0, i64::from(i32::MAX))).ok()
    };
    let (replicas, pod) = match rule(gvk)? {
        Rule::Workload => (number("/spec/replicas").unwrap_or(0), "/spec/template/spec"),
        Rule::Job => {
            let parallelism = number("/spec/parallelism").unwrap_or(0);
            let completions = number("/spec/completions").unwrap_or(i32::MAX);
            (parallelism.min(completions), "/spec/template/spec")
        }
        Rule::Pod => (1, "/spec"),
    };
    Some(Replicas {
        replicas,
        // What an API server takes can be read.
        requirements: template.pointer(pod).and_then(|pod| of_pod_template(pod).0),
    })
}

/// How many replicas serve by what a member reflects of its object; none of kinds that do not say it in numbers.
pub fn available(gvk: &Gvk, reflected: &Value) -> Option<i64> {
    // A zero is left out.
    let number = |key: &str| reflected.get(key).and_then(Value::as_i64).unwrap_or(0);
    matches!(rule(gvk)?, Rule::Workload).then(|| number("availableReplicas"))
}

/// Whether a member's share is written into manifests of this kind.
pub fn is_revised(gvk: &Gvk) -> bool {
    matches!(rule(gvk), Some(Rule::Workload | Rule::Job))
}

/// Writes a member's share into a manifest, where it has a number already.
pub fn revise(gvk: &Gvk, manifest: &mut Value, replicas: i32) {
    let pointer = match rule(gvk) {
        Some(Rule::Workload) => "/spec/replicas",
        Some(Rule::Job) => "/spec/parallelism",
        Some(Rule::Pod) | None => return,
    };
    if let Some(field) = manifest.pointer_mut(pointer)
        && field.as_i64().is_some()
    {
        *field = replicas.into();
    }
}

/// What a pod of this spec needs, none when nothing in particular; and why something of it cannot be read.
pub fn of_pod_template(pod: &Value) -> (Option<ReplicaRequirements>, Option<serde_json::Error>) {
    let mut problem = None;
    let node_claim = NodeClaim {
        hard_node_affinity: read(
            pod,
            "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution",
            &mut problem,
        ),
        node_selector: read(pod, "/nodeSelector", &mut problem),
        tolerations: read(pod, "/tolerations", &mut problem),
    };
    let spec: PodSpec = read(pod, "", &mut problem);
    let requirements = ReplicaRequirements {
        node_claim: (node_claim != NodeClaim::default()).then_some(node_claim),
        resource_request: resource_request(&spec.template_requests()),
        ..ReplicaRequirements::default()
    };
    let particular = requirements != ReplicaRequirements::default();
    (particular.then_some(requirements), problem)
}

/// What lies at a pointer, the default where nothing does or it cannot be read.
fn read<T: DeserializeOwned + Default>(
    pod: &Value,
    pointer: &str,
    problem: &mut Option<serde_json::Error>,
) -> T {
    let found = pod.pointer(pointer).filter(|found| !found.is_null());
    match found.map(T::deserialize).transpose() {
        Ok(found) => found.unwrap_or_default(),
        Err(error) => {
            problem.get_or_insert(error);
            T::default()
        }
    }
}

/// Amounts of what nodes have, as texts: cpu in thousandths, everything else in whole numbers.
fn resource_request(amounts: &Amounts) -> BTreeMap<String, Text> {
    let counts = |name: &str| {
        matches!(name, "cpu" | "memory" | "pods" | "ephemeral-storage")
            || name.contains('/')
            || name.starts_with("hugepages-")
            || name.starts_with("attachable-volumes-")
    };
    let whole = |milli: i128| milli.div_euclid(1000) + i128::from(milli.rem_euclid(1000) > 0);
    amounts
        .iter()
        .filter(|(name, milli)| counts(name) && **milli > 0)
        .map(|(name, milli)| {
            let milli = match name.as_str() {
                "cpu" => *milli,
                _ => whole(*milli).saturating_mul(1000),
            };
            let text = Quantity::from_milli(milli).canonical(Format::of_resource(name));
            (name.clone(), Text(text.to_string()))
        })
        .collect()
}

#[cfg(test)]
mod tests;
