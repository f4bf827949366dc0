//! One status of a template out of what its members reflect.
//!
//! Pure. A rule writes what a real API server would give back, zeros and defaults included, so that what was
//! written once is not found to differ for ever. What a member reflects is its own word: whatever has the wrong
//! shape counts as absent, and sums cannot overflow.

mod addresses;
mod counters;
mod jobs;
mod phases;
#[cfg(test)]
mod tests;
mod words;

use crate::api::binding::AggregatedStatusItem;
use crate::gvk::Gvk;
use serde_json::{Map, Value};

type Status = Map<String, Value>;

/// The status of a template, from itself and from one item a member, in the order of their names. None when no
/// rule is known for its kind, or when the rule has nothing to say about this object; the status then stays.
pub fn aggregate(gvk: &Gvk, template: &Value, items: &[AggregatedStatusItem]) -> Option<Value> {
    let before = template.get("status").and_then(Value::as_object);
    let seen = Seen {
        template,
        before: before.cloned().unwrap_or_default(),
        items,
    };
    let kind = (gvk.group.as_str(), gvk.version.as_str(), gvk.kind.as_str());
    let status = match kind {
        ("apps", "v1", "Deployment") => counters::deployment(&seen),
        ("apps", "v1", "ReplicaSet") => counters::replica_set(&seen),
        ("apps", "v1", "DaemonSet") => counters::daemon_set(&seen),
        ("apps", "v1", "StatefulSet") => counters::stateful_set(&seen),
        ("policy", "v1", "PodDisruptionBudget") => counters::disruption_budget(&seen),
        ("autoscaling", version, "HorizontalPodAutoscaler") => {
            counters::autoscaler(&seen, version == "v1")
        }
        ("", "v1", "Service") => addresses::service(&seen)?,
        ("networking.k8s.io", "v1", "Ingress") => addresses::ingress(&seen),
        ("batch", "v1", "Job") => jobs::job(&seen)?,
        ("batch", "v1", "CronJob") => jobs::cron_job(&seen),
        ("", "v1", "Pod") => phases::pod(&seen),
        ("", "v1", "PersistentVolume") => phases::volume(&seen),
        ("", "v1", "PersistentVolumeClaim") => phases::claim(&seen),
        _ => return None,
    };
    Some(Value::Object(status))
}

/// Whether two statuses say the same: a null says nothing.
pub fn is_same(a: &Value, b: &Value) -> bool {
    let said = |value: &Value| {
        let map = value.as_object().cloned().unwrap_or_default();
        map.into_iter()
            .filter(|(_, value)| !value.is_null())
            .collect::<Status>()
    };
    said(a) == said(b)
}

/// What a rule looks at.
struct Seen<'a> {
    template: &'a Value,
    /// The template's status until now.
    before: Status,
    items: &'a [AggregatedStatusItem],
}

impl Seen<'_> {
    /// What members reflect, with their names; those that reflect nothing are left out.
    fn reflected(&self) -> impl Iterator<Item = (&str, &Value)> {
        let items = self.items.iter();
        items.filter_map(|item| Some((item.cluster_name.as_str(), item.status.as_ref()?)))
    }

    /// What one number of every member adds up to.
    fn sum(&self, key: &str) -> i64 {
        let counts = self.reflected().map(|(_, status)| count(status, key));
        counts.fold(0, i64::saturating_add)
    }

    /// What of the status until now others write.
    fn keep(&self, keys: &[&str]) -> Status {
        let mut kept = Status::new();
        for key in keys {
            if let Some(value) = self.before.get(*key) {
                kept.insert((*key).to_owned(), value.clone());
            }
        }
        kept
    }
}

fn number(of: &Value, key: &str) -> i64 {
    of.get(key).and_then(Value::as_i64).unwrap_or(0)
}

/// A number of things, of which there are never fewer than none.
fn count(of: &Value, key: &str) -> i64 {
    number(of, key).max(0)
}

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    let list = of.get(key).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

/// Sets a number, or takes it away where Kubernetes shows no zero.
fn set(status: &mut Status, key: &str, number: i64, shows_zero: bool) {
    if number == 0 && !shows_zero {
        status.remove(key);
    } else {
        // Kubernetes counts in 32 bits; no fleet has so many, but a member can say so.
        let number = number.clamp(0, i64::from(i32::MAX));
        status.insert(key.to_owned(), number.into());
    }
}
