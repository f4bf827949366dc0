//! Kinds that run to an end: Jobs, and what starts them.
//!
//! An API server refuses a Job that ended without saying why it was going to (`SuccessCriteriaMet`,
//! `FailureTarget`), without a start, or while Pods are active. What the reference writes at the end is refused so,
//! and its Jobs never end; here the end is written when it can be. It also refuses that a Job has fewer failed or
//! succeeded Pods than it had, and that it takes back what it was going to end as. Members come and go, so both are
//! kept: what a member did stays done when the Job has moved on.

use super::{Seen, Status, count, list, number, set, text, words};
use serde_json::{Value, json};

/// None once it has ended: an end is final.
pub(super) fn job(seen: &Seen<'_>) -> Option<Status> {
    let before = Value::Object(seen.before.clone());
    if has(&before, "Complete") || has(&before, "Failed") {
        return None;
    }
    let mut status = Status::new();
    set(&mut status, "active", seen.sum("active"), false);
    for key in ["succeeded", "failed"] {
        let known = count(&before, key);
        set(&mut status, key, seen.sum(key).max(known), false);
    }
    let failed: Vec<&str> = seen
        .reflected()
        .filter(|(_, reflected)| has(reflected, "Failed"))
        .map(|(cluster, _)| cluster)
        .collect();
    let complete = !seen.items.is_empty() && each(seen, |reflected| has(reflected, "Complete"));
    let ended = number(&Value::Object(status.clone()), "active") == 0;
    let mut conditions = Vec::new();
    let (target, met) = (
        held(&before, "FailureTarget"),
        held(&before, "SuccessCriteriaMet"),
    );
    if met.is_none() && !failed.is_empty() {
        let message = format!(
            "Job executed failed in member clusters {}",
            failed.join(",")
        );
        let mut add =
            |kind| conditions.push(condition(seen, "Failed", kind, "JobFailed", &message));
        add("FailureTarget");
        if ended {
            add("Failed");
        }
    } else if let Some(target) = target {
        // Who failed has left.
        conditions.push(target.clone());
        if ended {
            conditions.push(with_type(target, "Failed"));
        }
    } else if complete && ended {
        let message = "All member clusters have met success criteria";
        let reason = "CompletionsReached";
        let new = || condition(seen, "Complete", "SuccessCriteriaMet", reason, message);
        conditions.push(met.cloned().unwrap_or_else(new));
        let (reason, message) = ("Completed", "Job completed");
        conditions.push(condition(seen, "Complete", "Complete", reason, message));
        let times = seen.reflected();
        let times = times.filter_map(|(_, it)| words::time(it, "completionTime"));
        let times = times.chain([last_change(seen, "Complete")]);
        // Clocks differ, and an API server takes no end before the start.
        let began = start(seen, true).and_then(|it| it.as_str().map(str::to_owned));
        let time = times.chain(began).max();
        status.insert("completionTime".to_owned(), json!(time));
    } else {
        conditions.extend(met.cloned());
    }
    if let Some(start) = start(seen, !conditions.is_empty()) {
        status.insert("startTime".to_owned(), start);
    }
    if !conditions.is_empty() {
        status.insert("conditions".to_owned(), Value::Array(conditions));
    }
    Some(status)
}

fn each(seen: &Seen<'_>, is: impl Fn(&Value) -> bool) -> bool {
    let mut items = seen.items.iter();
    items.all(|item| item.status.as_ref().is_some_and(&is))
}

/// When it began: kept once it is known; the earliest time once every member has one, or at its end.
fn start(seen: &Seen<'_>, at_its_end: bool) -> Option<Value> {
    if let Some(start) = seen.before.get("startTime").filter(|it| it.is_string()) {
        return Some(start.clone());
    }
    let known = |reflected: &Value| words::time(reflected, "startTime").is_some();
    if !at_its_end && !each(seen, known) {
        return None;
    }
    let times = seen.reflected();
    let times = times.filter_map(|(_, it)| words::time(it, "startTime"));
    Some(times.min()?.into())
}

fn has(status: &Value, kind: &str) -> bool {
    held(status, kind).is_some()
}

/// A condition that is true.
fn held<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    let mut conditions = list(status, "conditions").iter();
    conditions.find(|it| text(it, "type") == kind && text(it, "status") == "True")
}

/// The same condition by another name.
fn with_type(of: &Value, kind: &str) -> Value {
    let mut condition = of.clone();
    condition["type"] = kind.into();
    condition
}

/// When the last member came to it, by its own clock.
fn last_change(seen: &Seen<'_>, kind: &str) -> String {
    let conditions = seen.reflected().flat_map(|(_, it)| list(it, "conditions"));
    let times = conditions
        .filter(|it| text(it, "type") == kind)
        .filter_map(|it| words::time(it, "lastTransitionTime"));
    let last = times.max();
    last.unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned())
}

fn condition(seen: &Seen<'_>, from: &str, kind: &str, reason: &str, message: &str) -> Value {
    let time = last_change(seen, from);
    json!({"type": kind, "status": "True", "reason": reason, "message": message,
        "lastProbeTime": time, "lastTransitionTime": time})
}

pub(super) fn cron_job(seen: &Seen<'_>) -> Status {
    let mut status = seen.before.clone();
    let active: Vec<Value> = seen
        .reflected()
        .flat_map(|(_, reflected)| words::objects(reflected, "active"))
        .map(words::reference)
        .collect();
    status.remove("active");
    if !active.is_empty() {
        status.insert("active".to_owned(), Value::Array(active));
    }
    for key in ["lastScheduleTime", "lastSuccessfulTime"] {
        let own = seen.before.get(key).and_then(Value::as_str);
        let times = seen.reflected();
        let times = times.filter_map(|(_, reflected)| words::time(reflected, key));
        if let Some(time) = times.chain(own.map(str::to_owned)).max() {
            status.insert(key.to_owned(), time.into());
        }
    }
    status
}
