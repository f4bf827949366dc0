//! What neither an override nor a script may change of an object: which object it is, whose it is, and the marks of the system on it.
//!
//! Pure. Whoever may write an OverridePolicy decides about objects of its namespace and about nothing else.

use crate::labels::{CONFLICT_RESOLUTION, DELETION, RETAIN_REPLICAS};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Fields that say which object it is, and whose.
const FIELDS: [&str; 6] = [
    "/apiVersion",
    "/kind",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/ownerReferences",
    "/metadata/finalizers",
];
const MAPS: [&str; 2] = ["/metadata/labels", "/metadata/annotations"];
/// Keys of the system's domains by which users say what is to become of their objects.
const OF_USERS: [&str; 3] = [CONFLICT_RESOLUTION, RETAIN_REPLICAS, DELETION];

/// What was done that may not be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// It changed what is not for it to change.
    #[error(
        "{0} must not be changed: neither an override nor a script decides which object it is, whose it is, or what the system marks it with"
    )]
    Change(String),
    /// It left something else than texts by their keys.
    #[error("{0} would no longer be a map of texts")]
    Texts(String),
}

/// What of a manifest must stay, by its path.
#[derive(Debug, Clone, PartialEq)]
pub struct Guarded(BTreeMap<String, Value>);

impl Guarded {
    /// Of a manifest before it is changed.
    pub fn of(manifest: &Value) -> Self {
        let field = |path: &str| Some((path.to_owned(), manifest.pointer(path)?.clone()));
        let mut guarded: BTreeMap<String, Value> =
            FIELDS.iter().filter_map(|path| field(path)).collect();
        for map in MAPS {
            let keys = manifest.pointer(map).and_then(Value::as_object);
            for (key, value) in keys.into_iter().flatten() {
                if is_of_the_system(key) {
                    let key = key.replace('~', "~0").replace('/', "~1");
                    guarded.insert(format!("{map}/{key}"), value.clone());
                }
            }
        }
        Self(guarded)
    }

    /// Compares with the manifest after that; the error names the first path that differs.
    pub fn check(&self, manifest: &Value) -> Result<(), Forbidden> {
        let Self(after) = Self::of(manifest);
        let differs = |path: &&String| self.0.get(*path) != after.get(*path);
        let gone = self.0.keys().find(differs);
        if let Some(path) = gone.or_else(|| after.keys().find(differs)) {
            return Err(Forbidden::Change(path.clone()));
        }
        for path in MAPS {
            let is_texts = |map: &Map<String, Value>| map.values().all(Value::is_string);
            let sound = match manifest.pointer(path) {
                None | Some(Value::Null) => true,
                Some(Value::Object(map)) => is_texts(map),
                Some(_) => false,
            };
            if !sound {
                return Err(Forbidden::Texts(path.to_owned()));
            }
        }
        Ok(())
    }
}

/// Whether a key of a label or annotation is the system's.
pub fn is_of_the_system(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let within = |ours: &str| {
        domain
            .strip_suffix(ours)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    (within("karmada.io") || within("towline.dev")) && !OF_USERS.contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest() -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"}, "metadata": {
            "name": "c", "namespace": "n", "ownerReferences": [{"name": "o"}],
            "labels": {"a": "1", "propagationpolicy.karmada.io/permanent-id": "p"},
            "annotations": {"b": "1", "towline.dev/x": "1"}}})
    }

    #[test]
    fn what_is_the_users_may_change() {
        let changes = [
            ("/data", json!({"x": "y"})),
            ("/metadata/labels/a", json!("2")),
            ("/metadata/annotations/b", json!("2")),
            ("/metadata/uid", json!("u")),
        ];
        for (path, value) in changes {
            let mut after = manifest();
            let (parent, key) = path.rsplit_once('/').expect("a path");
            after.pointer_mut(parent).expect("there")[key] = value;
            assert_eq!(Guarded::of(&manifest()).check(&after), Ok(()), "{path}");
        }
        for key in OF_USERS {
            let mut after = manifest();
            after["metadata"]["annotations"][key] = json!("overwrite");
            assert_eq!(Guarded::of(&manifest()).check(&after), Ok(()), "{key}");
        }
        let mut after = manifest();
        after["metadata"]["labels"]["notkarmada.io/x"] = json!("1");
        assert_eq!(Guarded::of(&manifest()).check(&after), Ok(()));
    }

    #[test]
    fn nothing_else_may() {
        type Edit = fn(&mut Value);
        const KEY: &str = "propagationpolicy.karmada.io/permanent-id";
        let escaped = "/metadata/labels/propagationpolicy.karmada.io~1permanent-id";
        let changed = |edit: Edit| {
            let mut after = manifest();
            edit(&mut after);
            Guarded::of(&manifest()).check(&after).expect_err("refused")
        };
        let change = |path: &str| Forbidden::Change(path.to_owned());
        let texts = |path: &str| Forbidden::Texts(path.to_owned());
        let cases: [(Edit, Forbidden); 16] = [
            (|m| m["apiVersion"] = json!("v2"), change("/apiVersion")),
            (|m| m["kind"] = json!("Secret"), change("/kind")),
            (
                |m| m["metadata"]["name"] = json!("d"),
                change("/metadata/name"),
            ),
            (
                |m| m["metadata"]["namespace"] = json!("kube-system"),
                change("/metadata/namespace"),
            ),
            (
                |m| m["metadata"]["namespace"] = json!(null),
                change("/metadata/namespace"),
            ),
            (
                |m| m["metadata"]["ownerReferences"] = json!([]),
                change("/metadata/ownerReferences"),
            ),
            (
                |m| m["metadata"]["finalizers"] = json!(["f"]),
                change("/metadata/finalizers"),
            ),
            (
                |m| m["metadata"] = json!({}),
                change("/metadata/annotations/towline.dev~1x"),
            ),
            (|m| *m = json!([]), change("/apiVersion")),
            (|m| m["metadata"]["labels"] = json!({}), change(escaped)),
            (
                |m| m["metadata"]["labels"][KEY] = json!("q"),
                change(escaped),
            ),
            (
                |m| m["metadata"]["labels"]["karmada.io/managed"] = json!("no"),
                change("/metadata/labels/karmada.io~1managed"),
            ),
            (
                |m| m["metadata"]["annotations"]["a.towline.dev/x"] = json!("1"),
                change("/metadata/annotations/a.towline.dev~1x"),
            ),
            (
                |m| m["metadata"]["labels"]["a"] = json!(1),
                texts("/metadata/labels"),
            ),
            (
                |m| m["metadata"]["labels"]["b"] = json!(null),
                texts("/metadata/labels"),
            ),
            (
                |m| m["metadata"]["annotations"]["b"] = json!({}),
                texts("/metadata/annotations"),
            ),
        ];
        for (edit, want) in cases {
            assert_eq!(changed(edit), want);
        }
    }
}
