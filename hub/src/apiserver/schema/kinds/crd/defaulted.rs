//! Defaults in a schema would themselves do as values.

use super::super::check::{Errors, has};
use super::schema::below;
use crate::apiserver::error::FieldError;
use crate::apiserver::schema::Schema;
use serde_json::Value;

pub(super) fn check(schema: &Value, path: &str, root: bool, errors: &mut Errors) {
    for name in ["apiVersion", "kind", "metadata"] {
        if root && has(&schema["properties"][name], "default") {
            let at = format!("{path}.properties[{name}].default");
            let detail = format!("must not be set in top-level {name}");
            errors.push(FieldError::forbidden(at, detail));
        }
    }
    if has(schema, "default") {
        let at = format!("{path}.default");
        if root {
            let detail = "must not be set at the root";
            errors.push(FieldError::forbidden(at, detail));
        } else {
            one(schema, at, errors);
        }
    }
    // What stands under any key of a map is not looked at.
    let shaping = |place: &str| place.starts_with("properties[") || place == "items";
    let top = |place: &str| {
        matches!(
            place,
            "properties[apiVersion]" | "properties[kind]" | "properties[metadata]"
        )
    };
    for (place, inner) in below(schema).filter(|(place, _)| shaping(place)) {
        if root && top(&place) {
            continue;
        }
        check(inner, &format!("{path}.{place}"), false, errors);
    }
}

fn one(schema: &Value, at: String, errors: &mut Errors) {
    let node = Schema::of_default(schema);
    let default = &schema["default"];
    let mut pruned = default.clone();
    if !node.prune(&mut pruned).is_empty() {
        let detail = "must not have unknown fields";
        errors.push(FieldError::invalid(at.clone(), default.clone(), detail));
    }
    errors.extend(node.validate_default(default, &at));
}
