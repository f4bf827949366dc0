//! What is not deleted lightly.
//!
//! Pure.

use common::gvk::Gvk;
use serde_json::Value;

/// Kinds whose deletion takes other objects or data along.
pub fn is_guarded(gvk: &Gvk) -> bool {
    matches!(
        (gvk.group.as_str(), gvk.kind.as_str()),
        (
            "",
            "Namespace" | "PersistentVolume" | "PersistentVolumeClaim"
        ) | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
}

/// Whether an object in a namespace is someone's: neither a Work's, nor made by a controller for
/// another object or for the namespace itself.
pub fn is_foreign(kind: &Gvk, object: &Value) -> bool {
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    if is_managed(object) || is_made_by_a_controller(object) || is_incidental(kind) {
        return false;
    }
    !matches!(
        (kind.group.as_str(), kind.kind.as_str(), name),
        ("", "ConfigMap", "kube-root-ca.crt") | ("", "ServiceAccount", "default")
    )
}

/// Whether an object is marked as a Work's, of whatever hub.
pub fn is_managed(object: &Value) -> bool {
    object["metadata"]["labels"][common::labels::MANAGED] == common::labels::MANAGED_VALUE
}

/// Whether an object was made for another one, and goes with it.
pub fn is_made_by_a_controller(object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.is_some_and(|owners| !owners.is_empty())
}

/// Whether objects of a kind are nobody's: they follow from others, or are only told.
pub fn is_incidental(kind: &Gvk) -> bool {
    matches!(
        (kind.group.as_str(), kind.kind.as_str()),
        ("" | "events.k8s.io", "Event")
            | ("", "Endpoints")
            | ("discovery.k8s.io", "EndpointSlice")
            | ("metrics.k8s.io", _)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn gvk(version: &str, kind: &str) -> Gvk {
        Gvk::new(version, kind).expect("sound")
    }

    #[test]
    fn what_a_namespace_brings_itself_is_not_foreign() {
        let object = |meta: Value| json!({"metadata": meta});
        assert!(is_foreign(
            &gvk("v1", "ConfigMap"),
            &object(json!({"name": "a"}))
        ));
        for (kind, meta) in [
            ("ConfigMap", json!({"name": "kube-root-ca.crt"})),
            ("ServiceAccount", json!({"name": "default"})),
            ("Pod", json!({"name": "p", "ownerReferences": [{}]})),
            (
                "Secret",
                json!({"name": "s", "labels": {"karmada.io/managed": "true"}}),
            ),
        ] {
            assert!(!is_foreign(&gvk("v1", kind), &object(meta)), "{kind}");
        }
    }
}
