//! What one Cluster needs: namespace, finalizer, taints while it lives; an orderly end when it is deleted.
//!
//! The end, each step repeatable: the agent acknowledges (bounded), Works are deleted, the agent finishes
//! them (bounded, and not waited for when it is silent), rights are removed and open watches closed,
//! the namespace goes, then Lease and Cluster. That watches are to be closed is noted before the rights go, until they
//! are: nothing else tells of it then. Pure.

mod taints;

pub use taints::{may_put_on, may_take_off};

use super::observe::{ClusterState, NamespaceState, Observed, WorkState};
use crate::controller::registration::UNKNOWN_REGISTRATION;
use chrono::{DateTime, Utc};
use common::api::cluster::Taint;
use common::controller::Requeue;
use common::identity::RegistrationId;
use common::labels::CLUSTER_FINALIZER;
use common::unregister::Mode;
use std::time::Duration;

/// How long the agent may take to notice that it is being unregistered.
pub const ACKNOWLEDGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks at what has no watch of its own: Works and a namespace that are going.
const POLL: Duration = Duration::from_secs(1);
/// Before a namespace that is not ours is looked at again.
const POLL_FOREIGN: Duration = Duration::from_secs(60);

/// What the controller was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How long the agent may take to finish its Works when its Cluster is deleted.
    pub deletion_timeout: Duration,
    /// After this long without being ready a cluster is left by what does not tolerate that; never when there is
    /// none.
    pub failover_after: Option<Duration>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// In this order.
    pub effects: Vec<Effect>,
    /// When to look again.
    pub requeue: Requeue,
}

impl Decision {
    /// Whether all is as it should be, and stays so until something changes.
    pub fn is_nothing(&self) -> bool {
        self.effects.is_empty() && self.requeue == Requeue::Never
    }
}

/// One change of the world.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Makes the execution namespace ours, unless it holds rights of strangers.
    EnsureNamespace,
    /// Writes what differs in the Cluster, conditional on its version.
    UpdateCluster(Box<ClusterChange>),
    /// Deletes every Work of the namespace.
    DeleteWorks,
    /// Takes the agent's finalizer off a Work.
    ReleaseWork {
        /// Its name.
        name: String,
        /// Its version.
        resource_version: String,
        /// The finalizers that stay.
        finalizers: Vec<String>,
    },
    /// Notes on the Cluster that watches are to be closed.
    NoteWatches {
        /// Whose.
        registration: String,
    },
    /// Removes the agent's rights, its RoleBinding's finalizer included.
    RemoveRights,
    /// Waits until nobody of these may open a watch on Works, ends every one that is open, and takes the note of it off.
    CloseWatches {
        /// Who had rights.
        registrations: Vec<RegistrationId>,
    },
    /// Deletes the execution namespace.
    DeleteNamespace,
    /// Lets the RoleBinding go that outlives the Works of a namespace under a living Cluster.
    ReleaseBinding,
    /// Says in a condition whether the execution namespace is being deleted under a living Cluster.
    ShowNamespace {
        /// It is.
        terminating: bool,
    },
    /// Deletes the Lease.
    DeleteLease,
    /// Takes our finalizer off the Cluster.
    ReleaseCluster {
        /// Its version.
        resource_version: String,
        /// The finalizers that stay.
        finalizers: Vec<String>,
    },
}

/// The fields of a Cluster that change; `None` stays.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ClusterChange {
    /// Its version.
    pub resource_version: String,
    /// All its finalizers.
    pub finalizers: Option<Vec<String>>,
    /// All its taints.
    pub taints: Option<Vec<Taint>>,
    /// The key of the taint of failover that is the hub's own, or that none is.
    pub failover_taint: Option<Option<String>>,
    /// All its zones; `zone` goes.
    pub zones: Option<Vec<String>>,
}

/// Decides.
pub fn decide(now: DateTime<Utc>, options: Options, observed: &Observed) -> Decision {
    match observed.cluster.leaving_for {
        None => decide_living(now, options, observed),
        Some(waited) => decide_deleted(waited, options, observed),
    }
}

fn decide_living(now: DateTime<Utc>, options: Options, observed: &Observed) -> Decision {
    let mut effects = Vec::new();
    let mut requeue = Requeue::Never;
    match observed.namespace {
        NamespaceState::Owned => {}
        NamespaceState::Absent => effects.push(Effect::EnsureNamespace),
        NamespaceState::Unowned => {
            effects.push(Effect::EnsureNamespace);
            requeue = Requeue::After(POLL_FOREIGN);
        }
        // Somebody deletes it, or it is of an earlier Cluster of this name; it must be gone before a new
        // one can be made.
        NamespaceState::Terminating => requeue = Requeue::After(POLL),
    }
    let cluster = &observed.cluster;
    let terminating = observed.namespace == NamespaceState::Terminating;
    let mut taints = taints::by_ready(now, cluster, terminating);
    let failover = taints::failover(now, options.failover_after, cluster, &mut taints);
    if let Some(left) = failover.left {
        requeue = match requeue {
            Requeue::After(sooner) => Requeue::After(sooner.min(left)),
            Requeue::Never => Requeue::After(left),
        };
    }
    let change = ClusterChange {
        resource_version: cluster.resource_version.clone(),
        finalizers: with_finalizer(&cluster.finalizers),
        taints: Some(taints).filter(|taints| *taints != cluster.taints),
        failover_taint: Some(failover.taint).filter(|key| *key != cluster.failover_taint),
        zones: cluster
            .zone
            .as_ref()
            .map(|zone| match cluster.zones.as_slice() {
                [] => vec![zone.clone()],
                zones => zones.to_vec(),
            }),
    };
    let none = ClusterChange {
        resource_version: change.resource_version.clone(),
        ..ClusterChange::default()
    };
    if change != none {
        effects.push(Effect::UpdateCluster(Box::new(change)));
    }
    // The agent keeps its rights until its Works are gone; then nothing else holds the namespace.
    if terminating && observed.leftovers.works.is_empty() {
        effects.push(Effect::ReleaseBinding);
    }
    if terminating != cluster.namespace_terminating {
        effects.push(Effect::ShowNamespace { terminating });
    }
    Decision { effects, requeue }
}

