//! What is to be written of where a binding goes. Pure.

use crate::propagation::{Binding, Notice};
use crate::scheduler::from_api::{Observed, demand, previous, standing, target_clusters, targets};
use crate::scheduler::{
    Cause, Need, Placement, Snapshot, Standing, Target, Unplaceable, WaitsFor, needed,
    same_targets, schedule,
};
use crate::world;
use chrono::{DateTime, Utc};
use common::api::binding::{ResourceBindingStatus, SCHEDULED};
use common::conditions;
use common::labels::APPLIED_PLACEMENT;
use common::time::to_time;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};
use std::sync::Arc;

/// What was seen.
pub(crate) struct Seen<'a> {
    pub held: &'a world::Binding,
    pub snapshot: &'a Snapshot,
    /// Where it was placed by whoever wrote it.
    pub ahead: Option<&'a Ahead>,
}

/// A placement that was written, and that the status of its binding does not tell yet.
#[derive(Debug, Clone)]
pub(crate) struct Ahead {
    pub placement: Placement,
    /// Whether its clusters are others than before.
    pub moves: bool,
    /// The generation of the binding before.
    pub generation: i64,
}

/// What a binding's status is to tell of where it was placed.
#[derive(Debug, Clone)]
pub struct Said {
    status: ResourceBindingStatus,
    /// Events on the binding and on the template.
    pub events: Vec<Notice>,
}

impl Said {
    /// Has a status that is about to be written tell it too.
    pub fn write_into(&self, now: DateTime<Utc>, status: &mut ResourceBindingStatus) {
        let said = &self.status;
        if let Some(scheduled) = conditions::get(&said.conditions, SCHEDULED) {
            conditions::set(&mut status.conditions, scheduled.clone(), now);
        }
        status.scheduler_observed_generation = said.scheduler_observed_generation;
        status
            .last_scheduled_time
            .clone_from(&said.last_scheduled_time);
        status
            .scheduler_observing_affinity_name
            .clone_from(&said.scheduler_observing_affinity_name);
    }
}

/// What becomes of a binding.
pub(crate) enum Outcome {
    /// Nothing is to be done.
    Nothing,
    /// Its generation is to be noted, with the group that it is in where that is not told.
    Note(Option<String>),
    /// It goes there; whether somebody asked for it to be placed afresh.
    Placed(Box<Placement>, bool),
    /// It goes nowhere.
    Stuck(Box<Unplaceable>),
}

/// What is to be written; at rest nothing.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    /// A merge patch of the binding.
    pub patch: Option<Value>,
    /// A merge patch of its status.
    pub status: Option<Value>,
    /// Whether it was placed: what is observed is then the generation of the patch.
    pub placed: bool,
    /// Where the patch places it: to be told still when the status cannot be written after it.
    pub ahead: Option<Ahead>,
    /// Whether nothing is to be written but a message that differs in numbers alone.
    pub numbers_only: bool,
    /// What it waits for, if it could not be placed.
    pub waits_for: Option<WaitsFor>,
    /// Events on the binding and on the template.
    pub events: Vec<Notice>,
}

impl Decision {
    /// Leaves out what it says: it is written later.
    pub(super) fn hold_back(&mut self) {
        self.status = None;
        self.events.clear();
    }
}

pub(crate) fn decide(now: DateTime<Utc>, seen: &Seen<'_>) -> Decision {
    let held = seen.held;
    if let Some(ahead) = seen.ahead.filter(|ahead| is_as_written(ahead, held)) {
        let mut told = held.clone();
        told.status = telling(now, held, &ahead.placement, false, ahead.moves).status;
        // Clusters may have changed since.
        let stands = match outcome(&told, seen.snapshot) {
            Outcome::Nothing => true,
            Outcome::Placed(result, _) => !result.differs(&targets(&held.binding.spec.clusters)),
            Outcome::Note(_) | Outcome::Stuck(_) => false,
        };
        if stands {
            return placed(now, held, &ahead.placement, false, ahead.moves);
        }
    }
    match outcome(held, seen.snapshot) {
        Outcome::Nothing => Decision::default(),
        Outcome::Note(group) => {
            let mut status = json!({"schedulerObservedGeneration": held.generation});
            if let Some(group) = group {
                status["schedulerObservingAffinityName"] = json!(group);
            }
            Decision {
                status: Some(status),
                ..Decision::default()
            }
        }
        Outcome::Placed(result, triggered) => placed(now, held, &result, triggered, false),
        Outcome::Stuck(unplaceable) => stuck(now, held, &unplaceable),
    }
}

/// Where a binding goes, if that is to be asked.
pub(crate) fn outcome(held: &world::Binding, snapshot: &Snapshot) -> Outcome {
    let standing = standing_of(held, snapshot);
    match needed(&standing) {
        Need::Nothing => Outcome::Nothing,
        Need::Note => noted(held, snapshot),
        Need::Place(_) => placing(held, snapshot, standing.triggered),
    }
}

