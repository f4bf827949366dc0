//! The API: Karmada's kinds with their fields, and the definitions that serve them.
//!
//! Names, types and meaning of fields are Karmada's, so that objects and tools carry over; schemas,
//! limits and descriptions are ours. `manifests/crds` is generated from here and held to it by a test.

pub mod binding;
pub mod cluster;
pub mod interpreter;
mod lenient;
pub mod override_policy;
pub mod policy;
pub mod rebalancer;
pub mod schema;
mod shared;
pub mod taint_policy;
pub mod work;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

/// The category of `kubectl get karmada-io`.
pub const CATEGORY: &str = "karmada-io";

/// Every definition that a hub needs, in the order of their names.
pub fn all_crds() -> Vec<CustomResourceDefinition> {
    let mut crds = vec![
        cluster::definition(),
        work::Work::crd(),
        binding::ResourceBinding::crd(),
        binding::ClusterResourceBinding::crd(),
        policy::PropagationPolicy::crd(),
        policy::ClusterPropagationPolicy::crd(),
        override_policy::OverridePolicy::crd(),
        override_policy::ClusterOverridePolicy::crd(),
        taint_policy::ClusterTaintPolicy::crd(),
        rebalancer::WorkloadRebalancer::crd(),
        interpreter::customizations(),
        interpreter::webhooks(),
    ];
    for crd in &mut crds {
        schema::finish(crd);
        let labels = crd.metadata.labels.get_or_insert_default();
        labels.insert(
            crate::labels::PART_OF.to_owned(),
            crate::labels::PART_OF_VALUE.to_owned(),
        );
    }
    crds.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    crds
}

#[cfg(test)]
mod tests;
