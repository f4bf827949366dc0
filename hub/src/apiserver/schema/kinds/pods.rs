//! What is refused in pods, by themselves and in templates.

use super::check::{
    Errors, has, list, map, not_negative, number, one_of, port, required, selector, text, typed,
};
use super::meta::{check_annotations, check_labels, each};
use super::{containers, volumes};
use crate::apiserver::error::{FieldError, FieldErrorKind};
use crate::apiserver::names;
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(super) const RESTART: [&str; 3] = ["Always", "OnFailure", "Never"];

/// A template; its metadata stands directly below its path.
pub(super) fn template(template: &Value, path: &str, errors: &mut Errors) {
    let metadata = &template["metadata"];
    check_labels(metadata.get("labels"), &format!("{path}.labels"), errors);
    check_annotations(
        metadata.get("annotations"),
        &format!("{path}.annotations"),
        errors,
    );
    spec(&template["spec"], &format!("{path}.spec"), errors);
}

pub(super) fn spec(spec: &Value, path: &str, errors: &mut Errors) {
    let known = volumes::check(list(spec, "volumes"), &format!("{path}.volumes"), errors);
    containers::check(spec, path, &known, errors);
    one_of(spec, "restartPolicy", &RESTART, path, errors);
    const DNS: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(spec, "dnsPolicy", &DNS, path, errors);
    let labels = map(spec, "nodeSelector").map(|labels| Value::Object(labels.clone()));
    check_labels(labels.as_ref(), &format!("{path}.nodeSelector"), errors);
    security(
        &spec["securityContext"],
        &format!("{path}.securityContext"),
        errors,
    );
    affinity(&spec["affinity"], &format!("{path}.affinity"), errors);
    let subdomains = ["serviceAccountName", "nodeName"];
    for key in subdomains {
        let found = text(spec, key);
        if !found.is_empty() {
            let at = format!("{path}.{key}");
            errors.extend(each(&at, found, names::subdomain(found)));
        }
    }
    tolerations(
        list(spec, "tolerations"),
        &format!("{path}.tolerations"),
        errors,
    );
    host_aliases(
        list(spec, "hostAliases"),
        &format!("{path}.hostAliases"),
        errors,
    );
    let class = text(spec, "priorityClassName");
    if !class.is_empty() {
        let at = format!("{path}.priorityClassName");
        errors.extend(each(&at, class, names::subdomain(class)));
    }
    if let Some(deadline) = number(spec, "activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&deadline)
    {
        let detail = "must be between 1 and 2147483647, inclusive";
        let at = format!("{path}.activeDeadlineSeconds");
        errors.push(FieldError::invalid(at, json!(deadline), detail));
    }
    for key in ["hostname", "subdomain"] {
        let found = text(spec, key);
        if !found.is_empty() {
            errors.extend(each(&format!("{path}.{key}"), found, names::label(found)));
        }
    }
    let spread = list(spec, "topologySpreadConstraints").iter().enumerate();
    for (index, constraint) in spread {
        let at = format!("{path}.topologySpreadConstraints[{index}]");
        topology(constraint, &at, errors);
    }
}

fn security(context: &Value, path: &str, errors: &mut Errors) {
    for key in ["runAsUser", "runAsGroup", "fsGroup"] {
        id(context, key, path, errors);
    }
}

/// A number of a user or group.
pub(super) fn id(context: &Value, key: &str, path: &str, errors: &mut Errors) {
    if let Some(found) = number(context, key)
        && !(0..=i64::from(i32::MAX)).contains(&found)
    {
        let detail = "must be between 0 and 2147483647, inclusive";
        errors.push(FieldError::invalid(
            format!("{path}.{key}"),
            json!(found),
            detail,
        ));
    }
}

fn host_aliases(aliases: &[Value], path: &str, errors: &mut Errors) {
    for (index, alias) in aliases.iter().enumerate() {
        let at = format!("{path}[{index}]");
        super::check::ip(text(alias, "ip"), &format!("{at}.ip"), errors);
        for (index, name) in list(alias, "hostnames").iter().enumerate() {
            let name = name.as_str().unwrap_or("");
            let at = format!("{at}.hostnames[{index}]");
            errors.extend(each(&at, name, names::subdomain(name)));
        }
    }
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn tolerations(all: &[Value], path: &str, errors: &mut Errors) {
    for (index, toleration) in all.iter().enumerate() {
        let at = format!("{path}[{index}]");
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        if !key.is_empty() {
            errors.extend(each(&format!("{at}.key"), key, names::qualified(key)));
        }
        let at_operator = format!("{at}.operator");
        if key.is_empty() && operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all \
                          values and all keys\"";
            errors.push(FieldError::invalid(
                at_operator.clone(),
                json!(operator),
                detail,
            ));
        }
        let effect = text(toleration, "effect");
        if has(toleration, "tolerationSeconds") && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.push(FieldError::invalid(
                format!("{at}.effect"),
                json!(effect),
                detail,
            ));
        }
        let value = text(toleration, "value");
        match operator {
            "Equal" | "" => {
                let wrong = names::label_value(value);
                if !wrong.is_empty() {
                    let detail = wrong.join(";");
                    errors.push(FieldError::invalid(at_operator, json!(value), detail));
                }
            }
            "Exists" => {
                if !value.is_empty() {
                    let detail = "value must be empty when `operator` is 'Exists'";
                    errors.push(FieldError::invalid(at_operator, json!(value), detail));
                }
            }
            other => {
                let words = ["Equal", "Exists"];
                errors.push(FieldError::not_supported(at_operator, json!(other), &words));
            }
        }
        one_of(toleration, "effect", &EFFECTS, &at, errors);
    }
}

