//! What ends by itself: Events an hour after the last word about them, and Pods that were to end.

use super::{context_of, warn};
use crate::apiserver::registry::Registry;
use crate::apiserver::request::{DeleteOptions, Preconditions};
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use std::time::Duration;

const EVENTS: &str = "/events";
const TTL: TimeDelta = TimeDelta::hours(1);
const EVERY: Duration = Duration::from_secs(60);
const PODS: &str = "/pods";
/// Who waits for a Pod to end has seen it by then: a real server waits as long for a node that is gone.
const AFTER: TimeDelta = TimeDelta::seconds(40);

pub(super) async fn run(registry: Registry) {
    loop {
        tokio::time::sleep(EVERY).await;
        let now = registry.clock().now();
        sweep(&registry, EVENTS, "events", None, |one| is_over(one, now)).await;
        // Nobody runs Pods here, and so nobody says that one has ended.
        sweep(&registry, PODS, "pods", Some(0), |one| has_ended(one, now)).await;
    }
}

/// Deletes those objects of a core kind of which it is time.
async fn sweep(
    registry: &Registry,
    storage_key: &str,
    plural: &str,
    grace_period_seconds: Option<i64>,
    due: impl Fn(&Value) -> bool,
) {
    let Some(resource) = registry.scheme().resource("", "v1", plural) else {
        return;
    };
    let snapshot = registry.store().snapshot(storage_key);
    for stored in snapshot.table.iter() {
        if !due(&stored.metadata()) {
            continue;
        }
        let context = context_of(resource.clone(), stored, "");
        let options = DeleteOptions {
            preconditions: Preconditions {
                uid: None,
                resource_version: Some(stored.revision().to_string()),
            },
            grace_period_seconds,
            ..DeleteOptions::default()
        };
        if let Err(error) = registry.delete(&context, options).await {
            warn("deletion of what has ended", &error);
        }
    }
}

/// Whether an object was to be gone by now, and nothing else keeps it.
fn has_ended(metadata: &Value, now: DateTime<Utc>) -> bool {
    let held = metadata["finalizers"].as_array();
    let end = metadata["deletionTimestamp"].as_str();
    let end = end.and_then(|end| DateTime::parse_from_rfc3339(end).ok());
    held.is_none_or(Vec::is_empty) && end.is_some_and(|end| end.with_timezone(&Utc) + AFTER <= now)
}

/// Whether the server last heard of an event too long ago. Only times that it wrote itself count.
fn is_over(metadata: &Value, now: DateTime<Utc>) -> bool {
    let entries = metadata["managedFields"].as_array();
    let times = entries.into_iter().flatten().map(|entry| &entry["time"]);
    let last = times
        .chain([&metadata["creationTimestamp"]])
        .filter_map(|time| DateTime::parse_from_rfc3339(time.as_str()?).ok())
        .map(|time| time.with_timezone(&Utc))
        .max();
    last.is_some_and(|last| last + TTL <= now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_to_end_goes_unless_it_is_held() {
        let now = DateTime::from_timestamp(100, 0).expect("in range");
        let pod = |end: Value, finalizers: Value| json!({"deletionTimestamp": end, "finalizers": finalizers});
        assert!(has_ended(
            &pod(json!("1970-01-01T00:01:00Z"), Value::Null),
            now
        ));
        assert!(!has_ended(
            &pod(json!("1970-01-01T00:01:01Z"), Value::Null),
            now
        ));
        assert!(!has_ended(&pod(Value::Null, Value::Null), now));
        assert!(!has_ended(
            &pod(json!("1970-01-01T00:01:00Z"), json!(["a/b"])),
            now
        ));
    }

    #[test]
    fn the_last_write_counts() {
        let now = DateTime::from_timestamp(7200, 0).expect("in range");
        let event = |created: &str, written: &str| json!({"creationTimestamp": created, "managedFields": [{"time": written}]});
        let (early, late) = ("1970-01-01T00:30:00Z", "1970-01-01T01:30:00Z");
        assert!(is_over(&event(early, early), now));
        assert!(!is_over(&event(early, late), now));
        assert!(!is_over(&json!({}), now));
    }
}
