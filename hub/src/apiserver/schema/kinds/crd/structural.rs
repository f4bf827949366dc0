//! A schema is structural: what shapes an object stands apart from what is demanded of it.

use super::super::check::{Errors, has, list, map, required, text};
use crate::apiserver::error::FieldError;
use crate::apiserver::schema::rules::compile;
use serde_json::{Value, json};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

pub(super) fn check(schema: &Value, path: &str, errors: &mut Errors) {
    let mut found = Errors::new();
    shape(schema, Level::Root, path, &mut found);
    found.sort_by_key(ToString::to_string);
    errors.extend(found);
}

fn flag(schema: &Value, key: &str) -> bool {
    schema[key] == Value::Bool(true)
}

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

fn shape(schema: &Value, level: Level, path: &str, errors: &mut Errors) {
    let kind = text(schema, "type");
    let items = &schema["items"];
    if kind == "array" && !items.is_object() {
        errors.push(required(format!("{path}.items"), "must be specified"));
    }
    if items.is_object() {
        shape(items, Level::Item, &format!("{path}.items"), errors);
    }
    for (name, property) in map(schema, "properties").into_iter().flatten() {
        shape(
            property,
            Level::Field,
            &format!("{path}.properties[{name}]"),
            errors,
        );
    }
    let additional = &schema["additionalProperties"];
    let at_additional = format!("{path}.additionalProperties");
    if !additional.is_null() && level == Level::Root {
        errors.push(FieldError::forbidden(
            at_additional.clone(),
            "must not be used at the root",
        ));
    }
    if additional.is_object() {
        shape(additional, Level::Field, &at_additional, errors);
    }
    let (embedded, either) = (flag(schema, EMBEDDED), flag(schema, INT_OR_STRING));
    for (key, set) in [(PRESERVE, flag(schema, PRESERVE)), (EMBEDDED, embedded)] {
        if either && set {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(
                format!("{path}.{key}"),
                json!(true),
                detail,
            ));
        }
    }
    demands(schema, either_pattern(schema), path, errors);
    let at_type = format!("{path}.type");
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind {
            "" => required(at_type.clone(), detail),
            other => FieldError::invalid(at_type.clone(), json!(other), detail),
        });
    } else if kind.is_empty() && !either && !flag(schema, PRESERVE) {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(required(at_type.clone(), detail));
    }
    if embedded && !additional.is_null() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(at_additional, detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(
            at_type,
            json!(kind),
            "must be object at the root",
        ));
    }
    if level == Level::Root || embedded {
        whole_object(schema, level, path, errors);
    }
    let no_properties = map(schema, "properties").is_none_or(serde_json::Map::is_empty);
    if embedded && !flag(schema, PRESERVE) && no_properties {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(required(format!("{path}.properties"), detail));
    }
}

fn whole_object(schema: &Value, level: Level, path: &str, errors: &mut Errors) {
    let Some(properties) = map(schema, "properties") else {
        return;
    };
    for name in ["kind", "apiVersion"] {
        if let Some(kind) = properties.get(name).map(|property| text(property, "type"))
            && kind != "string"
        {
            let at = format!("{path}.properties[{name}].type");
            errors.push(FieldError::invalid(at, json!(kind), "must be string"));
        }
    }
    let Some(metadata) = properties.get("metadata") else {
        return;
    };
    let at = format!("{path}.properties[metadata]");
    let kind = text(metadata, "type");
    if kind != "object" {
        let at = format!("{at}.type");
        errors.push(FieldError::invalid(at, json!(kind), "must be object"));
    }
    if level == Level::Root {
        let names = map(metadata, "properties").into_iter().flatten();
        let only_names = names
            .map(|(name, _)| name.as_str())
            .all(|name| matches!(name, "name" | "generateName"));
        let shaping = [
            "additionalProperties",
            "items",
            "nullable",
            "description",
            "title",
            PRESERVE,
            EMBEDDED,
            INT_OR_STRING,
            "x-kubernetes-map-type",
            "x-kubernetes-list-type",
        ];
        let more = shaping.iter().any(|key| match *key {
            "description" | "title" => !text(metadata, key).is_empty(),
            key => has(metadata, key) && metadata[key] != Value::Bool(false),
        });
        if !only_names || more {
            let detail = "must not specify anything other than name and generateName, but \
                          metadata is implicitly specified";
            errors.push(FieldError::forbidden(at, detail));
        }
    }
}

