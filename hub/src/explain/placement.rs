//! Which clusters a template goes to, and which filter refused the others. Pure.
//!
//! That it is placed, or not, is what its binding says; which filter took which cluster is worked out anew, by the
//! scheduler's own rules from the clusters as they are now.

mod stuck;

use super::mend::{self, on_hub};
use super::template::{Bound, Seen};
use super::{Broken, Cause, Detail, Mend, Stage, Walk};
use crate::propagation::Policy;
use crate::scheduler::from_api::{self, Observed};
use crate::scheduler::{
    self, Demand, Filter, Interner, Placement, Previous, Reason, Snapshot, Unplaceable,
};
use common::api::binding::{SCHEDULED, TargetCluster};
use common::api::policy::DEFAULT_SCHEDULER;
use common::conditions;
use common::labels::APPLIED_PLACEMENT;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Clusters that are named in a line.
const NAMED: usize = 4;

/// What the scheduler's rules say now.
struct Outcome {
    /// Of each cluster why it was refused, if it was.
    clusters: BTreeMap<Arc<str>, Option<Reason>>,
    result: Result<Placement, Unplaceable>,
    snapshot: Snapshot,
    /// Replicas that are placed already where the policy still lets them.
    placed: i64,
}

pub(super) fn walk(seen: &Seen, policy: Option<&Policy>, binding: &Bound, walk: &mut Walk) {
    let spec = &binding.spec;
    let Some(policy) = policy else {
        let clusters = spec.required_by.iter().flat_map(|it| &it.clusters);
        let names: BTreeSet<&str> = clusters.map(|it| it.name.as_str()).collect();
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        walk.holds(
            Stage::Placement,
            format!("goes along to {}", some(&names)),
            Vec::new(),
        );
        return;
    };
    if spec.suspension.as_ref().and_then(|it| it.scheduling) == Some(true) {
        walk.breaks(suspended(binding), Vec::new());
        return;
    }
    let by = spec.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER);
    let condition = conditions::get(&binding.status.conditions, SCHEDULED);
    if condition.is_none() && by != DEFAULT_SCHEDULER {
        let what = format!("it is left to the scheduler {by}, which is not the hub's");
        let name = mend::short(&policy.name);
        let get = format!(
            "kubectl{} get {name} -o yaml",
            mend::within(policy.name.namespace.as_deref())
        );
        let mend = on_hub(
            "Start that scheduler; or make the policy anew without schedulerName, which cannot be changed.",
            [get],
        );
        walk.breaks(broken(Cause::OtherScheduler, what, mend), Vec::new());
        return;
    }
    let outcome = outcome(seen, binding);
    let details = details(&outcome, &spec.clusters);
    match condition {
        None => walk.breaks(
            seen.late(Stage::Placement, "it was not placed yet"),
            details,
        ),
        Some(condition) if condition.status == "True" => {
            walk.holds(Stage::Placement, placed(&spec.clusters, &outcome), details);
        }
        Some(condition) => {
            let broken = stuck::stuck(seen, policy, binding, &outcome, &condition.message);
            walk.breaks(broken, details);
        }
    }
}

fn broken(cause: Cause, what: impl Into<String>, mend: Mend) -> Broken {
    Broken {
        stage: Stage::Placement,
        cause,
        cluster: None,
        what: what.into(),
        mend,
    }
}

fn suspended(binding: &Bound) -> Broken {
    let name = binding.metadata.name.as_deref().unwrap_or_default();
    let namespace = binding.metadata.namespace.as_deref();
    let kind = if namespace.is_some() { "rb" } else { "crb" };
    let patch = json!({"spec": {"suspension": {"scheduling": null}}});
    let command = format!(
        "kubectl{} patch {kind}/{} --type=merge -p '{patch}'",
        mend::within(namespace),
        mend::word(name)
    );
    let mend = on_hub(
        "Somebody suspended it on its binding; let it go on.",
        [command],
    );
    broken(Cause::Suspended, "its placement is suspended", mend)
}

