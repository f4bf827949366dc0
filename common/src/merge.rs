//! The smallest merge patch (RFC 7386) between two JSON values. Pure.

use serde_json::{Map, Value};

/// What a merge patch must say so that `from` becomes `to`; none when they are equal. Maps are compared key by
/// key, lists are replaced whole. `to` has no null in its maps, which a merge patch cannot say.
pub fn difference(from: &Value, to: &Value) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return Some(to.clone());
    };
    let mut patch = Map::new();
    for (key, value) in to {
        let change = match from.get(key) {
            Some(old) => difference(old, value),
            None => Some(value.clone()),
        };
        patch.extend(change.map(|change| (key.clone(), change)));
    }
    let gone = from.keys().filter(|key| !to.contains_key(*key));
    patch.extend(gone.map(|key| (key.clone(), Value::Null)));
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_differs_is_said() {
        let from = json!({"a": 1, "b": {"c": [1], "d": 2}, "e": {}});
        assert_eq!(difference(&from, &from), None);
        let to = json!({"a": 1, "b": {"c": [2]}, "f": "x"});
        let patch = json!({"b": {"c": [2], "d": null}, "e": null, "f": "x"});
        assert_eq!(difference(&from, &to), Some(patch));
        assert_eq!(difference(&json!([1]), &json!({})), Some(json!({})));
    }
}
