//! What a value replaces, as far as the two can be matched: an error in what did not change is
//! forgiven.

use crate::apiserver::schema::{ListType, MapType, Schema};
use serde_json::Value;

/// The value at the same place before an update.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Old<'a> {
    value: Option<&'a Value>,
}

impl<'a> Old<'a> {
    /// Before the object as a whole was written.
    pub(crate) fn root(value: Option<&'a Value>) -> Self {
        Self { value }
    }

    /// Nothing to compare with.
    pub(crate) fn none() -> Self {
        Self { value: None }
    }

    /// The value itself.
    pub(crate) fn value(self) -> Option<&'a Value> {
        self.value
    }

    /// Whether nothing changed here.
    pub(crate) fn is_same(self, new: &Value) -> bool {
        self.value == Some(new)
    }

    /// Below a key.
    pub(crate) fn key(self, key: &str) -> Self {
        Self {
            value: self.value.and_then(|value| value.get(key)),
        }
    }

    /// Below a key of an object, unless objects are replaced as a whole.
    pub(crate) fn field(self, schema: &Schema, key: &str) -> Self {
        match schema.map_type() {
            MapType::Granular => self.key(key),
            MapType::Atomic => Self::none(),
        }
    }

    /// The item that a list had for this one: by its keys, for only such lists have an order that
    /// does not matter.
    pub(crate) fn item(self, schema: &Schema, _at: usize, new: &Value) -> Self {
        let keys = schema.list_map_keys();
        let Some(Value::Array(old)) = self.value else {
            return Self::none();
        };
        if schema.list_type() != ListType::Map || keys.is_empty() {
            return Self::none();
        }
        let found = old.iter().find(|item| {
            keys.iter()
                .all(|key| item.get(key.as_ref()) == new.get(key.as_ref()))
        });
        Self { value: found }
    }
}