fn outcome(seen: &Seen, binding: &Bound) -> Outcome {
    let mut interner = Interner::default();
    let clusters = seen.clusters.iter();
    let clusters: Vec<_> = clusters
        .map(|it| Arc::new(from_api::cluster(it, &mut interner)))
        .collect();
    let placement = binding.spec.placement.as_deref();
    let rules = Arc::new(placement.map(from_api::rules).unwrap_or_default());
    let demand = from_api::demand(&binding.spec, rules);
    let metadata = &binding.metadata;
    let applied = metadata
        .annotations
        .as_ref()
        .and_then(|it| it.get(APPLIED_PLACEMENT));
    let observed = Observed {
        generation: metadata.generation.unwrap_or(0),
        deleting: false,
        applied: applied.map(String::as_str),
        status: Some(&binding.status),
    };
    let previous = from_api::previous(&binding.spec, observed);
    let each = clusters.iter().filter(|it| !it.leaving).map(|cluster| {
        let alone = Snapshot::new([cluster.clone()]);
        (cluster.name.clone(), refusal(&alone, &demand, &previous))
    });
    let refusals: BTreeMap<Arc<str>, Option<Reason>> = each.collect();
    let targets = previous.targets.iter();
    let allowed = targets.filter(|it| matches!(refusals.get(&it.cluster), Some(None)));
    let placed = allowed.map(|it| it.replicas).sum();
    let snapshot = Snapshot::new(clusters);
    let result = scheduler::schedule(&snapshot, &demand, Some(&previous));
    Outcome {
        clusters: refusals,
        result,
        snapshot,
        placed,
    }
}

/// Why the one cluster of a snapshot is refused: by the attempt that came furthest.
fn refusal(alone: &Snapshot, demand: &Demand, previous: &Previous) -> Option<Reason> {
    let unplaceable = scheduler::schedule(alone, demand, Some(previous)).err()?;
    let mut furthest: Option<Reason> = None;
    for attempt in unplaceable.attempts() {
        let reason = attempt.refused.taken.keys().next()?;
        if furthest
            .as_ref()
            .is_none_or(|it| it.filter() < reason.filter())
        {
            furthest = Some(reason.clone());
        }
    }
    furthest
}

/// Of each cluster what became of it.
fn details(outcome: &Outcome, targets: &[TargetCluster]) -> Vec<Detail> {
    let chosen = |name: &str| targets.iter().find(|it| it.name == name);
    let each = outcome.clusters.iter();
    let each = each.map(|(name, refusal)| match (chosen(name), refusal) {
        (Some(target), None) => Detail::new(&**name, share(target)),
        (Some(target), Some(reason)) => Detail::new(
            &**name,
            format!("{}; now {}", share(target), refused(reason)),
        ),
        (None, Some(reason)) => Detail::new(&**name, refused(reason)),
        (None, None) => Detail::new(&**name, "fits, and was not chosen"),
    });
    each.collect()
}

fn share(target: &TargetCluster) -> String {
    match target.replicas {
        Some(1) => "chosen, with 1 replica".to_owned(),
        Some(replicas) => format!("chosen, with {replicas} replicas"),
        None => "chosen".to_owned(),
    }
}

/// Why a cluster was refused, and by which filter.
fn refused(reason: &Reason) -> String {
    let why = match reason {
        Reason::Affinity => "the policy does not mean it".to_owned(),
        Reason::Api => "it does not serve the kind".to_owned(),
        Reason::Taint(key, value, effect) => {
            let equals = if value.is_empty() { "" } else { "=" };
            format!("taint {key}{equals}{value}:{effect} is not tolerated")
        }
        Reason::NoProvider => "it has no provider".to_owned(),
        Reason::NoRegion => "it has no region".to_owned(),
        Reason::NoZone => "it has no zone".to_owned(),
        Reason::Evicted => "it is being evicted from there".to_owned(),
        Reason::Elsewhere => "what it belongs with is elsewhere".to_owned(),
        Reason::Occupied => "what it must not meet is there".to_owned(),
    };
    format!("refused by {}: {why}", filter(reason.filter()))
}

fn filter(filter: Filter) -> &'static str {
    match filter {
        Filter::ClusterAffinity => "ClusterAffinity",
        Filter::ApiEnablement => "APIEnablement",
        Filter::TaintToleration => "TaintToleration",
        Filter::SpreadConstraint => "SpreadConstraint",
        Filter::ClusterEviction => "ClusterEviction",
        Filter::WorkloadAffinity => "WorkloadAffinity",
        Filter::WorkloadAntiAffinity => "WorkloadAntiAffinity",
    }
}

fn placed(targets: &[TargetCluster], outcome: &Outcome) -> String {
    let shown = targets.iter().map(|it| match it.replicas {
        Some(replicas) => format!("{} ({replicas})", it.name),
        None => it.name.clone(),
    });
    let mut what = some(&shown.collect::<Vec<_>>());
    let refused = outcome.clusters.values().flatten().count();
    if refused > 0 {
        what.push_str(&format!(
            "; {refused} of {} clusters refused",
            outcome.clusters.len()
        ));
    }
    what
}

/// A few of many.
pub(super) fn some(names: &[String]) -> String {
    match names.split_at_checked(NAMED) {
        _ if names.is_empty() => "no cluster".to_owned(),
        Some((first, more)) if !more.is_empty() => {
            format!("{} and {} more", first.join(", "), more.len())
        }
        _ => names.join(", "),
    }
}
