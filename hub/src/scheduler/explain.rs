//! Why something cannot be placed: which filter took which clusters, and what was missing after them.

use super::demand::Target;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A filter, in the order in which they are asked: a cluster is counted under the first that refuses it.
/// What the policy says comes first, so that the others speak of clusters it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Filter {
    /// The clusters that the policy names.
    ClusterAffinity,
    /// Clusters that serve the kind.
    ApiEnablement,
    /// Clusters whose taints are tolerated.
    TaintToleration,
    /// Clusters that have what is spread by.
    SpreadConstraint,
    /// Clusters that it is not being evicted from.
    ClusterEviction,
    /// Clusters where the workloads are that it belongs with.
    WorkloadAffinity,
    /// Clusters where no workload is that it must not meet.
    WorkloadAntiAffinity,
}

/// Why a filter refused a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The policy does not mean it.
    Affinity,
    /// It does not serve the kind.
    Api,
    /// It has a taint that is not tolerated: key, value, effect.
    Taint(Arc<str>, Arc<str>, &'static str),
    /// It has no provider.
    NoProvider,
    /// It has no region.
    NoRegion,
    /// It has no zone.
    NoZone,
    /// It is being left.
    Evicted,
    /// The workloads are elsewhere that it belongs with.
    Elsewhere,
    /// A workload is there that it must not meet.
    Occupied,
}

impl Reason {
    /// Whose reason it is.
    pub fn filter(&self) -> Filter {
        match self {
            Self::Affinity => Filter::ClusterAffinity,
            Self::Api => Filter::ApiEnablement,
            Self::Taint(..) => Filter::TaintToleration,
            Self::NoProvider | Self::NoRegion | Self::NoZone => Filter::SpreadConstraint,
            Self::Evicted => Filter::ClusterEviction,
            Self::Elsewhere => Filter::WorkloadAffinity,
            Self::Occupied => Filter::WorkloadAntiAffinity,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Affinity => "cluster(s) did not match the placement cluster affinity constraint",
            Self::Api => "cluster(s) did not have the API resource",
            Self::Taint(key, value, effect) => {
                let equals = if value.is_empty() { "" } else { "=" };
                let taint = format_args!("{{{key}{equals}{value}:{effect}}}");
                return write!(f, "cluster(s) had untolerated taint {taint}");
            }
            Self::NoProvider => "cluster(s) did not have provider property",
            Self::NoRegion => "cluster(s) did not have region property",
            Self::NoZone => "cluster(s) did not have zones property",
            Self::Evicted => "cluster(s) is in the process of eviction",
            Self::Elsewhere => {
                "ResourceBinding with the same affinity group does not target this cluster"
            }
            Self::Occupied => "cluster already has workload with the same anti-affinity group",
        })
    }
}

/// What filters took, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// All clusters, those that are being deleted too.
    pub clusters: usize,
    /// Those that are being deleted.
    pub leaving: usize,
    /// The rest, as far as something refused them.
    pub taken: BTreeMap<Reason, Taken>,
}

/// How many a reason took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// How many.
    pub clusters: usize,
    /// The first of them by name.
    pub example: Arc<str>,
}

impl Tally {
    /// Counts one more.
    pub(super) fn add(&mut self, reason: &Reason, cluster: &Arc<str>) {
        if let Some(taken) = self.taken.get_mut(reason) {
            taken.clusters += 1;
            return;
        }
        let taken = Taken {
            clusters: 1,
            example: cluster.clone(),
        };
        self.taken.insert(reason.clone(), taken);
    }

    /// How many each filter took, in the order of filters.
    pub fn by_filter(&self) -> BTreeMap<Filter, usize> {
        let mut filters = BTreeMap::new();
        for (reason, taken) in &self.taken {
            *filters.entry(reason.filter()).or_default() += taken.clusters;
        }
        filters
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} clusters are available: ", self.clusters)?;
        if self.clusters == self.leaving {
            return f.write_str("no cluster exists.");
        }
        // Counts are sorted as texts.
        let mut counts: Vec<String> = self
            .taken
            .iter()
            .map(|(reason, taken)| format!("{} {reason}", taken.clusters))
            .collect();
        counts.sort();
        write!(f, "{}.", counts.join(", "))
    }
}

