//! What the API server does by itself: the part of a kube-controller-manager that a hub needs.
//!
//! Each controller is a decision over what the store holds, and a thin shell that follows the store and
//! writes through the registry. None keeps state that cannot be read again.

mod again;
mod aggregation;
mod bootstrap;
mod certificates;
mod crds;
mod expiry;
mod follow;
mod garbage;
mod namespaces;
mod protection;
mod roots;
mod signer;

pub use bootstrap::ensure_namespaces;

use crate::apiserver::caller::Caller;
use crate::apiserver::error::ApiError;
use crate::apiserver::registry::{Outcome, Registry};
use crate::apiserver::request::{Body, Context, FieldValidation, Holding, MediaType, Warnings};
use crate::apiserver::scheme::Resource;
use crate::apiserver::store::Stored;
use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The CA certificates that clients verify this server with, in PEM, as they are now.
pub type CaBundle = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves what the stored CustomResourceDefinitions define; before the first request.
pub fn load_crds(registry: &Registry) {
    crds::load(registry);
}

/// Runs every controller until `stop`; `address` is `host:port` of this server as discovery says it.
pub async fn run(registry: Registry, ca: CaBundle, address: String, stop: CancellationToken) {
    let mut tasks = JoinSet::new();
    tasks.spawn(crds::run(registry.clone()));
    tasks.spawn(namespaces::run(registry.clone()));
    tasks.spawn(garbage::run(registry.clone()));
    tasks.spawn(aggregation::run(registry.clone()));
    tasks.spawn(signer::run(registry.clone()));
    tasks.spawn(expiry::run(registry.clone()));
    tasks.spawn(certificates::run(registry.clone()));
    for plural in protection::KINDS {
        tasks.spawn(protection::run(registry.clone(), plural));
    }
    tasks.spawn(bootstrap::run(registry.clone(), ca.clone(), address));
    tasks.spawn(roots::run(registry, ca));
    tokio::select! {
        biased;
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
        holding: Holding::default(),
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

/// Says what failed; whoever calls this tries it again. Whether it did: a lost race is no failure.
fn warn(what: &str, error: &ApiError) -> bool {
    let failed = !is_race(error);
    if failed {
        tracing::warn!(error = %error, "{what} failed and is tried again");
    }
    failed
}
