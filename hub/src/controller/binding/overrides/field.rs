//! Field overriders: changes of JSON or YAML that lies in a text, such as a file in a ConfigMap.
//!
//! Pure. JSON keeps its order and numbers where nothing changes; YAML is written anew, with its keys sorted and
//! without comments. A text is read once for all that follow each other and change it.

use super::budget::{Budget, TooMuch};
use super::document::Node;
use super::patch::{self, Operation, PatchError, unescaped};
use crate::go::settle_numbers;
use crate::yaml::{self, YamlError};
use common::api::override_policy::FieldOverrider;
use common::interpreter::guard;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

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
    #[error("the field {0}")]
    Yaml(#[from] YamlError),
    /// An operation does not apply to the document.
    #[error(transparent)]
    Patch(#[from] PatchError),
    /// All overrides together do too much.
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
}

/// Texts of a manifest that are read, and not written back yet; by the keys that lead to them.
#[derive(Debug, Default)]
pub(super) struct Opened(BTreeMap<Vec<String>, Document>);

#[derive(Debug)]
enum Document {
    Json(Node<Box<RawValue>>),
    Yaml(Node<Value>),
}

impl Document {
    fn into_text(self) -> String {
        match self {
            Self::Json(document) => document.to_text(),
            Self::Yaml(document) => {
                let mut value = document.into_value();
                // What a patch has brought, as it would be read again.
                settle_numbers(&mut value);
                common::yaml::document(&value)
            }
        }
    }
}

impl Opened {
    /// Carries out one overrider; with both forms given, only that of YAML counts, as in Karmada.
    pub(super) fn change(
        &mut self,
        manifest: &mut Value,
        overrider: &FieldOverrider,
        budget: &Budget,
    ) -> Result<(), FieldError> {
        let (keys, found) = find(manifest, &overrider.field_path)?;
        let Value::String(text) = found else {
            return Err(FieldError::NotString(overrider.field_path.clone()));
        };
        if !overrider.yaml.is_empty() {
            let mut document = match self.0.remove(&keys) {
                Some(Document::Yaml(document)) => document,
                other => {
                    write_back(text, other);
                    budget.spend(text.len())?;
                    Node::Leaf(yaml::parse(text)?)
                }
            };
            let operations = overrider.yaml.iter().map(Operation::from);
            patch::apply(&mut document, operations, budget)?;
            self.0.insert(keys, Document::Yaml(document));
        } else if !overrider.json.is_empty() {
            let mut document = match self.0.remove(&keys) {
                Some(Document::Json(document)) => document,
                other => {
                    write_back(text, other);
                    budget.spend(text.len())?;
                    Node::parse(text).map_err(|why| FieldError::Json(why.to_string()))?
                }
            };
            let operations = overrider.json.iter().map(Operation::from);
            patch::apply(&mut document, operations, budget)?;
            self.0.insert(keys, Document::Json(document));
        }
        Ok(())
    }

    /// Writes everything back.
    pub(super) fn close(&mut self, manifest: &mut Value) {
        for (keys, document) in std::mem::take(&mut self.0) {
            write(manifest, &keys, document);
        }
    }

    /// Writes back what is held against the manifest as it was.
    pub(super) fn close_guarded(&mut self, manifest: &mut Value) {
        let guarded = |keys: &[String]| keys.first().is_none_or(|key| guard::looks_at(key));
        for (keys, document) in self.0.extract_if(.., |keys, _| guarded(keys)) {
            write(manifest, &keys, document);
        }
    }
}

fn write_back(text: &mut String, document: Option<Document>) {
    if let Some(document) = document {
        *text = document.into_text();
    }
}

fn write(manifest: &mut Value, keys: &[String], document: Document) {
    let found = keys.iter().try_fold(manifest, |at, key| member(at, key));
    if let Some(found) = found {
        *found = document.into_text().into();
    }
}

/// What lies at a path, and the keys that lead there, each written in one way only.
fn find<'v>(
    manifest: &'v mut Value,
    path: &str,
) -> Result<(Vec<String>, &'v mut Value), FieldError> {
    let Some(rest) = path.strip_prefix('/') else {
        return Err(FieldError::NoPointer(path.to_owned()));
    };
    let mut keys = Vec::new();
    let mut at = manifest;
    for part in rest.split('/') {
        let mut key = unescaped(part);
        if at.is_array()
            && let Ok(position) = key.parse::<usize>()
        {
            key = position.to_string();
        }
        let Some(found) = member(at, &key) else {
            return Err(FieldError::NoKey(unescaped(part)));
        };
        at = found;
        keys.push(key);
    }
    Ok((keys, at))
}

