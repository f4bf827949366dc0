//! Objects of built-in kinds are read as a typed server reads them, and put into the form in which
//! it writes them.
//!
//! A value of the wrong type is refused in Go's words. A null is as good as nothing. Fields that
//! are empty are left out or written as their zero value, as the Go type says.

pub(crate) mod leaf;
pub(crate) mod quantity;

use super::build::json_schema_props;
use super::{Go, Schema};
use crate::go::settle_numbers;
use serde_json::{Map, Value};
use std::fmt::Write as _;

impl Schema {
    /// Reads a value as its Go type and puts it into the form in which Go writes it. What has no Go
    /// type stays as it is, its numbers too: `1.0` is another number than `1` until it was stored. The
    /// error is Go's text.
    pub fn coerce(&self, value: &mut Value) -> Result<(), String> {
        let mut place = Position::default();
        walk(self, value, &mut place)?;
        place.saved.map_or(Ok(()), Err)
    }

    /// The same, where what is of the wrong type is told as by a converter of values that are no
    /// longer JSON.
    pub fn restore(&self, value: &mut Value) -> Result<(), String> {
        let mut place = Position {
            restores: true,
            ..Position::default()
        };
        walk(self, value, &mut place)?;
        place.saved.map_or(Ok(()), Err)
    }

    /// The form in which a built-in object comes back from the store: lists that are empty are none.
    pub fn settle(&self, value: &mut Value) {
        if has_empty_list(value) {
            settled(self, value);
        }
    }
}

/// Where the reader stands, in the terms of Go's errors.
#[derive(Default)]
struct Position<'s> {
    of: &'s str,
    path: Vec<&'s str>,
    /// Whether values are converted, not read.
    restores: bool,
    /// The first value of a wrong type. Go tells it at the end: what a type that reads itself does not
    /// take comes before it.
    saved: Option<String>,
}

impl Position<'_> {
    /// A value is of the wrong type.
    fn refuse(&mut self, found: &str, schema: &Schema) -> Result<(), String> {
        let why = self.mismatch(found, schema);
        self.save(why)
    }

    fn save(&mut self, why: String) -> Result<(), String> {
        if self.restores {
            return Err(why);
        }
        self.saved.get_or_insert(why);
        Ok(())
    }

    /// What a type that reads itself says, with where that is.
    fn told(&self, why: String) -> String {
        if self.restores || self.of.is_empty() && self.path.is_empty() {
            return why;
        }
        match why.split_once(" into Go value of type ") {
            Some((what, wanted)) if what.starts_with("json: cannot unmarshal ") => format!(
                "{what} into Go struct field {}.{} of type {wanted}",
                self.of,
                self.path.join(".")
            ),
            _ => why,
        }
    }

    fn mismatch(&self, found: &str, schema: &Schema) -> String {
        if self.restores {
            return unconverted(found, schema);
        }
        let wanted = go_name(schema);
        let mut text = format!("json: cannot unmarshal {found} into Go ");
        // Writing to a String cannot fail.
        let _ = if self.of.is_empty() && self.path.is_empty() {
            write!(text, "value of type {wanted}")
        } else {
            write!(
                text,
                "struct field {}.{} of type {wanted}",
                self.of,
                self.path.join(".")
            )
        };
        text
    }
}

/// Why a converter does not take a value.
fn unconverted(found: &str, schema: &Schema) -> String {
    let kind = match found.split(' ').next() {
        Some("array") => "slice",
        Some("object") => "map",
        Some("number") if found["number".len()..].contains(['.', 'e']) => "float64",
        Some("number") => "int64",
        Some(other) => other,
        None => found,
    };
    match schema.go() {
        Go::Slice => format!("cannot restore slice from {kind}"),
        Go::Map => format!("cannot restore map from {kind}"),
        Go::Struct(_) => format!("cannot restore struct from: {kind}"),
        _ => {
            let of = match kind {
                "slice" => "[]interface {}",
                "map" => "map[string]interface {}",
                other => other,
            };
            format!("cannot convert {of} to {}", go_name(schema))
        }
    }
}

