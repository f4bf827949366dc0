//! What ends by itself: Events an hour after the last word about them, Pods that were to end, and certificate
//! requests that nobody needs any more.

use super::{Failed, certificates, context_of};
use crate::apiserver::registry::Registry;
use crate::apiserver::request::{DeleteOptions, Preconditions};
use crate::apiserver::store::Stored;
use chrono::{DateTime, TimeDelta, Utc};
use common::controller::{Controller, Failure as _, Reconcile, Requeue};
use common::queue::Queue;
use serde_json::Value;
use std::fmt;
use std::future::pending;
use std::time::Duration;

const TTL: TimeDelta = TimeDelta::hours(1);
const EVERY: Duration = Duration::from_secs(60);
/// Who waits for a Pod to end has seen it by then: a real server waits as long for a node that is gone.
const AFTER: TimeDelta = TimeDelta::seconds(40);

/// A kind of what ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Ending {
    Events,
    Pods,
    Requests,
}

impl Ending {
    /// Group and plural.
    fn resource(self) -> (&'static str, &'static str) {
        match self {
            Self::Events => ("", "events"),
            Self::Pods => ("", "pods"),
            Self::Requests => ("certificates.k8s.io", "certificatesigningrequests"),
        }
    }

    fn is_over(self, stored: &Stored, now: DateTime<Utc>) -> bool {
        match self {
            Self::Events => is_over(&stored.metadata(), now),
            // Nobody runs Pods here, and so nobody says that one has ended.
            Self::Pods => has_ended(&stored.metadata(), now),
            Self::Requests => certificates::is_over(&stored.value(), now),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resource().1)
    }
}

/// Deletes what has ended.
pub(super) struct Expiry(Registry);

pub(super) fn controller(registry: &Registry) -> Controller<Expiry> {
    Controller::new(Expiry(registry.clone())).source(|queue: Queue<Ending>| async move {
        let all = [Ending::Events, Ending::Pods, Ending::Requests];
        all.into_iter()
            .for_each(|kind| queue.add_after(kind, EVERY));
        pending::<()>().await;
    })
}

impl Reconcile for Expiry {
    const NAME: &'static str = "expiry-controller";
    type Key = Ending;
    type Error = Failed;

    async fn reconcile(&self, kind: &Ending) -> Result<Requeue, Failed> {
        let Self(registry) = self;
        let (group, plural) = kind.resource();
        let Some(resource) = registry.scheme().resource(group, "v1", plural) else {
            return Ok(Requeue::Never);
        };
        let now = registry.clock().now();
        let snapshot = registry.store().snapshot(&resource.storage_key);
        // One that cannot be deleted keeps none of the others.
        let mut failed = None;
        for stored in snapshot.table.iter() {
            if !kind.is_over(stored, now) {
                continue;
            }
            let context = context_of(resource.clone(), stored, "");
            let options = DeleteOptions {
                preconditions: Preconditions {
                    uid: None,
                    resource_version: Some(stored.revision().to_string()),
                },
                grace_period_seconds: (*kind == Ending::Pods).then_some(0),
                ..DeleteOptions::default()
            };
            let deleted = registry.delete(&context, options).await;
            let error = deleted.map_err(Failed::to("delete what has ended")).err();
            // Whoever was faster changed it, and it is looked at in its turn.
            failed = error.filter(|error| !error.is_conflict()).or(failed);
        }
        match failed {
            Some(error) => Err(error),
            None => Ok(Requeue::After(EVERY)),
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

/// Whether the server last heard of an event too long ago. Only times that it wrote itself count: no write gets a
/// later one (`managed::track`), and one that lies ahead all the same is of a store from before that was so.
fn is_over(metadata: &Value, now: DateTime<Utc>) -> bool {
    let read = |time: &Value| {
        let time = DateTime::parse_from_rfc3339(time.as_str()?).ok()?;
        Some(time.with_timezone(&Utc))
    };
    let entries = metadata["managedFields"].as_array().into_iter().flatten();
    let written = entries.filter_map(|entry| read(&entry["time"]));
    let last = written
        .filter(|time| *time <= now)
        .chain(read(&metadata["creationTimestamp"]))
        .max();
    last.is_some_and(|last| last + TTL <= now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::registry::testing::Rig;
    use crate::apiserver::request::PatchKind;
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
        // Of a time to come nobody has heard; an event that is new is not over for it.
        let far = "2999-01-01T00:00:00Z";
        assert!(is_over(&event(early, far), now));
        assert!(!is_over(&event(late, far), now));
    }

    #[tokio::test]
    async fn no_writer_says_when_an_event_ends() {
        let rig = Rig::new().await;
        let claimed = json!([{"apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:action": {}},
            "manager": "towline-agent", "operation": "Update", "time": "2999-01-01T00:00:00Z"}]);
        let event = |name: &str, claimed: &Value| {
            json!({"metadata": {"name": name, "namespace": "ns", "managedFields": claimed},
                "involvedObject": {"namespace": "ns"}, "message": name})
        };
        let (all, changed) = ("v1/ns:events", "v1/ns:events/changed");
        let made = rig.create(all, event("made", &claimed)).await;
        let by_put = rig.update("v1/ns:events/put", event("put", &claimed)).await;
        rig.create(all, event("changed", &Value::Null)).await;
        let put = rig.update(changed, event("changed", &claimed)).await;
        let patch = json!({"metadata": {"managedFields": claimed}, "message": "again"});
        rig.patch(changed, PatchKind::Merge, patch)
            .await
            .expect("patched");
        let patched = rig.get(changed).await.expect("there");
        let later = rig.registry.clock().now() + TTL;
        for event in [
            made,
            by_put.expect("made by a PUT"),
            put.expect("changed"),
            patched,
        ] {
            let text = event.to_string();
            assert!(
                text.contains("towline-agent") && !text.contains("2999-01-01T"),
                "{text}"
            );
            assert!(is_over(&event["metadata"], later), "{text}");
        }
    }
}
