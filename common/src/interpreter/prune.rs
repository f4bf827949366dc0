//! What of a template belongs to the hub alone, and is left out of what members get.
//!
//! Pure.

use crate::gvk::Gvk;
use serde_json::{Map, Value};

/// Fields of `metadata` that belong to the server or to controllers of the hub.
///
/// Owner references and finalizers of a template name things of the hub; in a member they would make
/// the garbage collector delete the object, or keep it for ever.
pub const SERVER_METADATA: [&str; 10] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];
const REVISIONS: [&str; 2] = [
    "deployment.kubernetes.io/revision",
    "deployment.kubernetes.io/revision-history",
];
const CONTROLLER_UIDS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];
const JOB_NAMES: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// Takes out of `manifest` what the hub decided, and each member decides for itself.
pub fn prune(gvk: &Gvk, manifest: &mut Value) {
    if let Some(object) = manifest.as_object_mut() {
        object.remove("status");
    }
    drop_keys(manifest, "/metadata", &SERVER_METADATA);
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("apps", "Deployment") => drop_keys(manifest, "/metadata/annotations", &REVISIONS),
        ("batch", "Job") => job(manifest),
        ("", "Secret") if is(manifest, "/type", "kubernetes.io/service-account-token") => {
            drop_keys(manifest, "", &["data"]);
            drop_keys(manifest, "/metadata/annotations", &[ACCOUNT_UID]);
        }
        ("", "ServiceAccount") => service_account(manifest),
        ("", "Service") if !is(manifest, "/spec/clusterIP", "None") => {
            drop_keys(manifest, "/spec", &["clusterIP", "clusterIPs"]);
        }
        ("", "PersistentVolumeClaim") => {
            drop_keys(manifest, "/metadata/annotations", &[SELECTED_NODE]);
        }
        _ => {}
    }
}

/// A selector that the hub generated names the hub's own Job.
fn job(manifest: &mut Value) {
    drop_keys(manifest, "/spec", &["ttlSecondsAfterFinished"]);
    if manifest.pointer("/spec/manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    drop_keys(manifest, "/spec/selector/matchLabels", &CONTROLLER_UIDS);
    let labels = "/spec/template/metadata/labels";
    drop_keys(manifest, labels, &CONTROLLER_UIDS);
    drop_keys(manifest, labels, &JOB_NAMES);
}

/// Tokens that the hub made for an account mean nothing elsewhere.
fn service_account(manifest: &mut Value) {
    let name = manifest.pointer("/metadata/name").and_then(Value::as_str);
    let tokens = format!("{}-token-", name.unwrap_or_default());
    let Some(Value::Array(secrets)) = manifest.get_mut("secrets") else {
        return;
    };
    let is_token = |secret: &Value| {
        let name = secret.get("name").and_then(Value::as_str);
        name.is_some_and(|name| name.starts_with(&tokens))
    };
    secrets.retain(|secret| !is_token(secret));
    if secrets.is_empty() {
        drop_keys(manifest, "", &["secrets"]);
    }
}

fn is(manifest: &Value, pointer: &str, text: &str) -> bool {
    manifest.pointer(pointer).and_then(Value::as_str) == Some(text)
}

fn drop_keys(manifest: &mut Value, pointer: &str, keys: &[&str]) {
    let map: Option<&mut Map<String, Value>> =
        manifest.pointer_mut(pointer).and_then(Value::as_object_mut);
    if let Some(map) = map {
        map.retain(|key, _| !keys.contains(&key.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pruned(mut manifest: Value) -> Value {
        let text = |key: &str| manifest[key].as_str().expect("text");
        let gvk = Gvk::new(text("apiVersion"), text("kind")).expect("sound");
        prune(&gvk, &mut manifest);
        for key in ["apiVersion", "kind"] {
            manifest.as_object_mut().expect("an object").remove(key);
        }
        manifest
    }

    #[test]
    fn what_the_hub_decided_stays_there() {
        let cases = [
            (
                json!({"apiVersion": "v1", "kind": "ConfigMap", "status": {}, "data": {"status": "kept"},
                    "metadata": {"name": "c", "uid": "u", "resourceVersion": "7", "generation": 2,
                        "creationTimestamp": null, "managedFields": [], "ownerReferences": [], "finalizers": ["f"],
                        "labels": {"uid": "kept"}}}),
                json!({"data": {"status": "kept"}, "metadata": {"name": "c", "labels": {"uid": "kept"}}}),
            ),
            (
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"annotations": {
                    "deployment.kubernetes.io/revision": "3", "a": "b"}}}),
                json!({"metadata": {"annotations": {"a": "b"}}}),
            ),
            (
                json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"labels": {"controller-uid": "kept"}},
                    "spec": {"ttlSecondsAfterFinished": 9, "manualSelector": false,
                        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
                        "template": {"metadata": {"labels": {"job-name": "j", "controller-uid": "u", "app": "j"}}}}}),
                json!({"metadata": {"labels": {"controller-uid": "kept"}},
                    "spec": {"manualSelector": false, "selector": {"matchLabels": {}},
                        "template": {"metadata": {"labels": {"app": "j"}}}}}),
            ),
            (
                json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"manualSelector": true,
                    "selector": {"matchLabels": {"controller-uid": "u"}}}}),
                json!({"spec": {"manualSelector": true, "selector": {"matchLabels": {"controller-uid": "u"}}}}),
            ),
            (
                json!({"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}}),
                json!({"spec": {}}),
            ),
            (
                json!({"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None", "clusterIPs": ["None"]}}),
                json!({"spec": {"clusterIP": "None", "clusterIPs": ["None"]}}),
            ),
            (
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"},
                    "secrets": [{"name": "a-token-x"}, {"name": "own"}]}),
                json!({"metadata": {"name": "a"}, "secrets": [{"name": "own"}]}),
            ),
            (
                json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"},
                    "secrets": [{"name": "a-token-x"}]}),
                json!({"metadata": {"name": "a"}}),
            ),
            (
                json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
                    "data": {"token": "t"}, "metadata": {"annotations": {
                        "kubernetes.io/service-account.uid": "u", "kubernetes.io/service-account.name": "a"}}}),
                json!({"type": "kubernetes.io/service-account-token",
                    "metadata": {"annotations": {"kubernetes.io/service-account.name": "a"}}}),
            ),
            (
                json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"token": "t"}}),
                json!({"type": "Opaque", "data": {"token": "t"}}),
            ),
            (
                json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"annotations": {
                    "volume.kubernetes.io/selected-node": "n"}}}),
                json!({"metadata": {"annotations": {}}}),
            ),
        ];
        for (manifest, want) in cases {
            assert_eq!(pruned(manifest.clone()), want, "{manifest}");
        }
    }
}
