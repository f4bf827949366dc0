//! The schema of a custom resource, as its CRD gave it.

use super::reference;
use crate::apiserver::scheme::Resource;
use serde_json::{Map, Value, json};

pub(super) fn schema(resource: &Resource) -> Value {
    let given = resource.custom().map(|custom| custom.openapi.unpack());
    let mut shown = match given {
        Some(Value::Object(schema)) => Value::Object(schema),
        _ => json!({"type": "object"}),
    };
    unfold(&mut shown);
    name_itself(&mut shown);
    if let Some(fields) = selectable(resource) {
        shown["x-kubernetes-selectable-fields"] = fields;
    }
    shown
}

/// The fields that lists of a kind can select by, if it has any of its own.
pub(super) fn selectable(resource: &Resource) -> Option<Value> {
    let paths = resource.custom().map(|custom| custom.selectable.as_slice());
    let paths = paths.filter(|paths| !paths.is_empty())?.iter();
    let paths = paths.map(|path| json!({"fieldPath": path.strip_prefix('.').unwrap_or(path)}));
    Some(paths.collect())
}

/// What every object says of itself.
fn name_itself(schema: &mut Value) {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    let properties = &mut schema["properties"];
    properties["apiVersion"] = json!({"type": "string"});
    properties["kind"] = json!({"type": "string"});
    properties["metadata"] = reference("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
}

/// Writes out what short words of a schema stand for, in it and in everything below.
fn unfold(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    // What says nothing is not said.
    fields.retain(|key, value| key == "default" || key == "example" || *value != json!(false));
    for (_, inner) in fields.get_mut("properties").into_iter().flat_map(entries) {
        unfold(inner);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get_mut(key) {
            unfold(inner);
        }
    }
    let flag = |fields: &Map<String, Value>, key: &str| fields.get(key) == Some(&json!(true));
    if flag(fields, "x-kubernetes-int-or-string") {
        either(fields);
    }
    if flag(fields, "x-kubernetes-embedded-resource") {
        name_itself(schema);
        require(schema);
    }
}

fn entries(value: &mut Value) -> impl Iterator<Item = (&String, &mut Value)> {
    value.as_object_mut().into_iter().flatten()
}

/// A number or a text: both types, beside whatever else is said of the value.
fn either(fields: &mut Map<String, Value>) {
    let both = json!([{"type": "integer"}, {"type": "string"}]);
    let first = fields.get("allOf").and_then(|all| all.pointer("/0/anyOf"));
    if first == Some(&both) {
        return;
    }
    match fields.get("anyOf") {
        Some(told) if *told == both => {}
        None => {
            fields.insert("anyOf".to_owned(), both);
        }
        Some(_) => {
            let mut all = vec![json!({"anyOf": both})];
            let told = fields.get_mut("allOf").and_then(Value::as_array_mut);
            all.extend(told.into_iter().flat_map(std::mem::take));
            fields.insert("allOf".to_owned(), Value::Array(all));
        }
    }
}

/// An object within an object says which one it is.
fn require(schema: &mut Value) {
    let told = schema["required"].as_array().cloned();
    let mut required = told.unwrap_or_default();
    for name in ["kind", "apiVersion"] {
        if !required.iter().any(|one| one == name) {
            required.push(json!(name));
        }
    }
    schema["required"] = Value::Array(required);
}
