//! Field overriders: changes of JSON or YAML that lies in a text, such as a file in a ConfigMap.
//!
//! Pure. JSON keeps its order and numbers where nothing changes; YAML is written anew, with its keys sorted and
//! without comments.

use super::document::Node;
use super::patch::{self, Operation, PatchError, unescaped};
use super::yaml::{self, YamlError};
use common::api::override_policy::FieldOverrider;
use serde_json::Value;

/// Why a field cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The path leads nowhere.
    #[error("object has no key {0:?}: JSON pointer error")]
    NoKey(String),
    /// The path is none.
    #[error("JSON pointer must be empty or start with a \"/\": {0:?}")]
    NoPointer(String),
    /// What is there is no text.
    #[error("Get object's value by overrider's path({0}) is not string")]
    NotString(String),
    /// The text is no JSON.
    #[error("the field is no JSON: {0}")]
    Json(String),
    /// The text is no YAML.
    #[error(transparent)]
    Yaml(#[from] YamlError),
    /// An operation does not apply to the document.
    #[error(transparent)]
    Patch(#[from] PatchError),
}

/// Carries out one overrider; with both forms given, only that of YAML counts, as in Karmada.
pub(super) fn apply(manifest: &mut Value, overrider: &FieldOverrider) -> Result<(), FieldError> {
    let found = find(manifest, &overrider.field_path)?;
    let Value::String(text) = found else {
        return Err(FieldError::NotString(overrider.field_path.clone()));
    };
    if !overrider.yaml.is_empty() {
        let mut document = Node::Leaf(yaml::parse(text)?);
        patch::apply(&mut document, overrider.yaml.iter().map(Operation::from))?;
        *text = common::yaml::document(&document.into_value());
    } else if !overrider.json.is_empty() {
        let mut document = Node::parse(text).map_err(|why| FieldError::Json(why.to_string()))?;
        patch::apply(&mut document, overrider.json.iter().map(Operation::from))?;
        *text = document.to_text();
    }
    Ok(())
}

fn find<'v>(manifest: &'v mut Value, path: &str) -> Result<&'v mut Value, FieldError> {
    let Some(rest) = path.strip_prefix('/') else {
        return Err(FieldError::NoPointer(path.to_owned()));
    };
    rest.split('/').try_fold(manifest, |at, part| {
        let key = unescaped(part);
        let found = match at {
            Value::Object(members) => members.get_mut(&key),
            Value::Array(items) => key.parse().ok().and_then(|at: usize| items.get_mut(at)),
            _ => None,
        };
        found.ok_or(FieldError::NoKey(key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn changed(text: &str, form: &str, patches: Value) -> Result<String, String> {
        let mut manifest = json!({"data": {"a/b": text, "n": 7}});
        let overrider = json!({"fieldPath": "/data/a~1b", form: patches});
        let overrider = serde_json::from_value(overrider).expect("an overrider");
        apply(&mut manifest, &overrider).map_err(|error| error.to_string())?;
        Ok(manifest["data"]["a/b"].as_str().expect("a text").to_owned())
    }

    #[test]
    fn documents_in_texts_are_changed() {
        let json_text = "{\n  \"z\": 1.0, \"a\": {\"b\": 1},\n \"l\": [1, 2]}";
        let set =
            |value: Value| json!([{"subPath": "/a/b", "operator": "replace", "value": value}]);
        let cases = [
            (
                json_text,
                "json",
                set(json!("two")),
                r#"{"z":1.0,"a":{"b":"two"},"l":[1,2]}"#,
            ),
            (
                json_text,
                "json",
                json!([{"subPath": "/n", "operator": "add", "value": [1, null]}, {"subPath": "/z", "operator": "remove"}]),
                r#"{"a":{"b":1},"l":[1,2],"n":[1,null]}"#,
            ),
            (
                "a:\n  b: 1 # why\nc: 'no'\n",
                "yaml",
                set(json!(2)),
                "a:\n  b: 2\nc: \"no\"\n",
            ),
            (
                "a: {b: 1}\non: yes\n",
                "yaml",
                set(json!("n")),
                "a:\n  b: \"n\"\n\"on\": true\n",
            ),
            (
                "",
                "yaml",
                json!([{"subPath": "", "operator": "add", "value": {"a": 1}}]),
                "a: 1\n",
            ),
        ];
        for (text, form, patches, want) in cases {
            assert_eq!(changed(text, form, patches), Ok(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_changed_says_why() {
        let remove = json!([{"subPath": "/x", "operator": "remove"}]);
        let cases = [
            ("{no json", "json", "the field is no JSON: "),
            ("{no yaml", "yaml", "the field is no YAML: "),
            (
                "{}",
                "json",
                "error in remove for path: '/x': unable to remove nonexistent key: x: missing value",
            ),
            (
                "{}",
                "yaml",
                "error in remove for path: '/x': unable to remove nonexistent key: x: missing value",
            ),
        ];
        for (text, form, want) in cases {
            let error = changed(text, form, remove.clone()).expect_err(text);
            assert!(error.starts_with(want), "{error}");
        }
        let paths = [
            (
                "/data/absent",
                "object has no key \"absent\": JSON pointer error",
            ),
            (
                "/data/n",
                "Get object's value by overrider's path(/data/n) is not string",
            ),
            (
                "/data",
                "Get object's value by overrider's path(/data) is not string",
            ),
            ("/data/n/x", "object has no key \"x\": JSON pointer error"),
            (
                "data",
                "JSON pointer must be empty or start with a \"/\": \"data\"",
            ),
        ];
        for (path, want) in paths {
            let mut manifest = json!({"data": {"n": 7}});
            let overrider = json!({"fieldPath": path, "yaml": remove});
            let overrider = serde_json::from_value(overrider).expect("an overrider");
            let error = apply(&mut manifest, &overrider).expect_err(path);
            assert_eq!(error.to_string(), want);
        }
    }
}
