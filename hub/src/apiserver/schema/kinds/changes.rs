//! What may change of single kinds once they are there, where more than fields is to be looked at.

use super::check::{Errors, amount, has, list, map, number, text};
use super::pods;
use crate::apiserver::error::{BadValue, FieldError, FieldErrorKind};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};

const FIXED: &str = "field is immutable";

/// A value without what is nothing: two that differ only there are the same.
fn bare(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let full = object.iter().filter(|(_, inner)| {
                !inner.is_null() && !inner.as_array().is_some_and(Vec::is_empty)
            });
            full.map(|(key, inner)| (key.clone(), bare(inner)))
                .collect()
        }
        Value::Array(list) => list.iter().map(bare).collect(),
        other => other.clone(),
    }
}

fn keep(value: &mut Value, old: &Value, key: &str) {
    if let Some(object) = value.as_object_mut() {
        match old.get(key) {
            Some(before) => object.insert(key.to_owned(), before.clone()),
            None => object.remove(key),
        };
    }
}

const IN_PODS: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
    existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
    previously negative)";

pub(super) fn pod(new: &Value, old: &Value, errors: &mut Errors) {
    let (spec, before) = (&new["spec"], &old["spec"]);
    for key in ["containers", "initContainers"] {
        let at = format!("spec.{key}");
        if list(spec, key).len() != list(before, key).len() {
            let detail = "pod updates may not add or remove containers";
            errors.push(FieldError::forbidden(at, detail));
            return;
        }
        for (index, container) in list(spec, key).iter().enumerate() {
            let at = format!("{at}[{index}].image");
            let image = text(container, "image");
            if image.is_empty() {
                errors.push(FieldError::required(at, ""));
            } else if image.trim() != image {
                let detail = "must not have leading or trailing whitespace";
                errors.push(FieldError::invalid(at, json!(image), detail));
            }
        }
    }
    let at = "spec.activeDeadlineSeconds";
    let deadline = |spec| number(spec, "activeDeadlineSeconds");
    match (deadline(spec), deadline(before)) {
        (Some(now), _) if !(0..=i64::from(i32::MAX)).contains(&now) => {
            let detail = "must be between 0 and 2147483647, inclusive";
            errors.push(FieldError::invalid(at, json!(now), detail));
            return;
        }
        (Some(now), Some(then)) if then < now => {
            let detail = "must be less than or equal to previous value";
            errors.push(FieldError::invalid(at, json!(now), detail));
            return;
        }
        (None, Some(_)) => {
            let detail = "must not update from a positive integer to nil value";
            errors.push(FieldError::invalid(at, Value::Null, detail));
        }
        _ => {}
    }
    tolerations(spec, before, errors);
    gates(spec, before, errors);
    let mut same = spec.clone();
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        keep(&mut same, before, key);
    }
    for key in ["containers", "initContainers"] {
        for (index, one) in list(before, key).iter().enumerate() {
            keep(&mut same[key][index], one, "image");
        }
    }
    if !list(before, "schedulingGates").is_empty() {
        selector(&same, before, errors);
        keep(&mut same, before, "nodeSelector");
    }
    if bare(&same) != bare(before) {
        errors.push(FieldError::forbidden("spec", IN_PODS));
    }
}

fn tolerations(spec: &Value, before: &Value, errors: &mut Errors) {
    let at = "spec.tolerations";
    let without_time = |toleration: &Value| {
        let mut toleration = bare(toleration);
        keep(&mut toleration, &Value::Null, "tolerationSeconds");
        toleration
    };
    let all = list(spec, "tolerations").iter();
    let now: HashSet<Value> = all.map(without_time).collect();
    let mut then = list(before, "tolerations").iter().map(without_time);
    if !then.all(|toleration| now.contains(&toleration)) {
        let detail = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden(at, detail));
        return;
    }
    pods::tolerations(list(spec, "tolerations"), at, errors);
}

fn gates(spec: &Value, before: &Value, errors: &mut Errors) {
    let gates = list(before, "schedulingGates").iter();
    let known: BTreeSet<&str> = gates.map(|gate| text(gate, "name")).collect();
    for (index, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let name = text(gate, "name");
        if !known.contains(name) {
            let at = format!("spec.schedulingGates[{index}].name");
            let detail =
                format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(FieldError::forbidden(at, detail));
        }
    }
}

