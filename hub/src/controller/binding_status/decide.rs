//! What is to be written of what members say.
//!
//! Pure. Nothing is written as long as no member has said anything and the template was not changed since it was
//! placed: that it is not applied yet is seen by the absence of the condition.

use super::bound::{beside, bound};
use super::collect::Work;
use crate::propagation::{Binding, Notice};
use chrono::{DateTime, Utc};
use common::api::binding::{AggregatedStatusItem, FULLY_APPLIED, ResourceBindingStatus};
use common::api::policy::PurgeMode;
use common::conditions;
use common::interpreter::aggregate::is_same;
use common::merge::difference;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The condition of a binding while its template's status cannot be made of what members say, or an API server does not
/// take what was made.
pub const AGGREGATED: &str = "StatusAggregated";
/// Why, in one word; also that of the event.
pub const NOT_AGGREGATED: &str = "AggregateStatusFailed";
/// Why, in one word, where it was made and an API server does not take it.
pub const REFUSED: &str = "AggregateStatusRefused";
/// Most of what it tells, in bytes.
const TOLD: usize = 1024;

/// What was seen around one binding.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// The binding.
    pub binding: Binding,
    /// Its status until now.
    pub status: ResourceBindingStatus,
    /// Its Works.
    pub works: Vec<Work>,
    /// What the template's status is, and what it becomes by the rules of its kind (see
    /// [`common::interpreter::aggregate`]) from what [`super::expected()`] gives; the error says why nobody knows.
    /// None when there is no rule, or no template any more.
    pub template: Option<(Value, Result<Value, String>)>,
    /// Whether something happened since it was placed that is to be answered (see [`is_stirring`]), or a Work was
    /// deleted.
    pub stirred: bool,
    /// Whether an API server has just taken the template's status as it was wanted, whatever it made of it.
    pub taken: bool,
}

/// What is to be written; at rest it is all empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// The binding's status as it is to be.
    pub status: Option<ResourceBindingStatus>,
    /// The template's status as it is to be.
    pub template: Option<Value>,
    /// Events on the binding, told once it is written.
    pub events: Vec<Notice>,
    /// Events on the template, told once it is written.
    pub template_events: Vec<Notice>,
    /// Whether to look again once the template's status is written: what is told of its refusal goes then.
    pub again: bool,
}

impl Decision {
    /// The merge patch of the binding's `status`; none when nothing is to be written. It carries the version that
    /// was seen, for others write conditions too.
    pub fn status_patch(&self, seen: &Observed) -> Result<Option<Value>, serde_json::Error> {
        let Some(wanted) = &self.status else {
            return Ok(None);
        };
        let (before, after) = (
            serde_json::to_value(&seen.status)?,
            serde_json::to_value(wanted)?,
        );
        let version = &seen.binding.resource_version;
        let patch = difference(&before, &after);
        Ok(patch.map(|it| json!({"metadata": {"resourceVersion": version}, "status": it})))
    }

    /// The merge patch of the template's `status`; none when nothing is to be written.
    pub fn template_patch(&self, seen: &Observed) -> Option<Value> {
        let (before, _) = seen.template.as_ref()?;
        let before = if before.is_object() {
            before.clone()
        } else {
            json!({})
        };
        let patch = difference(&before, self.template.as_ref()?)?;
        Some(json!({ "status": patch }))
    }
}

/// Whether a change of a binding is answered though no member has said anything: its template was changed after
/// it was placed.
pub fn is_stirring(old: &Binding, new: &Binding, was_placed: bool) -> bool {
    let version = |binding: &Binding| binding.spec.resource.resource_version.clone();
    was_placed && version(old) != version(new)
}

/// What is to be written about one binding, from `items` as [`super::collect()`] gave them.
pub fn decide(now: DateTime<Utc>, seen: &Observed, items: &[AggregatedStatusItem]) -> Decision {
    decide_failing(now, seen, items, NOT_AGGREGATED)
}

