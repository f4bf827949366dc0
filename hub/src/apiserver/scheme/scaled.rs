//! The numbers that the scale subresource of a custom kind tells must be numbers that it can tell.

use super::Scale;
use crate::apiserver::error::{FieldError, FieldErrors};
use serde_json::{Value, json};

/// What is wrong with them; the specified one is not looked at when only the status changes.
pub(super) fn check(scale: &Scale, object: &Value, spec: bool) -> FieldErrors {
    let mut errors = FieldErrors::new();
    if spec {
        errors.extend(replicas(object, &scale.spec_replicas));
    }
    errors.extend(replicas(object, &scale.status_replicas));
    if let Some(path) = scale.label_selector.as_deref() {
        match found(object, path) {
            Ok(None | Some(Value::String(_))) => {}
            Ok(Some(other)) => {
                let detail = unfit(path, other, "string");
                errors.push(FieldError::invalid(path, json!(""), detail));
            }
            Err(detail) => errors.push(FieldError::invalid(path, json!(""), detail)),
        }
    }
    errors
}

fn replicas(object: &Value, path: &str) -> Option<FieldError> {
    let told = |value: i64, detail: String| Some(FieldError::invalid(path, json!(value), detail));
    match found(object, path) {
        Ok(None) => None,
        Ok(Some(value)) => match value.as_i64() {
            None => told(0, unfit(path, value, "int64")),
            Some(count) if count < 0 => told(count, "should be a non-negative integer".to_owned()),
            Some(count) if count > i64::from(i32::MAX) => {
                let detail = format!("should be less than or equal to {}", i32::MAX);
                told(count, detail)
            }
            Some(_) => None,
        },
        Err(detail) => told(0, detail),
    }
}

/// What stands at a path; why nothing can stand there.
fn found<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut here = object;
    let mut walked = String::new();
    for step in path.trim_start_matches('.').split('.') {
        match here {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(step) {
                Some(below) => here = below,
                None => return Ok(None),
            },
            other => return Err(unfit(&walked, other, "map[string]interface {}")),
        }
        walked = format!("{walked}.{step}");
    }
    Ok(Some(here))
}

/// As Go tells it.
fn unfit(path: &str, value: &Value, wanted: &str) -> String {
    let (shown, kind) = match value {
        Value::Null => ("<nil>".to_owned(), "<nil>"),
        Value::Bool(set) => (set.to_string(), "bool"),
        Value::Number(number) if number.is_i64() => (number.to_string(), "int64"),
        Value::Number(number) => (number.to_string(), "float64"),
        Value::String(text) => (text.clone(), "string"),
        Value::Array(_) => (value.to_string(), "[]interface {}"),
        Value::Object(_) => (value.to_string(), "map[string]interface {}"),
    };
    format!("{path} accessor error: {shown} is of the type {kind}, expected {wanted}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_a_scale_cannot_tell() {
        let scale = Scale {
            spec_replicas: ".spec.replicas".into(),
            status_replicas: ".status.replicas".into(),
            label_selector: Some(".status.selector".into()),
        };
        // object, and the paths that are told
        let cases = [
            (json!({}), ""),
            (
                json!({"spec": {"replicas": 1}, "status": {"selector": "a=b"}}),
                "",
            ),
            (json!({"spec": {"replicas": -1}}), ".spec.replicas"),
            (
                json!({"spec": {"replicas": 3_000_000_000_i64}}),
                ".spec.replicas",
            ),
            (json!({"spec": {"replicas": "1"}}), ".spec.replicas"),
            (json!({"spec": 5}), ".spec.replicas"),
            (
                json!({"status": {"replicas": 1.5, "selector": {}}}),
                ".status.replicas .status.selector",
            ),
        ];
        for (object, wanted) in cases {
            let errors = check(&scale, &object, true);
            let told: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
            assert_eq!(told.join(" "), wanted, "{object}");
        }
    }
}
