//! Gives every Cluster its execution namespace, finalizer and taints, and ends it in order.
//!
//! It is woken by changes of a Cluster that a decision depends on, not by every status an agent posts,
//! and by the end of an execution namespace.

mod apply;
pub mod check;
pub mod decide;
mod feed;
pub mod observe;
#[cfg(test)]
mod tests;

use super::events::Events;
use super::{Failure, Reconcile, Requeue};
use common::names::ClusterName;
use common::time::SharedClock;
use kube::Client;

pub use feed::feed;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something could not be read.
    #[error("failed to read {kind} {name:?}")]
    Read {
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// Something could not be written.
    #[error("failed to {verb} {kind} {name:?}")]
    Write {
        /// What was tried.
        verb: &'static str,
        /// Its kind.
        kind: &'static str,
        /// Its name.
        name: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// The execution namespace holds rights that the hub did not give.
    #[error(
        "failed to take over Namespace {namespace:?}: it holds RoleBindings that the hub did not write ({bindings}); remove them or the namespace"
    )]
    Foreign {
        /// The namespace.
        namespace: String,
        /// Their names.
        bindings: String,
    },
    /// Rights, namespace or Lease.
    #[error(transparent)]
    Permissions(#[from] crate::permissions::Error),
    /// Open watches did not end.
    #[error(transparent)]
    Epoch(#[from] crate::epoch::Error),
}

impl Error {
    fn read(kind: &'static str, name: &str, source: kube::Error) -> Self {
        Self::Read {
            kind,
            name: name.to_owned(),
            source: Box::new(source),
        }
    }

    fn write(verb: &'static str, kind: &'static str, name: &str, source: kube::Error) -> Self {
        Self::Write {
            verb,
            kind,
            name: name.to_owned(),
            source: Box::new(source),
        }
    }
}

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Read { .. } => "ReadFailed",
            Self::Write { .. } => "WriteFailed",
            Self::Foreign { .. } => "ForeignBindings",
            Self::Permissions(_) => "PermissionsFailed",
            Self::Epoch(_) => "CloseWatchesFailed",
        }
    }

    fn is_conflict(&self) -> bool {
        let status = match self {
            Self::Write { source, .. } => match &**source {
                kube::Error::Api(status) => Some(&**status),
                _ => None,
            },
            Self::Permissions(error) => error.status(),
            _ => None,
        };
        status.is_some_and(|status| status.is_conflict())
    }
}

/// The cluster controller.
pub struct Controller {
    client: Client,
    clock: SharedClock,
    events: Events,
    options: decide::Options,
}

impl Controller {
    /// A controller that writes through `client`.
    pub fn new(
        client: Client,
        clock: SharedClock,
        events: Events,
        options: decide::Options,
    ) -> Self {
        Self {
            client,
            clock,
            events,
            options,
        }
    }
}

impl Reconcile for Controller {
    const NAME: &'static str = "cluster";
    type Error = Error;

    async fn reconcile(&self, key: &str) -> Result<Requeue, Error> {
        let Ok(name) = ClusterName::parse(key) else {
            // The schema refuses such names; one that is older than the schema gets nothing.
            tracing::warn!(cluster = key, "a Cluster of this name cannot be served");
            return Ok(Requeue::Never);
        };
        let Some(observed) = observe::observe(&self.client, &name).await? else {
            return Ok(Requeue::Never);
        };
        let decision = decide::decide(self.clock.now(), self.options, &observed);
        debug_assert_eq!(check::check(&observed, &decision), Vec::<&str>::new());
        apply::apply(&self.client, &self.events, &observed, &decision.effects).await?;
        Ok(decision.requeue)
    }
}