fn with_finalizer(finalizers: &[String]) -> Option<Vec<String>> {
    if finalizers
        .iter()
        .any(|finalizer| finalizer == CLUSTER_FINALIZER)
    {
        return None;
    }
    let mut with = finalizers.to_vec();
    with.push(CLUSTER_FINALIZER.to_owned());
    Some(with)
}

fn decide_deleted(waited: Duration, options: Options, observed: &Observed) -> Decision {
    let cluster = &observed.cluster;
    let others: Vec<String> = others(&cluster.finalizers);
    if others.len() == cluster.finalizers.len() {
        // Not ours any more; somebody else holds it.
        return Decision {
            effects: Vec::new(),
            requeue: Requeue::Never,
        };
    }
    if let Some(left) = acknowledge_in(cluster, waited) {
        return Decision {
            effects: Vec::new(),
            requeue: Requeue::After(left),
        };
    }
    if !observed.leftovers.works.is_empty() {
        return decide_works(waited, options, observed);
    }
    let mut effects = Vec::new();
    let owned = observed.namespace == NamespaceState::Owned;
    if owned || observed.leftovers.rights() || cluster.closing_watches.is_some() {
        effects.extend(end_rights(cluster));
    }
    match observed.namespace {
        NamespaceState::Owned => effects.push(Effect::DeleteNamespace),
        // What its deletion waits for may be the finalizer of the agent's RoleBinding.
        NamespaceState::Terminating => {}
        // A namespace that is not ours is left as it is.
        NamespaceState::Absent | NamespaceState::Unowned if effects.is_empty() => {
            let resource_version = cluster.resource_version.clone();
            effects.push(Effect::DeleteLease);
            effects.push(Effect::ReleaseCluster {
                resource_version,
                finalizers: others,
            });
            return Decision {
                effects,
                requeue: Requeue::Never,
            };
        }
        // The name is not free for another member before the watches on its Works are closed.
        NamespaceState::Absent | NamespaceState::Unowned => {}
    }
    Decision {
        effects,
        requeue: Requeue::After(POLL),
    }
}

/// Removes the rights, and closes what was opened by them: a closing that failed is noted still.
fn end_rights(cluster: &ClusterState) -> Vec<Effect> {
    let registration = cluster.registration.as_deref();
    let noted = cluster.closing_watches.as_deref();
    let note = noted.is_none().then(|| Effect::NoteWatches {
        registration: registration.unwrap_or(UNKNOWN_REGISTRATION).to_owned(),
    });
    // What is noted is an earlier one where that was replaced just now.
    let earlier = noted.filter(|noted| Some(*noted) != registration);
    let registrations = registration.into_iter().chain(earlier);
    let close = Effect::CloseWatches {
        registrations: registrations.filter_map(RegistrationId::parse).collect(),
    };
    note.into_iter()
        .chain([Effect::RemoveRights, close])
        .collect()
}

fn others(finalizers: &[String]) -> Vec<String> {
    let others = finalizers
        .iter()
        .filter(|finalizer| *finalizer != CLUSTER_FINALIZER);
    others.cloned().collect()
}

/// How much longer the agent may take to notice; none when there is nothing to wait for.
fn acknowledge_in(cluster: &ClusterState, waited: Duration) -> Option<Duration> {
    match cluster.mode {
        Some(Mode::RemoveWorkloads | Mode::KeepWorkloads) => {}
        // Nobody told it anything, or it is not expected to answer.
        Some(Mode::Force) | None => return None,
    }
    // Karmada's agent acknowledges nothing; only one that registered here does.
    if cluster.acknowledged || !cluster.acknowledges || is_silent(cluster) {
        return None;
    }
    let left = ACKNOWLEDGE_TIMEOUT.checked_sub(waited)?;
    (!left.is_zero()).then_some(left)
}

/// Whether nobody is there to finish the Works. An agent that says that its member is not ready is there.
fn is_silent(cluster: &ClusterState) -> bool {
    let is_heard = matches!(cluster.ready.as_deref(), Some("True" | "False"));
    cluster.quarantined || (cluster.pull && !is_heard)
}

fn decide_works(waited: Duration, options: Options, observed: &Observed) -> Decision {
    let cluster = &observed.cluster;
    let works = &observed.leftovers.works;
    let mut effects = Vec::new();
    if works.iter().any(|work| !work.deleting) {
        effects.push(Effect::DeleteWorks);
    }
    let patience = waited < options.deletion_timeout;
    // An agent that acknowledged is there, even where it is not heard for a moment.
    let expected = cluster.acknowledged || !is_silent(cluster);
    if cluster.mode == Some(Mode::Force) || !patience || !expected {
        effects.extend(works.iter().filter_map(release));
    }
    Decision {
        effects,
        requeue: Requeue::After(POLL),
    }
}

fn release(work: &WorkState) -> Option<Effect> {
    Some(Effect::ReleaseWork {
        name: work.name.clone(),
        resource_version: work.resource_version.clone(),
        finalizers: work.other_finalizers.clone()?,
    })
}
