//! What neither an override nor a script may change of an object: which object it is, whose it is, and the marks of the system on it.
//!
//! Pure. Whoever may write an OverridePolicy decides about objects of its namespace and about nothing else.

use crate::labels::{CONFLICT_RESOLUTION, DELETION, RETAIN_REPLICAS};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The group of roles and their bindings.
const RBAC: &str = "rbac.authorization.k8s.io";
/// Fields that say which object it is, and whose.
const FIELDS: [&str; 6] = [
    "/apiVersion",
    "/kind",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/ownerReferences",
    "/metadata/finalizers",
];
/// Fields of roles and their bindings that say what rights are given, and to whom.
const RIGHTS: [&str; 4] = ["/aggregationRule", "/roleRef", "/rules", "/subjects"];
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
    /// It changed what rights are given, or to whom, by the word of one namespace.
    #[error(
        "{0} must not be changed by an OverridePolicy: what rights are given, and to whom, says the template, or a ClusterOverridePolicy"
    )]
    Rights(String),
    /// It left something else than texts by their keys.
    #[error("{0} would no longer be a map of texts")]
    Texts(String),
}

/// What of a manifest must stay, by its path.
#[derive(Debug, Clone, PartialEq)]
pub struct Guarded {
    fields: BTreeMap<String, Value>,
    /// What rights are given, where whoever changes it may not change them.
    rights: Option<BTreeMap<String, Value>>,
}

/// What lies at some paths, where anything does.
fn at(paths: &[&str], manifest: &Value) -> BTreeMap<String, Value> {
    let field = |path: &&str| Some(((*path).to_owned(), manifest.pointer(path)?.clone()));
    paths.iter().filter_map(field).collect()
}

impl Guarded {
    /// Of a manifest before it is changed.
    pub fn of(manifest: &Value) -> Self {
        let mut fields = at(&FIELDS, manifest);
        for map in MAPS {
            let keys = manifest.pointer(map).and_then(Value::as_object);
            for (key, value) in keys.into_iter().flatten() {
                if is_of_the_system(key) {
                    let key = key.replace('~', "~0").replace('/', "~1");
                    fields.insert(format!("{map}/{key}"), value.clone());
                }
            }
        }
        Self {
            fields,
            rights: None,
        }
    }

    /// The same where somebody who has one namespace changes it. Nobody writes a role or its binding who lacks
    /// what it gives; a change of it on its way would go around that.
    pub fn with_rights(self, manifest: &Value) -> Self {
        Self {
            rights: gives_rights(manifest).then(|| at(&RIGHTS, manifest)),
            ..self
        }
    }

    /// Compares with the manifest after that; the error names the first path that differs.
    pub fn check(&self, manifest: &Value) -> Result<(), Forbidden> {
        let after = Self::of(manifest).fields;
        let differs = |path: &&String| self.fields.get(*path) != after.get(*path);
        let gone = self.fields.keys().find(differs);
        if let Some(path) = gone.or_else(|| after.keys().find(differs)) {
            return Err(Forbidden::Change(path.clone()));
        }
        if let Some(rights) = &self.rights {
            let differs = |path: &&&str| rights.get(**path) != manifest.pointer(path);
            if let Some(path) = RIGHTS.iter().find(differs) {
                return Err(Forbidden::Rights((*path).to_owned()));
            }
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

/// Whether anything below this key of a manifest is looked at here.
pub fn looks_at(key: &str) -> bool {
    let mut paths = FIELDS.iter().chain(&RIGHTS).chain(&MAPS);
    paths.any(|path| path.split('/').nth(1) == Some(key))
}

fn gives_rights(manifest: &Value) -> bool {
    let version = manifest.get("apiVersion").and_then(Value::as_str);
    let group = version.and_then(|version| version.split_once('/'));
    group.is_some_and(|(group, _)| group == RBAC)
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
    fn what_is_looked_at_is_known_by_its_first_key() {
        for key in ["apiVersion", "kind", "metadata", "roleRef", "rules"] {
            assert!(looks_at(key), "{key}");
        }
        for key in ["data", "spec", "name", ""] {
            assert!(!looks_at(key), "{key}");
        }
    }

    #[test]
    fn one_namespace_gives_no_rights() {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "b", "namespace": "n", "labels": {"a": "1"}},
            "roleRef": {"kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "u"}]});
        let mut role = binding.clone();
        role["kind"] = json!("Role");
        role["rules"] = json!([]);
        let guarded = |object: &Value| Guarded::of(object).with_rights(object);
        let cases = [
            (
                &binding,
                "/roleRef",
                json!({"kind": "ClusterRole", "name": "admin"}),
            ),
            (&binding, "/subjects", json!([])),
            (&binding, "/subjects", json!(null)),
            (&role, "/rules", json!([{"verbs": ["*"]}])),
            (&role, "/aggregationRule", json!({})),
        ];
        for (before, path, value) in cases {
            let mut after = before.clone();
            after[path.trim_start_matches('/')] = value;
            let refused = Forbidden::Rights(path.to_owned());
            assert_eq!(guarded(before).check(&after), Err(refused), "{path}");
            // Who has the whole hub may.
            assert_eq!(Guarded::of(before).check(&after), Ok(()), "{path}");
        }
        let mut after = binding.clone();
        after["metadata"]["labels"]["a"] = json!("2");
        after["metadata"]["annotations"] = json!({"b": "1"});
        assert_eq!(guarded(&binding).check(&after), Ok(()));
        // Rules of something else are values.
        let mut before = binding.clone();
        before["apiVersion"] = json!("networking.k8s.io/v1");
        let mut after = before.clone();
        after["rules"] = json!([{"host": "h"}]);
        assert_eq!(guarded(&before).check(&after), Ok(()));
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