/// What stopped one attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// Filters took every cluster; the tally says which.
    #[error("no cluster fits")]
    NoFit,
    /// Fewer clusters are left than must be chosen.
    #[error(
        "failed to select clusters: the number of feasible clusters is less than spreadConstraint.MinGroups"
    )]
    FewClusters,
    /// Fewer regions are left than must be chosen.
    #[error(
        "failed to select clusters: the number of feasible region is less than spreadConstraint.MinGroups"
    )]
    FewRegions,
    /// No choice of regions has enough clusters.
    #[error(
        "failed to select clusters: the number of clusters is less than the cluster spreadConstraint.MinGroups"
    )]
    FewClustersInRegions,
    /// No choice of so many clusters has room for all replicas; the policy may allow none to be chosen.
    #[error("failed to select clusters: no enough resource when selecting {0} clusters")]
    LittleRoomInSelection(usize),
    /// It is spread by what cannot be spread by.
    #[error("failed to select clusters: just support cluster and region spread constraint")]
    Spread,
    /// The policy allows no cluster to be chosen.
    #[error("failed to assign replicas: no clusters available to schedule")]
    NothingSelected,
    /// The chosen clusters have less room than replicas want.
    #[error(
        "failed to assign replicas: {}: Clusters available replicas {room} are not enough to schedule.",
        how(.fresh)
    )]
    LittleRoom {
        /// For how many replicas there is room.
        room: i64,
        /// Whether everything was placed as if for the first time.
        fresh: bool,
    },
    /// Neither the chosen clusters nor those they overflow into have enough room.
    #[error("failed to assign replicas: Clusters available replicas are not enough to schedule.")]
    LittleRoomInOverflow,
    /// Replicas are divided, but nothing says how.
    #[error(
        "failed to assign replicas: unsupported replica scheduling strategy, replicaSchedulingType: Divided, \
         replicaDivisionPreference: , please try another scheduling strategy"
    )]
    Strategy,
}

fn how(fresh: &bool) -> &'static str {
    if *fresh {
        "failed to do fresh scale"
    } else {
        "failed to scale up"
    }
}

/// What may make another attempt worthwhile; the later ones include those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitsFor {
    /// Only an edit of the policy.
    Policy,
    /// A cluster that comes, changes labels, taints, fields or APIs, or is no longer being left.
    Clusters,
    /// Room.
    Capacity,
}

impl Cause {
    /// The reason of the condition `Scheduled`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoFit => "NoClusterFit",
            Self::LittleRoom { .. } | Self::LittleRoomInOverflow => "Unschedulable",
            _ => "SchedulerError",
        }
    }

    /// What it waits for.
    pub fn waits_for(&self) -> WaitsFor {
        match self {
            Self::Spread
            | Self::NothingSelected
            | Self::LittleRoomInSelection(0)
            | Self::Strategy => WaitsFor::Policy,
            Self::NoFit | Self::FewClusters | Self::FewRegions | Self::FewClustersInRegions => {
                WaitsFor::Clusters
            }
            Self::LittleRoomInSelection(_)
            | Self::LittleRoom { .. }
            | Self::LittleRoomInOverflow => WaitsFor::Capacity,
        }
    }
}

/// An attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// The place of the group that was tried; 0 where there are no groups.
    pub index: usize,
    /// Why it failed.
    pub cause: Cause,
    /// What filters took before.
    pub refused: Tally,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::NoFit => write!(f, "{}", self.refused),
            cause => write!(f, "{cause}"),
        }
    }
}

/// It cannot be placed. Its text, that of the first attempt, is the message of the condition `Scheduled`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{first}")]
pub struct Unplaceable {
    /// The first attempt.
    pub first: Failed,
    /// Those of the groups after it.
    pub later: Vec<Failed>,
    /// What stays where it is.
    pub kept: Vec<Target>,
}

impl Unplaceable {
    /// Every attempt, in order.
    pub fn attempts(&self) -> impl Iterator<Item = &Failed> {
        std::iter::once(&self.first).chain(&self.later)
    }

    /// The reason of the condition `Scheduled`.
    pub fn reason(&self) -> &'static str {
        self.first.cause.reason()
    }

    /// What may make another attempt worthwhile.
    pub fn waits_for(&self) -> WaitsFor {
        let waits = self.later.iter().map(|failed| failed.cause.waits_for());
        waits.fold(self.first.cause.waits_for(), Ord::max)
    }
}
