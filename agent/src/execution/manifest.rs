//! Manifests as they come out of a Work: read, judged, and reduced to what an agent may apply.
//!
//! Pure. Whatever the API server decides itself (uid, resourceVersion, status, …) is taken out here, so
//! that a manifest exported from a live object applies like one written by hand.

use common::gvk::Gvk;
use common::interpreter::prune::SERVER_METADATA;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// What a manifest is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Target {
    /// Its kind.
    pub gvk: Gvk,
    /// Its namespace, empty when the manifest names none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Target {
    /// Whether both mean the same object, whatever version they ask for.
    pub fn same_object(&self, other: &Self) -> bool {
        self.same_name(other) && self.namespace == other.namespace
    }

    /// Whether both have one kind and name. Of a kind whose objects lie in no namespace that is one object, whatever
    /// namespaces the manifests write.
    pub fn same_name(&self, other: &Self) -> bool {
        self.gvk.group == other.gvk.group
            && self.gvk.kind == other.gvk.kind
            && self.name == other.name
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.gvk.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.gvk.kind, self.namespace, self.name)
        }
    }
}

/// Why a manifest cannot be applied, whatever the member says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadManifest {
    /// Not JSON, or no object.
    #[error("manifest {0} is not an object")]
    NotAnObject(usize),
    /// Absent or not text.
    #[error("manifest {0} has no apiVersion")]
    NoApiVersion(usize),
    /// Absent or not text.
    #[error("manifest {0} has no kind")]
    NoKind(usize),
    /// Neither `version` nor `group/version`, or a kind that is none.
    #[error("manifest {0} has an invalid apiVersion or kind: {1:?}, {2:?}")]
    InvalidKind(usize, String, String),
    /// A List is a bundle of objects and has no name of its own.
    #[error("manifest {0} is a List: put its items into the Work one by one")]
    List(usize),
    /// Would be a new object at every apply.
    #[error("manifest {0} ({1}) uses metadata.generateName: a Work needs a fixed metadata.name")]
    GenerateName(usize, String),
    /// Absent or not text.
    #[error("manifest {0} ({1}) has no metadata.name")]
    NoName(usize, String),
    /// Cannot be part of a URL.
    #[error("manifest {0} ({1}) has an invalid name or namespace: {2:?}")]
    InvalidName(usize, String, String),
    /// The same object twice in one Work.
    #[error("manifest {0} ({2}) names the same object as manifest {1}")]
    Duplicate(usize, usize, String),
}

/// A manifest that can be applied.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// What it is about.
    pub target: Target,
    /// The object, without anything that the server decides.
    pub body: Value,
}

impl Manifest {
    /// Reads the manifest at `ordinal` of a Work.
    pub fn read(ordinal: usize, raw: &str) -> Result<Self, BadManifest> {
        let body: Value =
            serde_json::from_str(raw).map_err(|_| BadManifest::NotAnObject(ordinal))?;
        Self::from_value(ordinal, body)
    }

    /// As [`Manifest::read`], of a value.
    pub fn from_value(ordinal: usize, mut body: Value) -> Result<Self, BadManifest> {
        let target = target(ordinal, &body)?;
        strip(&mut body);
        Ok(Self { target, body })
    }

    /// An annotation of the manifest.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.body
            .get("metadata")?
            .get("annotations")?
            .get(key)?
            .as_str()
    }

    /// A label of the manifest.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.body.get("metadata")?.get("labels")?.get(key)?.as_str()
    }
}

/// Names what a manifest is about, or says why it names nothing.
fn target(ordinal: usize, body: &Value) -> Result<Target, BadManifest> {
    if !body.is_object() {
        return Err(BadManifest::NotAnObject(ordinal));
    }
    let text = |value: Option<&Value>| {
        value
            .and_then(Value::as_str)
            .filter(|s| !s.is_empty())
            .map(str::to_owned)
    };
    let api_version = text(body.get("apiVersion")).ok_or(BadManifest::NoApiVersion(ordinal))?;
    let kind = text(body.get("kind")).ok_or(BadManifest::NoKind(ordinal))?;
    let Some(gvk) = Gvk::new(&api_version, &kind) else {
        return Err(BadManifest::InvalidKind(ordinal, api_version, kind));
    };
    if kind.ends_with("List") && body.get("items").is_some_and(Value::is_array) {
        return Err(BadManifest::List(ordinal));
    }
    let metadata = body.get("metadata");
    let meta = |key: &str| text(metadata.and_then(|m| m.get(key)));
    let Some(name) = meta("name") else {
        return Err(if meta("generateName").is_some() {
            BadManifest::GenerateName(ordinal, kind)
        } else {
            BadManifest::NoName(ordinal, kind)
        });
    };
    let namespace = meta("namespace").unwrap_or_default();
    for part in [&name, &namespace] {
        // The API server's own rule for path segments; finer rules are its to judge.
        let unfit = |c: char| c.is_control() || " /%?#\\".contains(c);
        if part.as_str() == "." || part.as_str() == ".." || part.contains(unfit) {
            return Err(BadManifest::InvalidName(ordinal, kind, part.clone()));
        }
    }
    Ok(Target {
        gvk,
        namespace,
        name,
    })
}

