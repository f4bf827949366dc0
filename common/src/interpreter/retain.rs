//! Fields that the member decides once an object exists.
//!
//! Pure. Such a field is left out of what we own. A field that its only owner drops falls back to its
//! default, so its live value is first applied under a manager of its own ([`retained_object`]).

use crate::gvk::Gvk;
use crate::labels::RETAIN_REPLICAS;
use serde_json::{Map, Value};

/// One step of a path: a member of a map, or every item of a list that is keyed by `name`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Member of a map.
    Key(&'static str),
    /// All items, matched by their `name`.
    EachByName,
}

use Step::{EachByName, Key};

type Path = &'static [Step];

const REPLICAS: Path = &[Key("spec"), Key("replicas")];
const POD: [Path; 4] = [
    &[Key("spec"), Key("nodeName")],
    &[Key("spec"), Key("serviceAccountName")],
    &[Key("spec"), Key("volumes")],
    &[
        Key("spec"),
        Key("containers"),
        EachByName,
        Key("volumeMounts"),
    ],
];
const SERVICE: [Path; 3] = [
    &[Key("spec"), Key("clusterIP")],
    &[Key("spec"), Key("clusterIPs")],
    &[Key("spec"), Key("healthCheckNodePort")],
];
const PULL_SECRETS: Path = &[Key("imagePullSecrets")];
const JOB: [Path; 2] = [
    &[Key("spec"), Key("selector")],
    &[Key("spec"), Key("template"), Key("metadata"), Key("labels")],
];

/// The paths of a manifest that stay as they are in the member. `scaled`: an autoscaler of the member
/// decides its replicas.
pub fn retained(gvk: &Gvk, manifest: &Value, scaled: bool) -> Vec<Path> {
    let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
    let labels = manifest.pointer("/metadata/labels");
    let label = |key: &str| labels.and_then(|map| map.get(key)).and_then(Value::as_str);
    let mut paths: Vec<Path> = match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("apps", "Deployment") if label(RETAIN_REPLICAS) == Some("true") => {
            vec![REPLICAS]
        }
        ("", "Pod") => POD.to_vec(),
        // A headless Service says so with its `clusterIP: None`, which nobody else ever changes.
        ("", "Service") if text("/spec/clusterIP") == Some("None") => vec![SERVICE[2]],
        ("", "Service") => SERVICE.to_vec(),
        // Its `secrets` are a list by name, of which everybody has their own items.
        ("", "ServiceAccount") => vec![PULL_SECRETS],
        ("", "PersistentVolumeClaim") => vec![&[Key("spec"), Key("volumeName")]],
        ("", "PersistentVolume") => vec![&[Key("spec"), Key("claimRef")]],
        ("batch", "Job") => JOB.to_vec(),
        ("", "Secret") if text("/type") == Some("kubernetes.io/service-account-token") => {
            vec![&[Key("data")]]
        }
        _ => Vec::new(),
    };
    if scaled && !paths.contains(&REPLICAS) {
        paths.push(REPLICAS);
    }
    paths.retain(|path| exists(manifest, path));
    paths
}

fn exists(value: &Value, path: &[Step]) -> bool {
    match path.split_first() {
        None => !value.is_null(),
        Some((Key(key), rest)) => value.get(key).is_some_and(|v| exists(v, rest)),
        Some((EachByName, rest)) => value
            .as_array()
            .is_some_and(|items| items.iter().any(|item| exists(item, rest))),
    }
}

/// `body` without the paths.
pub fn without(body: &Value, paths: &[Path]) -> Value {
    let mut body = body.clone();
    for path in paths {
        remove(&mut body, path);
    }
    body
}

fn remove(value: &mut Value, path: &[Step]) {
    match path.split_first() {
        Some((Key(key), [])) => {
            if let Some(map) = value.as_object_mut() {
                map.remove(*key);
            }
        }
        Some((Key(key), rest)) => {
            if let Some(value) = value.get_mut(*key) {
                remove(value, rest);
            }
        }
        Some((EachByName, rest)) => {
            for item in value.as_array_mut().into_iter().flatten() {
                remove(item, rest);
            }
        }
        None => {}
    }
}

/// What of a manifest counts although it is not ours alone: a change of it must be noticed.
pub fn counts_too<'a>(body: &'a Value, paths: &[Path]) -> Option<&'a Value> {
    let found = paths
        .contains(&PULL_SECRETS)
        .then(|| body.get("imagePullSecrets"));
    found.flatten()
}