/// Taints of a node, which are told where they never stand.
pub(super) fn taints(all: &[Value], errors: &mut Errors) {
    let mut known = BTreeSet::new();
    for (index, taint) in all.iter().enumerate() {
        let at = format!("metadata.taints[{index}]");
        let key = text(taint, "key");
        errors.extend(each(&format!("{at}.key"), key, names::qualified(key)));
        let value = text(taint, "value");
        let wrong = names::label_value(value);
        if !wrong.is_empty() {
            let detail = wrong.join(";");
            errors.push(FieldError::invalid(
                format!("{at}.value"),
                json!(value),
                detail,
            ));
        }
        let effect = text(taint, "effect");
        if effect.is_empty() {
            errors.push(required(format!("{at}.effect"), ""));
        }
        one_of(taint, "effect", &EFFECTS, &at, errors);
        if !known.insert((effect, key)) {
            let shown = typed(&[
                ("Key", &json!(key)),
                ("Value", &json!(value)),
                ("Effect", &json!(effect)),
                ("TimeAdded", &taint["timeAdded"]),
            ]);
            let detail = "taints must be unique by key and effect pair";
            errors.push(FieldError::new(
                at,
                FieldErrorKind::Duplicate,
                shown,
                detail,
            ));
        }
    }
}

fn topology(constraint: &Value, path: &str, errors: &mut Errors) {
    let skew = number(constraint, "maxSkew").unwrap_or(0);
    if skew <= 0 {
        let at = format!("{path}.maxSkew");
        errors.push(FieldError::invalid(
            at,
            json!(skew),
            "must be greater than zero",
        ));
    }
    if text(constraint, "topologyKey").is_empty() {
        errors.push(required(format!("{path}.topologyKey"), "can not be empty"));
    }
    let action = text(constraint, "whenUnsatisfiable");
    let words = ["DoNotSchedule", "ScheduleAnyway"];
    if !words.contains(&action) {
        let at = format!("{path}.whenUnsatisfiable");
        errors.push(FieldError::not_supported(at, json!(action), &words));
    }
    if has(constraint, "labelSelector") {
        selector(
            &constraint["labelSelector"],
            &format!("{path}.labelSelector"),
            errors,
        );
    }
}

fn affinity(affinity: &Value, path: &str, errors: &mut Errors) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let terms = &affinity[kind];
        let hard = "requiredDuringSchedulingIgnoredDuringExecution";
        for (index, term) in list(terms, hard).iter().enumerate() {
            affinity_term(term, &format!("{path}.{kind}.{hard}[{index}]"), errors);
        }
        let soft = "preferredDuringSchedulingIgnoredDuringExecution";
        for (index, weighted) in list(terms, soft).iter().enumerate() {
            let at = format!("{path}.{kind}.{soft}[{index}]");
            let weight = number(weighted, "weight").unwrap_or(0);
            if !(1..=100).contains(&weight) {
                let at = format!("{at}.weight");
                errors.push(FieldError::invalid(
                    at,
                    json!(weight),
                    "must be in the range 1-100",
                ));
            }
            affinity_term(
                &weighted["podAffinityTerm"],
                &format!("{at}.podAffinityTerm"),
                errors,
            );
        }
    }
}

fn affinity_term(term: &Value, path: &str, errors: &mut Errors) {
    for key in ["labelSelector", "namespaceSelector"] {
        if has(term, key) {
            selector(&term[key], &format!("{path}.{key}"), errors);
        }
    }
    for (index, name) in list(term, "namespaces").iter().enumerate() {
        let name = name.as_str().unwrap_or("");
        errors.extend(each(
            &format!("{path}.namespaces[{index}]"),
            name,
            names::label(name),
        ));
    }
    let key = text(term, "topologyKey");
    let at = format!("{path}.topologyKey");
    if key.is_empty() {
        errors.push(required(at.clone(), "can not be empty"));
    }
    errors.extend(each(&at, key, names::qualified(key)));
}

/// A probe, or what runs after a start or before a stop; exactly one way to do it.
pub(super) fn handler(handler: &Value, ways: &[&str], path: &str, errors: &mut Errors) {
    let mut found = 0;
    for way in ways {
        if !has(handler, way) {
            continue;
        }
        found += 1;
        let at = format!("{path}.{way}");
        if found > 1 {
            errors.push(FieldError::forbidden(
                at,
                "may not specify more than 1 handler type",
            ));
            continue;
        }
        let how = &handler[*way];
        match *way {
            "exec" => {
                if list(how, "command").is_empty() {
                    errors.push(required(format!("{at}.command"), ""));
                }
            }
            "httpGet" => {
                if text(how, "path").is_empty() {
                    errors.push(required(format!("{at}.path"), ""));
                }
                port(how.get("port"), &format!("{at}.port"), errors);
                one_of(how, "scheme", &["HTTP", "HTTPS"], &at, errors);
            }
            "tcpSocket" => port(how.get("port"), &format!("{at}.port"), errors),
            "grpc" => {
                super::check::port_number(
                    number(how, "port").unwrap_or(0),
                    &format!("{at}.port"),
                    errors,
                );
            }
            _ => not_negative(how, &["seconds"], &at, errors),
        }
    }
    if found == 0 {
        errors.push(required(path.to_owned(), "must specify a handler type"));
    }
}
