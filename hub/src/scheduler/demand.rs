//! What is to be placed, where it is now, and where it goes.

use super::cluster::Amounts;
use super::explain::{Failed, Tally};
use super::rules::Rules;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is to be placed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demand {
    /// Group and version, as in apiVersion.
    pub api_version: Arc<str>,
    /// Kind.
    pub kind: Arc<str>,
    /// UID of the template: settles ties. May be empty.
    pub uid: Arc<str>,
    /// Replicas; 0 for what has none.
    pub replicas: i64,
    /// What one replica asks for.
    pub request: Option<Amounts>,
    /// Its parts, where it has several kinds of pods.
    pub components: Vec<Component>,
    /// Where it may go.
    pub rules: Arc<Rules>,
    /// Clusters that it is being evicted from.
    pub evicted: BTreeSet<Arc<str>>,
    /// Clusters of the other workloads it belongs with; none where there is no other.
    pub together: Option<BTreeSet<Arc<str>>>,
    /// Clusters of workloads it must not meet.
    pub apart: BTreeSet<Arc<str>>,
}

impl Demand {
    /// Whether it runs pods.
    pub fn is_workload(&self) -> bool {
        self.replicas > 0 || self.request.is_some() || !self.components.is_empty()
    }

    /// Whether its replicas are given out by a strategy; otherwise every chosen cluster gets it whole.
    pub fn has_replicas(&self) -> bool {
        (self.replicas > 0 || self.request.is_some()) && self.components.len() <= 1
    }

    /// Whether room is counted in whole sets of its components.
    pub fn in_sets(&self) -> bool {
        self.components.len() > 1 && self.rules.one_cluster
    }
}

/// One part of a template with several kinds of pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Component {
    /// Its name.
    pub name: Arc<str>,
    /// Its replicas.
    pub replicas: i64,
    /// What one of them asks for.
    pub request: Amounts,
}

/// Where it is now, and how that was decided.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Previous {
    /// Its clusters.
    pub targets: Vec<Target>,
    /// The group that was chosen last.
    pub group: Option<Arc<str>>,
    /// Whether someone asked that it be placed as if for the first time.
    pub fresh: bool,
}

/// A cluster and its share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// The cluster.
    pub cluster: Arc<str>,
    /// Its replicas; 0 for what has none.
    pub replicas: i64,
    /// Its replicas by component.
    pub components: Vec<(Arc<str>, i64)>,
}

/// Whether two results say the same, in whatever order.
pub fn same_targets(one: &[Target], other: &[Target]) -> bool {
    let set = |targets: &[Target]| -> BTreeSet<Target> { targets.iter().cloned().collect() };
    one.len() == other.len() && set(one) == set(other)
}

/// Where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Its clusters: best first where each gets it whole, by name where replicas are divided.
    pub targets: Vec<Target>,
    /// The group that was chosen, where there are groups.
    pub group: Option<Arc<str>>,
    /// What filters took.
    pub refused: Tally,
    /// Groups that were tried before.
    pub passed_over: Vec<Failed>,
}

impl Placement {
    /// Whether this is another result than what the binding says, so that it is to be written.
    pub fn differs(&self, current: &[Target]) -> bool {
        !same_targets(&self.targets, current)
    }
}
