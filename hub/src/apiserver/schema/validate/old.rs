//! What a value replaces, as far as the two can be matched: an error in what did not change is
//! forgiven.

use crate::apiserver::schema::{ListType, Schema};
use serde_json::Value;
use std::cell::OnceCell;
use std::collections::HashMap;

/// A value and what stood in its place before an update.
#[derive(Debug, Clone, Copy)]
struct Pair<'a> {
    schema: &'a Schema,
    new: &'a Value,
    old: &'a Value,
}

impl Pair<'_> {
    fn is_same(&self) -> bool {
        is_same(self.schema, self.new, self.old)
    }
}

/// The value at the same place before an update.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Old<'a> {
    value: Option<&'a Value>,
    here: Option<Pair<'a>>,
    /// The nearest value above that could be matched.
    above: Option<Pair<'a>>,
}

impl<'a> Old<'a> {
    /// Before the object as a whole was written.
    pub(crate) fn root(schema: &'a Schema, new: &'a Value, old: Option<&'a Value>) -> Self {
        let pair = |old| Pair { schema, new, old };
        Self {
            value: old,
            here: old.map(pair),
            above: None,
        }
    }

    /// Nothing to compare with.
    pub(crate) fn none() -> Self {
        Self {
            value: None,
            here: None,
            above: None,
        }
    }

    /// The value itself. What was null was nothing.
    pub(crate) fn value(self) -> Option<&'a Value> {
        self.value.filter(|value| !value.is_null())
    }

    /// Whether nothing changed here.
    pub(crate) fn is_same(self) -> bool {
        self.here.is_some_and(|pair| pair.is_same())
    }

    /// Where to look whether something changed: here, or in what holds a value that cannot be
    /// matched.
    pub(crate) fn unchanged(self, known: &mut Known) -> bool {
        let Some(pair) = self.here.or(self.above) else {
            return false;
        };
        let address = std::ptr::from_ref(pair.new).addr();
        *known.0.entry(address).or_insert_with(|| pair.is_same())
    }

    /// Without what is matched here, as branches of a schema are seen.
    pub(crate) fn of_branch(self) -> Self {
        Self { here: None, ..self }
    }

    /// Below a key, with what stands there now.
    pub(crate) fn key(self, key: &str, schema: &'a Schema, new: &'a Value) -> Self {
        let below = self.value.and_then(|value| value.get(key));
        let is_kind = self.above.is_none() && matches!(key, "apiVersion" | "kind");
        match self.here {
            Some(_) if is_kind => Self {
                value: below,
                ..Self::none()
            },
            here => self.below(here, below, schema, new),
        }
    }

    /// The items that a list had.
    pub(crate) fn items(self, schema: &'a Schema) -> Items<'a> {
        let keyed = schema.list_type() == ListType::Map && !schema.list_map_keys().is_empty();
        let list = match self.value {
            Some(Value::Array(list)) if keyed => list.as_slice(),
            _ => &[],
        };
        Items {
            old: self,
            list: Keyed::of(schema, list),
        }
    }

    fn below(
        self,
        here: Option<Pair<'a>>,
        value: Option<&'a Value>,
        schema: &'a Schema,
        new: &'a Value,
    ) -> Self {
        Self {
            value,
            here: here.and(value).map(|old| Pair { schema, new, old }),
            above: here.or(self.above),
        }
    }
}

/// What was found to be unchanged, by where it stands.
#[derive(Debug, Default)]
pub(crate) struct Known(HashMap<usize, bool>);

/// The items of a list before an update.
pub(crate) struct Items<'a> {
    old: Old<'a>,
    list: Keyed<'a>,
}

impl<'a> Items<'a> {
    /// The one that stood for this one: by its keys, for only such lists have an order that does not
    /// matter.
    pub(crate) fn of(&self, at: usize, schema: &'a Schema, new: &'a Value) -> Old<'a> {
        let value = self.list.find(at, new);
        self.old.below(self.old.here, value, schema, new)
    }
}

/// A list whose items are known by their keys.
struct Keyed<'a> {
    schema: &'a Schema,
    list: &'a [Value],
    /// Made when an item does not stand where it stood.
    index: OnceCell<HashMap<String, &'a Value>>,
}

impl<'a> Keyed<'a> {
    fn of(schema: &'a Schema, list: &'a [Value]) -> Self {
        Self {
            schema,
            list,
            index: OnceCell::new(),
        }
    }

    fn find(&self, at: usize, item: &Value) -> Option<&'a Value> {
        let keys = self.schema.list_map_keys();
        let key_of = |item: &Value| -> String {
            let values = keys.iter().map(|key| item.get(key.as_ref()));
            values.map(|value| format!("{value:?},")).collect()
        };
        let same = |there: &&Value| {
            let mut keys = keys.iter();
            keys.all(|key| there.get(key.as_ref()) == item.get(key.as_ref()))
        };
        if let Some(there) = self.list.get(at).filter(same) {
            return Some(there);
        }
        if self.list.is_empty() {
            return None;
        }
        let index = self.index.get_or_init(|| {
            let all = self.list.iter();
            all.map(|item| (key_of(item), item)).collect()
        });
        index.get(&key_of(item)).copied()
    }
}

/// Whether two values are the same for a schema: the order of items that have keys does not matter, and
/// what the schema does not know is never the same.
fn is_same(schema: &Schema, new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Array(new), Value::Array(old)) => {
            let keyed = schema.list_type() == ListType::Map && !schema.list_map_keys().is_empty();
            if new.len() != old.len() || !keyed {
                return new == old;
            }
            let old = Keyed::of(schema, old);
            new.iter().enumerate().all(|(at, item)| {
                let pair = schema.items().zip(old.find(at, item));
                pair.is_some_and(|(items, old)| is_same(items, item, old))
            })
        }
        (Value::Object(new), Value::Object(old)) => {
            new.len() == old.len()
                && new.iter().all(|(key, inner)| {
                    let child = schema.child(key);
                    let child = child.filter(|child| child.definition().is_none());
                    let pair = child.zip(old.get(key));
                    pair.is_some_and(|(child, old)| is_same(child, inner, old))
                })
        }
        (new, old) => new == old,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_known_by_keys_may_move() {
        let schema = Schema::from_openapi(&json!({"type": "object", "properties": {
            "map": {"type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {
                    "k": {"type": "string"}, "v": {"type": "array", "items": {"type": "string"}}}}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}));
        let same = |new: Value, old: Value| is_same(&schema, &new, &old);
        assert!(same(
            json!({"map": [{"k": "a", "v": ["x"]}, {"k": "b"}]}),
            json!({"map": [{"k": "b"}, {"k": "a", "v": ["x"]}]})
        ));
        assert!(!same(
            json!({"map": [{"k": "a", "v": ["x"]}]}),
            json!({"map": [{"k": "a", "v": ["y"]}]})
        ));
        assert!(!same(
            json!({"set": ["a", "b"]}),
            json!({"set": ["b", "a"]})
        ));
        assert!(!same(json!({"any": {"x": 1}}), json!({"any": {"x": 1}})));
        assert!(same(json!({"any": {}}), json!({"any": {}})));
    }
}
