//! What is refused in quotas, limits, priorities and autoscalers.

use super::check::{
    Errors, amount, cidr, has, list, map, number, one_of, quantity_not_negative, required, text,
};
use super::meta::each;
use super::network::NO_CIDR;
use super::pods;
use crate::apiserver::error::FieldError;
use crate::apiserver::names;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const COUNTED: [&str; 10] = [
    "pods",
    "services",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
    "ephemeral-storage",
];
const MEASURED: [&str; 11] = [
    "cpu",
    "memory",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "limits.cpu",
    "limits.memory",
    "ephemeral-storage",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
    "storage",
];

fn is_standard(name: &str) -> bool {
    COUNTED.contains(&name) || MEASURED.contains(&name) || name.contains("hugepages-")
}

pub(super) fn quota(object: &Value, errors: &mut Errors) {
    quota_amounts(&object["spec"], "spec", "hard", errors);
    const SCOPES: [&str; 7] = [
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "CrossNamespacePodAffinity",
        "VolumeAttributesClass",
    ];
    let scopes = list(&object["spec"], "scopes");
    for scope in scopes {
        // Each shows all of them.
        if errors.is_full() {
            return;
        }
        if !scope.as_str().is_some_and(|scope| SCOPES.contains(&scope)) {
            let detail = "unsupported scope";
            errors.push(FieldError::invalid("spec.scopes", json!(scopes), detail));
        }
        let hard = map(&object["spec"], "hard").into_iter().flatten();
        let apart = hard.filter(|(name, _)| {
            is_standard(name) && !applies(scope.as_str().unwrap_or_default(), name)
        });
        let detail = "unsupported scope applied to resource";
        let told = |_| FieldError::invalid("spec.scopes", json!(scopes), detail);
        errors.extend(apart.map(told));
    }
    for (one, other) in [
        ("BestEffort", "NotBestEffort"),
        ("Terminating", "NotTerminating"),
    ] {
        if [one, other]
            .iter()
            .all(|word| scopes.iter().any(|scope| scope == word))
        {
            let detail = "conflicting scopes";
            errors.push(FieldError::invalid("spec.scopes", json!(scopes), detail));
        }
    }
}