fn member<'v>(at: &'v mut Value, key: &str) -> Option<&'v mut Value> {
    match at {
        Value::Object(members) => members.get_mut(key),
        Value::Array(items) => key.parse().ok().and_then(|at: usize| items.get_mut(at)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Carries out overriders one after the other; what they came to.
    fn apply(manifest: &mut Value, overriders: &[FieldOverrider]) -> Result<usize, FieldError> {
        let (mut opened, budget) = (Opened::default(), Budget::new());
        for overrider in overriders {
            opened.change(manifest, overrider, &budget)?;
        }
        opened.close(manifest);
        Ok(budget.spent())
    }

    fn changed(text: &str, form: &str, patches: Value) -> Result<String, String> {
        let mut manifest = json!({"data": {"a/b": text, "n": 7}});
        let overrider = json!({"fieldPath": "/data/a~1b", form: patches});
        let overrider = serde_json::from_value(overrider).expect("an overrider");
        apply(&mut manifest, &[overrider]).map_err(|error| error.to_string())?;
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
                json!([{"subPath": "", "operator": "add", "value": {"a": 1.0}}]),
                "a: 1\n",
            ),
            (
                "# Either 'yes' or \"no\"\na: {b: no}\nlisten: no\nperm: 0644\nshown: '0644'\nlimit: 1e3\n",
                "yaml",
                set(json!("no")),
                "a:\n  b: \"no\"\nlimit: 1000\nlisten: false\nperm: 420\nshown: \"0644\"\n",
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
            let error = apply(&mut manifest, &[overrider]).expect_err(path);
            assert_eq!(error.to_string(), want);
        }
    }

    #[test]
    fn a_text_is_read_once_for_all_that_follow_each_other() {
        let at = |path: &str, form: &str, subpath: &str, value: Value| -> FieldOverrider {
            let change = json!([{"subPath": subpath, "operator": "add", "value": value}]);
            serde_json::from_value(json!({"fieldPath": path, form: change})).expect("an overrider")
        };
        let manifest = json!({"data": {"y": "a: 'yes'\nb: 0644\nc: 1.0\n", "j": "{\"a\": 1.0, \"b\": [1]}",
            "both": "{\"a\": 1}"}, "list": ["{}"]});
        let overriders = [
            at("/data/y", "yaml", "/d", json!("on")),
            at("/data/j", "json", "/z", json!({"k": null})),
            at("/list/0", "yaml", "/a", json!("0644")),
            at("/data/y", "yaml", "/e", json!(2.0)),
            at("/data/j", "json", "/b/0", json!(0)),
            // Other ways to say the same.
            at("/list/00", "yaml", "/b", json!(1)),
            at("/data/both", "json", "/b", json!(true)),
            at("/data/both", "yaml", "/c", json!("off")),
            at("/data/y", "yaml", "/d", json!("no")),
        ];
        let mut together = manifest.clone();
        apply(&mut together, &overriders).expect("they apply");
        let mut each = manifest;
        for overrider in overriders {
            apply(&mut each, &[overrider]).expect("it applies");
        }
        assert_eq!(together, each);

        let long = format!("k: {}\n", "x".repeat(1 << 20));
        for form in ["yaml", "json"] {
            let mut manifest = json!({"data": {"a": long}});
            if form == "json" {
                manifest["data"]["a"] = json!({"k": long}).to_string().into();
            }
            let many = vec![at("/data/a", form, "/k", json!(1)); 1000];
            let spent = apply(&mut manifest, &many).expect("they apply");
            assert!(spent < 3 << 20, "{form}: {spent}");
        }
    }
}
