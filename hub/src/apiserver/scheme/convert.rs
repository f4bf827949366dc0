//! From one version of a kind to another.

use super::Resource;
use serde_json::{Map, Value, json};

pub(super) fn convert(from: &Resource, object: &mut Value, to: &Resource) {
    match (&*from.group, &*from.version, &*to.group, &*to.version) {
        ("", _, "events.k8s.io", _) => event_to_new(object),
        ("events.k8s.io", _, "", _) => event_to_core(object),
        ("autoscaling", "v2", "autoscaling", "v1") => autoscaler_to_v1(object),
        ("autoscaling", "v1", "autoscaling", "v2") => autoscaler_to_v2(object),
        _ => {}
    }
    object["apiVersion"] = Value::from(to.api_version());
}

/// Moves fields to other names; a name of two parts lies one deeper.
fn rename(object: &mut Value, names: &[(&str, &str)]) {
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    for (from, to) in names {
        if let Some(value) = fields.remove(*from) {
            fields.insert((*to).to_owned(), value);
        }
    }
}

const EVENT: [(&str, &str); 6] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn event_to_new(object: &mut Value) {
    rename(object, &EVENT);
    rename(object, &[("reportingComponent", "reportingController")]);
    drop_empty(object, &["reportingController", "reportingInstance"]);
}

/// An Event of `events.k8s.io` with the names of the core group.
pub(in crate::apiserver) fn event_to_core(object: &mut Value) {
    let back = EVENT.map(|(core, new)| (new, core));
    rename(object, &back);
    rename(object, &[("reportingController", "reportingComponent")]);
    for name in ["reportingComponent", "reportingInstance"] {
        if object.get(name).is_none() {
            object[name] = json!("");
        }
    }
}

fn drop_empty(object: &mut Value, names: &[&str]) {
    if let Some(fields) = object.as_object_mut() {
        for name in names {
            if fields.get(*name) == Some(&json!("")) {
                fields.remove(*name);
            }
        }
    }
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// Where nothing is measured, the use of the CPU that is aimed at.
const CPU_PERCENT: u8 = 80;

/// Whether a metric is the one that v1 has a field for.
fn cpu_percent(metric: &Value, side: &str) -> Option<Value> {
    let resource = metric.get("resource")?;
    if metric["type"] != "Resource" || resource["name"] != "cpu" {
        return None;
    }
    resource.get(side)?.get("averageUtilization").cloned()
}

fn annotate(object: &mut Value, key: &str, value: &Value) {
    annotate_text(object, key, value.to_string());
}

fn annotate_text(object: &mut Value, key: &str, value: String) {
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][key] = Value::from(value);
}

/// Directions, and what a rule of one says, as the server's own types name them in their order.
const DIRECTIONS: [(&str, &str); 2] = [("scaleUp", "ScaleUp"), ("scaleDown", "ScaleDown")];
const POLICY: [(&str, &str); 3] = [
    ("type", "Type"),
    ("value", "Value"),
    ("periodSeconds", "PeriodSeconds"),
];

fn behavior_as_typed(behavior: &Value) -> String {
    let policy = |policy: &Value| {
        let fields = POLICY.map(|(key, name)| format!("{}:{}", json!(name), policy[key]));
        format!("{{{}}}", fields.join(","))
    };
    let rules = |rules: &Value| {
        if rules.is_null() {
            return "null".to_owned();
        }
        let policies = rules["policies"].as_array().map(|all| {
            let all: Vec<String> = all.iter().map(policy).collect();
            format!("[{}]", all.join(","))
        });
        format!(
            "{{\"StabilizationWindowSeconds\":{},\"SelectPolicy\":{},\"Policies\":{},\"Tolerance\":{}}}",
            rules["stabilizationWindowSeconds"],
            rules["selectPolicy"],
            policies.unwrap_or_else(|| "null".to_owned()),
            rules["tolerance"]
        )
    };
    let sides = DIRECTIONS.map(|(key, name)| format!("{}:{}", json!(name), rules(&behavior[key])));
    format!("{{{}}}", sides.join(","))
}