/// The live object with those items of the manifest added that it lacks, in a list that the API server
/// knows only as a whole; none when it lacks none.
pub fn merged(body: &Value, live: &Value, paths: &[Path]) -> Option<Value> {
    let wanted = counts_too(body, paths)?.as_array()?;
    let mut list = live
        .get("imagePullSecrets")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let before = list.len();
    for item in wanted {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
    if list.len() == before {
        return None;
    }
    let mut merged = live.clone();
    merged
        .as_object_mut()?
        .insert("imagePullSecrets".into(), Value::Array(list));
    Some(merged)
}

/// The object that holds nothing but the live values at `paths`, to apply as
/// [`crate::labels::RETAINED_FIELD_MANAGER`]; none when the live object has none of them.
pub fn retained_object(body: &Value, live: &Value, paths: &[Path]) -> Option<Value> {
    let mut out = Map::new();
    for key in ["apiVersion", "kind"] {
        out.insert(key.into(), body.get(key)?.clone());
    }
    let mut metadata = Map::new();
    for key in ["name", "namespace"] {
        if let Some(value) = body.get("metadata").and_then(|m| m.get(key)) {
            metadata.insert(key.into(), value.clone());
        }
    }
    if let Some(uid) = live.get("metadata").and_then(|m| m.get("uid")) {
        metadata.insert("uid".into(), uid.clone());
    }
    out.insert("metadata".into(), Value::Object(metadata));
    let mut out = Value::Object(out);
    let bare = out.clone();
    for path in paths {
        if let Some(kept) = keep(live, path) {
            merge(&mut out, kept);
        }
    }
    (out != bare).then_some(out)
}

/// The part of `live` that lies on `path`, with what its list items need to be found.
fn keep(live: &Value, path: &[Step]) -> Option<Value> {
    match path.split_first() {
        None => (!live.is_null()).then(|| live.clone()),
        Some((Key(key), rest)) => {
            let kept = keep(live.get(*key)?, rest)?;
            Some(Value::Object(Map::from_iter([((*key).to_owned(), kept)])))
        }
        Some((EachByName, rest)) => {
            let items: Vec<Value> = live
                .as_array()?
                .iter()
                .filter_map(|item| {
                    let mut kept = keep(item, rest)?;
                    kept.as_object_mut()?
                        .insert("name".into(), item.get("name")?.clone());
                    Some(kept)
                })
                .collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                match into.get_mut(&key) {
                    Some(slot) => merge(slot, value),
                    None => {
                        into.insert(key, value);
                    }
                }
            }
        }
        (into, from) => *into = from,
    }
}

/// Whether `fields`, our field set, holds any of the paths: then they must be handed on.
pub fn owned(fields: &Value, paths: &[Path]) -> bool {
    paths.iter().any(|path| owns(fields, path))
}

fn owns(fields: &Value, path: &[Step]) -> bool {
    match path.split_first() {
        None => true,
        Some((Key(key), rest)) => fields
            .get(format!("f:{key}"))
            .is_some_and(|f| owns(f, rest)),
        Some((EachByName, rest)) => fields
            .as_object()
            .is_some_and(|items| items.values().any(|f| owns(f, rest))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn retained(manifest: &Value, scaled: bool) -> Vec<Path> {
        let text = |key: &str| manifest[key].as_str().expect("text");
        let gvk = Gvk::new(text("apiVersion"), text("kind")).expect("sound");
        super::retained(&gvk, manifest, scaled)
    }

    #[test]
    fn replicas_are_kept_by_label_or_autoscaler_only() {
        let web = |label: &str| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "a", "labels": {RETAIN_REPLICAS: label}}, "spec": {"replicas": 2, "paused": true}})
        };
        assert!(retained(&web("false"), false).is_empty());
        assert_eq!(retained(&web("false"), true), vec![REPLICAS]);
        assert_eq!(retained(&web("true"), true), vec![REPLICAS]);
        let web = web("true");
        let paths = retained(&web, false);
        assert_eq!(without(&web, &paths)["spec"], json!({"paused": true}));
        let live = json!({"metadata": {"uid": "u"}, "spec": {"replicas": 5, "paused": true}});
        assert_eq!(
            retained_object(&web, &live, &paths),
            Some(json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"name": "a", "uid": "u"}, "spec": {"replicas": 5}}))
        );
        assert_eq!(retained_object(&web, &json!({}), &paths), None);
        assert!(owned(&json!({"f:spec": {"f:replicas": {}}}), &paths));
        assert!(!owned(&json!({"f:spec": {"f:paused": {}}}), &paths));
    }

    #[test]
    fn volume_mounts_are_kept_container_by_container() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "x"}]}, {"name": "b"}]}});
        let paths = retained(&pod, false);
        assert_eq!(paths, vec![POD[3]]);
        assert_eq!(
            without(&pod, &paths)["spec"]["containers"],
            json!([{"name": "a", "image": "i"}, {"name": "b"}])
        );
        let live = json!({"spec": {"containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "x"}, {"name": "token"}]}]}});
        assert_eq!(
            retained_object(&pod, &live, &paths).expect("mounts")["spec"],
            json!({"containers": [{"name": "a", "volumeMounts": [{"name": "x"}, {"name": "token"}]}]})
        );
    }

    #[test]
    fn pull_secrets_are_merged() {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"},
            "secrets": [{"name": "own"}], "imagePullSecrets": [{"name": "a"}, {"name": "b"}]});
        let paths = retained(&account, false);
        assert_eq!(paths, vec![PULL_SECRETS]);
        assert!(without(&account, &paths).get("secrets").is_some());
        let live = json!({"imagePullSecrets": [{"name": "theirs"}, {"name": "b"}]});
        let merged_once = merged(&account, &live, &paths).expect("one is missing");
        assert_eq!(
            merged_once["imagePullSecrets"],
            json!([{"name": "theirs"}, {"name": "b"}, {"name": "a"}])
        );
        assert_eq!(merged(&account, &merged_once, &paths), None);
        assert_eq!(merged(&account, &live, &[]), None);
    }

    #[test]
    fn a_headless_service_keeps_what_makes_it_headless() {
        let service = |ip: &str| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"clusterIP": ip}});
        assert!(retained(&service("None"), false).is_empty());
        assert_eq!(retained(&service("10.0.0.9"), false), vec![SERVICE[0]]);
    }
}
