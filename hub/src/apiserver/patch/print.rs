//! Values as Go prints them, for texts of errors that quote them.

use crate::apiserver::error::escape_html;
use crate::apiserver::schema::Schema;
use serde_json::{Map, Value, json};

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

/// The same, where a text was meant: what is none says its type.
pub(in crate::apiserver) fn as_text(of: &Value) -> String {
    match of {
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("%!s({}={of})", type_of(of)),
        other => value(other),
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

/// A patched object as the real server writes it: the members that the patch reached are sorted, all
/// others stand in the order of their Go type. `reached` has an object where the patch had one.
pub(in crate::apiserver) fn patched(object: &Value, schema: &Schema, reached: &Value) -> String {
    let mut text = String::new();
    write(object, Some(schema), Some(reached), &mut text);
    escape_html(&text)
}

/// The objects that the paths of a JSON patch lead through.
pub(in crate::apiserver) fn reached_by(operations: &Value) -> Value {
    let mut reached = json!({});
    let operations = operations.as_array().into_iter().flatten();
    let paths = operations.flat_map(|operation| [&operation["path"], &operation["from"]]);
    for path in paths.filter_map(Value::as_str) {
        let Some((to, _)) = path.rsplit_once('/') else {
            continue;
        };
        let mut at = &mut reached;
        for part in to.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            let Some(members) = at.as_object_mut() else {
                break;
            };
            at = members.entry(part).or_insert_with(|| json!({}));
        }
    }
    reached
}

fn write(value: &Value, schema: Option<&Schema>, reached: Option<&Value>, out: &mut String) {
    match value {
        Value::Object(members) => {
            let reached = reached.filter(|reached| reached.is_object());
            let mut all: Vec<(&String, &Value)> = members.iter().collect();
            all.sort_by_key(|(key, _)| key.as_str());
            if let (None, Some(schema)) = (reached, schema) {
                all.sort_by_cached_key(|(key, _)| schema.place_of(key));
            }
            out.push('{');
            for (index, (key, member)) in all.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                let reached = reached.and_then(|reached| reached.get(key));
                write(member, schema.and_then(|of| of.child(key)), reached, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                let reached = reached.and_then(|reached| reached.get(index.to_string()));
                write(item, schema.and_then(Schema::items), reached, out);
            }
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}
