//! The namespaces that every hub has.

use super::object::Desired;
use common::labels::SYSTEM;
use common::names::{CLUSTER_NAMESPACE, SYSTEM_NAMESPACE};
use serde_json::json;

/// The namespace of the hub's own objects and the one of the Clusters' Leases.
pub fn desired() -> Vec<Desired> {
    [SYSTEM_NAMESPACE, CLUSTER_NAMESPACE]
        .map(|name| {
            Desired::new(json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": {SYSTEM: "true"}},
            }))
        })
        .into()
}