/// Only its generation is to be noted, unless the group that it is in is not told, and was edited since.
fn noted(held: &world::Binding, snapshot: &Snapshot) -> Outcome {
    let cluster = |name: &str| snapshot.get(name).map(AsRef::as_ref);
    let targets = &held.binding.spec.clusters;
    let Some(group) = observed(held).untold_group(targets, cluster) else {
        return Outcome::Note(None);
    };
    // A cluster may as well have left the group that is told: what is divided stays there, and in its group.
    let is_told = observed(held).group().is_some();
    if is_told && !is_placed_in(&group, &placing(held, snapshot, false)) {
        return Outcome::Note(None);
    }
    let mut told = held.clone();
    told.status.scheduler_observing_affinity_name = Some(group.clone());
    match needed(&standing_of(&told, snapshot)) {
        Need::Place(_) => placing(&told, snapshot, false),
        Need::Nothing | Need::Note => Outcome::Note(Some(group)),
    }
}

fn is_placed_in(group: &str, outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Placed(placed, _) if placed.group.as_deref() == Some(group))
}

/// Where it goes, or why it goes nowhere.
fn placing(held: &world::Binding, snapshot: &Snapshot, triggered: bool) -> Outcome {
    let binding = &held.binding;
    let rules = held.placement.as_ref().map(|it| Arc::clone(&it.rules));
    let demand = demand(&binding.spec, rules.unwrap_or_default());
    let previous = previous(&binding.spec, observed(held));
    match schedule(snapshot, &demand, Some(&previous)) {
        Ok(result) => Outcome::Placed(Box::new(result), triggered),
        Err(unplaceable) => Outcome::Stuck(Box::new(unplaceable)),
    }
}

fn observed(held: &world::Binding) -> Observed<'_> {
    Observed {
        generation: held.generation,
        deleting: held.binding.deleting,
        applied: held.applied.as_deref(),
        status: Some(&held.status),
    }
}

/// A cluster that is not there any more is one that was left too late: nobody may have looked while it went. Whoever asks
/// knows all of them (see [`super::Placing`]).
fn standing_of(held: &world::Binding, snapshot: &Snapshot) -> Standing {
    let leaving = |name: &str| snapshot.get(name).is_none_or(|cluster| cluster.leaving);
    standing(&held.binding.spec, observed(held), leaving)
}

/// Whether a binding still is as it was written with this placement.
fn is_as_written(ahead: &Ahead, held: &world::Binding) -> bool {
    let standing = standing_of(held, &Snapshot::default());
    let stands = !standing.placement_changed && !standing.replicas_changed;
    let idle = standing.deleting || standing.suspended || standing.follows || standing.triggered;
    stands
        && !idle
        && !ahead
            .placement
            .differs(&targets(&held.binding.spec.clusters))
}

/// A binding as it is to be written over what is `seen`: with its placement, if it can be placed at once.
pub(crate) fn write_over(
    wanted: &Binding,
    seen: Option<&world::Binding>,
    snapshot: &Snapshot,
) -> (Binding, Option<Ahead>) {
    let generation = seen.map_or(0, |seen| seen.generation);
    let status = seen.map(|seen| seen.status.clone()).unwrap_or_default();
    let mut wanted = world::Binding::new(wanted.clone(), generation, status);
    wanted.applied = seen.and_then(|seen| seen.applied.clone());
    let ahead = place(&mut wanted, snapshot);
    (wanted.binding, ahead)
}

/// Writes a placement into a binding that is about to be written, and what its status is to tell of that then; none
/// where it has to be placed as it is, or not at all.
pub(crate) fn place(wanted: &mut world::Binding, snapshot: &Snapshot) -> Option<Ahead> {
    let Outcome::Placed(placement, false) = outcome(wanted, snapshot) else {
        return None;
    };
    let text = placement_text(wanted);
    let moves = placement.differs(&targets(&wanted.binding.spec.clusters));
    if !moves && wanted.applied.as_deref() == Some(text) {
        return None;
    }
    let text = text.to_owned();
    if moves {
        wanted.binding.spec.clusters = target_clusters(&placement.targets);
    }
    let annotations = &mut wanted.binding.annotations;
    annotations.insert(APPLIED_PLACEMENT.to_owned(), text);
    Some(Ahead {
        placement: *placement,
        moves,
        generation: wanted.generation,
    })
}

/// What is to be told of a binding that was written with its placement; none where it is told, or is no longer so.
pub(super) fn said(now: DateTime<Utc>, held: &world::Binding, ahead: &Ahead) -> Option<Said> {
    let said = is_as_written(ahead, held)
        .then(|| telling(now, held, &ahead.placement, false, ahead.moves))?;
    (said.status != held.status).then_some(said)
}

