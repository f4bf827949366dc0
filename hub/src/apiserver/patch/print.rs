//! Values as Go prints them, for texts of errors that quote them.

use serde_json::{Map, Value};

/// `map[a:1 b:[x y]]`.
pub(in crate::apiserver) fn value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => list(items),
        Value::Object(members) => self::members(members),
    }
}

/// The members of an object, sorted.
pub(in crate::apiserver) fn members(members: &Map<String, Value>) -> String {
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_by_key(|(key, _)| key.as_str());
    let shown: Vec<String> = sorted
        .into_iter()
        .map(|(key, member)| format!("{key}:{}", value(member)))
        .collect();
    format!("map[{}]", shown.join(" "))
}

/// The items of a list.
pub(in crate::apiserver) fn list(items: &[Value]) -> String {
    let shown: Vec<String> = items.iter().map(value).collect();
    format!("[{}]", shown.join(" "))
}

/// The Go type that JSON of any form is read into.
pub(in crate::apiserver) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// As Go source: `map[string]interface {}{"a":1}`.
pub(in crate::apiserver) fn source(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => crate::apiserver::error::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(source).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(key, _)| key.as_str());
            let members: Vec<String> = sorted
                .into_iter()
                .map(|(key, member)| {
                    format!("{}:{}", crate::apiserver::error::quote(key), source(member))
                })
                .collect();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
        other => other.to_string(),
    }
}
