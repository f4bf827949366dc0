//! Events live for an hour after the last word about them.

use super::{context_of, warn};
use crate::apiserver::registry::{DeleteOptions, Preconditions, Registry};
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use std::time::Duration;

const EVENTS: &str = "/events";
const TTL: TimeDelta = TimeDelta::hours(1);
const EVERY: Duration = Duration::from_secs(60);

pub(super) async fn run(registry: Registry) {
    loop {
        tokio::time::sleep(EVERY).await;
        let now = registry.clock().now();
        let snapshot = registry.store().snapshot(EVENTS);
        let Some(resource) = registry.catalogue().resource("", "v1", "events") else {
            continue;
        };
        for stored in snapshot.table.iter() {
            if !is_over(&stored.metadata(), now) {
                continue;
            }
            let context = context_of(resource.clone(), stored, "");
            let options = DeleteOptions {
                preconditions: Preconditions {
                    uid: None,
                    resource_version: Some(stored.revision().to_string()),
                },
                ..DeleteOptions::default()
            };
            if let Err(error) = registry.delete(&context, options).await {
                warn("deletion of an old event", &error);
            }
        }
    }
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
    fn the_last_write_counts() {
        let now = DateTime::from_timestamp(7200, 0).expect("in range");
        let event = |created: &str, written: &str| json!({"creationTimestamp": created, "managedFields": [{"time": written}]});
        let (early, late) = ("1970-01-01T00:30:00Z", "1970-01-01T01:30:00Z");
        assert!(is_over(&event(early, early), now));
        assert!(!is_over(&event(early, late), now));
        assert!(!is_over(&json!({}), now));
    }
}