/// The same, with the reason that is told where there is an error in place of the template's status.
fn decide_failing(
    now: DateTime<Utc>,
    seen: &Observed,
    items: &[AggregatedStatusItem],
    reason_of_error: &str,
) -> Decision {
    let told = !seen.status.aggregated_status.is_empty()
        || conditions::get(&seen.status.conditions, FULLY_APPLIED).is_some();
    let reported = seen.works.iter().any(|it| !it.deleting && it.is_reported());
    if seen.binding.deleting || !(told || reported || seen.stirred) {
        return Decision::default();
    }
    let mut status = seen.status.clone();
    status.aggregated_status = items.to_vec();
    bound(&mut status.aggregated_status, beside(&seen.binding));
    let applied = is_applied(&seen.binding, items);
    let (reason, message) = if applied {
        (
            "FullyAppliedSuccess",
            "All works have been successfully applied",
        )
    } else {
        (
            "FullyAppliedFailed",
            "Failed to apply all works, see status.aggregatedStatus for details",
        )
    };
    let condition = conditions::new(FULLY_APPLIED, applied, reason, message, now);
    conditions::set(&mut status.conditions, condition, now);
    let mut decision = Decision::default();
    match &seen.template {
        Some((_, Err(error))) => {
            let end = error.floor_char_boundary(TOLD);
            let told = conditions::new(AGGREGATED, false, reason_of_error, &error[..end], now);
            let before = conditions::get(&status.conditions, AGGREGATED);
            if before.is_none_or(|it| it.message != told.message) {
                let notice = Notice::warning(NOT_AGGREGATED, error.as_str());
                decision.events.push(notice.clone());
                decision.template_events.push(notice);
            }
            conditions::set(&mut status.conditions, told, now);
        }
        // A hub that was just started does not know the words any more. Whether it is still refused shows once it is
        // written; until then nobody is told that all is well.
        Some((before, Ok(after)))
            if !seen.taken && !is_same(before, after) && is_told_refused(&status) =>
        {
            decision.again = true;
        }
        _ => status.conditions.retain(|it| it.type_ != AGGREGATED),
    }
    if status != seen.status {
        decision.events.push(Notice::normal(
            "AggregateStatusSucceed",
            updated(&seen.binding),
        ));
        decision.status = Some(status);
    }
    match &seen.template {
        Some((before, Ok(after))) if !is_same(before, after) => {
            let message = "Update Resource with AggregatedStatus successfully.";
            let notice = Notice::normal("AggregateStatusSucceed", message);
            decision.template_events.push(notice);
            decision.template = Some(after.clone());
        }
        _ => {}
    }
    decision
}

/// The same while an API server refuses the template's status, in these words: they are told, and it is to be written
/// all the same, for it may be another one by now, or the definition of its kind.
pub fn decide_refused(
    now: DateTime<Utc>,
    seen: &Observed,
    items: &[AggregatedStatusItem],
    words: &str,
) -> Decision {
    let wanted = decide(now, seen, items);
    if wanted.template.is_none() {
        return wanted;
    }
    let mut seen = seen.clone();
    if let Some((_, after)) = &mut seen.template {
        *after = Err(words.to_owned());
    }
    Decision {
        template: wanted.template,
        // Who looks at the template sees that it does not change; these would be told once it does.
        template_events: Vec::new(),
        ..decide_failing(now, &seen, items, REFUSED)
    }
}

/// Whether a binding tells that an API server refused its template's status.
fn is_told_refused(status: &ResourceBindingStatus) -> bool {
    conditions::get(&status.conditions, AGGREGATED).is_some_and(|it| it.reason == REFUSED)
}

/// Whether every member that the template was given to, or that it has not left yet, has it; and nobody else.
fn is_applied(binding: &Binding, items: &[AggregatedStatusItem]) -> bool {
    let spec = &binding.spec;
    let required = spec.required_by.iter().flat_map(|it| &it.clusters);
    let given = spec
        .clusters
        .iter()
        .chain(required)
        .map(|it| it.name.as_str());
    let leaving = spec.graceful_eviction_tasks.iter();
    let leaving = leaving.filter(|it| it.purge_mode != Some(PurgeMode::Directly));
    let targets: BTreeSet<&str> = given
        .chain(leaving.map(|it| it.from_cluster.as_str()))
        .collect();
    let applied = items.iter().filter(|item| item.applied == Some(true));
    let applied: BTreeSet<&str> = applied.map(|item| item.cluster_name.as_str()).collect();
    !targets.is_empty() && items.len() == targets.len() && applied == targets
}

fn updated(binding: &Binding) -> String {
    let kind = binding.kind();
    let name = match &binding.namespace {
        Some(namespace) => format!("{namespace}/{}", binding.name),
        None => binding.name.clone(),
    };
    format!("Update {kind}({name}) with AggregatedStatus successfully.")
}
