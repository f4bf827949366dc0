//! Gives every Cluster its execution namespace, finalizer and taints, and ends it in order.
//!
//! It is woken by changes of a Cluster that a decision depends on, not by every status an agent posts,
//! and by the end of an execution namespace. What it writes is decided from what it reads then; nothing is read
//! where what the hub holds anyway leaves nothing to do.

mod apply;
pub mod check;
pub mod decide;
mod held;
mod leaving;
pub mod observe;
#[cfg(test)]
mod tests;

use super::events::Events;
use super::registration;
use crate::epoch::{self, Rounds};
use crate::world::{self, Told, World};
use common::controller::{Controller, Failure, Reconcile, Requeue};
use common::names::{ClusterName, EXECUTION_PREFIX};
use common::time::SharedClock;
use kube::Client;
use std::sync::Arc;

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
    /// A condition of the Cluster could not be shown.
    #[error(transparent)]
    Condition(Box<registration::Error>),
    /// Open watches did not end.
    #[error(transparent)]
    Epoch(#[from] epoch::Error),
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
            Self::Condition(_) => "ConditionFailed",
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
            Self::Condition(error) => return error.is_conflict(),
            _ => None,
        };
        status.is_some_and(|status| status.is_conflict())
    }
}

/// The cluster controller.
pub struct Clusters {
    client: Client,
    clock: SharedClock,
    events: Events,
    options: decide::Options,
    leaving: leaving::Leaving,
    held: held::Held,
    /// Clusters that go together end watches together.
    watches: Arc<Rounds>,
}

impl Clusters {
    /// A controller that writes through `client`, woken by what matters of a Cluster, and by its execution namespace.
    pub fn watching(
        client: Client,
        clock: SharedClock,
        events: Events,
        watches: Arc<Rounds>,
        options: decide::Options,
        world: &World,
    ) -> Controller<Self> {
        let controller = Controller::new(Self {
            client,
            clock,
            events,
            options,
            leaving: leaving::Leaving::default(),
            held: held::Held::of(world),
            watches,
        });
        let queue = controller.queue();
        world.clusters.listen(move |told| {
            if let Some(name) = changed(told) {
                queue.add(name);
            }
        });
        let queue = controller.queue();
        world.namespaces.on_change(move |change| {
            if change.is_written()
                && let Some(cluster) = change.name.name.strip_prefix(EXECUTION_PREFIX)
            {
                queue.add(cluster.into());
            }
        });
        controller
    }
}

/// The Cluster that must be looked at.
fn changed(told: &Told<world::Cluster>) -> Option<Arc<str>> {
    let Told::Changed(change) = told else {
        return None;
    };
    change.new.as_ref()?;
    let before = change.before().map(|cluster| &cluster.lifecycle);
    let after = change.after().map(|cluster| &cluster.lifecycle);
    // One that cannot be read is looked at whatever it was.
    (after.is_none() || before != after).then(|| Arc::clone(&change.name.name))
}

impl Reconcile for Clusters {
    const NAME: &'static str = "cluster";
    type Key = Arc<str>;
    type Error = Error;

    async fn reconcile(&self, key: &Arc<str>) -> Result<Requeue, Error> {
        let Ok(name) = ClusterName::parse(key) else {
            // The schema refuses such names; one that is older than the schema gets nothing.
            tracing::warn!(cluster = %key, "a Cluster of this name cannot be served");
            return Ok(Requeue::Never);
        };
        // A hub that starts looks at each of thousands, most of which want nothing.
        if let Some(held) = self.held.of_living(&name).await {
            self.leaving.waited(&name, Some(&held.cluster));
            if decide::decide(self.clock.now(), self.options, &held).is_nothing() {
                return Ok(Requeue::Never);
            }
        }
        let observed = observe::observe(&self.client, &name).await?;
        let cluster = observed.as_ref().map(|observed| &observed.cluster);
        let leaving_for = self.leaving.waited(&name, cluster);
        let Some(mut observed) = observed else {
            return Ok(Requeue::Never);
        };
        observed.cluster.leaving_for = leaving_for;
        let now = self.clock.now();
        let decision = decide::decide(now, self.options, &observed);
        debug_assert_eq!(check::check(&observed, &decision), Vec::<&str>::new());
        let target = apply::Target {
            client: &self.client,
            now,
            events: &self.events,
            watches: &self.watches,
            observed: &observed,
        };
        target.apply_all(&decision.effects).await?;
        Ok(decision.requeue)
    }
}
