//! CustomResourceDefinitions as objects; what they define is served by `scheme`.

use super::{Facts, Generation, Strategy};
use crate::apiserver::error::{FieldError, FieldErrors};
use crate::apiserver::metadata;
use crate::apiserver::request::DeleteOptions;
use crate::apiserver::schema::kinds::unknown_formats;
use crate::apiserver::value::{at, copy, list, put, text, texts};
use crate::go::quote;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

/// Keeps a CRD until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

pub(super) struct Crds;

impl Strategy for Crds {
    fn unconditional_update(&self) -> bool {
        false
    }

    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn default(&self, _: &Facts<'_>, object: &mut Value) {
        let kind = text(object, &["spec", "names", "kind"]).to_owned();
        if !kind.is_empty() {
            for (field, value) in [
                ("singular", kind.to_lowercase()),
                ("listKind", format!("{kind}List")),
            ] {
                if text(object, &["spec", "names", field]).is_empty() {
                    put(object, &["spec", "names", field], Some(json!(value)));
                }
            }
        }
        if at(object, &["spec", "conversion"]).is_none_or(Value::is_null) {
            let none = json!({"strategy": "None"});
            put(object, &["spec", "conversion"], Some(none));
        }
    }

    fn prepare_create(&self, _: &Facts<'_>, object: &mut Value) {
        let stored: Vec<&str> = storage_version(object).into_iter().collect();
        let status = json!({
            "conditions": null,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": stored,
        });
        put(object, &["status"], Some(status));
    }

    fn prepare_update(&self, facts: &Facts<'_>, object: &mut Value, old: &Value) {
        if !facts.context.subresource.is_empty() {
            return;
        }
        copy(object, old, &["status"]);
        let Some(version) = storage_version(object).map(str::to_owned) else {
            return;
        };
        let mut stored: Vec<String> = texts(object, &["status", "storedVersions"])
            .into_iter()
            .map(str::to_owned)
            .collect();
        if !stored.contains(&version) {
            stored.push(version);
            put(object, &["status", "storedVersions"], Some(json!(stored)));
        }
    }

    fn validate(&self, facts: &Facts<'_>, object: &Value, old: Option<&Value>) -> FieldErrors {
        // Through its own door the status may name versions that are not there.
        if facts.context.subresource == "status" {
            return FieldErrors::new();
        }
        // What a CRD must say is checked with its schemas, in `schema::kinds::crd`.
        let mut errors = FieldErrors::new();
        if let Some(old) = old {
            for path in [
                ["spec", "scope"].as_slice(),
                &["spec", "group"],
                &["spec", "names", "kind"],
                &["spec", "names", "plural"],
            ] {
                let established = condition(old, "Established") == Some("True");
                let always = path == ["spec", "group"] || path == ["spec", "names", "plural"];
                if at(object, path) != at(old, path) && (established || always) {
                    errors.push(metadata::immutable(object, path));
                }
            }
        }
        errors.extend(stored_versions(object));
        errors
    }

    /// Formats that nobody knows, unless they were there before.
    fn warnings(&self, facts: &Facts<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        if facts.context.subresource == "status" {
            return Vec::new();
        }
        let formats = |object: &Value| {
            let mut found = Vec::new();
            for version in list(object, &["spec", "versions"]) {
                if let Some(schema) = at(version, &["schema", "openAPIV3Schema"]) {
                    unknown_formats(schema, &mut found);
                }
            }
            found
        };
        let known = old.map(formats).unwrap_or_default();
        let new = formats(object).into_iter();
        new.filter(|format| !known.contains(format))
            .map(|format| format!("unrecognized format {}", quote(&format)))
            .collect()
    }

    fn begin_delete(&self, facts: &Facts<'_>, object: &mut Value, _: &DeleteOptions) -> bool {
        if metadata::is_deleting(object) {
            return false;
        }
        put(
            object,
            &["metadata", "deletionTimestamp"],
            Some(json!(metadata::timestamp(facts.now))),
        );
        let mut finalizers = metadata::finalizers(object);
        if !finalizers.contains(&CLEANUP) {
            finalizers.push(CLEANUP);
        }
        let finalizers: Vec<String> = finalizers.into_iter().map(str::to_owned).collect();
        put(object, &["metadata", "finalizers"], Some(json!(finalizers)));
        set_condition(
            object,
            "Terminating",
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            facts.now,
        );
        true
    }
}

fn storage_version(object: &Value) -> Option<&str> {
    list(object, &["spec", "versions"])
        .iter()
        .find(|version| at(version, &["storage"]) == Some(&Value::Bool(true)))
        .map(|version| text(version, &["name"]))
}

/// Versions that objects were stored in stay among the versions.
fn stored_versions(object: &Value) -> FieldErrors {
    let versions: Vec<&str> = list(object, &["spec", "versions"])
        .iter()
        .map(|version| text(version, &["name"]))
        .collect();
    let mut errors = FieldErrors::new();
    for (index, stored) in texts(object, &["status", "storedVersions"])
        .iter()
        .enumerate()
    {
        if !versions.contains(stored) {
            errors.push(FieldError::invalid(
                format!("status.storedVersions[{index}]"),
                json!(stored),
                format!(
                    "missing from spec.versions; {stored} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {stored} and removes {stored} from status.storedVersions"
                ),
            ));
        }
    }
    errors
}

/// The status of a condition.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    list(object, &["status", "conditions"])
        .iter()
        .find(|condition| text(condition, &["type"]) == kind)
        .map(|condition| text(condition, &["status"]))
}

/// Says a condition; its time moves with its status.
pub(crate) fn set_condition(
    object: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: DateTime<Utc>,
) {
    let mut conditions = list(object, &["status", "conditions"]).to_vec();
    let mut new = json!({
        "type": kind,
        "status": status,
        "lastTransitionTime": metadata::timestamp(now),
        "reason": reason,
        "message": message,
    });
    match conditions
        .iter_mut()
        .find(|condition| text(condition, &["type"]) == kind)
    {
        Some(before) => {
            if text(before, &["status"]) == status {
                copy(&mut new, before, &["lastTransitionTime"]);
            }
            *before = new;
        }
        None => conditions.push(new),
    }
    put(object, &["status", "conditions"], Some(json!(conditions)));
}
