//! A binding, and what it says of its last placement.

use super::{amounts, rules};
use crate::scheduler::cluster::Cluster;
use crate::scheduler::demand::{Component, Demand, Previous, Target};
use crate::scheduler::needed::{Standing, is_triggered};
use crate::scheduler::rules::{Group, Rules};
use common::api::binding::{
    ResourceBindingSpec, ResourceBindingStatus, SCHEDULED, TargetCluster, TargetComponent,
};
use common::api::policy::{Placement, ReplicaSchedulingType};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;

/// What a binding says beside its spec.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// Its generation.
    pub generation: i64,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The placement that was applied last, as JSON.
    pub applied: Option<&'a str>,
    /// Its status.
    pub status: Option<&'a ResourceBindingStatus>,
}

impl Observed<'_> {
    /// The group that its status tells.
    pub fn group(&self) -> Option<&str> {
        let name = self.status?.scheduler_observing_affinity_name.as_deref();
        name.filter(|name| !name.is_empty())
    }

    /// The group that its targets were chosen from, where its status does not tell: the hub may have ended after it wrote
    /// them. It is the first of the applied placement, from the one that is told on, that has all of them; none where that
    /// one has, or no one does.
    pub fn untold_group<'c>(
        &self,
        targets: &[TargetCluster],
        cluster: impl Fn(&str) -> Option<&'c Cluster>,
    ) -> Option<String> {
        let applied: Placement = serde_json::from_str(self.applied?).ok()?;
        let applied = rules(&applied);
        let has = |group: &Group, cluster: &Cluster| {
            let mut affinities = group.affinities();
            affinities.any(|affinity| affinity.matches(cluster))
        };
        let has_all = |group: &&Group| {
            let mut each = targets.iter().map(|target| cluster(&target.name));
            each.all(|cluster| cluster.is_some_and(|cluster| has(group, cluster)))
        };
        let mut groups = applied.groups.iter().skip(applied.start(self.group()));
        let group = groups.find(has_all)?.name.to_string();
        (!targets.is_empty() && self.group() != Some(&group)).then_some(group)
    }
}

/// What a binding asks for. `rules` are those of its placement; which workloads it belongs with, or must not meet,
/// is not in it.
pub fn demand(spec: &ResourceBindingSpec, rules: Arc<Rules>) -> Demand {
    let request = spec.replica_requirements.as_ref();
    let components = spec.components.iter().map(|component| Component {
        name: component.name.as_str().into(),
        replicas: component.replicas.max(0).into(),
        request: component
            .replica_requirements
            .as_ref()
            .map(|needs| amounts(&needs.resource_request))
            .unwrap_or_default(),
    });
    let evicted = spec.graceful_eviction_tasks.iter();
    Demand {
        api_version: spec.resource.api_version.as_str().into(),
        kind: spec.resource.kind.as_str().into(),
        uid: spec.resource.uid.as_deref().unwrap_or_default().into(),
        replicas: spec.replicas.unwrap_or(0).max(0).into(),
        request: request.map(|needs| amounts(&needs.resource_request)),
        components: components.collect(),
        rules,
        evicted: evicted
            .map(|task| task.from_cluster.as_str().into())
            .collect(),
        together: None,
        apart: [].into(),
    }
}

/// Where a binding is.
pub fn previous(spec: &ResourceBindingSpec, observed: Observed<'_>) -> Previous {
    Previous {
        targets: targets(&spec.clusters),
        group: observed.group().map(Into::into),
        fresh: triggered(spec, observed),
    }
}

fn triggered(spec: &ResourceBindingSpec, observed: Observed<'_>) -> bool {
    let seconds = |time: &Time| time.0.as_second();
    let placed = observed
        .status
        .and_then(|status| status.last_scheduled_time.as_ref());
    let asked = spec.reschedule_triggered_at.as_ref();
    is_triggered(asked.map(seconds), placed.map(seconds))
}

/// Targets from the list of a binding.
pub fn targets(clusters: &[TargetCluster]) -> Vec<Target> {
    let one = |from: &TargetCluster| Target {
        cluster: from.name.as_str().into(),
        replicas: from.replicas.unwrap_or(0).into(),
        components: from
            .components
            .iter()
            .map(|part| (part.name.as_str().into(), part.replicas.into()))
            .collect(),
    };
    clusters.iter().map(one).collect()
}

