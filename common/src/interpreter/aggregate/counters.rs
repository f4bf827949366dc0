//! Kinds whose status is numbers: those of all members are added up.

use super::{Seen, Status, count, number, set, words};
use serde_json::{Map, Value};

/// A number of a status, and whether Kubernetes shows it when it is zero.
type Counter = (&'static str, bool);

pub(super) fn deployment(seen: &Seen<'_>) -> Status {
    let counters = [
        ("replicas", false),
        ("updatedReplicas", false),
        ("readyReplicas", false),
        ("availableReplicas", false),
        ("unavailableReplicas", false),
    ];
    workload(seen, &counters)
}

pub(super) fn replica_set(seen: &Seen<'_>) -> Status {
    let counters = [
        ("replicas", true),
        ("readyReplicas", false),
        ("availableReplicas", false),
    ];
    workload(seen, &counters)
}

pub(super) fn daemon_set(seen: &Seen<'_>) -> Status {
    let counters = [
        ("currentNumberScheduled", true),
        ("numberMisscheduled", true),
        ("desiredNumberScheduled", true),
        ("numberReady", true),
        ("updatedNumberScheduled", false),
        ("numberAvailable", false),
        ("numberUnavailable", false),
    ];
    workload(seen, &counters)
}

pub(super) fn stateful_set(seen: &Seen<'_>) -> Status {
    let counters = [
        ("replicas", true),
        ("availableReplicas", true),
        ("readyReplicas", false),
        ("currentReplicas", false),
        ("updatedReplicas", false),
    ];
    workload(seen, &counters)
}

/// Adds up; the rest of the status stays. `observedGeneration` follows once every member has observed the
/// template's generation, which it says by that of its own object and by the one that its manifest carried.
fn workload(seen: &Seen<'_>, counters: &[Counter]) -> Status {
    let mut status = seen.before.clone();
    for (key, shows_zero) in counters {
        let counts = seen.reflected().map(|(_, status)| within(status, key));
        set(
            &mut status,
            key,
            counts.fold(0, i64::saturating_add),
            *shows_zero,
        );
    }
    let metadata = seen.template.get("metadata");
    let generation = metadata.map_or(0, |it| number(it, "generation"));
    let is_current = |reflected: &Value| {
        number(reflected, "observedGeneration") >= number(reflected, "generation")
            && number(reflected, "resourceTemplateGeneration") >= generation
    };
    let observed = seen
        .items
        .iter()
        .all(|item| item.status.as_ref().is_some_and(is_current));
    if observed && generation > 0 {
        status.insert("observedGeneration".to_owned(), generation.into());
    }
    status
}

/// A number of one member, not above what it is a part of: an API server refuses a status in which more replicas
/// are available than ready, or ready than there, and one member's would keep out those of all.
fn within(reflected: &Value, key: &str) -> i64 {
    let whole = match key {
        "readyReplicas" | "updatedReplicas" | "currentReplicas" => "replicas",
        "availableReplicas" => "readyReplicas",
        _ => return count(reflected, key),
    };
    count(reflected, key).min(within(reflected, whole))
}

pub(super) fn disruption_budget(seen: &Seen<'_>) -> Status {
    let mut status = Status::new();
    let mut disrupted = Map::new();
    for (cluster, reflected) in seen.reflected() {
        let pods = reflected.get("disruptedPods").and_then(Value::as_object);
        let Some(pods) = pods else { continue };
        for pod in pods.keys() {
            if let Some(time) = words::time(&reflected["disruptedPods"], pod) {
                disrupted.insert(format!("{cluster}/{pod}"), time.into());
            }
        }
    }
    if !disrupted.is_empty() {
        status.insert("disruptedPods".to_owned(), Value::Object(disrupted));
    }
    for key in [
        "disruptionsAllowed",
        "currentHealthy",
        "desiredHealthy",
        "expectedPods",
    ] {
        set(&mut status, key, seen.sum(key), true);
    }
    status
}

pub(super) fn autoscaler(seen: &Seen<'_>, shows_zero: bool) -> Status {
    let mut status = Status::new();
    set(
        &mut status,
        "currentReplicas",
        seen.sum("currentReplicas"),
        shows_zero,
    );
    set(
        &mut status,
        "desiredReplicas",
        seen.sum("desiredReplicas"),
        true,
    );
    status
}
