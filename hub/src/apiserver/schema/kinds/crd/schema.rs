//! The schemas of a CustomResourceDefinition.

use super::super::check::{Errors, has, list, map, required, text};
use super::{defaulted, rules, structural};
use crate::apiserver::error::FieldError;
use crate::apiserver::schema::knows_format;
use serde_json::{Value, json};

/// What may stand beside the type at the root where the status is written by itself.
const AT_ROOT: [&str; 10] = [
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
];
const AT_ROOT_TOO: [&str; 12] = [
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

/// `unchanged` is for what was taken before: its rules may be as dear as they were.
pub(super) fn check(
    schema: &Value,
    status: bool,
    unchanged: bool,
    path: &str,
    errors: &mut Errors,
) {
    if status {
        let given = map_of(schema)
            .find(|key| !AT_ROOT.contains(&key.as_str()) && !AT_ROOT_TOO.contains(&key.as_str()));
        if given.is_some() {
            let detail = format!(
                "only {:?} fields are allowed at the root of the schema if the status subresource \
                 is enabled",
                [AT_ROOT.as_slice(), &AT_ROOT_TOO].concat()
            );
            errors.push(FieldError::invalid(path, schema.clone(), detail));
        }
    }
    if schema["nullable"] == Value::Bool(true) {
        let detail = "nullable cannot be true at the root";
        errors.push(FieldError::forbidden(format!("{path}.nullable"), detail));
    }
    // What cannot be read as a structural schema is told by the plain checks.
    let mut plain = Errors::new();
    node(schema, path, &mut plain);
    let mut of_rules = Errors::new();
    if !unreadable(schema) {
        let mut shape = Errors::new();
        structural::check(schema, path, &mut shape);
        if shape.is_empty() {
            defaulted::check(schema, path, true, &mut shape);
        }
        if shape.is_empty() {
            of_rules = rules::check(schema, path, unchanged, &plain);
        }
        errors.extend(shape);
    }
    errors.extend(plain);
    errors.extend(of_rules);
}

fn map_of(schema: &Value) -> impl Iterator<Item = &String> {
    schema.as_object().into_iter().flatten().map(|(key, _)| key)
}

/// Fields that only other schemas know.
const UNSUPPORTED: [&str; 6] = [
    "$ref",
    "additionalItems",
    "definitions",
    "dependencies",
    "id",
    "patternProperties",
];

/// Whether a schema is beyond what a structural one can be read from.
fn unreadable(schema: &Value) -> bool {
    let here = UNSUPPORTED.iter().any(|key| has(schema, key)) || schema["items"].is_array();
    here || below(schema).any(|(_, inner)| unreadable(inner))
}

/// The schemas within a schema, and where they are told.
pub(super) fn below(schema: &Value) -> impl Iterator<Item = (String, &Value)> {
    let properties = map(schema, "properties").into_iter().flatten();
    let named = properties.map(|(name, inner)| (format!("properties[{name}]"), inner));
    let single = ["additionalProperties", "items", "not"]
        .into_iter()
        .filter_map(|key| {
            Some((
                key.to_owned(),
                schema.get(key).filter(|one| one.is_object())?,
            ))
        });
    let several = ["allOf", "oneOf", "anyOf"].into_iter().flat_map(|key| {
        let all = list(schema, key).iter().enumerate();
        all.map(move |(index, inner)| (format!("{key}[{index}]"), inner))
    });
    named.chain(single).chain(several)
}

/// The formats in a schema that nobody knows.
pub(in crate::apiserver) fn unknown_formats(schema: &Value, found: &mut Vec<String>) {
    let format = text(schema, "format");
    if !format.is_empty() && !knows_format(text(schema, "type"), format) {
        found.push(format.to_owned());
    }
    for (_, inner) in below(schema) {
        unknown_formats(inner, found);
    }
}

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

fn node(schema: &Value, path: &str, errors: &mut Errors) {
    unsupported(schema, path, errors);
    let kind = text(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        let at = format!("{path}.type");
        errors.push(FieldError::not_supported(at, json!(kind), &TYPES));
    }
    if schema["uniqueItems"] == Value::Bool(true) {
        let detail =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(format!("{path}.uniqueItems"), detail));
    }
    let has_properties = map(schema, "properties").is_some_and(|all| !all.is_empty());
    let additional = &schema["additionalProperties"];
    if has_properties && !additional.is_null() && *additional != Value::Bool(true) {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(
            format!("{path}.additionalProperties"),
            detail,
        ));
    }
    for (place, inner) in below(schema) {
        node(inner, &format!("{path}.{place}"), errors);
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == Value::Bool(false) {
        let at = format!("{path}.x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(
            at,
            json!(false),
            "must be true or undefined",
        ));
    }
    types_of_merging(schema, path, errors);
    list_maps(schema, path, errors);
    items_are_there(schema, path, errors);
    forms_of_rules(schema, path, errors);
}