/// Names as the API has them, of fields that are set.
fn untyped(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(_, inner)| !inner.is_null());
            let named = fields.map(|(mut name, inner)| {
                if let Some(first) = name.get_mut(..1) {
                    first.make_ascii_lowercase();
                }
                (name, untyped(inner))
            });
            named.collect()
        }
        Value::Array(all) => all.into_iter().map(untyped).collect(),
        other => other,
    }
}

fn annotation(object: &mut Value, key: &str) -> Option<Value> {
    let annotations = object["metadata"].get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(key)?;
    if annotations.is_empty()
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("annotations");
    }
    serde_json::from_str(text.as_str()?).ok()
}

fn take(object: &mut Value, part: &str, field: &str) -> Option<Value> {
    object.get_mut(part)?.as_object_mut()?.remove(field)
}

fn listed(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// v1 knows the use of the CPU; everything else lies in annotations.
fn autoscaler_to_v1(object: &mut Value) {
    let mut others = Vec::new();
    for metric in listed(take(object, "spec", "metrics")) {
        match cpu_percent(&metric, "target") {
            Some(percent)
                if object["spec"]
                    .get("targetCPUUtilizationPercentage")
                    .is_none() =>
            {
                object["spec"]["targetCPUUtilizationPercentage"] = percent;
            }
            _ => others.push(metric),
        }
    }
    if !others.is_empty() {
        annotate(object, METRICS, &Value::Array(others));
    }
    if let Some(behavior) = take(object, "spec", "behavior") {
        annotate_text(object, BEHAVIOR, behavior_as_typed(&behavior));
    }
    if let Some(conditions) = take(object, "status", "conditions") {
        annotate(object, CONDITIONS, &conditions);
    }
    let mut others = Vec::new();
    for metric in listed(take(object, "status", "currentMetrics")) {
        match cpu_percent(&metric, "current") {
            Some(percent) => object["status"]["currentCPUUtilizationPercentage"] = percent,
            None => others.push(metric),
        }
    }
    if !others.is_empty() {
        annotate(object, CURRENT, &Value::Array(others));
    }
    zero_status(object);
}

fn zero_status(object: &mut Value) {
    if !object["status"].is_object() {
        object["status"] = Value::Object(Map::new());
    }
    for field in ["currentReplicas", "desiredReplicas"] {
        if object["status"].get(field).is_none() {
            object["status"][field] = json!(0);
        }
    }
}

fn autoscaler_to_v2(object: &mut Value) {
    let mut metrics = listed(annotation(object, METRICS));
    let percent = take(object, "spec", "targetCPUUtilizationPercentage");
    // v1 has this default here, for what lies in annotations counts.
    let default = metrics.is_empty().then(|| json!(CPU_PERCENT));
    if let Some(percent) = percent.or(default) {
        let target = json!({"type": "Utilization", "averageUtilization": percent});
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        metrics.insert(0, cpu);
    }
    object["spec"]["metrics"] = Value::Array(metrics);
    if let Some(behavior) = annotation(object, BEHAVIOR) {
        object["spec"]["behavior"] = untyped(behavior);
    }
    if let Some(conditions) = annotation(object, CONDITIONS) {
        object["status"]["conditions"] = conditions;
    }
    let mut current = listed(annotation(object, CURRENT));
    if let Some(percent) = take(object, "status", "currentCPUUtilizationPercentage") {
        let at = json!({"averageUtilization": percent});
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "current": at}});
        current.insert(0, cpu);
    }
    if !object["status"].is_object() {
        object["status"] = Value::Object(Map::new());
    }
    // v2 always names the metrics, and the replicas where there are any.
    object["status"]["currentMetrics"] = if current.is_empty() {
        Value::Null
    } else {
        Value::Array(current)
    };
    if object["status"]["currentReplicas"] == 0 {
        take(object, "status", "currentReplicas");
    }
}
