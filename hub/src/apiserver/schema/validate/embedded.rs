//! Objects within an object have a kind, a version and metadata that would do by themselves.

use super::super::kinds::meta;
use crate::apiserver::error::{FieldError, FieldErrors};
use crate::apiserver::schema::Schema;
use serde_json::{Map, Value, json};

pub(super) fn check(
    schema: &Schema,
    value: &Value,
    path: &str,
    root: bool,
    errors: &mut FieldErrors,
) {
    match value {
        Value::Object(object) => {
            if schema.is_embedded() && !root {
                whole(object, path, errors);
            }
            for (key, inner) in object {
                if let Some(child) = schema.property(key) {
                    let below = if path.is_empty() {
                        key.clone()
                    } else {
                        format!("{path}.{key}")
                    };
                    check(child, inner, &below, false, errors);
                } else if let Some(child) = schema.additional() {
                    check(child, inner, &format!("{path}[{key}]"), false, errors);
                }
            }
        }
        Value::Array(list) => {
            if let Some(items) = schema.items() {
                for (at, item) in list.iter().enumerate() {
                    check(items, item, &format!("{path}[{at}]"), false, errors);
                }
            }
        }
        _ => {}
    }
}

fn whole(object: &Map<String, Value>, path: &str, errors: &mut FieldErrors) {
    for name in ["apiVersion", "kind"] {
        let at = format!("{path}.{name}");
        match object.get(name) {
            None => errors.push(FieldError::required(at, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(at, json!(""), "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" => {
                if text.matches('/').count() > 1 {
                    let detail = format!("unexpected GroupVersion string: {text}");
                    errors.push(FieldError::invalid(at, json!(text), detail));
                }
            }
            Some(Value::String(text)) => {
                let wrong = meta::dns1035_label(&text.to_lowercase());
                if !wrong.is_empty() {
                    let detail = format!(
                        "may have mixed case, but should otherwise match: {}",
                        wrong.join(",")
                    );
                    errors.push(FieldError::invalid(at, json!(text), detail));
                }
            }
            Some(other) => {
                errors.push(FieldError::invalid(at, other.clone(), "must be a string"));
            }
        }
    }
    if let Some(metadata) = object.get("metadata") {
        meta::check_embedded(metadata, &format!("{path}.metadata"), errors);
    }
}