/// Takes out what the server decides. Idempotent.
pub fn strip(body: &mut Value) {
    let Some(object) = body.as_object_mut() else {
        return;
    };
    object.remove("status");
    strip_token_secrets(object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in SERVER_METADATA {
            metadata.remove(key);
        }
        metadata.remove("generateName");
        for key in ["labels", "annotations"] {
            // `labels: null` and `labels: {}` say nothing, and an empty map is a field one could own.
            let empty = metadata.get(key).is_some_and(|map| {
                map.is_null() || map.as_object().is_some_and(serde_json::Map::is_empty)
            });
            if empty {
                metadata.remove(key);
            }
        }
    }
}

/// Takes the hub's own token Secrets out of a ServiceAccount that was exported from there.
fn strip_token_secrets(object: &mut serde_json::Map<String, Value>) {
    if object.get("kind").and_then(Value::as_str) != Some("ServiceAccount") {
        return;
    }
    let name = object.get("metadata").and_then(|m| m.get("name")?.as_str());
    let prefix = format!("{}-token-", name.unwrap_or_default());
    if let Some(secrets) = object.get_mut("secrets").and_then(Value::as_array_mut) {
        secrets.retain(|s| !s["name"].as_str().is_some_and(|n| n.starts_with(&prefix)));
        if secrets.is_empty() {
            object.remove("secrets");
        }
    }
}

/// Reads all manifests of a Work, each on its own; later duplicates are refused.
pub fn read_all<S: AsRef<str>>(raw: &[S]) -> Vec<Result<Manifest, BadManifest>> {
    let mut seen = std::collections::HashMap::new();
    raw.iter()
        .enumerate()
        .map(|(ordinal, text)| {
            let manifest = Manifest::read(ordinal, text.as_ref())?;
            let t = &manifest.target;
            let key = (
                t.gvk.group.clone(),
                t.gvk.kind.clone(),
                t.namespace.clone(),
                t.name.clone(),
            );
            match seen.entry(key) {
                std::collections::hash_map::Entry::Occupied(first) => {
                    Err(BadManifest::Duplicate(ordinal, *first.get(), t.to_string()))
                }
                std::collections::hash_map::Entry::Vacant(slot) => {
                    slot.insert(ordinal);
                    Ok(manifest)
                }
            }
        })
        .collect()
}

/// Manifests that have the kind and name of an earlier one and another namespace, by ordinal, each with the first of
/// that name: one object, if the kind has no namespaces.
pub fn namesakes(manifests: &[Result<Manifest, BadManifest>]) -> Vec<(usize, usize)> {
    let mut firsts = std::collections::HashMap::new();
    let named = manifests
        .iter()
        .enumerate()
        .filter_map(|(ordinal, manifest)| Some((ordinal, &manifest.as_ref().ok()?.target)));
    named
        .filter_map(|(ordinal, target)| {
            let gvk = &target.gvk;
            let name = (&*gvk.group, &*gvk.kind, &*target.name);
            let first = *firsts.entry(name).or_insert(ordinal);
            (first != ordinal).then_some((ordinal, first))
        })
        .collect()
}

/// What the manifests of a Work are about, those that can be read.
pub fn targets(manifests: &str) -> Vec<Target> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Head<'a> {
        api_version: std::borrow::Cow<'a, str>,
        kind: std::borrow::Cow<'a, str>,
        metadata: Place<'a>,
    }
    #[derive(Deserialize)]
    struct Place<'a> {
        #[serde(default)]
        namespace: Option<std::borrow::Cow<'a, str>>,
        name: std::borrow::Cow<'a, str>,
    }
    let raw: Vec<&serde_json::value::RawValue> =
        serde_json::from_str(manifests).unwrap_or_default();
    let heads = raw.iter().filter_map(|raw| {
        let head: Head<'_> = serde_json::from_str(raw.get()).ok()?;
        Some(Target {
            gvk: Gvk::new(&head.api_version, &head.kind)?,
            namespace: head.metadata.namespace.unwrap_or_default().into_owned(),
            name: head.metadata.name.into_owned(),
        })
    });
    heads.collect()
}

/// The first 8 bytes of SHA-256 over a value's canonical JSON (maps are sorted).
pub fn hash_value(value: &Value) -> u64 {
    // A Value always serialises: its keys are strings.
    hash_bytes(&serde_json::to_vec(value).unwrap_or_default())
}