fn found(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The name of a type as Go prints it.
fn go_name(schema: &Schema) -> String {
    match schema.go() {
        Go::String(named) => named.as_deref().unwrap_or("string").to_owned(),
        Go::Bool => "bool".to_owned(),
        Go::Int32 => "int32".to_owned(),
        Go::Int64 => "int64".to_owned(),
        Go::Float => "float64".to_owned(),
        Go::Bytes => "[]uint8".to_owned(),
        Go::Slice => format!("[]{}", schema.items().map(go_name).unwrap_or_default()),
        Go::Map => match schema.additional() {
            Some(values) if values.go() == &Go::Quantity => "v1.ResourceList".to_owned(),
            values => format!("map[string]{}", values.map(go_name).unwrap_or_default()),
        },
        Go::Struct(name) => name.to_string(),
        Go::Time | Go::MicroTime | Go::Duration => "string".to_owned(),
        _ => "map[string]interface {}".to_owned(),
    }
}

fn walk<'s>(schema: &'s Schema, value: &mut Value, place: &mut Position<'s>) -> Result<(), String> {
    match schema.go() {
        Go::None => below_crd(schema, value),
        Go::Struct(name) => {
            let Value::Object(object) = value else {
                return place.refuse(found(value), schema);
            };
            let name = name.rsplit('.').next().unwrap_or_default();
            let outer = std::mem::replace(&mut place.of, name);
            fields(schema, object, place)?;
            place.of = outer;
            Ok(())
        }
        Go::Slice => {
            let Value::Array(list) = value else {
                return place.refuse(found(value), schema);
            };
            let Some(items) = schema.items() else {
                return Ok(());
            };
            for item in list {
                if item.is_null() {
                    *item = items.zero();
                } else {
                    walk(items, item, place)?;
                }
            }
            Ok(())
        }
        Go::Map => {
            let Value::Object(object) = value else {
                return place.refuse(found(value), schema);
            };
            let Some(values) = schema.additional() else {
                return Ok(());
            };
            for inner in object.values_mut() {
                if inner.is_null() {
                    *inner = values.zero();
                    continue;
                }
                walk(values, inner, place)?;
                // Lists of resources are rounded to thousandths and written in their shortest form.
                if values.go() == &Go::Quantity
                    && let Value::String(text) = inner
                    && let Ok(written) = quantity::written_in_milli(text)
                {
                    *inner = Value::String(written);
                }
            }
            Ok(())
        }
        Go::String(_) => expect(value.is_string(), schema, value, place),
        Go::Bool => expect(value.is_boolean(), schema, value, place),
        Go::Int32 => whole(schema, value, place, |n| i32::try_from(n).is_ok()),
        Go::Int64 => whole(schema, value, place, |_| true),
        Go::Float => {
            settle_numbers(value);
            expect(value.is_number(), schema, value, place)
        }
        Go::Bytes if value.is_string() => match leaf::bytes(value) {
            Ok(()) => Ok(()),
            Err(why) => place.save(why),
        },
        Go::Bytes => place.refuse(found(value), schema),
        Go::Time => leaf::time(value).map_err(|why| place.told(why)),
        Go::MicroTime => leaf::micro_time(value).map_err(|why| place.told(why)),
        Go::Duration => leaf::duration(value).map_err(|why| place.told(why)),
        Go::Quantity => leaf::quantity(value),
        Go::IntOrString => leaf::int_or_string(value).map_err(|why| place.told(why)),
        Go::Json => {
            settle_numbers(value);
            Ok(())
        }
        Go::Raw | Go::Fields => Ok(()),
        Go::PropsOrBool => match value {
            Value::Bool(_) => Ok(()),
            Value::Object(_) => props(value),
            _ => Err("boolean or JSON schema expected".to_owned()),
        },
        Go::PropsOrArray => match value {
            Value::Object(_) => props(value),
            Value::Array(list) => list.iter_mut().try_for_each(props),
            _ => Ok(()),
        },
        Go::PropsOrStrings => match value {
            Value::Object(_) => props(value),
            _ => Ok(()),
        },
    }
}

