//! JSON merge patch: objects member by member, null removes, everything else replaces.

use serde_json::Value;

/// Merges `patch` into `current`.
pub(super) fn apply(current: Value, patch: Value) -> Value {
    match (current, patch) {
        (Value::Object(mut current), Value::Object(patch)) => {
            for (key, value) in patch {
                if value.is_null() {
                    current.remove(&key);
                    continue;
                }
                let merged = match current.remove(&key) {
                    None | Some(Value::Null) => without_nulls(value),
                    Some(old) => apply(old, value),
                };
                current.insert(key, merged);
            }
            Value::Object(current)
        }
        (_, patch) => without_nulls(patch),
    }
}

/// What a patch says where nothing was: null members have nothing to remove.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => members
            .into_iter()
            .filter(|(_, member)| !member.is_null())
            .map(|(key, member)| (key, without_nulls(member)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_merge_and_null_removes() {
        let cases = [
            (json!({"a": 1}), json!({"b": 2}), json!({"a": 1, "b": 2})),
            (json!({"a": 1, "b": 2}), json!({"a": null}), json!({"b": 2})),
            (
                json!({"a": {"b": 1}}),
                json!({"a": {"c": 2}}),
                json!({"a": {"b": 1, "c": 2}}),
            ),
            (json!({"a": [1, 2]}), json!({"a": [3]}), json!({"a": [3]})),
            (
                json!({"a": [1]}),
                json!({"a": {"b": null, "c": 1}}),
                json!({"a": {"c": 1}}),
            ),
            (
                json!({}),
                json!({"a": {"b": {"c": null}}}),
                json!({"a": {"b": {}}}),
            ),
            (
                json!({"a": 1}),
                json!({"a": [null, {"b": null}]}),
                json!({"a": [null, {}]}),
            ),
        ];
        for (live, patch, wanted) in cases {
            assert_eq!(apply(live.clone(), patch.clone()), wanted, "{live} {patch}");
        }
    }
}