/// A placement as the annotation has it.
fn placement_text(held: &world::Binding) -> &str {
    held.placement.as_ref().map_or("null", |it| &it.text)
}

/// It is placed, because somebody asked for that if `triggered`; `moved` says whether it was written elsewhere before.
fn placed(
    now: DateTime<Utc>,
    held: &world::Binding,
    result: &Placement,
    triggered: bool,
    moved: bool,
) -> Decision {
    let binding = &held.binding;
    let applied = placement_text(held);
    let moves = result.differs(&targets(&binding.spec.clusters));
    let mut patch = json!({});
    if moves {
        patch["spec"] = json!({"clusters": target_clusters(&result.targets)});
    }
    if held.applied.as_deref() != Some(applied) {
        patch["metadata"]["annotations"] = json!({APPLIED_PLACEMENT: applied});
    }
    let writes = patch != json!({});
    if writes {
        patch["metadata"]["resourceVersion"] = json!(binding.resource_version);
    }
    let moves = moves || moved;
    let said = telling(now, held, result, triggered, moves);
    let is_news = said.status != held.status || moves || triggered;
    let ahead = || Ahead {
        placement: result.clone(),
        moves,
        generation: held.generation,
    };
    Decision {
        ahead: writes.then(ahead),
        patch: writes.then_some(patch),
        status: is_news.then(|| patch_of(&said.status)),
        placed: true,
        numbers_only: false,
        waits_for: None,
        events: said.events,
    }
}

/// What its status tells then; `moves` says whether it goes elsewhere.
fn telling(
    now: DateTime<Utc>,
    held: &world::Binding,
    result: &Placement,
    triggered: bool,
    moves: bool,
) -> Said {
    let (binding, status) = (&held.binding, &held.status);
    let mut wanted = status.clone();
    let message = "Binding has been scheduled successfully.";
    let condition = conditions::new(SCHEDULED, true, "Success", message, now);
    conditions::set(&mut wanted.conditions, condition, now);
    wanted.scheduler_observed_generation = Some(held.generation);
    if let Some(group) = &result.group {
        wanted.scheduler_observing_affinity_name = Some(group.to_string());
    }
    let is_new = status.last_scheduled_time.is_none() && wanted != *status;
    if moves || triggered || is_new {
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
    Said {
        status: wanted,
        events,
    }
}

fn stuck(now: DateTime<Utc>, held: &world::Binding, unplaceable: &Unplaceable) -> Decision {
    let (binding, status) = (&held.binding, &held.status);
    let applied = placement_text(held);
    let mut patch = json!({});
    if !same_targets(&unplaceable.kept, &targets(&binding.spec.clusters)) {
        patch["spec"] = json!({"clusters": target_clusters(&unplaceable.kept)});
    }
    // That no cluster fits is an answer to this placement; other failures may pass.
    let answered = unplaceable.first.cause == Cause::NoFit;
    if answered && held.applied.as_deref() != Some(applied) {
        patch["metadata"]["annotations"] = json!({APPLIED_PLACEMENT: applied});
    }
    let patch = (patch != json!({})).then(|| {
        patch["metadata"]["resourceVersion"] = json!(binding.resource_version);
        patch
    });
    let message = unplaceable.to_string();
    let mut wanted = status.clone();
    let mut condition = conditions::new(SCHEDULED, false, unplaceable.reason(), &message, now);
    condition.observed_generation = Some(held.generation);
    let said = conditions::get(&status.conditions, SCHEDULED);
    let numbers_only = patch.is_none() && said.is_some_and(|said| in_numbers(said, &condition));
    let is_told = said.is_some_and(|said| tells_as_much(said, &condition));
    let changed = conditions::set(&mut wanted.conditions, condition, now);
    let mut events = Vec::new();
    if !is_told {
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
        ahead: None,
        numbers_only,
        waits_for: Some(unplaceable.waits_for()),
        events,
    }
}

/// Whether two conditions say the same, maybe of other generations.
fn tells_as_much(one: &Condition, other: &Condition) -> bool {
    (&one.status, &one.reason, &one.message) == (&other.status, &other.reason, &other.message)
}

/// Whether two conditions differ, and in nothing but words of their messages that are numbers.
fn in_numbers(one: &Condition, other: &Condition) -> bool {
    (&one.status, &one.reason) == (&other.status, &other.reason)
        && one.observed_generation == other.observed_generation
        && one.message != other.message
        && wording(&one.message).eq(wording(&other.message))
}

/// The words of a message; none for those that are numbers, as `3` or `0/12`.
fn wording(message: &str) -> impl Iterator<Item = Option<&str>> {
    message.split(' ').map(|word| {
        let is_number = word.bytes().all(|it| it.is_ascii_digit() || it == b'/');
        (!is_number).then_some(word)
    })
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