/// The two ways to write that a value is a number or a string.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Either {
    No,
    Here,
    InFirst,
}

fn either_pattern(schema: &Value) -> Either {
    let pattern = json!([{"type": "integer"}, {"type": "string"}]);
    if schema.get("anyOf") == Some(&pattern) {
        Either::Here
    } else if list(schema, "allOf")
        .first()
        .is_some_and(|one| one.get("anyOf") == Some(&pattern))
    {
        Either::InFirst
    } else {
        Either::No
    }
}

fn demands(schema: &Value, either: Either, path: &str, errors: &mut Errors) {
    for key in ["anyOf", "allOf", "oneOf"] {
        if key == "anyOf" && either == Either::Here {
            continue;
        }
        for (index, inner) in list(schema, key).iter().enumerate() {
            let first = key == "allOf" && index == 0 && either == Either::InFirst;
            let below = if first { Either::Here } else { Either::No };
            nested(inner, below, &format!("{path}.{key}[{index}]"), errors);
        }
    }
    if schema["not"].is_object() {
        nested(&schema["not"], Either::No, &format!("{path}.not"), errors);
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty() && compile(pattern).is_none() {
        let detail = format!(
            "must be a valid regular expression, but isn't: {}",
            why_no_pattern(pattern)
        );
        errors.push(FieldError::invalid(
            format!("{path}.pattern"),
            json!(pattern),
            detail,
        ));
    }
}

/// In Go's words where the reason is plain.
fn why_no_pattern(pattern: &str) -> String {
    let count = |c: char| pattern.matches(c).count() - pattern.matches(&format!("\\{c}")).count();
    let (open, close) = (count('('), count(')'));
    if open > close {
        format!("error parsing regexp: missing closing ): `{pattern}`")
    } else if close > open {
        format!("error parsing regexp: unexpected ): `{pattern}`")
    } else if pattern.contains('[') && !pattern.contains(']') {
        format!("error parsing regexp: missing closing ]: `{pattern}`")
    } else {
        format!("error parsing regexp: `{pattern}`")
    }
}

/// Under a junctor a schema only demands; it shapes nothing.
fn nested(schema: &Value, either: Either, path: &str, errors: &mut Errors) {
    demands(schema, either, path, errors);
    if schema["items"].is_object() {
        nested(
            &schema["items"],
            Either::No,
            &format!("{path}.items"),
            errors,
        );
    }
    for (name, property) in map(schema, "properties").into_iter().flatten() {
        nested(
            property,
            Either::No,
            &format!("{path}.properties[{name}]"),
            errors,
        );
    }
    let texts = [
        ("type", "must be empty to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
    ];
    for (key, detail) in texts {
        if !text(schema, key).is_empty() {
            errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
        }
    }
    for key in [
        "additionalProperties",
        "default",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    ] {
        if has(schema, key) {
            let detail = "must be undefined to be structural";
            errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
        }
    }
    for key in ["nullable", PRESERVE, EMBEDDED, INT_OR_STRING] {
        if flag(schema, key) {
            let detail = "must be false to be structural";
            errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
        }
    }
    for key in ["x-kubernetes-list-map-keys", "x-kubernetes-validations"] {
        if !list(schema, key).is_empty() {
            let detail = "must be empty to be structural";
            errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
        }
    }
    if map(schema, "properties").is_some_and(|all| all.contains_key("metadata")) {
        let detail = "must not be specified in a nested context";
        errors.push(FieldError::forbidden(
            format!("{path}.properties[metadata]"),
            detail,
        ));
    }
}
