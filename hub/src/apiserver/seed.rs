//! The roles and bindings that every API server begins with, where they are not there.

use super::authz::bootstrap_objects;
use super::caller::Caller;
use super::catalogue::Catalogue;
use super::error::ApiError;
use super::registry::{Body, Context, FieldValidation, MediaType, Registry, Warnings};
use super::store::Key;
use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;

const RBAC: &str = "rbac.authorization.k8s.io";
/// Who owns the fields of what a server makes by itself.
const MANAGER: &str = "kube-apiserver";

/// Makes the roles and bindings; namespaces must be there.
pub async fn ensure_roles(registry: &Registry) -> Result<(), ApiError> {
    for object in bootstrap_objects() {
        let Some(context) = context(registry.catalogue(), &object) else {
            continue;
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let key = Key::new(&context.namespace, name);
        if registry
            .store()
            .get(&context.resource.storage_key, &key)
            .is_some()
        {
            continue;
        }
        let body = Body {
            media: MediaType::Json,
            bytes: Bytes::from(object.to_string()),
        };
        match registry.create(&context, body).await {
            Err(error) if error.reason != "AlreadyExists" => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn context(kinds: &Catalogue, object: &Value) -> Option<Context> {
    let kind = object["kind"].as_str()?;
    let resource = kinds.snapshot().kind(RBAC, "v1", kind)?;
    let namespace = object["metadata"]["namespace"].as_str();
    Some(Context {
        caller: Arc::new(Caller::system()),
        resource,
        namespace: namespace.unwrap_or_default().to_owned(),
        name: String::new(),
        subresource: String::new(),
        dry_run: false,
        field_manager: MANAGER.to_owned(),
        field_validation: FieldValidation::Ignore,
        warnings: Warnings::default(),
    })
}