fn unsupported(schema: &Value, path: &str, errors: &mut Errors) {
    for key in UNSUPPORTED {
        if has(schema, key) {
            let detail = format!("{key} is not supported");
            errors.push(FieldError::forbidden(format!("{path}.{key}"), detail));
        }
    }
    if schema["items"].is_array() {
        let detail = "items must be a schema object and not an array";
        errors.push(FieldError::forbidden(format!("{path}.items"), detail));
    }
}

const LIST_TYPE: &str = "x-kubernetes-list-type";
const MAP_TYPE: &str = "x-kubernetes-map-type";
const KEYS: &str = "x-kubernetes-list-map-keys";

fn types_of_merging(schema: &Value, path: &str, errors: &mut Errors) {
    let kind = text(schema, "type");
    let wants = [(MAP_TYPE, "object"), (LIST_TYPE, "array")];
    for (key, wanted) in wants {
        if has(schema, key) && kind != wanted {
            let detail = format!("must be {wanted} if {key} is specified");
            let at = format!("{path}.type");
            errors.push(match kind {
                "" => required(at, &detail),
                other => FieldError::invalid(at, json!(other), detail),
            });
        }
        if key == MAP_TYPE {
            let words = ["atomic", "granular"];
            super::super::check::one_of(schema, key, &words, path, errors);
        }
    }
    let items = &schema["items"];
    if kind == "array" && text(schema, LIST_TYPE) == "set" && items.is_object() {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let nested = text(items, LIST_TYPE);
        if text(items, "type") == "array" && !nested.is_empty() && nested != "atomic" {
            let at = format!("{path}.items.{LIST_TYPE}");
            errors.push(FieldError::invalid(at, json!(nested), detail));
        }
        if text(items, "type") == "object" && text(items, MAP_TYPE) != "atomic" {
            // Upstream shows the type of a list that is none.
            let at = format!("{path}.items.{MAP_TYPE}");
            errors.push(FieldError::invalid(at, items[LIST_TYPE].clone(), detail));
        }
    }
    super::super::check::one_of(schema, LIST_TYPE, &["atomic", "set", "map"], path, errors);
}

fn list_maps(schema: &Value, path: &str, errors: &mut Errors) {
    let (keys, list_type) = (list(schema, KEYS), text(schema, LIST_TYPE));
    let at_type = format!("{path}.{LIST_TYPE}");
    if !keys.is_empty() && list_type != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type {
            "" => required(at_type, detail),
            other => FieldError::invalid(at_type, json!(other), detail),
        });
    }
    if list_type != "map" {
        return;
    }
    let at = format!("{path}.{KEYS}");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(required(at.clone(), detail));
    }
    let items = &schema["items"];
    if !items.is_object() {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(required(format!("{path}.items"), detail));
        return;
    }
    let kind = text(items, "type");
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(
            format!("{path}.items.type"),
            json!(kind),
            detail,
        ));
        return;
    }
    for (index, key) in keys.iter().enumerate() {
        let name = key.as_str().unwrap_or("");
        match items["properties"].get(name) {
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(at.clone(), json!(keys), detail));
            }
            Some(property) => {
                if matches!(text(property, "type"), "array" | "object") {
                    let at = format!("{path}.items.properties[{name}].type");
                    let detail =
                        "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    errors.push(FieldError::invalid(at, json!(kind), detail));
                }
            }
        }
        if keys.get(..index).is_some_and(|before| before.contains(key)) {
            let detail = "must not contain duplicate entries";
            errors.push(FieldError::invalid(at.clone(), json!(keys), detail));
        }
    }
}