fn selector(spec: &Value, before: &Value, errors: &mut Errors) {
    let mut then = map(before, "nodeSelector").into_iter().flatten();
    if !then.all(|(key, value)| spec["nodeSelector"].get(key) == Some(value)) {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        let shown = spec.get("nodeSelector").cloned().unwrap_or(Value::Null);
        errors.push(FieldError::invalid("spec.nodeSelector", shown, detail));
    }
}

pub(super) fn claim(new: &Value, old: &Value, errors: &mut Errors) {
    let (spec, before) = (&new["spec"], &old["spec"]);
    let mut same = spec.clone();
    if text(before, "volumeName").is_empty() {
        keep(&mut same, before, "volumeName");
    }
    if new["status"]["phase"] == "Bound" {
        keep(&mut same, before, "volumeAttributesClassName");
        if has(&spec["resources"], "requests") {
            let asked = &before["resources"]["requests"];
            keep(&mut same["resources"]["requests"], asked, "storage");
        }
    }
    if bare(&same) != bare(before) {
        let detail = "spec is immutable after creation except resources.requests and \
                      volumeAttributesClassName for bound claims";
        errors.push(FieldError::forbidden("spec", detail));
    }
    let size = |of: &Value| amount(of).map_or(0, |amount| amount.nano());
    let asked = |spec: &Value| size(&spec["resources"]["requests"]["storage"]);
    if asked(spec) < asked(before) && asked(spec) <= size(&new["status"]["capacity"]["storage"]) {
        let at = "spec.resources.requests.storage";
        let detail = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden(at, detail));
    }
    stays(spec, before, "volumeMode", "volumeMode", errors);
    let class = |of: &Value| of["volumeAttributesClassName"].clone();
    if class(spec) != class(before) && has(&old["status"], "currentVolumeAttributesClassName") {
        let what = match class(spec) {
            Value::Null => "nil",
            Value::String(name) if name.is_empty() => "empty string",
            _ => return,
        };
        let detail = format!(
            "update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
        );
        let at = "spec.volumeAttributesClassName";
        errors.push(FieldError::forbidden(at, detail));
    }
}

fn stays(new: &Value, old: &Value, key: &str, at: &str, errors: &mut Errors) {
    if new[key] != old[key] {
        errors.push(FieldError::invalid(at, new[key].clone(), FIXED));
    }
}

pub(super) fn volume(new: &Value, old: &Value, errors: &mut Errors) {
    let (spec, before) = (&new["spec"], &old["spec"]);
    let source = |spec: &Value| {
        let mut source = bare(spec);
        if let Some(fields) = source.as_object_mut() {
            fields.retain(|key, _| !super::storage::NO_SOURCE.contains(&key.as_str()));
        }
        source
    };
    if source(spec) != source(before) {
        let at = "spec.persistentvolumesource";
        let detail = "spec.persistentvolumesource is immutable after creation";
        errors.push(FieldError::forbidden(at, detail));
    }
    stays(spec, before, "volumeMode", "volumeMode", errors);
    node_affinity(&spec["nodeAffinity"], &before["nodeAffinity"], errors);
    if has(before, "volumeAttributesClassName") && !has(spec, "volumeAttributesClassName") {
        let at = "spec.volumeAttributesClassName";
        let detail = "update from non-nil value to nil is forbidden";
        errors.push(FieldError::forbidden(at, detail));
    }
}

/// Labels of nodes that a volume may be moved from, and to which.
const RENAMED: [(&str, &str); 3] = [
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
    ),
];

/// The nodes that a volume can be reached from stay the same, be their labels renamed.
fn node_affinity(new: &Value, old: &Value, errors: &mut Errors) {
    if old.is_null() || bare(new) == bare(old) {
        return;
    }
    let mut renamed = old.clone();
    let terms = renamed["required"]["nodeSelectorTerms"].as_array_mut();
    for term in terms.into_iter().flatten() {
        let expressions = term["matchExpressions"].as_array_mut();
        for expression in expressions.into_iter().flatten() {
            let known = RENAMED.iter().find(|(key, _)| expression["key"] == *key);
            if let Some((_, key)) = known {
                expression["key"] = json!(key);
            }
        }
    }
    if bare(new) != bare(&renamed) {
        let detail = "field is immutable, except for updating from beta label to GA";
        let shown = BadValue::Typed(typed_affinity(new).into());
        let error = FieldError::new("nodeAffinity", FieldErrorKind::Invalid, shown, detail);
        errors.push(error);
    }
}

