//! What a schema says of the values under it, as rules see them: types, and how large they may become.

use super::types::Type;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The largest request, which bounds what has no bound of its own.
pub(super) const LARGEST_REQUEST: u64 = 3 * 1024 * 1024;
/// As JSON: `2006-01-02`, and times and durations at their longest and shortest.
const DATE: u64 = 12;
const LONGEST_TIME: u64 = 32;
const SHORTEST_TIME: u64 = 21;
const SHORTEST_DURATION: u64 = 3;

/// A type, and what is known of its values.
#[derive(Debug, Clone)]
pub(super) struct Declared {
    pub(super) of: Type,
    shape: Shape,
    /// How many members, letters or bytes it may have; 0 for all that has none.
    pub(super) most: u64,
    /// How many bytes of JSON it has at least.
    pub(super) least: u64,
}

#[derive(Debug, Clone)]
enum Shape {
    Plain,
    List(Arc<Declared>),
    Map(Arc<Declared>),
    Object(BTreeMap<String, Arc<Declared>>),
}

/// The fields of all objects, by the names of their types.
pub(super) type Objects = HashMap<Arc<str>, BTreeMap<String, Arc<Declared>>>;

impl Declared {
    fn plain(of: Type, most: u64, least: u64) -> Self {
        Self {
            of,
            shape: Shape::Plain,
            most,
            least,
        }
    }

    /// Of any type and size.
    pub(super) fn anything() -> Self {
        Self::plain(Type::Dyn, LARGEST_REQUEST, 1)
    }

    /// What stands below it: a field, or one of its values.
    pub(super) fn below(&self, step: &str) -> Option<&Self> {
        match (&self.shape, step) {
            (Shape::List(of) | Shape::Map(of), "@items" | "@values") => Some(of),
            (Shape::Object(fields), name) => fields.get(name).map(AsRef::as_ref),
            _ => None,
        }
    }

    /// Whether it has keys of any name.
    pub(super) const fn is_map(&self) -> bool {
        matches!(self.shape, Shape::Map(_))
    }

    /// All objects at and below it.
    pub(super) fn objects(&self) -> Objects {
        let mut objects = Objects::new();
        self.collect(&mut objects);
        objects
    }

    fn collect(&self, objects: &mut Objects) {
        match &self.shape {
            Shape::Plain => {}
            Shape::List(of) | Shape::Map(of) => of.collect(objects),
            Shape::Object(fields) => {
                if let Type::Object(name) = &self.of {
                    objects.insert(name.clone(), fields.clone());
                }
                fields.values().for_each(|field| field.collect(objects));
            }
        }
    }
}

/// How often something so large can be in one request.
pub(super) const fn most_often(least: u64) -> u64 {
    LARGEST_REQUEST / (least + 1)
}

/// What a schema declares; nothing if rules do not see such values. `whole` is for the root of an object.
pub(super) fn declared(schema: &Value, whole: bool) -> Option<Declared> {
    of_schema(schema, whole, "selfType")
}

