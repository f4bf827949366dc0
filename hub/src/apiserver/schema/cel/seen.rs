//! Values as rules see them.

use super::run::Lists;
use super::{parser, values};
use crate::apiserver::schema::{Go, Kind, Schema};
use crate::go::print::type_of;
use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, Map};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// How bytes are read, which is not how they are validated.
const BYTES: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The type of a value as it is told.
pub(super) fn type_name(schema: &Schema) -> &'static str {
    match schema.kind() {
        Kind::Object => "object",
        Kind::Array => "array",
        Kind::String => "string",
        Kind::Integer => "integer",
        Kind::Number => "number",
        Kind::Boolean => "boolean",
        Kind::Any | Kind::IntOrString | Kind::Quantity => "",
    }
}

/// A value as rules see it: formats have types, and names of fields that are no names in CEL are
/// written differently.
pub(super) fn to_cel(schema: &Schema, value: &Value, lists: &mut Lists) -> Cel {
    if let Some(why) = wrong(schema, value) {
        return lists.invalid(why);
    }
    match value {
        Value::Null => Cel::Null,
        Value::Bool(set) => Cel::Bool(*set),
        Value::Number(number) => match (schema.kind(), number.as_i64()) {
            (Kind::Number, _) | (_, None) => Cel::Float(number.as_f64().unwrap_or(f64::NAN)),
            (_, Some(whole)) => Cel::Int(whole),
        },
        Value::String(text) => text_to_cel(schema, text, lists),
        Value::Array(list) => {
            let items = list.iter().map(|item| match schema.items() {
                Some(items) => to_cel(items, item, lists),
                None => free(item, lists),
            });
            let items = Arc::new(items.collect());
            lists.note(schema, list, &items);
            Cel::List(items)
        }
        Value::Object(object) => {
            let is_map = schema.additional().is_some();
            let mut map = HashMap::with_capacity(object.len());
            for (key, inner) in object {
                let seen = match schema.child(key) {
                    Some(child) => to_cel(child, inner, lists),
                    None => free(inner, lists),
                };
                let name = if is_map {
                    key.clone()
                } else if inner.is_null() {
                    // A field that is null is not there, but it counts when objects are compared.
                    format!("\0{key}")
                } else {
                    escaped(key).unwrap_or_else(|| key.clone())
                };
                map.insert(Key::String(Arc::new(name)), seen);
            }
            Cel::Map(Map { map: Arc::new(map) })
        }
    }
}

fn free(value: &Value, lists: &mut Lists) -> Cel {
    static ANY: OnceLock<Schema> = OnceLock::new();
    to_cel(ANY.get_or_init(Schema::default), value, lists)
}

/// Why a value is none to rules: what was stored may be of another type, and a whole number that is
/// written with a point is one to everybody else.
fn wrong(schema: &Schema, value: &Value) -> Option<String> {
    if !schema.typed || *schema.go() != Go::None {
        return None;
    }
    let wanted = match (schema.kind(), value) {
        (_, Value::Null)
        | (Kind::Object, Value::Object(_))
        | (Kind::Array, Value::Array(_))
        | (Kind::String | Kind::IntOrString, Value::String(_))
        | (Kind::Number, Value::Number(_))
        | (Kind::Boolean, Value::Bool(_))
        | (Kind::Any | Kind::Quantity, _) => return None,
        (Kind::Integer | Kind::IntOrString, Value::Number(number)) if number.is_i64() => {
            return None;
        }
        (Kind::Object, _) => "a map for the provided schema with type=object".to_owned(),
        (Kind::Array, _) => "an array for the provided schema with type=array".to_owned(),
        (Kind::IntOrString, _) => "XIntOrString value to be either a string or integer".to_owned(),
        (Kind::String, other) => format!("string, got {}", type_of(other)),
        (Kind::Integer, other) => format!("int, got {}", type_of(other)),
        (Kind::Number, other) => format!("float, got {}", type_of(other)),
        (Kind::Boolean, other) => format!("bool, got {}", type_of(other)),
    };
    Some(format!("invalid data, expected {wanted}"))
}

fn text_to_cel(schema: &Schema, text: &str, lists: &mut Lists) -> Cel {
    let plain = || Cel::String(Arc::new(text.to_owned()));
    if schema.kind() != Kind::String {
        return plain();
    }
    match schema.format() {
        Some("date-time") => values::timestamp(text).map_or_else(plain, Cel::Timestamp),
        Some("date") => values::day(text).map_or_else(plain, Cel::Timestamp),
        Some("duration") => values::span(text).map_or_else(plain, Cel::Duration),
        // What is valid is of the other alphabet.
        Some("byte") => match BYTES.decode(text) {
            Ok(bytes) => Cel::Bytes(Arc::new(bytes)),
            Err(_) => {
                let at = text.find(['+', '/']).unwrap_or_default();
                lists.invalid(format!(
                    "Invalid byte formatted string {text}: illegal base64 data at input byte {at}"
                ))
            }
        },
        _ => plain(),
    }
}

/// The name of a field as CEL can say it; nothing if it cannot.
pub(super) fn escaped(name: &str) -> Option<String> {
    if parser::KEYWORDS.contains(&name) || parser::RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/');
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(fits)
    {
        return None;
    }
    let name = name.replace("__", "__underscores__");
    let name = name.replace('.', "__dot__").replace('-', "__dash__");
    Some(name.replace('/', "__slash__"))
}