/// The list of a binding from targets.
pub fn target_clusters(targets: &[Target]) -> Vec<TargetCluster> {
    let number = |replicas: i64| i32::try_from(replicas).unwrap_or(i32::MAX);
    let one = |from: &Target| TargetCluster {
        name: from.cluster.to_string(),
        replicas: (from.replicas > 0).then(|| number(from.replicas)),
        components: from
            .components
            .iter()
            .map(|(name, replicas)| TargetComponent {
                name: name.to_string(),
                replicas: number(*replicas),
            })
            .collect(),
    };
    targets.iter().map(one).collect()
}

/// The priority of a binding: higher ones are placed first.
pub fn priority(spec: &ResourceBindingSpec) -> i32 {
    let given = spec.schedule_priority.as_ref();
    given.map_or(0, |given| given.priority)
}

/// What a binding says about itself. `leaving` tells whether a cluster of a name is being deleted.
pub fn standing(
    spec: &ResourceBindingSpec,
    observed: Observed<'_>,
    leaving: impl Fn(&str) -> bool,
) -> Standing {
    let nothing = Placement::default();
    let placement = spec.placement.as_deref().unwrap_or(&nothing);
    let condition = observed.status.and_then(|status| {
        let mut conditions = status.conditions.iter();
        conditions.find(|condition| condition.type_ == SCHEDULED)
    });
    let suspension = spec.suspension.as_ref();
    let workload = spec.replicas.unwrap_or(0) > 0
        || spec.replica_requirements.is_some()
        || !spec.components.is_empty();
    let seen = observed
        .status
        .and_then(|status| status.scheduler_observed_generation);
    Standing {
        deleting: observed.deleting,
        suspended: suspension.is_some_and(|suspension| suspension.scheduling == Some(true)),
        follows: spec.placement.is_none(),
        placement_changed: placement_changed(placement, observed.applied, observed.group()),
        replicas_changed: replicas_changed(spec, placement),
        triggered: triggered(spec, observed),
        whole: !workload || is_duplicated(placement),
        target_leaving: spec.clusters.iter().any(|target| leaving(&target.name)),
        pending: condition.is_some_and(|condition| condition.status == "False"),
        unsaid: condition.is_none(),
        unseen: seen != Some(observed.generation),
    }
}

fn is_duplicated(placement: &Placement) -> bool {
    let scheduling = placement.replica_scheduling.as_ref();
    scheduling.is_none_or(|scheduling| {
        scheduling.replica_scheduling_type == ReplicaSchedulingType::Duplicated
    })
}

fn replicas_changed(spec: &ResourceBindingSpec, placement: &Placement) -> bool {
    if placement.replica_scheduling.is_none() {
        return false;
    }
    if spec.components.len() > 1 {
        return spec.clusters.is_empty();
    }
    let wanted = i64::from(spec.replicas.unwrap_or(0));
    let mut given = spec
        .clusters
        .iter()
        .map(|target| i64::from(target.replicas.unwrap_or(0)));
    if is_duplicated(placement) {
        given.any(|replicas| replicas != wanted)
    } else {
        given.sum::<i64>() != wanted
    }
}

/// Whether a placement differs from the one that was applied last, where that matters: of groups, only the one that
/// was chosen. Text that cannot be read counts as the same, for nothing says what moved.
pub fn placement_changed(current: &Placement, applied: Option<&str>, group: Option<&str>) -> bool {
    let Some(applied) = applied.filter(|applied| !applied.is_empty()) else {
        return true;
    };
    let Ok(applied) = serde_json::from_str::<Placement>(applied) else {
        return false;
    };
    if *current == applied {
        return false;
    }
    let others = current.cluster_affinity != applied.cluster_affinity
        || current.cluster_tolerations != applied.cluster_tolerations
        || current.spread_constraints != applied.spread_constraints
        || current.replica_scheduling != applied.replica_scheduling;
    let Some(group) = group.filter(|_| !others) else {
        return true;
    };
    let chosen = |placement: &Placement| {
        let mut terms = placement.cluster_affinities.iter();
        terms.find(|term| term.affinity_name == group).cloned()
    };
    let (now, before) = (chosen(current), chosen(&applied));
    now.is_none() || now != before
}