/// Whether a resource can be counted within a scope.
fn applies(scope: &str, name: &str) -> bool {
    let of_pods = matches!(
        name,
        "cpu" | "memory" | "limits.cpu" | "limits.memory" | "requests.cpu" | "requests.memory"
    );
    match scope {
        "BestEffort" => name == "pods",
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => name == "pods" || of_pods,
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

fn quota_amounts(part: &Value, path: &str, group: &str, errors: &mut Errors) {
    for (name, value) in map(part, group).into_iter().flatten() {
        let at = format!("{path}.{group}[{name}]");
        let wrong = names::qualified(name);
        let qualified = wrong.is_empty();
        errors.extend(each(&at, name, wrong));
        if !name.contains('/') && !is_standard(name) {
            let detail = "must be a standard resource type or fully qualified";
            errors.extend(qualified.then(|| FieldError::invalid(at.clone(), json!(name), detail)));
            let detail = "must be a standard resource for quota";
            errors.push(FieldError::invalid(at.clone(), json!(name), detail));
        }
        resource_amount(name, value, &at, errors);
    }
}

/// What is counted of a quota.
pub(super) fn quota_status(object: &Value, errors: &mut Errors) {
    for group in ["hard", "used"] {
        quota_amounts(&object["status"], "status", group, errors);
    }
}

pub(super) fn limit_range(object: &Value, errors: &mut Errors) {
    let mut kinds = BTreeSet::new();
    for (index, item) in list(&object["spec"], "limits").iter().enumerate() {
        let at = format!("spec.limits[{index}]");
        let kind = text(item, "type");
        let known = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
        if !known {
            errors.extend(each(&format!("{at}.type"), kind, names::qualified(kind)));
        }
        if !kinds.insert(kind) {
            errors.push(FieldError::duplicate(format!("{at}.type"), json!(kind)));
        }
        if kind == "Pod" {
            for key in ["default", "defaultRequest"] {
                if map(item, key).is_some_and(|all| !all.is_empty()) {
                    let detail = "may not be specified when `type` is 'Pod'";
                    errors.push(FieldError::forbidden(format!("{at}.{key}"), detail));
                }
            }
        }
        let bounded = ["min", "max"].iter().any(|key| has(&item[*key], "storage"));
        if kind == "PersistentVolumeClaim" && !bounded {
            let detail = "either minimum or maximum storage value is required, but neither was \
                          provided";
            errors.push(required(format!("{at}.limits"), detail));
        }
        limits(item, &at, errors);
    }
}

fn limits(item: &Value, path: &str, errors: &mut Errors) {
    let of = |group: &str, name: &str| item[group].get(name);
    let mut names: BTreeSet<&String> = BTreeSet::new();
    for group in [
        "max",
        "min",
        "default",
        "defaultRequest",
        "maxLimitRequestRatio",
    ] {
        names.extend(map(item, group).into_iter().flatten().map(|(name, _)| name));
    }
    // A value that is to be at most another, and how the two are called.
    let pairs = [
        ("min", "max", "min", "max"),
        ("min", "defaultRequest", "min", "default request"),
        ("defaultRequest", "max", "default request", "max"),
        (
            "defaultRequest",
            "default",
            "default request",
            "default limit",
        ),
        ("min", "default", "min", "default"),
        ("default", "max", "default", "max"),
    ];
    for name in names {
        for (small, large, small_word, large_word) in pairs {
            let (Some(least), Some(most)) = (of(small, name), of(large, name)) else {
                continue;
            };
            let above = amount(least).zip(amount(most));
            if above.is_none_or(|(least, most)| least.nano() <= most.nano()) {
                continue;
            }
            let shown = |value: &Value| value.as_str().unwrap_or("").to_owned();
            let (least, most) = (shown(least), shown(most));
            // What is told is at the default, yet shows the other side.
            let (group, value) = match (small, large) {
                ("min", "defaultRequest") => ("defaultRequest", &most),
                ("min", "default") => ("default", &least),
                _ => (small, &least),
            };
            let detail =
                format!("{small_word} value {least} is greater than {large_word} value {most}");
            let at = format!("{path}.{group}[{name}]");
            errors.push(FieldError::invalid(at, json!(value), detail));
        }
    }
}

pub(super) fn priority(object: &Value, errors: &mut Errors) {
    let name = text(&object["metadata"], "name");
    let known = matches!(name, "system-cluster-critical" | "system-node-critical");
    if name.starts_with("system-") {
        if !known {
            let detail = format!(
                "priority class names with 'system-' prefix are reserved for system use only. \
                 error: {name} is not a known system priority class"
            );
            errors.push(FieldError::forbidden("metadata.name", detail));
        }
    } else if number(object, "value").unwrap_or(0) > 1_000_000_000 {
        let detail = "maximum allowed value of a user defined priority is 1000000000";
        errors.push(FieldError::forbidden("value", detail));
    }
    one_of(
        object,
        "preemptionPolicy",
        &["PreemptLowerPriority", "Never"],
        "",
        errors,
    );
}

pub(super) fn runtime_class(object: &Value, errors: &mut Errors) {
    match text(object, "handler") {
        "" => errors.push(required("handler".to_owned(), "")),
        handler => errors.extend(each("handler", handler, names::label(handler))),
    }
}

pub(super) fn node(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    pods::taints(list(spec, "taints"), errors);
    for (index, range) in list(spec, "podCIDRs").iter().enumerate() {
        if cidr(range.as_str().unwrap_or("")).is_none() {
            let at = format!("spec.podCIDRs[{index}]");
            errors.push(FieldError::invalid(at, range.clone(), NO_CIDR));
        }
    }
    node_resources(object, errors);
}

/// What a node has is counted, and never less than nothing.
pub(super) fn node_resources(object: &Value, errors: &mut Errors) {
    for group in ["capacity", "allocatable"] {
        for (name, value) in map(&object["status"], group).into_iter().flatten() {
            resource_amount(name, value, &format!("status.{group}.{name}"), errors);
        }
    }
}

fn resource_amount(name: &str, value: &Value, path: &str, errors: &mut Errors) {
    quantity_not_negative(value, path, errors);
    let counted = COUNTED.contains(&name) && name != "ephemeral-storage";
    if (counted || name.starts_with("count/"))
        && amount(value).is_some_and(|amount| !amount.is_whole())
    {
        errors.push(FieldError::invalid(
            path,
            value.clone(),
            "must be an integer",
        ));
    }
}

pub(super) fn autoscaler(object: &Value, version: &str, errors: &mut Errors) {
    let spec = &object["spec"];
    let metrics = list(spec, "metrics");
    let least = number(spec, "minReplicas");
    if let Some(least) = least.filter(|least| *least < 1) {
        let detail = "must be greater than or equal to 1";
        errors.push(FieldError::invalid(
            "spec.minReplicas",
            json!(least),
            detail,
        ));
    }
    let most = number(spec, "maxReplicas").unwrap_or(0);
    if most < 1 {
        let detail = "must be set and greater than 0";
        errors.push(required("spec.maxReplicas".to_owned(), detail));
    }
    if least.is_some_and(|least| most < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid("spec.maxReplicas", json!(most), detail));
    }
    target_ref(&spec["scaleTargetRef"], "spec.scaleTargetRef", errors);
    if version == "v1" {
        return;
    }
    for (index, metric) in metrics.iter().enumerate() {
        self::metric(metric, &format!("spec.metrics[{index}]"), errors);
    }
    let outside = metrics
        .iter()
        .any(|one| matches!(text(one, "type"), "Object" | "External"));
    if least == Some(0) && !outside {
        let detail = "must specify at least one Object or External metric to support scaling to \
                      zero replicas";
        errors.push(FieldError::forbidden("spec.metrics", detail));
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = &spec["behavior"][direction];
        if !rules.is_null() {
            scaling_rules(rules, &format!("spec.behavior.{direction}"), errors);
        }
    }
}

fn target_ref(target: &Value, path: &str, errors: &mut Errors) {
    for key in ["kind", "name"] {
        let at = format!("{path}.{key}");
        match text(target, key) {
            "" => errors.push(required(at, "")),
            found => {
                let wrong = names::NameRule::PathSegment.check(found, false);
                errors.extend(each(&at, found, wrong));
            }
        }
    }
    let version = text(target, "apiVersion");
    let grouped =
        version.contains('/') || version == "v1" && text(target, "kind") == "ReplicationController";
    if !grouped {
        let detail = "apiVersion must specify API group";
        errors.push(FieldError::invalid(
            format!("{path}.apiVersion"),
            json!(version),
            detail,
        ));
    }
}

fn metric(metric: &Value, path: &str, errors: &mut Errors) {
    let kinds = [
        "ContainerResource",
        "External",
        "Object",
        "Pods",
        "Resource",
    ];
    let kind = text(metric, "type");
    let at = format!("{path}.type");
    if kind.is_empty() {
        errors.push(required(at.clone(), "must specify a metric source type"));
    }
    if !kinds.contains(&kind) {
        // Two looks at the same field upstream.
        let error = FieldError::not_supported(at, json!(kind), &kinds);
        errors.extend([error.clone(), error]);
        return;
    }
    let mut field = kind.to_owned();
    if let Some(first) = field.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    let at = format!("{path}.{field}");
    if !has(metric, &field) {
        let detail = "must populate information for the given metric source";
        errors.push(required(at, detail));
        return;
    }
    let target = &metric[&field]["target"];
    let at = format!("{at}.target");
    let kind = text(target, "type");
    if kind.is_empty() {
        errors.push(required(
            format!("{at}.type"),
            "must specify a metric target type",
        ));
    }
    if !matches!(kind, "Utilization" | "Value" | "AverageValue") {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(
            format!("{at}.type"),
            json!(kind),
            detail,
        ));
    }
    if let Some(percent) = number(target, "averageUtilization").filter(|percent| *percent < 1) {
        let detail = "must be greater than 0";
        let at = format!("{at}.averageUtilization");
        errors.push(FieldError::invalid(at, json!(percent), detail));
    }
    for key in ["value", "averageValue"] {
        let value = &target[key];
        if amount(value).is_some_and(|amount| amount.nano() <= 0) {
            let detail = "must be positive";
            errors.push(FieldError::invalid(
                format!("{at}.{key}"),
                value.clone(),
                detail,
            ));
        }
    }
    if matches!(field.as_str(), "resource" | "containerResource") {
        let (percent, value) = (
            has(target, "averageUtilization"),
            has(target, "averageValue"),
        );
        if !percent && !value {
            let detail = "must set either a target raw value or a target utilization";
            errors.push(required(format!("{at}.averageUtilization"), detail));
        } else if percent && value {
            let detail = "may not set both a target raw value and a target utilization";
            errors.push(FieldError::forbidden(format!("{at}.averageValue"), detail));
        }
    }
}

