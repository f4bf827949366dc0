//! Nothing new in a namespace that is not there, or that is ending, and nothing of a kind that is.

use super::Registry;
use crate::apiserver::error::{ApiError, GroupResource};
use crate::apiserver::metadata;
use crate::apiserver::request::Context;
use crate::apiserver::store::Key;
use serde_json::Value;

const NAMESPACES: &str = "/namespaces";

/// Refuses a new object whose namespace cannot take it.
pub(super) fn admit_create(
    registry: &Registry,
    context: &Context,
    object: &Value,
) -> Result<(), ApiError> {
    if context
        .resource
        .custom()
        .is_some_and(|custom| custom.ending)
    {
        return Err(ApiError::forbidden(
            &context.resource.group_resource(),
            metadata::name(object),
            "create not allowed while custom resource definition is terminating",
        ));
    }
    if !context.resource.namespaced {
        return Ok(());
    }
    let name = context.namespace.as_str();
    let key = Key::cluster(name);
    let Some(namespace) = registry.inner.store.get(NAMESPACES, &key) else {
        return Err(ApiError::not_found(
            &GroupResource::new("", "namespaces"),
            name,
        ));
    };
    if !namespace.deleting() {
        return Ok(());
    }
    let subject = match metadata::name(object) {
        "" => match object["metadata"]["generateName"].as_str() {
            Some(base) if !base.is_empty() => base,
            _ => "Unknown",
        },
        name => name,
    };
    Err(ApiError::forbidden(
        &context.resource.group_resource(),
        subject,
        &format!("unable to create new content in namespace {name} because it is being terminated"),
    )
    .with_cause(
        "NamespaceTerminating",
        &format!("namespace {name} is being terminated"),
        "metadata.namespace",
    ))
}
