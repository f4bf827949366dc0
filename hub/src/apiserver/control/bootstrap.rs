//! Namespaces that are always there.

use super::{body, context};
use crate::apiserver::error::ApiError;
use crate::apiserver::registry::Registry;
use serde_json::json;

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Makes the namespaces of the system, where they are not there.
pub async fn ensure_namespaces(registry: &Registry) -> Result<(), ApiError> {
    let Some(resource) = registry.catalogue().resource("", "v1", "namespaces") else {
        return Ok(());
    };
    for name in NAMESPACES {
        let context = context(resource.clone(), "", "", "kube-apiserver");
        let namespace = json!({"metadata": {"name": name}});
        match registry.create(&context, body(&namespace)).await {
            Err(error) if error.reason != "AlreadyExists" => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
