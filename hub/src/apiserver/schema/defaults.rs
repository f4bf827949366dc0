//! Defaults that a schema names.

use super::{Go, Schema};
use serde_json::{Map, Value};

impl Schema {
    /// Puts defaults where nothing is, and drops a null where none may be.
    pub fn apply_defaults(&self, value: &mut Value) {
        match value {
            Value::Object(object) => {
                self.default_fields(object);
                object.retain(|key, inner| {
                    let Some(child) = self.child(key) else {
                        return true;
                    };
                    if inner.is_null() && !child.nullable && child.go() == &Go::None {
                        match child.default_value() {
                            Some(default) => *inner = default.clone(),
                            // Any value may be null where nothing is said about it.
                            None => return false,
                        }
                    }
                    child.apply_defaults(inner);
                    true
                });
            }
            Value::Array(list) => {
                if let Some(items) = self.items() {
                    for item in list {
                        if item.is_null()
                            && !items.nullable
                            && let Some(default) = items.useful_default()
                        {
                            *item = default.clone();
                        }
                        items.apply_defaults(item);
                    }
                }
            }
            _ => {}
        }
    }

    /// The same for the fields of one object.
    pub(super) fn default_fields(&self, object: &mut Map<String, Value>) {
        for (name, field) in self.properties() {
            let missing = match object.get(name) {
                None => true,
                Some(Value::Null) => !field.nullable,
                Some(_) => false,
            };
            if missing && let Some(default) = field.useful_default() {
                object.insert(name.to_owned(), default.clone());
            }
        }
    }

    /// For built-in types OpenAPI also names the zero values that Go writes, which
    /// [`Schema::coerce`] has put in place, and an empty object for every struct; only of a pointer
    /// is a zero value more than nothing.
    fn useful_default(&self) -> Option<&Value> {
        let default = self.default_value()?;
        if self.go() == &Go::None || (self.is_pointer() && !default.is_object()) {
            return Some(default);
        }
        let zero = match default {
            Value::Object(object) => object.is_empty(),
            Value::String(text) => text.is_empty(),
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::Bool(set) => !set,
            Value::Null | Value::Array(_) => true,
        };
        (!zero).then_some(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_fill_what_is_missing_at_every_depth() {
        let schema = Schema::of_crd(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "default": {},
            "properties": {
                "a": {"type": "string", "default": "x"},
                "n": {"type": "string", "nullable": true, "default": "y"},
                "drop": {"type": "string"},
                "list": {"type": "array", "items": {"type": "object",
                    "properties": {"p": {"type": "string", "default": "TCP"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object",
                    "properties": {"q": {"type": "integer", "default": 3}}}},
            }}}}),
            false,
        );
        let mut empty = json!({});
        schema.apply_defaults(&mut empty);
        assert_eq!(empty, json!({"spec": {"a": "x", "n": "y"}}));
        let mut object = json!({"spec": {"a": null, "n": null, "drop": null, "list": [{}, {"p": "UDP"}],
                                         "map": {"k": {}}}});
        schema.apply_defaults(&mut object);
        assert_eq!(
            object,
            json!({"spec": {"a": "x", "n": null, "list": [{"p": "TCP"}, {"p": "UDP"}],
                            "map": {"k": {"q": 3}}}})
        );
    }
}
