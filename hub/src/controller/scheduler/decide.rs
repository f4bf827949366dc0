//! What is to be written of where a binding goes. Pure.

use crate::propagation::{Binding, Notice};
use crate::scheduler::from_api::{
    self, Observed, demand, previous, standing, target_clusters, targets,
};
use crate::scheduler::{
    Cause, Need, Placement, Snapshot, Target, Unplaceable, WaitsFor, needed, same_targets, schedule,
};
use crate::world;
use chrono::{DateTime, Utc};
use common::api::binding::{ResourceBindingStatus, SCHEDULED};
use common::conditions;
use common::labels::APPLIED_PLACEMENT;
use common::time::to_time;
use serde_json::{Value, json};
use std::sync::Arc;

/// What was seen.
pub(super) struct Seen<'a> {
    pub held: &'a world::Binding,
    pub snapshot: &'a Snapshot,
}

/// What is to be written; at rest nothing.
#[derive(Debug, Default)]
pub(super) struct Decision {
    /// A merge patch of the binding.
    pub patch: Option<Value>,
    /// A merge patch of its status.
    pub status: Option<Value>,
    /// Whether it was placed: what is observed is then the generation of the patch.
    pub placed: bool,
    /// What it waits for, if it could not be placed.
    pub waits_for: Option<WaitsFor>,
    /// Events on the binding and on the template.
    pub events: Vec<Notice>,
}

pub(super) fn decide(now: DateTime<Utc>, seen: &Seen<'_>) -> Decision {
    let Seen { held, snapshot } = seen;
    let (binding, status) = (&held.binding, &held.status);
    let applied = binding.annotations.get(APPLIED_PLACEMENT);
    let observed = Observed {
        generation: held.generation,
        deleting: binding.deleting,
        applied: applied.map(String::as_str),
        status: Some(status),
    };
    let leaving = |name: &str| snapshot.get(name).is_some_and(|cluster| cluster.leaving);
    let standing = standing(&binding.spec, observed, leaving);
    match needed(&standing) {
        Need::Nothing => return Decision::default(),
        Need::Note => return noted(held.generation, status),
        Need::Place(_) => {}
    }
    let placement = binding.spec.placement.clone().unwrap_or_default();
    let rules = Arc::new(from_api::rules(&placement));
    let demand = demand(&binding.spec, rules);
    let previous = previous(&binding.spec, observed);
    match schedule(snapshot, &demand, Some(&previous)) {
        Ok(result) => placed(
            now,
            held,
            &placement_text(binding),
            &result,
            standing.triggered,
        ),
        Err(unplaceable) => stuck(now, held, &placement_text(binding), &unplaceable),
    }
}

/// Only the generation is to be noted.
fn noted(generation: i64, status: &ResourceBindingStatus) -> Decision {
    // Nothing was said yet: there is nothing that the number would be about.
    if conditions::get(&status.conditions, SCHEDULED).is_none() {
        return Decision::default();
    }
    Decision {
        status: Some(json!({"schedulerObservedGeneration": generation})),
        ..Decision::default()
    }
}

/// A placement as the annotation has it.
fn placement_text(binding: &Binding) -> String {
    // It was read from JSON.
    serde_json::to_string(&binding.spec.placement).unwrap_or_default()
}

