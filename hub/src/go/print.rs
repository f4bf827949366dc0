//! Values as Go prints them, for texts of errors that quote them.

use super::quote;
use serde_json::{Map, Value};

/// `map[a:1 b:[x y]]`.
pub(crate) fn value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => list(items),
        Value::Object(members) => self::members(members),
    }
}

/// The same, where a text was meant: what is none says its type.
pub(crate) fn as_text(of: &Value) -> String {
    match of {
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("%!s({}={of})", type_of(of)),
        other => value(other),
    }
}

/// The members of an object, sorted.
pub(crate) fn members(members: &Map<String, Value>) -> String {
    let mut sorted: Vec<_> = members.iter().collect();
    sorted.sort_by_key(|(key, _)| key.as_str());
    let shown: Vec<String> = sorted
        .into_iter()
        .map(|(key, member)| format!("{key}:{}", value(member)))
        .collect();
    format!("map[{}]", shown.join(" "))
}

/// The items of a list.
pub(crate) fn list(items: &[Value]) -> String {
    let shown: Vec<String> = items.iter().map(value).collect();
    format!("[{}]", shown.join(" "))
}

/// The Go type that JSON of any form is read into.
pub(crate) fn type_of(value: &Value) -> &'static str {
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
pub(crate) fn source(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(source).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by_key(|(key, _)| key.as_str());
            let members: Vec<String> = sorted
                .into_iter()
                .map(|(key, member)| format!("{}:{}", quote(key), source(member)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
        other => other.to_string(),
    }
}
