//! Events: one store with two faces, that of the core group and that of `events.k8s.io`.

use super::{Dependents, Facts, Strategy};
use crate::apiserver::error::{FieldError, FieldErrors};
use crate::apiserver::metadata;
use crate::apiserver::names::{self, NameRule};
use crate::apiserver::value::{is_set, text};
use serde_json::{Value, json};

/// Names of one field: in the core group, in `events.k8s.io`.
const FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub(super) struct Events;

/// An event with the names of the core group, which its rules are written in.
fn as_core(event: &Value) -> Value {
    let mut event = event.clone();
    if let Some(map) = event.as_object_mut() {
        for (core, new) in FIELDS {
            if let Some(value) = map.remove(new) {
                map.insert(core.to_owned(), value);
            }
        }
    }
    event
}

impl Strategy for Events {
    fn name_rule(&self) -> NameRule {
        NameRule::PathSegment
    }

    fn create_on_update(&self) -> bool {
        true
    }

    fn dependents(&self) -> Dependents {
        Dependents::Unsupported
    }

    fn selectable(&self) -> &'static [&'static str] {
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingComponent",
            "reportingController",
            "source",
            "type",
        ]
    }

    fn field(&self, object: &Value, field: &str) -> String {
        let reporter = || {
            let component = text(object, &["reportingComponent"]);
            if component.is_empty() {
                text(object, &["reportingController"]).to_owned()
            } else {
                component.to_owned()
            }
        };
        match field {
            "source" => {
                let either = ["source", "deprecatedSource"];
                either
                    .iter()
                    .map(|source| text(object, &[source, "component"]).to_owned())
                    .find(|source| !source.is_empty())
                    .unwrap_or_else(reporter)
            }
            "reportingComponent" | "reportingController" => reporter(),
            _ => {
                let path: Vec<&str> = field.split('.').collect();
                text(object, &path).to_owned()
            }
        }
    }

    fn validate(&self, facts: &Facts<'_>, object: &Value, old: Option<&Value>) -> FieldErrors {
        let new_face = facts.context.resource.group.as_ref() == "events.k8s.io";
        let core = as_core(object);
        let mut errors = validate_core(&core, new_face);
        match old {
            None if new_face => errors.extend(validate_new(&core)),
            Some(old) if new_face => errors.extend(validate_change(&core, &as_core(old))),
            _ => {}
        }
        errors
    }
}

fn validate_core(event: &Value, new_face: bool) -> FieldErrors {
    const MAX: usize = 128;
    let mut errors = FieldErrors::new();
    let namespace = metadata::namespace(event);
    let involved = text(event, &["involvedObject", "namespace"]);
    let agrees = if involved.is_empty() {
        namespace.is_empty() || namespace == "default"
    } else {
        namespace == involved
    };
    if !agrees {
        errors.push(FieldError::invalid(
            "involvedObject.namespace",
            json!(involved),
            "does not match event.namespace",
        ));
    }
    if is_set(event, &["eventTime"]) {
        let reporter = text(event, &["reportingComponent"]);
        let path = if new_face {
            "reportingController"
        } else {
            "reportingComponent"
        };
        if reporter.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
        for why in names::qualified(reporter) {
            errors.push(FieldError::invalid(path, json!(reporter), why));
        }
        for field in ["reportingInstance", "action", "reason"] {
            let value = text(event, &[field]);
            if value.is_empty() {
                errors.push(FieldError::required(field, ""));
            }
            if value.len() > MAX {
                errors.push(FieldError::invalid(
                    field,
                    json!(""),
                    format!("can have at most {MAX} characters"),
                ));
            }
        }
        if text(event, &["message"]).len() > 1024 {
            errors.push(FieldError::invalid(
                "message",
                json!(""),
                "can have at most 1024 characters",
            ));
        }
    }
    for why in names::subdomain(namespace) {
        errors.push(FieldError::invalid("namespace", json!(namespace), why));
    }
    errors
}

/// Of an event that was told, only how often it happened again may change.
fn validate_change(event: &Value, old: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if event["series"] != old["series"] && !event["series"].is_null() {
        if event["series"]["count"].as_i64().unwrap_or_default() < 2 {
            let detail = "should be at least 2";
            errors.push(FieldError::invalid("series.count", json!(""), detail));
        }
        if !is_set(event, &["series", "lastObservedTime"]) {
            errors.push(FieldError::required("series.lastObservedTime", ""));
        }
    }
    // The reason is looked at twice, and told twice.
    for field in [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        "reason",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingComponent",
        "reportingInstance",
    ] {
        let path = match field {
            "reportingComponent" => "reportingController",
            other => other,
        };
        if event[field] != old[field] {
            let new = event[field].clone();
            errors.push(FieldError::invalid(path, new, "field is immutable"));
        }
    }
    errors
}

fn validate_new(event: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let name = metadata::name(event);
    for why in NameRule::Subdomain.check(name, false) {
        errors.push(FieldError::invalid("metadata.name", json!(name), why));
    }
    if !is_set(event, &["eventTime"]) {
        errors.push(FieldError::required("eventTime", ""));
    }
    let kind = text(event, &["type"]);
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(FieldError::invalid(
            "type",
            json!(""),
            format!("has invalid value: {kind}"),
        ));
    }
    for field in ["firstTimestamp", "lastTimestamp"] {
        if is_set(event, &[field]) {
            errors.push(FieldError::invalid(field, json!(""), "needs to be unset"));
        }
    }
    if event["count"].as_i64().unwrap_or_default() != 0 {
        errors.push(FieldError::invalid("count", json!(""), "needs to be unset"));
    }
    if is_set(event, &["source", "component"]) || is_set(event, &["source", "host"]) {
        errors.push(FieldError::invalid(
            "source",
            json!(""),
            "needs to be unset",
        ));
    }
    errors
}