fn placed(
    now: DateTime<Utc>,
    held: &world::Binding,
    applied: &str,
    result: &Placement,
    triggered: bool,
) -> Decision {
    let (binding, status) = (&held.binding, &held.status);
    let moves = result.differs(&targets(&binding.spec.clusters));
    let known = binding.annotations.get(APPLIED_PLACEMENT);
    let mut patch = json!({});
    if moves {
        patch["spec"] = json!({"clusters": target_clusters(&result.targets)});
    }
    if known.map(String::as_str) != Some(applied) {
        patch["metadata"]["annotations"] = json!({APPLIED_PLACEMENT: applied});
    }
    let writes = patch != json!({});
    if writes {
        patch["metadata"]["resourceVersion"] = json!(binding.resource_version);
    }
    let mut wanted = status.clone();
    let message = "Binding has been scheduled successfully.";
    let condition = conditions::new(SCHEDULED, true, "Success", message, now);
    conditions::set(&mut wanted.conditions, condition, now);
    wanted.scheduler_observed_generation = Some(held.generation);
    if let Some(group) = &result.group {
        wanted.scheduler_observing_affinity_name = Some(group.to_string());
    }
    let said = wanted != *status || moves || triggered;
    if said && (moves || triggered || status.last_scheduled_time.is_none()) {
        wanted.last_scheduled_time = Some(to_time(now));
    }
    let mut events = Vec::new();
    for failed in &result.passed_over {
        events.push(Notice::warning(
            "ScheduleBindingFailed",
            passed_over(binding, failed.index, failed),
        ));
    }
    if moves || conditions::get(&status.conditions, SCHEDULED).is_none() {
        let colon = if binding.namespace.is_some() { ":" } else { "" };
        let text = format!("{message} Result{colon} {}", shown(&result.targets));
        events.push(Notice::normal("ScheduleBindingSucceed", text));
    }
    Decision {
        patch: writes.then_some(patch),
        status: said.then(|| patch_of(&wanted)),
        placed: true,
        waits_for: None,
        events,
    }
}

fn stuck(
    now: DateTime<Utc>,
    held: &world::Binding,
    applied: &str,
    unplaceable: &Unplaceable,
) -> Decision {
    let (binding, status) = (&held.binding, &held.status);
    let mut patch = json!({});
    if !same_targets(&unplaceable.kept, &targets(&binding.spec.clusters)) {
        patch["spec"] = json!({"clusters": target_clusters(&unplaceable.kept)});
    }
    // That no cluster fits is an answer to this placement; other failures may pass.
    let answered = unplaceable.first.cause == Cause::NoFit;
    let known = binding.annotations.get(APPLIED_PLACEMENT);
    if answered && known.map(String::as_str) != Some(applied) {
        patch["metadata"]["annotations"] = json!({APPLIED_PLACEMENT: applied});
    }
    let patch = (patch != json!({})).then(|| {
        patch["metadata"]["resourceVersion"] = json!(binding.resource_version);
        patch
    });
    let message = unplaceable.to_string();
    let mut wanted = status.clone();
    let condition = conditions::new(SCHEDULED, false, unplaceable.reason(), &message, now);
    let changed = conditions::set(&mut wanted.conditions, condition, now);
    let mut events = Vec::new();
    if changed {
        for failed in unplaceable
            .attempts()
            .filter(|_| !unplaceable.later.is_empty())
        {
            events.push(Notice::warning(
                "ScheduleBindingFailed",
                passed_over(binding, failed.index, failed),
            ));
        }
        events.push(Notice::warning("ScheduleBindingFailed", message));
    }
    Decision {
        patch,
        status: changed.then(|| json!({"conditions": wanted.conditions})),
        placed: false,
        waits_for: Some(unplaceable.waits_for()),
        events,
    }
}

fn patch_of(status: &ResourceBindingStatus) -> Value {
    let mut patch = json!({
        "conditions": status.conditions,
        "schedulerObservedGeneration": status.scheduler_observed_generation,
        "lastScheduledTime": status.last_scheduled_time,
    });
    if let Some(group) = &status.scheduler_observing_affinity_name {
        patch["schedulerObservingAffinityName"] = json!(group);
    }
    patch
}

fn passed_over(binding: &Binding, index: usize, why: &impl std::fmt::Display) -> String {
    let kind = binding.kind();
    let name = match &binding.namespace {
        Some(namespace) => format!("{namespace}/{}", binding.name),
        None => binding.name.clone(),
    };
    format!("failed to schedule {kind}({name}) with clusterAffiliates index({index}): {why}")
}

fn shown(targets: &[Target]) -> String {
    let each = targets.iter();
    let each = each.map(|target| format!("{}:{}", target.cluster, target.replicas));
    format!("{{{}}}", each.collect::<Vec<_>>().join(", "))
}
