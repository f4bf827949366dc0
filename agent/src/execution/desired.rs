//! What exactly is applied for a manifest: the manifest, our marks, and a hash of both.
//!
//! Pure. The hash stands on the live object, so that after a restart an object that is as wanted needs
//! no request at all.

use super::fields::covers;
use super::manifest::{Manifest, hash_value};
use common::interpreter::retain::{self, retained};
use common::labels::{
    CONFLICT_RESOLUTION, MANAGED, MANAGED_VALUE, MANIFEST_HASH, WORK_NAME, WORK_NAMESPACE,
};
use serde_json::{Map, Value};

/// A Work's name and namespace.
#[derive(Debug, Clone, Copy)]
pub struct WorkRef<'a> {
    /// Execution namespace.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
}

/// What is wanted of one object.
#[derive(Debug, Clone)]
pub struct Desired {
    /// All of the manifest with our marks: what creates the object.
    pub full: Value,
    /// The same without what the member decides: what we own.
    pub owned: Value,
    /// Hash of `owned` but the hash itself.
    pub hash: u64,
    /// Whether it differs from `full`.
    pub retains: bool,
    /// The paths in which they differ.
    pub paths: Vec<&'static [retain::Step]>,
    /// Whether the manifest may take over what is not ours.
    pub overwrite: bool,
}

impl Desired {
    /// Prepares a manifest of `work`. `namespaced` is what the member says of the kind; `scaled` whether
    /// an autoscaler of the member decides the replicas.
    pub fn new(manifest: &Manifest, work: WorkRef<'_>, namespaced: bool, scaled: bool) -> Self {
        let overwrite = manifest.annotation(CONFLICT_RESOLUTION) == Some("overwrite");
        let mut full = manifest.body.clone();
        if let Some(metadata) = full.get_mut("metadata").and_then(Value::as_object_mut) {
            if !namespaced {
                metadata.remove("namespace");
            }
            put(metadata, "labels", MANAGED, MANAGED_VALUE);
            put(metadata, "annotations", WORK_NAME, work.name);
            put(metadata, "annotations", WORK_NAMESPACE, work.namespace);
        }
        let paths = retained(&manifest.target.gvk, &manifest.body, scaled);
        let mut owned = retain::without(&full, &paths);
        let hash = match retain::counts_too(&full, &paths) {
            Some(more) => hash_value(&Value::Array(vec![owned.clone(), more.clone()])),
            None => hash_value(&owned),
        };
        for body in [&mut full, &mut owned] {
            if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
                put(metadata, "annotations", MANIFEST_HASH, &format_hash(hash));
            }
        }
        Self {
            full,
            owned,
            hash,
            retains: !paths.is_empty(),
            paths,
            overwrite,
        }
    }

    /// Whether an object with this mark and this field set of ours is as wanted.
    pub fn is_met(&self, hash: Option<u64>, fields: &Value) -> bool {
        hash == Some(self.hash)
            && covers(fields, &self.owned)
            && !retain::owned(fields, &self.paths)
    }
}

fn put(metadata: &mut Map<String, Value>, map: &str, key: &str, value: &str) {
    let slot = metadata
        .entry(map)
        .or_insert_with(|| Value::Object(Map::new()));
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    if let Some(map) = slot.as_object_mut() {
        map.insert(key.to_owned(), value.into());
    }
}

/// The hash as it stands in the annotation.
pub fn format_hash(hash: u64) -> String {
    format!("{hash:016x}")
}

/// Reads the annotation.
pub fn parse_hash(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16)
        .ok()
        .filter(|_| text.len() == 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const WORK: WorkRef<'_> = WorkRef {
        namespace: "karmada-es-m1",
        name: "w",
    };

    fn manifest(data: &str) -> Manifest {
        Manifest::from_value(
            0,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}, "data": {"k": data}}),
        )
        .expect("sound")
    }

    #[test]
    fn marks_are_added_and_hashed() {
        let one = Desired::new(&manifest("v"), WORK, true, false);
        assert_eq!(one.owned["metadata"]["labels"][MANAGED], "true");
        assert_eq!(one.owned["metadata"]["annotations"][WORK_NAME], "w");
        let mark = one.owned["metadata"]["annotations"][MANIFEST_HASH]
            .as_str()
            .expect("marked");
        assert_eq!(parse_hash(mark), Some(one.hash));
        assert_eq!(
            one.hash,
            Desired::new(&manifest("v"), WORK, true, false).hash
        );
        assert_ne!(
            one.hash,
            Desired::new(&manifest("w"), WORK, true, false).hash
        );
        let other = WorkRef { name: "x", ..WORK };
        assert_ne!(
            one.hash,
            Desired::new(&manifest("v"), other, true, false).hash
        );
        assert!(
            Desired::new(&manifest("v"), WORK, false, false).owned["metadata"]
                .get("namespace")
                .is_none()
        );
    }

    #[test]
    fn an_object_is_as_wanted_by_mark_and_fields() {
        let d = Desired::new(&manifest("v"), WORK, true, false);
        let fields = json!({"f:metadata": {"f:labels": {format!("f:{MANAGED}"): {}}, "f:annotations": {
            format!("f:{WORK_NAME}"): {}, format!("f:{WORK_NAMESPACE}"): {}, format!("f:{MANIFEST_HASH}"): {}}},
            "f:data": {"f:k": {}}});
        assert!(d.is_met(Some(d.hash), &fields));
        assert!(!d.is_met(Some(d.hash + 1), &fields));
        assert!(!d.is_met(None, &fields));
        let mut lost = fields;
        lost["f:data"] = json!({".": {}});
        assert!(!d.is_met(Some(d.hash), &lost));
    }
}
