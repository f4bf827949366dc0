//! Lists that are sets or maps hold nothing twice.

use crate::apiserver::error::{FieldError, FieldErrors};
use crate::apiserver::schema::{Kind, ListType, Schema};
use serde_json::{Map, Value};
use std::collections::HashMap;

pub(super) fn check(schema: &Schema, value: &Value, path: &str, errors: &mut FieldErrors) {
    match value {
        Value::Object(object) => {
            for (key, inner) in object {
                let declared = schema.property(key);
                let below = match (declared, path.is_empty()) {
                    (Some(_), true) => key.clone(),
                    (Some(_), false) => format!("{path}.{key}"),
                    (None, _) => format!("{path}[{key}]"),
                };
                if let Some(child) = declared.or_else(|| schema.additional()) {
                    check(child, inner, &below, errors);
                }
            }
        }
        Value::Array(list) if schema.kind() == Kind::Array => {
            match schema.list_type() {
                ListType::Set => twice(list, path, errors, Value::clone),
                ListType::Map => keyed(schema, list, path, errors),
                ListType::Atomic => {}
            }
            if let Some(items) = schema.items() {
                for (at, item) in list.iter().enumerate() {
                    check(items, item, &format!("{path}[{at}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn keyed(schema: &Schema, list: &[Value], path: &str, errors: &mut FieldErrors) {
    let stray = list
        .iter()
        .position(|item| !item.is_object() && !item.is_null());
    if let Some((at, item)) = stray.and_then(|at| list.get(at).map(|item| (at, item))) {
        errors.push(FieldError::invalid(
            format!("{path}[{at}]"),
            item.clone(),
            "must be an object for an array of list-type map",
        ));
        return;
    }
    let keys = schema.list_map_keys();
    twice(list, path, errors, |item| {
        let named = keys
            .iter()
            .filter_map(|key| Some((key.to_string(), item.get(key.as_ref())?.clone())));
        Value::Object(named.collect::<Map<_, _>>())
    });
}

/// Each value that occurs again is told once, where it does so first.
fn twice(list: &[Value], path: &str, errors: &mut FieldErrors, identity: impl Fn(&Value) -> Value) {
    let known: Vec<Value> = list.iter().map(identity).collect();
    let mut seen: HashMap<&Value, usize> = HashMap::with_capacity(known.len());
    for (at, one) in known.iter().enumerate() {
        let before = seen.entry(one).or_default();
        if *before == 1 {
            errors.push(FieldError::duplicate(format!("{path}[{at}]"), one.clone()));
        }
        *before += 1;
    }
}
