//! What the API server does by itself: the part of a kube-controller-manager that a hub needs.
//!
//! Each controller is a decision over what the store holds, and a thin shell on the shared runtime that follows the
//! store and writes through the registry. None keeps state that cannot be read again.

mod aggregation;
mod bootstrap;
mod certificates;
mod crds;
mod expiry;
mod follow;
mod garbage;
mod namespaces;
mod node;
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
use common::chance::Chance;
use common::controller::{Controller, Failure, Metrics, Reconcile};
use common::signal;
use serde_json::Value;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The CA certificates that clients verify this server with, in PEM, as they are now.
pub type CaBundle = Arc<dyn Fn() -> String + Send + Sync>;

/// Whether others read everything just now, as controllers do that begin: what can wait does.
pub type Busy = signal::Receiver<bool>;

/// Serves what the stored CustomResourceDefinitions define; before the first request.
pub fn load_crds(registry: &Registry) {
    crds::load(registry);
}

/// Runs every controller until `stop`; `address` is `host:port` of this server as discovery says it.
pub async fn run(
    registry: Registry,
    ca: CaBundle,
    address: String,
    busy: Option<Busy>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let mut all = Controllers {
        tasks: JoinSet::new(),
        metrics,
        chance: registry.chance().clone(),
        stop,
    };
    all.spawn(crds::controller(&registry));
    all.spawn(namespaces::controller(&registry));
    all.spawn(garbage::controller(&registry, busy));
    all.spawn(aggregation::controller(&registry));
    all.spawn(signer::controller(&registry));
    all.spawn(expiry::controller(&registry));
    all.spawn(protection::controller(&registry));
    all.spawn(bootstrap::controller(&registry, ca.clone(), address));
    all.spawn(roots::controller(&registry, ca));
    while all.tasks.join_next().await.is_some() {}
}

struct Controllers {
    tasks: JoinSet<()>,
    metrics: Metrics,
    chance: Chance,
    stop: CancellationToken,
}

impl Controllers {
    fn spawn<R: Reconcile>(&mut self, controller: Controller<R>) {
        let (metrics, chance) = (self.metrics.clone(), self.chance.clone());
        let running = controller.run(metrics, chance, self.stop.clone());
        self.tasks.spawn(running);
    }
}

/// What a controller could not do.
#[derive(Debug, thiserror::Error)]
#[error("failed to {doing}")]
struct Failed {
    doing: &'static str,
    #[source]
    source: ApiError,
}

impl Failed {
    /// For `map_err`.
    fn to(doing: &'static str) -> impl Fn(ApiError) -> Self {
        move |source| Self { doing, source }
    }
}

impl Failure for Failed {
    fn reason(&self) -> &'static str {
        self.source.reason
    }

    /// Somebody else was faster.
    fn is_conflict(&self) -> bool {
        matches!(self.source.code, 404 | 409)
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

#[cfg(test)]
mod testing {
    use super::{Controller, Metrics, Reconcile};
    use crate::apiserver::registry::testing::Rig;
    use tokio::task::JoinHandle;
    use tokio_util::sync::CancellationToken;

    /// Runs one controller by itself, until it is aborted.
    pub(super) fn start<R: Reconcile>(rig: &Rig, controller: Controller<R>) -> JoinHandle<()> {
        let chance = rig.registry.chance().clone();
        tokio::spawn(controller.run(Metrics::unread(), chance, CancellationToken::new()))
    }
}
