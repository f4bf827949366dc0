//! Workloads that are not healthy in a member for longer than their policy tolerates, and what the copy elsewhere is
//! told of the one that failed. Pure.
//!
//! Nothing on the binding says since when a member reports what it reports: the controller remembers it, and a hub that
//! starts anew counts from its start.

use super::taints::Stay;
use crate::go::JsonPath;
use crate::world;
use chrono::{DateTime, Utc};
use common::api::binding::{AggregatedStatusItem, ResourceBindingSpec};
use common::api::policy::{ApplicationFailover, StatePreservation};
use common::api::work::ResourceHealth;
use common::selector::is_label_value;
use serde_json::Value;
use std::collections::BTreeMap;

/// Reason of a task that an unhealthy workload made.
pub const APPLICATION_FAILURE: &str = "ApplicationFailure";

/// Since when members say that a workload is not healthy.
pub type Since = BTreeMap<String, DateTime<Utc>>;

/// What a policy says of workloads that fail; as Karmada has it, only where what they refer to goes with them.
pub fn wanted(spec: &ResourceBindingSpec) -> Option<&ApplicationFailover> {
    let application = spec.failover.as_ref()?.application.as_ref();
    application.filter(|_| spec.propagate_deps == Some(true))
}

/// Since when the members of a binding say that it is not healthy, from what was known before. One that says anything
/// else in between begins anew.
pub fn since(now: DateTime<Utc>, held: &world::Binding, before: &Since) -> Since {
    let spec = &held.binding.spec;
    if wanted(spec).is_none() {
        return Since::new();
    }
    let fails = |item: &AggregatedStatusItem| {
        item.health == Some(ResourceHealth::Unhealthy)
            && spec.clusters.iter().any(|it| it.name == item.cluster_name)
    };
    let items = held.whole_status().aggregated_status.into_iter();
    items
        .filter(fails)
        .map(|item| {
            let known = before.get(&item.cluster_name).copied();
            (item.cluster_name, known.unwrap_or(now))
        })
        .collect()
}

/// How long a workload may stay in a member, by its health alone.
pub fn stay(spec: &ResourceBindingSpec, since: &Since, cluster: &str) -> Stay {
    let (Some(application), Some(since)) = (wanted(spec), since.get(cluster)) else {
        return Stay::ForEver;
    };
    let tolerated = i64::from(application.decision_conditions.toleration_seconds.max(0));
    let end = since.checked_add_signed(chrono::Duration::seconds(tolerated));
    end.map_or(Stay::ForEver, Stay::Until)
}

/// The labels that the next copy gets, from what the one in a cluster said of itself last; and the rules that found
/// nothing in it, or nothing that a label can hold.
pub fn preserved(
    rules: Option<&StatePreservation>,
    held: &world::Binding,
    cluster: &str,
) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut labels, mut problems) = (BTreeMap::new(), Vec::new());
    let rules = rules.map_or(&[][..], |it| &it.rules);
    if rules.is_empty() {
        return (labels, problems);
    }
    let items = held.whole_status().aggregated_status;
    let item = items.into_iter().find(|it| it.cluster_name == cluster);
    let Some(status) = item.and_then(|it| it.status) else {
        problems.push(format!("{cluster} has reported no status of it"));
        return (labels, problems);
    };
    for rule in rules {
        match value_at(&rule.json_path, &status) {
            Ok(value) => {
                labels.insert(rule.alias_label_name.clone(), value);
            }
            Err(problem) => problems.push(format!("{}: {problem}", rule.json_path)),
        }
    }
    (labels, problems)
}

