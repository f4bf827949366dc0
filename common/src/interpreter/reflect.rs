//! Which part of a live object's status the hub sees.
//!
//! Pure. What is reflected is cut at 64 KiB a manifest: one member must not fill the hub.

use crate::gvk::Gvk;
use crate::labels::TEMPLATE_GENERATION;
use serde_json::{Map, Value, json};

/// Longest reflected status of one manifest, in bytes of JSON.
pub const STATUS_LIMIT: usize = 64 * 1024;

const REPLICAS: [&str; 6] = [
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "observedGeneration",
];

/// The status to report for a live object, if it has any.
pub fn reflect(gvk: &Gvk, live: &Value) -> Option<Value> {
    let status = live.get("status").and_then(Value::as_object);
    let reflected = match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("apps", "Deployment") => Some(workload(live, status, &REPLICAS)),
        ("apps", "ReplicaSet") => Some(workload(
            live,
            status,
            &[
                "replicas",
                "readyReplicas",
                "availableReplicas",
                "observedGeneration",
            ],
        )),
        ("apps", "DaemonSet") => Some(workload(
            live,
            status,
            &[
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "observedGeneration",
            ],
        )),
        ("apps", "StatefulSet") => Some(workload(
            live,
            status,
            &[
                "availableReplicas",
                "currentReplicas",
                "readyReplicas",
                "replicas",
                "updatedReplicas",
                "observedGeneration",
            ],
        )),
        ("", "Service") => {
            let balanced =
                live.pointer("/spec/type").and_then(Value::as_str) == Some("LoadBalancer");
            balanced.then(|| pick(status, &["loadBalancer"]))
        }
        ("batch", "Job") => Some(pick(
            status,
            &[
                "active",
                "succeeded",
                "failed",
                "conditions",
                "startTime",
                "completionTime",
            ],
        )),
        ("policy", "PodDisruptionBudget") => Some(pick(
            status,
            &[
                "currentHealthy",
                "desiredHealthy",
                "expectedPods",
                "disruptionsAllowed",
                "disruptedPods",
            ],
        )),
        ("autoscaling", "HorizontalPodAutoscaler") if gvk.version != "v1" => {
            Some(pick(status, &["currentReplicas", "desiredReplicas"]))
        }
        _ => status.cloned(),
    };
    reflected.filter(|map| !map.is_empty()).map(limit)
}

fn pick(status: Option<&Map<String, Value>>, keys: &[&str]) -> Map<String, Value> {
    let mut out = Map::new();
    for key in keys {
        if let Some(value) = status.and_then(|s| s.get(*key)) {
            out.insert((*key).to_owned(), value.clone());
        }
    }
    out
}

/// The counters of a workload and the two generations that tell the hub how old they are.
fn workload(
    live: &Value,
    status: Option<&Map<String, Value>>,
    keys: &[&str],
) -> Map<String, Value> {
    let mut out = pick(status, keys);
    if let Some(generation) = live.pointer("/metadata/generation").and_then(Value::as_i64) {
        out.insert("generation".into(), generation.into());
    }
    // The reference fails for good without this annotation; a hand-written Work has none.
    let template = live
        .get("metadata")
        .and_then(|m| m.get("annotations"))
        .and_then(|a| a.get(TEMPLATE_GENERATION))
        .and_then(Value::as_str)
        .and_then(|text| text.parse::<i64>().ok());
    if let Some(generation) = template {
        out.insert("resourceTemplateGeneration".into(), generation.into());
    }
    out
}

/// Drops the largest members until the rest fits, and says which.
fn limit(mut status: Map<String, Value>) -> Value {
    let size = |value: &Value| serde_json::to_vec(value).map_or(0, |bytes| bytes.len());
    let mut total: usize = status.iter().map(|(k, v)| k.len() + 4 + size(v)).sum();
    if total <= STATUS_LIMIT {
        return Value::Object(status);
    }
    let mut members: Vec<(usize, String)> =
        status.iter().map(|(k, v)| (size(v), k.clone())).collect();
    members.sort_unstable_by(|a, b| b.cmp(a));
    let mut dropped = Vec::new();
    for (bytes, key) in members {
        if total <= STATUS_LIMIT - 1024 || dropped.len() == 16 {
            break;
        }
        total -= bytes;
        status.remove(&key);
        dropped.push(key);
    }
    if total > STATUS_LIMIT - 1024 {
        status.clear();
    }
    status.insert("towlineOmitted".into(), json!(dropped));
    Value::Object(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(version: &str, kind: &str, live: &Value) -> Option<Value> {
        reflect(&Gvk::new(version, kind).expect("sound"), live)
    }

    #[test]
    fn workloads_show_counters_and_generations() {
        let live = json!({"metadata": {"generation": 4, "annotations": {TEMPLATE_GENERATION: "9"}},
            "status": {"replicas": 3, "updatedReplicas": 3, "conditions": [], "observedGeneration": 4}});
        assert_eq!(
            of("apps/v1", "Deployment", &live),
            Some(
                json!({"generation": 4, "resourceTemplateGeneration": 9, "replicas": 3,
                "updatedReplicas": 3, "observedGeneration": 4})
            )
        );
        assert_eq!(
            of("apps/v1", "StatefulSet", &live),
            Some(
                json!({"generation": 4, "resourceTemplateGeneration": 9, "replicas": 3,
                "updatedReplicas": 3, "observedGeneration": 4})
            )
        );
        let bare = json!({"metadata": {"generation": 1}, "status": {"readyReplicas": 1}});
        assert_eq!(
            of("apps/v1", "Deployment", &bare),
            Some(json!({"generation": 1, "readyReplicas": 1}))
        );
    }

    #[test]
    fn other_kinds_show_their_part_or_all() {
        let lb = json!({"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": []}, "conditions": []}});
        assert_eq!(
            of("v1", "Service", &lb),
            Some(json!({"loadBalancer": {"ingress": []}}))
        );
        assert_eq!(
            of("v1", "Service", &json!({"status": {"loadBalancer": {}}})),
            None
        );
        assert_eq!(of("v1", "ConfigMap", &json!({"data": {}})), None);
        let widget = json!({"status": {"anything": {"goes": 1}}});
        assert_eq!(
            of("example.com/v1", "Widget", &widget),
            Some(json!({"anything": {"goes": 1}}))
        );
        let hpa = json!({"status": {"currentReplicas": 1, "desiredReplicas": 2, "conditions": []}});
        assert_eq!(
            of("autoscaling/v2", "HorizontalPodAutoscaler", &hpa),
            Some(json!({"currentReplicas": 1, "desiredReplicas": 2}))
        );
        let job = json!({"status": {"succeeded": 1, "uncountedTerminatedPods": {}}});
        assert_eq!(of("batch/v1", "Job", &job), Some(json!({"succeeded": 1})));
    }

    #[test]
    fn a_huge_status_is_cut() {
        let live = json!({"status": {"big": "x".repeat(STATUS_LIMIT), "phase": "Up"}});
        assert_eq!(
            of("example.com/v1", "Widget", &live),
            Some(json!({"phase": "Up", "towlineOmitted": ["big"]}))
        );
        let many: Map<String, Value> = (0..9000)
            .map(|i| (format!("k{i}"), json!("0123456789")))
            .collect();
        let cut = of("example.com/v1", "Widget", &json!({"status": many})).expect("some");
        assert!(cut.to_string().len() <= STATUS_LIMIT);
    }
}