/// A list as the server's own types print it; one without elements is nothing.
fn typed_list(value: &Value, key: &str, one: impl Fn(&Value) -> String) -> String {
    match value.get(key).and_then(Value::as_array) {
        None => "null".to_owned(),
        Some(all) => {
            let all: Vec<String> = all.iter().map(one).collect();
            format!("[{}]", all.join(","))
        }
    }
}

fn typed_affinity(affinity: &Value) -> String {
    let requirement = |one: &Value| {
        format!(
            "{{\"Key\":{},\"Operator\":{},\"Values\":{}}}",
            one["key"], one["operator"], one["values"]
        )
    };
    let term = |one: &Value| {
        format!(
            "{{\"MatchExpressions\":{},\"MatchFields\":{}}}",
            typed_list(one, "matchExpressions", requirement),
            typed_list(one, "matchFields", requirement)
        )
    };
    match affinity.get("required") {
        None if affinity.is_null() => "null".to_owned(),
        None => "{\"Required\":null}".to_owned(),
        Some(required) => format!(
            "{{\"Required\":{{\"NodeSelectorTerms\":{}}}}}",
            typed_list(required, "nodeSelectorTerms", term)
        ),
    }
}

/// What a Job does about pods that failed stays the same.
pub(super) fn failure_policy(new: &Value, old: &Value, errors: &mut Errors) {
    let policy = &new["spec"]["podFailurePolicy"];
    if bare(policy) == bare(&old["spec"]["podFailurePolicy"]) {
        return;
    }
    let codes = |codes: &Value| match codes {
        Value::Null => "null".to_owned(),
        codes => format!(
            "{{\"ContainerName\":{},\"Operator\":{},\"Values\":{}}}",
            codes["containerName"], codes["operator"], codes["values"]
        ),
    };
    let condition =
        |one: &Value| format!("{{\"Type\":{},\"Status\":{}}}", one["type"], one["status"]);
    let rule = |rule: &Value| {
        format!(
            "{{\"Action\":{},\"OnExitCodes\":{},\"OnPodConditions\":{}}}",
            rule["action"],
            codes(&rule["onExitCodes"]),
            typed_list(rule, "onPodConditions", condition)
        )
    };
    let shown = match policy {
        Value::Null => "null".to_owned(),
        policy => format!("{{\"Rules\":{}}}", typed_list(policy, "rules", rule)),
    };
    let at = "spec.podFailurePolicy";
    let shown = BadValue::Typed(shown.into());
    errors.push(FieldError::new(at, FieldErrorKind::Invalid, shown, FIXED));
}

/// Addresses of a Service once they are there; only from and to another type may they go.
pub(super) fn service(new: &Value, old: &Value, errors: &mut Errors) {
    let (spec, before) = (&new["spec"], &old["spec"]);
    let external = |spec: &Value| text(spec, "type") == "ExternalName";
    let headless = |spec: &Value| matches!(list(spec, "clusterIPs"), [only] if only == "None");
    let without = external(spec) || external(before) || headless(spec) && headless(before);
    if !without {
        let (now, then) = (list(spec, "clusterIPs"), list(before, "clusterIPs"));
        let at = |index: usize| format!("spec.clusterIPs[{index}]");
        let shown = || match now {
            [] => Value::Null,
            now => json!(now),
        };
        let mut told = |index: usize, detail: &str| {
            errors.push(FieldError::invalid(at(index), shown(), detail));
        };
        if now.len() == then.len() {
            for index in (0..now.len()).filter(|index| now[*index] != then[*index]) {
                told(index, "may not change once set");
            }
        } else if now.is_empty() {
            told(0, "primary clusterIP can not be unset");
        } else if then.first().is_some_and(|first| *first != now[0]) {
            told(0, "may not change once set");
        }
    }
    if has(spec, "loadBalancerClass") && text(spec, "type") != "LoadBalancer" {
        let detail = "may only be used when `type` is 'LoadBalancer'";
        errors.push(FieldError::forbidden("spec.loadBalancerClass", detail));
    }
}