/// Items of sets and maps are never null, and what items are known by is never missing.
fn items_are_there(schema: &Value, path: &str, errors: &mut Errors) {
    let (items, list_type) = (&schema["items"], text(schema, LIST_TYPE));
    if !items.is_object() || !matches!(list_type, "map" | "set") {
        return;
    }
    if items["nullable"] == Value::Bool(true) {
        let at = format!("{path}.items.nullable");
        let detail = format!("cannot be nullable when {LIST_TYPE} is {list_type}");
        errors.push(FieldError::forbidden(at, detail));
    }
    if list_type == "set" {
        return;
    }
    for key in list(schema, KEYS) {
        let name = key.as_str().unwrap_or("");
        if let Some(property) = items["properties"].get(name) {
            key_is_there(items, name, property, path, errors);
        }
    }
}

/// What items are known by is never missing.
fn key_is_there(items: &Value, name: &str, property: &Value, path: &str, errors: &mut Errors) {
    let at = format!("{path}.items.properties[{name}]");
    let given = list(items, "required").iter().any(|one| one == name);
    if !given && !has(property, "default") {
        let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or \
                      be a required property";
        errors.push(required(format!("{at}.default"), detail));
    }
    if property["nullable"] == Value::Bool(true) {
        let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
        errors.push(FieldError::forbidden(format!("{at}.nullable"), detail));
    }
}

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

fn forms_of_rules(schema: &Value, path: &str, errors: &mut Errors) {
    for (index, rule) in list(schema, "x-kubernetes-validations").iter().enumerate() {
        let at = format!("{path}.x-kubernetes-validations[{index}]");
        let (expression, message) = (text(rule, "rule").trim(), text(rule, "message"));
        if expression.is_empty() {
            errors.push(required(format!("{at}.rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            let detail = "must be non-empty if specified";
            errors.push(FieldError::invalid(
                format!("{at}.message"),
                json!(message),
                detail,
            ));
        } else if message.trim().contains('\n') {
            let detail = "must not contain line breaks";
            errors.push(FieldError::invalid(
                format!("{at}.message"),
                json!(message),
                detail,
            ));
        } else if expression.contains('\n') && message.is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(required(format!("{at}.message"), detail));
        }
        let reason = text(rule, "reason");
        if !reason.is_empty() && !REASONS.contains(&reason) {
            let at = format!("{at}.reason");
            errors.push(FieldError::not_supported(at, json!(reason), &REASONS));
        }
        let told = text(rule, "messageExpression");
        if !told.is_empty() && told.trim().is_empty() {
            let at = format!("{at}.messageExpression");
            let detail = "messageExpression must be non-empty if specified";
            errors.push(required(at, detail));
        }
        field_path(
            schema,
            text(rule, "fieldPath"),
            &format!("{at}.fieldPath"),
            errors,
        );
    }
}

fn field_path(schema: &Value, given: &str, at: &str, errors: &mut Errors) {
    let mut told = |detail: &str| errors.push(FieldError::invalid(at, json!(given), detail));
    if given.is_empty() {
        return;
    }
    if given.trim().is_empty() {
        told("must be non-empty if specified");
    }
    if given.contains(['\n', '\r']) {
        told("must not contain line breaks");
    }
    if rules::steps(schema, given).is_none() {
        told("must be a valid path");
    }
}
