//! In which fields two objects differ, and how. Pure.

use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// A field that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// Where, as `spec.template.spec.containers[web].image`.
    pub path: String,
    /// What is there; absent where there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// What will be there; absent where there will be nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// Every field in which they differ, in the order of their paths. Items of lists are told apart by `name` where each has
/// one of its own, and else by their places.
pub fn differences(before: &Value, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("", Some(before), Some(after), &mut found);
    found
}

/// Changes of `manifest` without what a Secret holds, which is for no screen and no log: only in which fields it becomes
/// another.
pub fn without_secrets(manifest: &Value, mut changes: Vec<Difference>) -> Vec<Difference> {
    if manifest["kind"] == "Secret" && manifest["apiVersion"] == "v1" {
        let held = |it: &&mut Difference| !it.path.starts_with("metadata");
        for one in changes.iter_mut().filter(held) {
            (one.before, one.after) = (None, None);
        }
    }
    changes
}

fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Difference>) {
    match (before, after) {
        (before, after) if before == after => {}
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            objects(path, before, after, found);
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            lists(path, before, after, found);
        }
        (before, after) => found.push(Difference {
            path: path.to_owned(),
            before: before.cloned(),
            after: after.cloned(),
        }),
    }
}

fn objects(
    path: &str,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    found: &mut Vec<Difference>,
) {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for key in keys {
        let within = match (path, key.contains('.') || key.contains('/')) {
            ("", false) => key.clone(),
            (path, false) => format!("{path}.{key}"),
            (path, true) => format!("{path}[{key}]"),
        };
        compare(&within, before.get(key), after.get(key), found);
    }
}

fn lists(path: &str, before: &[Value], after: &[Value], found: &mut Vec<Difference>) {
    if let (Some(old), Some(new)) = (names(before), names(after)) {
        let item = |all: &'_ [Value], names: &[&str], name: &str| {
            let place = names.iter().position(|it| *it == name)?;
            all.get(place).cloned()
        };
        let all: BTreeSet<&str> = old.iter().chain(&new).copied().collect();
        let known = found.len();
        for name in all {
            let (one, other) = (item(before, &old, name), item(after, &new, name));
            let within = format!("{path}[{name}]");
            compare(&within, one.as_ref(), other.as_ref(), found);
        }
        if found.len() > known {
            return;
        }
        // The same items in another order.
        found.push(Difference {
            path: path.to_owned(),
            before: Some(before.into()),
            after: Some(after.into()),
        });
        return;
    }
    for place in 0..before.len().max(after.len()) {
        let within = format!("{path}[{place}]");
        compare(&within, before.get(place), after.get(place), found);
    }
}

/// The names of items, where each has one that no other has.
fn names(items: &[Value]) -> Option<Vec<&str>> {
    let names: Vec<&str> = items
        .iter()
        .map(|item| item.get("name")?.as_str())
        .collect::<Option<_>>()?;
    let different: BTreeSet<&&str> = names.iter().collect();
    (different.len() == names.len()).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_secret_holds_is_not_told() {
        let object = |api_version: &str, kind: &str, held: &str| {
            json!({"apiVersion": api_version, "kind": kind, "metadata": {"labels": {"l": held}},
                "data": {"password": held}, "stringData": {"token": held}})
        };
        for (api_version, kind, told) in [
            ("v1", "Secret", 1),
            ("v1", "ConfigMap", 3),
            ("example.com/v1", "Secret", 3),
        ] {
            let of = |held| object(api_version, kind, held);
            let found = without_secrets(&of("new"), differences(&of("old"), &of("new")));
            let paths: Vec<&str> = found.iter().map(|it| it.path.as_str()).collect();
            assert_eq!(
                paths,
                ["data.password", "metadata.labels.l", "stringData.token"]
            );
            let text = serde_json::to_string(&found).expect("JSON");
            for held in ["old", "new"] {
                assert_eq!(text.matches(held).count(), told, "{text}");
            }
        }
    }

    #[test]
    fn fields_are_told_where_they_are() {
        let before = json!({"a": 1, "b": {"c": "x", "d.e/f": "1"}, "same": [1, 2],
            "containers": [{"name": "web", "image": "a"}, {"name": "log", "image": "b"}],
            "args": ["x", "y"], "gone": true});
        let after = json!({"a": 2, "b": {"c": "x", "d.e/f": "2"}, "same": [1, 2],
            "containers": [{"name": "new", "image": "c"}, {"name": "web", "image": "a2"}],
            "args": ["x", "z", "w"]});
        let found = differences(&before, &after);
        let told: Vec<String> = found
            .iter()
            .map(|it| {
                let text =
                    |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), Value::to_string);
                format!("{} {} {}", it.path, text(&it.before), text(&it.after))
            })
            .collect();
        assert_eq!(
            told,
            [
                "a 1 2",
                r#"args[1] "y" "z""#,
                r#"args[2] - "w""#,
                r#"b[d.e/f] "1" "2""#,
                r#"containers[log] {"image":"b","name":"log"} -"#,
                r#"containers[new] - {"image":"c","name":"new"}"#,
                r#"containers[web].image "a" "a2""#,
                "gone true -",
            ]
        );
        assert_eq!(differences(&before, &before), []);
        let turned = differences(
            &json!([{"name": "a"}, {"name": "b"}]),
            &json!([{"name": "b"}, {"name": "a"}]),
        );
        assert_eq!(turned.len(), 1, "{turned:?}");
    }
}
