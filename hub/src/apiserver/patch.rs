//! Patches of objects, pure: JSON patch, JSON merge patch and strategic merge patch.
//!
//! Server-side apply is in `managed`. A body is text here; what it may be in YAML is known elsewhere.

mod json;
mod merge;
pub(super) mod print;
mod strategic;

use crate::apiserver::error::{ApiError, StatusDetails};
use crate::apiserver::schema::Schema;
use crate::go::{settle_numbers, strict, syntax};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// What a JSON patch may have of operations.
const MAX_OPERATIONS: usize = 10_000;

/// By how many bytes the copies of one JSON patch may make an object longer.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// Applies a JSON patch (RFC 6902) to `live`.
pub fn json_patch(live: &Value, body: &[u8]) -> Result<Value, ApiError> {
    let unread = |why: String| ApiError::bad_request(format!("error decoding patch: {why}"));
    let wrong = |what, wanted| {
        unread(format!(
            "json: cannot unmarshal {what} into Go value of type {wanted}"
        ))
    };
    let items = match value(body).map_err(unread)? {
        Value::Array(items) => items,
        // Nothing is a list without items, as in Go.
        Value::Null => Vec::new(),
        other => return Err(wrong(form(&other), "[]handlers.jsonPatchOp")),
    };
    let read = |item: Value| {
        let item = match item {
            // Nothing is an operation without members.
            Value::Null => Value::Object(serde_json::Map::new()),
            other => other,
        };
        if let Some((name, found)) = ["op", "path", "from"]
            .into_iter()
            .filter_map(|name| Some((name, item.get(name)?)))
            .find(|(_, found)| !found.is_string() && !found.is_null())
        {
            return Err(unread(format!(
                "json: cannot unmarshal {} into Go struct field jsonPatchOp.{name} of type string",
                form(found)
            )));
        }
        let what = form(&item);
        serde_json::from_value(item).map_err(|_| wrong(what, "handlers.jsonPatchOp"))
    };
    let mut operations: Vec<json::Operation> =
        items.into_iter().map(read).collect::<Result<_, _>>()?;
    for (operation, literal) in operations.iter_mut().zip(literals(body)) {
        operation.odd = literal.get("value").is_some_and(|value| is_odd(value));
    }
    if operations.len() > MAX_OPERATIONS {
        return Err(ApiError::too_large(&format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    json::apply(live, operations, MAX_COPIED).map_err(|failed| {
        tracing::debug!(%failed, "a JSON patch does not apply");
        ApiError {
            details: Some(StatusDetails::default()),
            ..ApiError::plain(
                422,
                "Invalid",
                "the server rejected our request due to an error in our request",
            )
        }
    })
}

/// The members of operations as they are written.
fn literals(body: &[u8]) -> Vec<BTreeMap<String, &RawValue>> {
    serde_json::from_slice(body).unwrap_or_default()
}

/// Whether a number is written as no object has it.
fn is_odd(value: &RawValue) -> bool {
    let is_odd = |literal: &str| {
        let mut read: Value = serde_json::from_str(literal).unwrap_or_default();
        settle_numbers(&mut read);
        let written = read.to_string();
        written != literal
    };
    syntax::numbers(value.get().as_bytes())
        .into_iter()
        .any(is_odd)
}

/// Applies a JSON merge patch (RFC 7396) to `live`.
pub fn merge_patch(live: &Value, body: &[u8]) -> Result<Value, ApiError> {
    let unread = |error| ApiError::bad_request(format!("error decoding patch: {error}"));
    match value(body).map_err(unread)? {
        patch @ Value::Object(_) => Ok(merge::apply(live.clone(), patch)),
        Value::Null => Err(ApiError::bad_request("Invalid JSON Patch")),
        other => Err(unread(no_object(&other))),
    }
}

/// Applies a strategic merge patch to `live`, led by what the schema says of its lists and objects.
pub fn strategic_merge(live: &Value, body: &[u8], schema: &Schema) -> Result<Value, ApiError> {
    let patch = object(body).map_err(ApiError::bad_request)?;
    strategic::apply(live, patch, schema)
}

/// A body that must be an object.
fn object(body: &[u8]) -> Result<Value, String> {
    match value(body)? {
        object @ Value::Object(_) => Ok(object),
        // Nothing is an object without members, as in Go.
        Value::Null => Ok(Value::Object(serde_json::Map::new())),
        other => Err(no_object(&other)),
    }
}

/// Why a value is not read as an object.
pub(super) fn no_object(value: &Value) -> String {
    format!(
        "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
        form(value)
    )
}

fn value(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|why| strict::go_words(&why, body))
}

/// What Go calls a form of JSON.
fn form(value: &Value) -> &'static str {
    match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Null => "null",
    }
}
