//! What policies may wait for, and whether it exists.

use crate::propagation::PolicyName;
use common::api::override_policy::{ClusterOverridePolicy, OverridePolicy};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::{Api, Client};

/// Whether an override policy exists.
pub(in crate::cli) async fn has_override(
    client: &Client,
    name: &PolicyName,
) -> Result<bool, kube::Error> {
    match &name.namespace {
        Some(namespace) => {
            let api: Api<OverridePolicy> = Api::namespaced(client.clone(), namespace);
            Ok(api.get_metadata_opt(&name.name).await?.is_some())
        }
        None => {
            let api: Api<ClusterOverridePolicy> = Api::all(client.clone());
            Ok(api.get_metadata_opt(&name.name).await?.is_some())
        }
    }
}

/// Whether a PriorityClass exists.
pub(in crate::cli) async fn has_class(client: &Client, name: &str) -> Result<bool, kube::Error> {
    let api: Api<PriorityClass> = Api::all(client.clone());
    Ok(api.get_metadata_opt(name).await?.is_some())
}
