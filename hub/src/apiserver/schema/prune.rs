//! Fields that a schema does not know are dropped, and named.

use super::{Go, Schema};
use serde_json::Value;
use std::fmt::Write as _;

const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// Removes fields that are not declared and returns their paths, sorted: `spec.foo`,
    /// `spec.list[0].bar`.
    pub fn prune(&self, value: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        let mut path = String::new();
        walk(Some(self), value, &mut path, &mut unknown);
        unknown.sort();
        unknown
    }
}

fn below(path: &mut String, key: &str) -> usize {
    let length = path.len();
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
    length
}

fn walk(schema: Option<&Schema>, value: &mut Value, path: &mut String, unknown: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            let keeps = schema.is_some_and(Schema::preserves_unknown);
            let whole = schema.is_some_and(Schema::is_embedded);
            object.retain(|key, inner| {
                let length = below(path, key);
                let declared = schema.and_then(|schema| schema.child(key));
                // A map whose values have no schema, and unions, check themselves.
                let kept = match declared {
                    Some(declared) => {
                        walk(Some(declared), inner, path, unknown);
                        true
                    }
                    None => {
                        keeps || opaque(schema) || (whole && META_FIELDS.contains(&key.as_str()))
                    }
                };
                if !kept {
                    unknown.push(path.clone());
                }
                path.truncate(length);
                kept
            });
        }
        Value::Array(list) => {
            if schema.is_some_and(|s| s.preserves_unknown() && s.items().is_none())
                || opaque(schema)
            {
                return;
            }
            let items = schema.and_then(Schema::items);
            for (at, item) in list.iter_mut().enumerate() {
                let length = path.len();
                // Writing to a String cannot fail.
                let _ = write!(path, "[{at}]");
                walk(items, item, path, unknown);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

/// Types that read themselves; what they do not know, they drop without a word.
fn opaque(schema: Option<&Schema>) -> bool {
    schema.is_some_and(|schema| {
        matches!(
            schema.go(),
            Go::PropsOrBool
                | Go::PropsOrArray
                | Go::PropsOrStrings
                | Go::Json
                | Go::Raw
                | Go::Fields
                | Go::Quantity
                | Go::IntOrString
        ) || (schema.go() != &Go::None
            && !matches!(schema.go(), Go::Struct(_) | Go::Map | Go::Slice))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_declared_goes_and_is_named() {
        let schema = Schema::of_crd(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "known": {"type": "string"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                         "properties": {"closed": {"type": "object"}}},
                "whole": {"type": "object", "x-kubernetes-embedded-resource": true},
            }}}}),
            false,
        );
        let mut object = json!({"apiVersion": "a/v1", "kind": "K", "extra": 1,
            "metadata": {"name": "x", "nonsense": 1},
            "spec": {"known": "k", "unknown": {}, "list": [{"a": "1"}, {"b": 1}],
                     "map": {"any": "x"}, "open": {"free": {"deep": 1}, "closed": {"gone": 1}},
                     "whole": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n", "bad": 1}, "no": 1}}});
        let unknown = schema.prune(&mut object);
        assert_eq!(
            unknown,
            [
                "extra",
                "metadata.nonsense",
                "spec.list[1].b",
                "spec.open.closed.gone",
                "spec.unknown",
                "spec.whole.metadata.bad",
                "spec.whole.no"
            ]
        );
        assert_eq!(
            object["spec"],
            json!({"known": "k", "list": [{"a": "1"}, {}], "map": {"any": "x"},
                   "open": {"free": {"deep": 1}, "closed": {}},
                   "whole": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "n"}}})
        );
    }
}