/// The first 8 bytes of SHA-256.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let sum = digest(&SHA256, bytes);
    let mut first = [0u8; 8];
    first.copy_from_slice(&sum.as_ref()[..8]);
    u64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(value: &Value) -> Result<Manifest, BadManifest> {
        Manifest::read(0, &value.to_string())
    }

    #[test]
    fn what_the_server_decides_is_taken_out() {
        let manifest = read(&json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": null, "generation": 3, "managedFields": [], "finalizers": ["x"],
                "ownerReferences": [{"uid": "hub"}], "labels": {"a": "b"}, "annotations": {}},
            "spec": {"replicas": 2}, "status": {"replicas": 1}
        }))
        .expect("sound");
        assert_eq!(
            manifest.body,
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "web", "namespace": "shop", "labels": {"a": "b"}}, "spec": {"replicas": 2}})
        );
        assert_eq!(manifest.target.to_string(), "Deployment shop/web");
        assert_eq!(manifest.target.gvk.to_string(), "apps/v1, Kind=Deployment");
    }

    #[test]
    fn targets_are_read_past_what_is_bad() {
        let text = r#"[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a\u0062","namespace":"n"},"data":{"x":[1]}},
            7, {"kind":"x"}, {"apiVersion":"rbac/v1","kind":"Role","metadata":{"name":"r"}}]"#;
        let names: Vec<String> = targets(text).iter().map(Target::to_string).collect();
        assert_eq!(names, ["ConfigMap n/ab", "Role r"]);
        assert!(targets("{}").is_empty());
    }

    #[test]
    fn each_bad_manifest_has_its_own_text() {
        let cases = [
            (json!("x"), "manifest 0 is not an object"),
            (json!({"kind": "A"}), "manifest 0 has no apiVersion"),
            (json!({"apiVersion": "v1"}), "manifest 0 has no kind"),
            (
                json!({"apiVersion": "/v1", "kind": "A"}),
                "manifest 0 has an invalid apiVersion or kind: \"/v1\", \"A\"",
            ),
            (
                json!({"apiVersion": "a/b/c", "kind": "A"}),
                "manifest 0 has an invalid apiVersion or kind: \"a/b/c\", \"A\"",
            ),
            (
                json!({"apiVersion": "v1", "kind": "A", "metadata": {}}),
                "manifest 0 (A) has no metadata.name",
            ),
            (
                json!({"apiVersion": "v1", "kind": "A", "metadata": {"generateName": "x-"}}),
                "manifest 0 (A) uses metadata.generateName: a Work needs a fixed metadata.name",
            ),
            (
                json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "../secrets"}}),
                "manifest 0 (A) has an invalid name or namespace: \"../secrets\"",
            ),
            (
                json!({"apiVersion": "v1", "kind": "List", "items": []}),
                "manifest 0 is a List: put its items into the Work one by one",
            ),
        ];
        for (value, want) in cases {
            assert_eq!(read(&value).expect_err("bad").to_string(), want);
        }
        assert_eq!(
            Manifest::read(4, "{").expect_err("bad").to_string(),
            "manifest 4 is not an object"
        );
    }

    #[test]
    fn only_the_later_of_two_is_a_duplicate() {
        let one = r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a","namespace":"n"}}"#;
        let two = one.replace("apps/v1", "apps/v2");
        let all = read_all(&[one.to_owned(), two, one.replace("\"a\"", "\"b\"")]);
        assert!(all[0].is_ok() && all[2].is_ok());
        assert_eq!(
            all[1].as_ref().expect_err("twice").to_string(),
            "manifest 1 (Deployment n/a) names the same object as manifest 0"
        );
    }

    /// Whether they are one object the kind alone says: each is a manifest of its own until that is known.
    #[test]
    fn one_name_in_several_namespaces_may_be_one_object() {
        let of = |kind: &str, namespace: &str, name: &str| {
            let meta = json!({"namespace": namespace, "name": name});
            json!({"apiVersion": "example.com/v1", "kind": kind, "metadata": meta}).to_string()
        };
        let all = read_all(&[
            of("Issuer", "a", "x"),
            of("Issuer", "b", "x"),
            of("Issuer", "a", "y"),
            of("Issuer", "a", "x"),
            of("Issuer", "", "x"),
            of("Other", "c", "x"),
        ]);
        assert_eq!(all.iter().filter(|one| one.is_err()).count(), 1);
        assert_eq!(namesakes(&all), [(1, 0), (4, 0)]);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-zA-Z/.%-]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            let key = prop_oneof![
                Just("apiVersion".to_owned()),
                Just("kind".to_owned()),
                Just("metadata".to_owned()),
                Just("name".to_owned()),
                Just("status".to_owned()),
                "[a-z]{1,4}",
            ];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key, inner, 0..6)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn reading_never_panics_and_stripping_is_idempotent(value in any_json()) {
            if let Ok(manifest) = read(&value) {
                let mut again = manifest.body.clone();
                strip(&mut again);
                prop_assert_eq!(&again, &manifest.body);
                prop_assert_eq!(read(&manifest.body), Ok(manifest));
            }
        }
    }
}
