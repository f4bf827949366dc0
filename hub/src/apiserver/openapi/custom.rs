//! The schema of a custom resource, as its definition gave it.

use super::reference;
use crate::apiserver::catalogue::Resource;
use serde_json::{Value, json};

pub(super) fn schema(resource: &Resource) -> Value {
    let given = resource.custom().map(|custom| custom.openapi.unpack());
    let mut shown = match given {
        Some(Value::Object(schema)) => Value::Object(schema),
        _ => json!({"type": "object"}),
    };
    if !shown["properties"].is_object() {
        let free = shown.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
        if free || shown.get("properties").is_none() {
            shown["properties"] = json!({});
        }
    }
    let properties = &mut shown["properties"];
    properties["apiVersion"] = json!({"type": "string"});
    properties["kind"] = json!({"type": "string"});
    properties["metadata"] = json!({
        "allOf": [reference("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")],
    });
    shown
}
