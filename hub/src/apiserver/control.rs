//! What the API server does by itself: the part of a kube-controller-manager that a hub needs.
//!
//! Each controller is a decision over what the store holds, and a thin shell that follows the store and
//! writes through the registry. None keeps state that cannot be read again.

mod aggregation;
mod bootstrap;
mod certificates;
mod definitions;
mod expiry;
mod follow;
mod garbage;
mod namespaces;
mod protection;
mod roots;
mod signer;

pub use bootstrap::ensure_namespaces;

use crate::apiserver::caller::Caller;
use crate::apiserver::catalogue::Resource;
use crate::apiserver::error::ApiError;
use crate::apiserver::registry::{
    Body, Context, FieldValidation, MediaType, Outcome, Registry, Warnings,
};
use crate::apiserver::store::Stored;
use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The CA certificates that clients verify this server with, in PEM, as they are now.
pub type CaBundle = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves what the stored CustomResourceDefinitions define; before the first request.
pub fn load_definitions(registry: &Registry) {
    definitions::load(registry);
}

/// Runs every controller until `stop`.
pub async fn run(registry: Registry, ca: CaBundle, stop: CancellationToken) {
    let mut tasks = JoinSet::new();
    tasks.spawn(definitions::run(registry.clone()));
    tasks.spawn(namespaces::run(registry.clone()));
    tasks.spawn(garbage::run(registry.clone()));
    tasks.spawn(aggregation::run(registry.clone()));
    tasks.spawn(signer::run(registry.clone()));
    tasks.spawn(expiry::run(registry.clone()));
    tasks.spawn(certificates::run(registry.clone()));
    for plural in protection::KINDS {
        tasks.spawn(protection::run(registry.clone(), plural));
    }
    tasks.spawn(roots::run(registry, ca));
    tokio::select! {
        () = stop.cancelled() => {}
        // A controller ends when the store closes, and only then.
        () = async { while tasks.join_next().await.is_some() {} } => {}
    }
}

/// A request of the server's own to `resource`.
fn context(resource: Arc<Resource>, namespace: &str, name: &str, manager: &str) -> Context {
    Context {
        caller: Arc::new(Caller::system()),
        resource,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: String::new(),
        dry_run: false,
        field_manager: manager.to_owned(),
        field_validation: FieldValidation::Ignore,
        warnings: Warnings::default(),
    }
}

/// The same for one stored object.
fn context_of(resource: Arc<Resource>, stored: &Stored, manager: &str) -> Context {
    context(resource, stored.namespace(), stored.name(), manager)
}

fn body(value: &Value) -> Body {
    Body {
        media: MediaType::Json,
        bytes: Bytes::from(value.to_string()),
    }
}

/// Writes an object, its status or another subresource.
async fn update(
    registry: &Registry,
    context: &Context,
    subresource: &str,
    object: &Value,
) -> Result<Outcome, ApiError> {
    let mut context = context.clone();
    subresource.clone_into(&mut context.subresource);
    registry.update(&context, body(object)).await
}

/// Whether an error means that somebody else was faster, and the next event will tell.
fn is_race(error: &ApiError) -> bool {
    matches!(error.code, 404 | 409)
}

/// Says what failed; it is tried again.
fn warn(what: &str, error: &ApiError) {
    if !is_race(error) {
        tracing::warn!(error = %error, "{what} failed and is tried again");
    }
}