fn scaling_rules(rules: &Value, path: &str, errors: &mut Errors) {
    if let Some(window) = number(rules, "stabilizationWindowSeconds") {
        let at = format!("{path}.stabilizationWindowSeconds");
        if window < 0 {
            let detail = "must be greater than or equal to zero";
            errors.push(FieldError::invalid(at, json!(window), detail));
        } else if window > 3600 {
            let detail = "must be less than or equal to 3600";
            errors.push(FieldError::invalid(at, json!(window), detail));
        }
    }
    one_of(
        rules,
        "selectPolicy",
        &["Disabled", "Max", "Min"],
        path,
        errors,
    );
    let policies = list(rules, "policies");
    if policies.is_empty() {
        let detail = "must specify at least one Policy";
        errors.push(required(format!("{path}.policies"), detail));
    }
    for (index, policy) in policies.iter().enumerate() {
        let at = format!("{path}.policies[{index}]");
        let kind = text(policy, "type");
        if !matches!(kind, "Percent" | "Pods") {
            let words = ["Percent", "Pods"];
            errors.push(FieldError::not_supported(
                format!("{at}.type"),
                json!(kind),
                &words,
            ));
        }
        for key in ["value", "periodSeconds"] {
            let value = number(policy, key).unwrap_or(0);
            if value <= 0 {
                let detail = "must be greater than zero";
                errors.push(FieldError::invalid(
                    format!("{at}.{key}"),
                    json!(value),
                    detail,
                ));
            }
        }
    }
}
