//! What the hub holds of a Cluster and its execution namespace, as far as a decision about one that lives needs it.

use super::observe::{ClusterState, Leftovers, NamespaceState, Observed};
use crate::world::{Cluster, Object, ObjectName, Space, View, World};
use common::api::cluster::{EXECUTION_SPACE_TERMINATING, QUARANTINED, READY};
use common::names::ClusterName;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long the list of namespaces is waited for at a start, in place of reading each of them.
const LISTED_WITHIN: Duration = Duration::from_secs(5);

/// The collections that tell of them.
pub(super) struct Held {
    clusters: View<Cluster>,
    namespaces: View<Space>,
    begun: OnceLock<Instant>,
}

impl Held {
    pub(super) fn of(world: &World) -> Self {
        Self {
            clusters: world.clusters.clone(),
            namespaces: world.namespaces.clone(),
            begun: OnceLock::new(),
        }
    }

    /// One that lives; none where that is not known.
    pub(super) async fn of_living(&self, name: &ClusterName) -> Option<Observed> {
        let deadline = *self.begun.get_or_init(Instant::now) + LISTED_WITHIN;
        timeout_at(deadline, self.namespaces.synced()).await.ok()?;
        let cluster = self.clusters.get(&ObjectName::new(None, name.as_str()))?;
        let namespace = ObjectName::new(None, &name.execution_namespace());
        let namespace = self.namespaces.get(&namespace);
        observed(name, &cluster, namespace.as_ref())
    }
}

pub(super) fn observed(
    name: &ClusterName,
    cluster: &Object<Cluster>,
    namespace: Option<&Object<Space>>,
) -> Option<Observed> {
    let known = cluster.record.as_deref()?;
    if known.lifecycle.deleted.is_some() {
        return None;
    }
    let namespace = match namespace {
        None => NamespaceState::Absent,
        Some(namespace) => {
            let space = namespace.record.as_deref()?;
            if space.terminating {
                NamespaceState::Terminating
            } else if space.owners.contains(&known.lifecycle.uid) {
                NamespaceState::Owned
            } else {
                NamespaceState::Unowned
            }
        }
    };
    let condition = |type_: &str| {
        known
            .conditions
            .get(type_)
            .map(|status| (**status).to_owned())
    };
    let holds = |type_| condition(type_).as_deref() == Some("True");
    let cluster = ClusterState {
        uid: known.lifecycle.uid.clone().into(),
        resource_version: cluster.version.clone().into(),
        finalizers: known.lifecycle.finalizers.clone(),
        zone: known.zone.clone().map(Into::into),
        zones: known.zones.iter().map(|zone| (**zone).to_owned()).collect(),
        taints: known.taints.clone(),
        failover_taint: known.failover_taint.clone().map(Into::into),
        ready: condition(READY),
        quarantined: holds(QUARANTINED),
        namespace_terminating: holds(EXECUTION_SPACE_TERMINATING),
        // The rest is how one ends.
        ..ClusterState::default()
    };
    Some(Observed {
        name: name.clone(),
        cluster,
        namespace,
        leftovers: Leftovers::default(),
    })
}