fn of_schema(schema: &Value, whole: bool, name: &str) -> Option<Declared> {
    let text = |key: &str| schema[key].as_str().unwrap_or("");
    let count = |key: &str| schema[key].as_i64().map(|n| u64::try_from(n).unwrap_or(0));
    let embedded = |inner: &Value| inner["x-kubernetes-embedded-resource"] == Value::Bool(true);
    // A letter has up to four bytes.
    let letters = count("maxLength").map(|most| most.saturating_mul(4));
    if schema["x-kubernetes-int-or-string"] == Value::Bool(true) {
        let most = letters.unwrap_or(LARGEST_REQUEST - 2);
        return Some(Declared::plain(Type::Dyn, most, 1));
    }
    match text("type") {
        "array" => {
            let items = schema.get("items").filter(|items| items.is_object())?;
            let items = of_schema(items, embedded(items), &format!("{name}.@idx"))?;
            let most = count("maxItems").unwrap_or((LARGEST_REQUEST - 2) / (items.least + 1));
            Some(Declared {
                of: Type::list(items.of.clone()),
                shape: Shape::List(Arc::new(items)),
                most,
                least: 2,
            })
        }
        "object" => {
            let additional = schema.get("additionalProperties");
            if let Some(values) = additional.filter(|values| values.is_object()) {
                let values = of_schema(values, embedded(values), &format!("{name}.@elem"))?;
                let most =
                    count("maxProperties").unwrap_or((LARGEST_REQUEST - 2) / (values.least + 6));
                return Some(Declared {
                    of: Type::map(Type::Text, values.of.clone()),
                    shape: Shape::Map(Arc::new(values)),
                    most,
                    least: 2,
                });
            }
            Some(object(schema, whole, name))
        }
        "string" => {
            let unbounded = LARGEST_REQUEST - 2;
            let format = text("format");
            Some(match format {
                "byte" => {
                    let most = count("maxLength").unwrap_or(unbounded);
                    Declared::plain(Type::Bytes, most, 2)
                }
                "duration" => Declared::plain(Type::Duration, LONGEST_TIME, SHORTEST_DURATION),
                "date" => Declared::plain(Type::Timestamp, DATE, DATE),
                "date-time" => Declared::plain(Type::Timestamp, LONGEST_TIME, SHORTEST_TIME),
                _ => {
                    let most = letters.or_else(|| longest_of(schema)).unwrap_or(unbounded);
                    Declared::plain(Type::Text, most, 2)
                }
            })
        }
        "boolean" => Some(Declared::plain(Type::Bool, 0, 4)),
        "number" => Some(Declared::plain(Type::Double, 0, 1)),
        "integer" => Some(Declared::plain(Type::Int, 0, 1)),
        _ => None,
    }
}

fn longest_of(schema: &Value) -> Option<u64> {
    let values = schema["enum"].as_array().filter(|all| !all.is_empty())?;
    let lengths = values.iter().filter_map(Value::as_str).map(str::len);
    lengths.max().or(Some(0)).map(|most| most as u64)
}

fn object(schema: &Value, whole: bool, name: &str) -> Declared {
    let mut properties = schema["properties"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    if whole {
        with_metadata(&mut properties);
    }
    let required = schema["required"].as_array();
    let is_required = |key: &str| required.is_some_and(|all| all.iter().any(|one| one == key));
    let mut least = 2;
    let mut fields = BTreeMap::new();
    for (key, property) in &properties {
        let embedded = property["x-kubernetes-embedded-resource"] == Value::Bool(true);
        let escaped = super::escaped(key);
        let below = format!("{name}.{}", escaped.as_deref().unwrap_or(""));
        let Some(field) = of_schema(property, embedded, &below) else {
            continue;
        };
        let defaulted = property.get("default").is_some_and(|one| !one.is_null());
        if is_required(key) && !defaulted {
            least += key.len() as u64 + field.least + 4;
        }
        if let Some(escaped) = escaped {
            fields.insert(escaped, Arc::new(field));
        }
    }
    Declared {
        of: Type::Object(name.into()),
        shape: Shape::Object(fields),
        most: 0,
        least,
    }
}

/// What is always to be seen of a whole object.
fn with_metadata(properties: &mut Map<String, Value>) {
    let is = |path: &str, kind: &str| {
        let mut steps = path.split('/');
        let first = steps.next().and_then(|step| properties.get(step));
        let found = steps.try_fold(first, |found, step| {
            Some(found?.get("properties")?.get(step))
        });
        found.flatten().is_some_and(|found| found["type"] == kind)
    };
    let there = is("kind", "string")
        && is("apiVersion", "string")
        && is("metadata", "object")
        && is("metadata/name", "string")
        && is("metadata/generateName", "string");
    if there {
        return;
    }
    let text = json!({"type": "string"});
    properties.insert("kind".to_owned(), text.clone());
    properties.insert("apiVersion".to_owned(), text.clone());
    let names = json!({"name": text, "generateName": text});
    let metadata = json!({"type": "object", "properties": names});
    properties.insert("metadata".to_owned(), metadata);
}
