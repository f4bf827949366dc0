//! Defaults of workloads, services and autoscalers.

use super::{fill, inner, is_missing, text};
use serde_json::{Map, Value, json};

pub(super) fn deployment(object: &mut Map<String, Value>) {
    let Some(spec) = inner(object, "spec") else {
        return;
    };
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "progressDeadlineSeconds", 600);
    if let Some(strategy) = inner(spec, "strategy") {
        fill(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = inner(strategy, "rollingUpdate")
        {
            fill_number(rolling, "maxUnavailable", json!("25%"));
            fill_number(rolling, "maxSurge", json!("25%"));
        }
    }
}

/// A number or a text; here an empty text is something, if malformed.
fn fill_number(object: &mut Map<String, Value>, key: &str, value: Value) {
    if object.get(key).is_none_or(Value::is_null) {
        object.insert(key.to_owned(), value);
    }
}

pub(super) fn daemon_set(object: &mut Map<String, Value>) {
    let Some(spec) = inner(object, "spec") else {
        return;
    };
    fill(spec, "revisionHistoryLimit", 10);
    if let Some(strategy) = inner(spec, "updateStrategy") {
        fill(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = inner(strategy, "rollingUpdate")
        {
            fill_number(rolling, "maxUnavailable", json!(1));
            fill_number(rolling, "maxSurge", json!(0));
        }
    }
}

pub(super) fn stateful_set(object: &mut Map<String, Value>) {
    let Some(spec) = inner(object, "spec") else {
        return;
    };
    fill(spec, "podManagementPolicy", "OrderedReady");
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    if let Some(strategy) = inner(spec, "updateStrategy") {
        if is_missing(strategy, "type") {
            fill(strategy, "type", "RollingUpdate");
            fill(strategy, "rollingUpdate", json!({}));
        }
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = strategy
                .get_mut("rollingUpdate")
                .and_then(Value::as_object_mut)
        {
            fill(rolling, "partition", 0);
        }
    }
    let claims = spec
        .get_mut("volumeClaimTemplates")
        .and_then(Value::as_array_mut);
    for claim in claims
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        fill(claim, "apiVersion", "v1");
        fill(claim, "kind", "PersistentVolumeClaim");
    }
    if let Some(policy) = inner(spec, "persistentVolumeClaimRetentionPolicy") {
        fill(policy, "whenDeleted", "Retain");
        fill(policy, "whenScaled", "Retain");
    }
}

/// The labels of a template, if there are any.
fn template_labels(spec: &Map<String, Value>) -> Option<Value> {
    let labels = spec.get("template")?.get("metadata")?.get("labels")?;
    labels
        .as_object()
        .is_some_and(|labels| !labels.is_empty())
        .then(|| labels.clone())
}

fn label_like(object: &mut Map<String, Value>, labels: Value) {
    if let Some(metadata) = inner(object, "metadata") {
        let given = metadata.get("labels").and_then(Value::as_object);
        if given.is_none_or(Map::is_empty) {
            metadata.insert("labels".to_owned(), labels);
        }
    }
}

pub(super) fn replication_controller(object: &mut Map<String, Value>) {
    let Some(spec) = inner(object, "spec") else {
        return;
    };
    fill(spec, "replicas", 1);
    let Some(labels) = template_labels(spec) else {
        return;
    };
    let given = spec.get("selector").and_then(Value::as_object);
    if given.is_none_or(Map::is_empty) {
        spec.insert("selector".to_owned(), labels.clone());
    }
    label_like(object, labels);
}

pub(super) fn job(object: &mut Map<String, Value>) {
    let Some(spec) = inner(object, "spec") else {
        return;
    };
    if is_missing(spec, "completions") && is_missing(spec, "parallelism") {
        fill(spec, "completions", 1);
    }
    fill(spec, "parallelism", 1);
    let retries = if is_missing(spec, "backoffLimitPerIndex") {
        6
    } else {
        i32::MAX
    };
    fill(spec, "backoffLimit", retries);
    fill(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", false);
    fill(spec, "manualSelector", false);
    let replaced = if is_missing(spec, "podFailurePolicy") {
        "TerminatingOrFailed"
    } else {
        "Failed"
    };
    fill(spec, "podReplacementPolicy", replaced);
    if let Some(labels) = template_labels(spec) {
        label_like(object, labels);
    }
}

pub(super) fn service(object: &mut Map<String, Value>) {
    let Some(spec) = inner(object, "spec") else {
        return;
    };
    fill(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let seconds = spec
                .get("sessionAffinityConfig")
                .and_then(|config| config.get("clientIP")?.get("timeoutSeconds"));
            if seconds.is_none_or(Value::is_null) {
                let config = json!({"clientIP": {"timeoutSeconds": 10_800}});
                spec.insert("sessionAffinityConfig".to_owned(), config);
            }
        }
        _ => {}
    }
    fill(spec, "type", "ClusterIP");
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        fill(port, "protocol", "TCP");
        let target = port.get("targetPort");
        if target.is_none_or(|target| target.is_null() || *target == 0 || *target == "") {
            let number = port.get("port").cloned().unwrap_or(json!(0));
            port.insert("targetPort".to_owned(), number);
        }
    }
    let kind = text(spec, "type").to_owned();
    let external_ips = spec.get("externalIPs").and_then(Value::as_array);
    let has_external_ips = external_ips.is_some_and(|ips| !ips.is_empty());
    let balanced = kind == "LoadBalancer";
    if balanced || kind == "NodePort" || (kind == "ClusterIP" && has_external_ips) {
        fill(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer" | "ClusterIP") {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if balanced {
        fill(spec, "allocateLoadBalancerNodePorts", true);
        let status = object.get_mut("status");
        let ingress = status
            .and_then(|status| status.get_mut("loadBalancer")?.get_mut("ingress"))
            .and_then(Value::as_array_mut);
        for one in ingress
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            if !is_missing(one, "ip") {
                fill(one, "ipMode", "VIP");
            }
        }
    }
}

/// Of version 1, whose default for the CPU is left to what an annotation says.
pub(super) fn autoscaler_v1(object: &mut Map<String, Value>) {
    const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
    let annotations = object
        .get("metadata")
        .and_then(|metadata| metadata.get("annotations"));
    let others = annotations.and_then(|all| all.get(METRICS)).is_some();
    if let Some(spec) = inner(object, "spec") {
        fill(spec, "minReplicas", 1);
        if !others {
            fill(spec, "targetCPUUtilizationPercentage", 80);
        }
    }
}

pub(super) fn autoscaler(spec: &mut Map<String, Value>) {
    fill(spec, "minReplicas", 1);
    let metrics = spec.get("metrics").and_then(Value::as_array);
    if metrics.is_none_or(Vec::is_empty) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        spec.insert("metrics".to_owned(), json!([cpu]));
    }
    let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(up) = inner(behavior, "scaleUp") {
        fill(up, "stabilizationWindowSeconds", 0);
        fill(up, "selectPolicy", "Max");
        let policies = json!([{"type": "Pods", "value": 4, "periodSeconds": 15},
                              {"type": "Percent", "value": 100, "periodSeconds": 15}]);
        fill(up, "policies", policies);
    }
    if let Some(down) = inner(behavior, "scaleDown") {
        fill(down, "selectPolicy", "Max");
        let policies = json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
        fill(down, "policies", policies);
    }
}