fn value_at(path: &str, status: &Value) -> Result<String, &'static str> {
    let inner = path.trim();
    let inner = inner.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
    let read = JsonPath::parse(inner.unwrap_or(path).trim());
    let found = read.ok_or("is no path such as {.readyReplicas}")?;
    let text = match found.first(status) {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
        Some(_) => return Err("leads to no single value of its status"),
        None => return Err("leads to nothing in its status"),
    };
    is_label_value(&text)
        .then_some(text)
        .ok_or("leads to what no label can hold")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::Record as _;
    use serde_json::json;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000 + seconds, 0).expect("in range")
    }

    fn held(application: &Value, items: &Value) -> world::Binding {
        let object = json!({
            "metadata": {"name": "web-deployment", "namespace": "n"},
            "spec": {
                "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "n", "name": "web"},
                "placement": {}, "propagateDeps": true, "failover": {"application": application},
                "clusters": [{"name": "m1"}, {"name": "m2"}],
            },
            "status": {"aggregatedStatus": items},
        });
        let read = world::Binding::read(&object.to_string());
        read.expect("an object").expect("held")
    }

    fn says(m1: &str, m2: &str) -> Value {
        json!([{"clusterName": "m1", "health": m1}, {"clusterName": "m2", "health": m2},
            {"clusterName": "m3", "health": "Unhealthy"}])
    }

    type Times<'a> = &'a [(&'a str, i64)];

    fn tolerating(seconds: i64) -> Value {
        json!({"decisionConditions": {"tolerationSeconds": seconds}})
    }

    #[test]
    fn it_counts_from_the_first_time_that_a_member_says_so() {
        let app = tolerating(5);
        // What was known, what members say, what is known then.
        let cases: [(Times<'_>, Value, Times<'_>); 5] = [
            (&[], says("Healthy", "Unknown"), &[]),
            (&[], says("Unhealthy", "Healthy"), &[("m1", 9)]),
            (
                &[("m1", 2)],
                says("Unhealthy", "Unhealthy"),
                &[("m1", 2), ("m2", 9)],
            ),
            (&[("m1", 2)], says("Unknown", "Healthy"), &[]),
            (&[("m1", 2)], json!([]), &[]),
        ];
        let times = |of: Times<'_>| -> Since {
            of.iter()
                .map(|(name, s)| ((*name).to_owned(), at(*s)))
                .collect()
        };
        for (before, items, want) in cases {
            let found = since(at(9), &held(&app, &items), &times(before));
            assert_eq!(found, times(want), "{before:?} {items}");
        }
        let mut without = held(&app, &says("Unhealthy", "Unhealthy"));
        without.binding.spec.propagate_deps = Some(false);
        assert_eq!(since(at(9), &without, &Since::new()), Since::new());
    }

    #[test]
    fn a_workload_stays_as_long_as_its_policy_tolerates() {
        let since = Since::from([("m1".to_owned(), at(0))]);
        for (application, cluster, want) in [
            (tolerating(30), "m1", Stay::Until(at(30))),
            (tolerating(0), "m1", Stay::Until(at(0))),
            (
                json!({"decisionConditions": {}}),
                "m1",
                Stay::Until(at(300)),
            ),
            (tolerating(30), "m2", Stay::ForEver),
            (Value::Null, "m1", Stay::ForEver),
        ] {
            let held = held(&application, &json!([]));
            assert_eq!(
                stay(&held.binding.spec, &since, cluster),
                want,
                "{application}"
            );
        }
    }

    #[test]
    fn what_a_copy_said_last_becomes_labels_of_the_next_one() {
        let status =
            json!({"jobs": [{"id": "a1"}], "ready": true, "replicas": 2, "long": "x".repeat(64)});
        let cases = [
            ("{.jobs[0].id}", Ok("a1")),
            ("{ .replicas }", Ok("2")),
            (".ready", Ok("true")),
            ("{.jobs}", Err("leads to no single value of its status")),
            ("{.none}", Err("leads to nothing in its status")),
            ("{.long}", Err("leads to what no label can hold")),
            ("replicas", Err("is no path such as {.readyReplicas}")),
        ];
        for (path, want) in cases {
            let items = json!([{"clusterName": "m1", "status": status}]);
            let rules = json!({"rules": [{"aliasLabelName": "state", "jsonPath": path}]});
            let rules: StatePreservation = serde_json::from_value(rules).expect("rules");
            let held = held(&tolerating(1), &items);
            let found = preserved(Some(&rules), &held, "m1");
            let want = match want {
                Ok(value) => (
                    BTreeMap::from([("state".to_owned(), value.to_owned())]),
                    vec![],
                ),
                Err(problem) => (BTreeMap::new(), vec![format!("{path}: {problem}")]),
            };
            assert_eq!(found, want, "{path}");
            let silent = preserved(Some(&rules), &held, "m2");
            assert_eq!(silent.1, ["m2 has reported no status of it"]);
            assert_eq!(preserved(None, &held, "m1"), (BTreeMap::new(), vec![]));
        }
    }
}
