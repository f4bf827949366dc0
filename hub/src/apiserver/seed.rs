//! The roles and bindings that every API server has: made where they are not there, mended where they
//! lost something.

use super::authz::{Reconciled, bootstrap_objects, reconciled};
use super::caller::Caller;
use super::error::ApiError;
use super::registry::Registry;
use super::scheme::Scheme;
use super::store::Key;
use crate::apiserver::request::{
    Body, Context, DeleteOptions, FieldValidation, Holding, MediaType, Warnings,
};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::Value;
use std::sync::Arc;

const RBAC: &str = "rbac.authorization.k8s.io";
/// Who owns the fields of what a server makes by itself.
const MANAGER: &str = "kube-apiserver";

/// Objects that wait for the disk at once, which then takes them together.
const AT_ONCE: usize = 32;

/// How often one object may change under a start.
const ATTEMPTS: usize = 8;

/// Makes or mends the roles and bindings; namespaces must be there.
pub async fn ensure_roles(registry: &Registry) -> Result<(), ApiError> {
    let all = stream::iter(bootstrap_objects()).map(Ok);
    all.try_for_each_concurrent(AT_ONCE, |object| async move {
        let Some(context) = context(registry.scheme(), &object) else {
            return Ok(());
        };
        let mut done = ensure(registry, &context, &object).await;
        for _ in 1..ATTEMPTS {
            match &done {
                Err(error) if passes(error) => done = ensure(registry, &context, &object).await,
                _ => break,
            }
        }
        done
    })
    .await
}

/// Whether somebody else was at the object; a second look helps.
fn passes(error: &ApiError) -> bool {
    matches!(error.reason, "AlreadyExists" | "Conflict" | "NotFound")
}

async fn ensure(registry: &Registry, context: &Context, expected: &Value) -> Result<(), ApiError> {
    let at = Context {
        name: expected["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        ..context.clone()
    };
    let key = Key::new(&at.namespace, &at.name);
    let store = registry.store();
    if store.get(&at.resource.storage_key, &key).is_none() {
        registry.create(context, body(expected)).await?;
        return Ok(());
    }
    let existing = registry.get(&at, "").await?;
    let existing: Value = serde_json::from_slice(&existing).map_err(ApiError::internal)?;
    match reconciled(&existing, expected) {
        Reconciled::Keep => {}
        Reconciled::Change(object) => {
            registry.update(&at, body(&object)).await?;
        }
        Reconciled::Replace => {
            registry.delete(&at, DeleteOptions::default()).await?;
            registry.create(context, body(expected)).await?;
        }
    }
    Ok(())
}

fn body(object: &Value) -> Body {
    Body {
        media: MediaType::Json,
        bytes: Bytes::from(object.to_string()),
    }
}

fn context(kinds: &Scheme, object: &Value) -> Option<Context> {
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
        holding: Holding::default(),
    })
}
