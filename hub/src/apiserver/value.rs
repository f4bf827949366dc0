//! Short ways into JSON objects.

use serde_json::{Map, Value};

/// What stands at `path`.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

/// The text at `path`; empty where there is none.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The list at `path`; empty where there is none.
pub(crate) fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// The texts of the list at `path`.
pub(crate) fn texts<'a>(value: &'a Value, path: &[&str]) -> Vec<&'a str> {
    list(value, path).iter().filter_map(Value::as_str).collect()
}

/// The object at `path`, if it has anything.
pub(crate) fn map<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Map<String, Value>> {
    at(value, path)
        .and_then(Value::as_object)
        .filter(|map| !map.is_empty())
}

/// The whole number at `path`.
pub(crate) fn number(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

/// Whether there is something at `path` that is not empty in Go's sense.
pub(crate) fn is_set(value: &Value, path: &[&str]) -> bool {
    match at(value, path) {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(Value::Object(map)) => !map.is_empty(),
        Some(_) => true,
    }
}

/// The object at `path`, made where it is not.
pub(crate) fn object_at<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let mut value = value;
    for key in path {
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        value = &mut value[*key];
    }
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value
        .as_object_mut()
        .expect("invariant: it was made an object above")
}

/// Puts `new` at `path`, or removes what is there.
pub(crate) fn put(value: &mut Value, path: &[&str], new: Option<Value>) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    match new {
        Some(new) => {
            object_at(value, parents).insert((*last).to_owned(), new);
        }
        None => {
            let mut value = value;
            for key in parents {
                match value.get_mut(key) {
                    Some(next) => value = next,
                    None => return,
                }
            }
            if let Some(map) = value.as_object_mut() {
                map.remove(*last);
            }
        }
    }
}

/// Makes `path` in `value` what it is in `from`, even if that is nothing.
pub(crate) fn copy(value: &mut Value, from: &Value, path: &[&str]) {
    put(value, path, at(from, path).cloned());
}

/// Whether two objects have the same at `path`; nothing and empty are one.
pub(crate) fn same(a: &Value, b: &Value, path: &[&str]) -> bool {
    match (is_set(a, path), is_set(b, path)) {
        (false, false) => true,
        (true, true) => at(a, path) == at(b, path),
        _ => false,
    }
}