/// Metadata has a Go type wherever it stands.
fn below_crd(schema: &Schema, value: &mut Value) -> Result<(), String> {
    match value {
        Value::Object(object) => {
            for (key, inner) in object {
                let Some(child) = schema.child(key) else {
                    continue;
                };
                if child.go() == &Go::None {
                    below_crd(child, inner)?;
                } else if !inner.is_null() {
                    let mut place = Position::default();
                    walk(child, inner, &mut place)?;
                    if let Some(why) = place.saved {
                        return Err(why);
                    }
                }
            }
            Ok(())
        }
        Value::Array(list) => match schema.items() {
            Some(items) => list.iter_mut().try_for_each(|item| below_crd(items, item)),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn expect(
    fits: bool,
    schema: &Schema,
    value: &Value,
    place: &mut Position<'_>,
) -> Result<(), String> {
    if fits {
        Ok(())
    } else {
        place.refuse(found(value), schema)
    }
}

fn whole(
    schema: &Schema,
    value: &mut Value,
    place: &mut Position<'_>,
    fits: impl Fn(i64) -> bool,
) -> Result<(), String> {
    // A converter takes a float that is whole; to a reader `-0` is the one whole number that comes as a
    // float.
    if place.restores || value.as_f64() == Some(0.0) {
        settle_numbers(value);
    }
    match value {
        Value::Number(number) if number.as_i64().is_some_and(fits) => Ok(()),
        Value::Number(number) => place.refuse(&format!("number {number}"), schema),
        _ => place.refuse(found(value), schema),
    }
}

/// A schema within a union; what it does not know is dropped without a word.
fn props(value: &mut Value) -> Result<(), String> {
    let Some(number) = json_schema_props() else {
        return Ok(());
    };
    let schema = Schema::built_in(number);
    schema.prune(value);
    schema.coerce(value)
}

fn fields<'s>(
    schema: &'s Schema,
    object: &mut Map<String, Value>,
    place: &mut Position<'s>,
) -> Result<(), String> {
    for (name, field) in schema.properties() {
        if let Some(value) = object.get_mut(name).filter(|value| !value.is_null()) {
            place.path.push(name);
            walk(field, value, place)?;
            place.path.pop();
            // An empty list there is no list that was left out: it says that nobody owns anything.
            if name == "managedFields" || keeps_empty(schema, name) || is_written(field, value) {
                continue;
            }
        }
        match absent(field) {
            Some(written) => object.insert(name.to_owned(), written),
            None => object.remove(name),
        };
    }
    Ok(())
}

/// Whether an empty list is not as good as none: it gets no default, and is then refused.
fn keeps_empty(schema: &Schema, name: &str) -> bool {
    let Go::Struct(of) = schema.go() else {
        return false;
    };
    &**of == "v2.HPAScalingRules" && name == "policies"
}

/// Whether a value is written, and not left out because it is nothing.
fn is_written(field: &Schema, value: &Value) -> bool {
    if field.is_pointer() || !field.omits_empty() && is_empty_list(value) {
        return true;
    }
    !match (value, field.go()) {
        (Value::Array(list), Go::Slice) => list.is_empty(),
        (Value::Object(object), Go::Map) => object.is_empty(),
        (Value::String(text), Go::String(_) | Go::Bytes) => text.is_empty(),
        (Value::Bool(set), Go::Bool) => !set,
        (Value::Number(number), Go::Int32 | Go::Int64 | Go::Float) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

/// An empty list that is written is not the same as none, until it was stored.
fn is_empty_list(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// Whether there is an empty list anywhere.
fn has_empty_list(value: &Value) -> bool {
    match value {
        Value::Array(list) => list.is_empty() || list.iter().any(has_empty_list),
        Value::Object(members) => members.values().any(has_empty_list),
        _ => false,
    }
}

fn settled(schema: &Schema, value: &mut Value) {
    match (schema.go(), value) {
        (Go::Struct(_), Value::Object(members)) => {
            for (name, member) in members {
                let Some(field) = schema.child(name) else {
                    continue;
                };
                let written = !field.is_pointer() && !field.omits_empty();
                if field.go() == &Go::Slice && written && is_empty_list(member) {
                    *member = Value::Null;
                } else {
                    settled(field, member);
                }
            }
        }
        (Go::Slice, Value::Array(list)) => {
            if let Some(items) = schema.items() {
                list.iter_mut().for_each(|item| settled(items, item));
            }
        }
        (Go::Map, Value::Object(members)) => {
            if let Some(values) = schema.additional() {
                members.values_mut().for_each(|item| settled(values, item));
            }
        }
        _ => {}
    }
}

/// What is written for a field that has none.
fn absent(field: &Schema) -> Option<Value> {
    if field.omit_zero {
        return None;
    }
    let is_struct = matches!(
        field.go(),
        Go::Struct(_)
            | Go::Time
            | Go::MicroTime
            | Go::Duration
            | Go::Quantity
            | Go::IntOrString
            | Go::Raw
    );
    if field.is_pointer() || !is_struct {
        if field.omits_empty() {
            return None;
        }
        if field.is_pointer() {
            return Some(Value::Null);
        }
    }
    Some(field.zero())
}

impl Schema {
    /// The zero value of a type, as Go writes it; nothing is in a custom resource.
    pub fn zero(&self) -> Value {
        match self.go() {
            Go::String(_) => Value::from(""),
            Go::Bool => Value::Bool(false),
            Go::Int32 | Go::Int64 | Go::Float | Go::IntOrString => Value::from(0),
            Go::Quantity => Value::from("0"),
            Go::Duration => Value::from("0s"),
            Go::Struct(_) => {
                let written = self
                    .properties()
                    .filter_map(|(name, field)| Some((name.to_owned(), absent(field)?)));
                Value::Object(written.collect())
            }
            Go::None => Value::Object(Map::new()),
            _ => Value::Null,
        }
    }
}

#[cfg(test)]
#[path = "decode/tests.rs"]
mod tests;