pub(super) fn node(new: &Value, old: &Value, errors: &mut Errors) {
    super::limits::node_resources(new, errors);
    let mut addresses: HashSet<&Value> = HashSet::new();
    for (index, address) in list(&new["status"], "addresses").iter().enumerate() {
        if !addresses.insert(address) {
            let shown = super::check::typed(&[
                ("Type", &address["type"]),
                ("Address", &address["address"]),
            ]);
            let at = format!("status.addresses[{index}]");
            errors.push(FieldError::new(at, FieldErrorKind::Duplicate, shown, ""));
        }
    }
    let (spec, before) = (&new["spec"], &old["spec"]);
    let (now, then) = (list(spec, "podCIDRs"), list(before, "podCIDRs"));
    let changed = match (now.len(), then.len()) {
        (_, 0) => 0,
        (a, b) if a != b => 1,
        _ => now.iter().zip(then).filter(|(a, b)| a != b).count(),
    };
    let detail = "node updates may not change podCIDR except from \"\" to valid";
    errors.extend((0..changed).map(|_| FieldError::forbidden("spec.podCIDRs", detail)));
    let provider = |spec| text(spec, "providerID");
    if !provider(before).is_empty() && provider(before) != provider(spec) {
        let detail = "node updates may not change providerID except from \"\" to valid";
        errors.push(FieldError::forbidden("spec.providerID", detail));
    }
    pods::taints(list(spec, "taints"), errors);
    if text(spec, "externalID") != text(before, "externalID") {
        errors.push(FieldError::forbidden(
            "spec.externalID",
            "may not be updated",
        ));
    }
}

pub(super) fn quota(new: &Value, old: &Value, errors: &mut Errors) {
    let scopes = |quota: &Value| -> BTreeSet<String> {
        let scopes = list(&quota["spec"], "scopes").iter();
        scopes.map(ToString::to_string).collect()
    };
    if scopes(new) != scopes(old) {
        let shown = new["spec"].get("scopes").cloned().unwrap_or(Value::Null);
        errors.push(FieldError::invalid("spec.scopes", shown, FIXED));
    }
}

/// A Job that waits may still change where its pods go.
pub(super) fn job_template(new: &Value, old: &Value, errors: &mut Errors) {
    let (template, mut before) = (&new["spec"]["template"], old["spec"]["template"].clone());
    let suspended = old["spec"]["suspend"] == Value::Bool(true);
    let conditions = list(&old["status"], "conditions").iter();
    let mut suspensions = conditions.filter(|one| one["type"] == "Suspended");
    let open = suspended
        && (!has(&old["status"], "startTime") || suspensions.any(|one| one["status"] == "True"))
        && number(&old["status"], "active").unwrap_or(0) == 0;
    if open {
        for key in ["nodeSelector", "tolerations", "schedulingGates"] {
            keep(&mut before["spec"], &template["spec"], key);
        }
        let affinity = &template["spec"]["affinity"];
        if before["spec"]["affinity"].is_null() && has(affinity, "nodeAffinity") {
            before["spec"]["affinity"] = json!({});
        }
        keep(&mut before["spec"]["affinity"], affinity, "nodeAffinity");
        for key in ["labels", "annotations"] {
            keep(&mut before["metadata"], &template["metadata"], key);
        }
        for key in ["containers", "initContainers"] {
            for (index, one) in list(&template["spec"], key).iter().enumerate() {
                let there = before["spec"][key].get_mut(index);
                if let Some(there) = there.filter(|there| there["name"] == one["name"]) {
                    keep(there, one, "resources");
                }
            }
        }
    }
    if bare(template) == bare(&before) {
        return;
    }
    // What a Job that waits may not change is looked for in the spec of its pods alone.
    let (at, shown) = match open && bare(&template["metadata"]) == bare(&before["metadata"]) {
        true => ("spec.template.spec", &template["spec"]),
        false => ("spec.template", template),
    };
    errors.push(FieldError::invalid(at, shown.clone(), FIXED));
}
