//! Who owns which field of a live object: reading `managedFields` without any schema.
//!
//! Pure. As long as the entry of our manager still covers every field of the manifest that we last
//! applied, nobody has changed one of them: a writer that changes a field takes it away from us. So
//! drift shows in the metadata alone, and an unchanged object needs neither a read nor a write.

use super::manifest::hash_bytes;
use serde_json::{Map, Value};

/// The operation of an entry made by server-side apply.
pub const APPLY: &str = "Apply";

/// The field set of `manager` by apply, if it owns anything outside of subresources.
pub fn applied_by<'a>(managed_fields: &'a [Value], manager: &str) -> Option<&'a Value> {
    managed_fields
        .iter()
        .find(|entry| is_apply(entry, manager))
        .and_then(|entry| entry.get("fieldsV1"))
}

fn text<'a>(entry: &'a Value, key: &str) -> &'a str {
    entry.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn is_apply(entry: &Value, manager: &str) -> bool {
    text(entry, "manager") == manager
        && text(entry, "operation") == APPLY
        && text(entry, "subresource").is_empty()
}

/// A number that changes whenever the field set does.
pub fn hash(fields: &Value) -> u64 {
    // A Value always serialises: its keys are strings.
    hash_bytes(&serde_json::to_vec(fields).unwrap_or_default())
}

/// Whether `fields` holds every field that `manifest` sets.
pub fn covers(fields: &Value, manifest: &Value) -> bool {
    let Some(object) = manifest.as_object() else {
        return false;
    };
    object.iter().all(|(key, value)| match key.as_str() {
        "apiVersion" | "kind" | "status" => true,
        "metadata" => value.as_object().is_none_or(|metadata| {
            metadata
                .iter()
                .filter(|(key, _)| !matches!(key.as_str(), "name" | "namespace" | "uid"))
                .all(|(key, value)| {
                    value.is_null()
                        || fields
                            .get("f:metadata")
                            .and_then(|f| f.get(format!("f:{key}")))
                            .is_some_and(|f| node_covers(f, value))
                })
        }),
        _ => {
            value.is_null()
                || fields
                    .get(format!("f:{key}"))
                    .is_some_and(|f| node_covers(f, value))
        }
    })
}

fn node_covers(node: &Value, value: &Value) -> bool {
    let Some(members) = node.as_object() else {
        return false;
    };
    // A leaf: a scalar, or a list or map that is owned as a whole.
    if members.is_empty() {
        return true;
    }
    match value {
        Value::Object(map) => map.iter().all(|(key, value)| {
            value.is_null()
                || members
                    .get(&format!("f:{key}"))
                    .is_some_and(|f| node_covers(f, value))
        }),
        Value::Array(items) => items.iter().all(|item| {
            members.iter().any(|(member, f)| {
                if let Some(keys) = member.strip_prefix("k:") {
                    has_keys(item, keys) && node_covers(f, item)
                } else {
                    member
                        .strip_prefix("v:")
                        .and_then(|v| serde_json::from_str::<Value>(v).ok())
                        .is_some_and(|v| v == *item)
                }
            })
        }),
        _ => true,
    }
}

/// Whether a list item is the one that `keys` (JSON) selects; a key it leaves out has its default.
fn has_keys(item: &Value, keys: &str) -> bool {
    serde_json::from_str::<Map<String, Value>>(keys).is_ok_and(|keys| {
        keys.iter()
            .all(|(key, want)| item.get(key).is_none_or(|have| have == want))
    })
}

/// Whether the field that the API server calls `path` (`.spec.containers[name="a"].image`) is set in
/// `manifest`.
///
/// Keys of maps may hold dots and brackets, so the path is read along the manifest.
pub fn sets_path(manifest: &Value, path: &str) -> bool {
    if path.is_empty() {
        return true;
    }
    match manifest {
        Value::Object(map) => path.strip_prefix('.').is_some_and(|rest| {
            map.iter().any(|(key, value)| {
                rest.strip_prefix(key.as_str())
                    .filter(|rest| {
                        rest.is_empty() || rest.starts_with('.') || rest.starts_with('[')
                    })
                    .is_some_and(|rest| sets_path(value, rest))
            })
        }),
        Value::Array(items) => {
            let Some((selector, rest)) = selector(path) else {
                return false;
            };
            items
                .iter()
                .enumerate()
                .any(|(i, item)| selects(selector, i, item) && sets_path(item, rest))
        }
        // The manifest sets a scalar or nothing where the server sees something deeper.
        _ => false,
    }
}

/// Splits `[…]rest`, minding quotes.
fn selector(path: &str) -> Option<(&str, &str)> {
    let inner = path.strip_prefix('[')?;
    let (mut quoted, mut escaped) = (false, false);
    for (i, c) in inner.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ']' if !quoted => return Some((&inner[..i], &inner[i + 1..])),
            _ => {}
        }
    }
    None
}

fn selects(selector: &str, index: usize, item: &Value) -> bool {
    if let Some(value) = selector.strip_prefix('=') {
        return serde_json::from_str::<Value>(value).is_ok_and(|v| v == *item);
    }
    if let Ok(wanted) = selector.parse::<usize>() {
        return wanted == index;
    }
    // `k=v,k=v` with JSON values: rewritten as a JSON object, value by value.
    let mut rest = selector;
    while !rest.is_empty() {
        let Some((key, tail)) = rest.split_once('=') else {
            return false;
        };
        let mut values = serde_json::Deserializer::from_str(tail).into_iter::<Value>();
        let Some(Ok(want)) = values.next() else {
            return false;
        };
        if item.get(key).is_some_and(|have| *have != want) {
            return false;
        }
        let after = &tail[values.byte_offset()..];
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    true
}

/// Managers of earlier deliverers whose fields become ours when we take an object over.
const PREDECESSORS: [&str; 3] = [
    "karmada-agent",
    "karmada-controller-manager",
    "kubectl-client-side-apply",
];

/// The `managedFields` to write before the first apply over an object that was kept by a PUT or by
/// `kubectl apply`, so that fields which the manifest no longer has go away; none when there are none.
pub fn take_over(managed_fields: &[Value], manager: &str) -> Option<Vec<Value>> {
    let theirs = |entry: &Value| {
        text(entry, "operation") == "Update"
            && text(entry, "subresource").is_empty()
            && PREDECESSORS.contains(&text(entry, "manager"))
    };
    if !managed_fields.iter().any(theirs) {
        return None;
    }
    let mut rest: Vec<Value> = Vec::new();
    let mut ours: Option<Value> = None;
    for entry in managed_fields {
        if theirs(entry) || is_apply(entry, manager) {
            match &mut ours {
                None => {
                    let mut entry = entry.clone();
                    if let Some(entry) = entry.as_object_mut() {
                        entry.insert("manager".into(), manager.into());
                        entry.insert("operation".into(), APPLY.into());
                    }
                    ours = Some(entry);
                }
                Some(ours) => {
                    if let (Some(ours), Some(more)) =
                        (ours.get_mut("fieldsV1"), entry.get("fieldsV1"))
                    {
                        unite(ours, more);
                    }
                }
            }
        } else {
            rest.push(entry.clone());
        }
    }
    rest.extend(ours);
    Some(rest)
}

fn unite(into: &mut Value, from: &Value) {
    if let (Some(into), Some(from)) = (into.as_object_mut(), from.as_object()) {
        for (key, value) in from {
            unite(
                into.entry(key.clone())
                    .or_insert_with(|| Value::Object(Map::new())),
                value,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "shop", "labels": {"a.b/c": "d"}},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"creationTimestamp": null, "labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "c", "image": "i", "args": ["x"],
                        "ports": [{"containerPort": 80}]}]}}}})
    }

    fn fields() -> Value {
        json!({"f:metadata": {"f:labels": {"f:a.b/c": {}}},
            "f:spec": {"f:replicas": {}, "f:selector": {},
                "f:template": {"f:metadata": {"f:labels": {"f:app": {}}},
                    "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:image": {}, "f:args": {},
                        "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}}}}})
    }

    #[test]
    fn coverage_follows_every_field() {
        assert!(covers(&fields(), &deployment()));
        for lost in [
            "/f:metadata/f:labels",
            "/f:spec",
            "/f:spec/f:template/f:spec/f:containers",
        ] {
            let mut fields = fields();
            if let Some(map) = fields.pointer_mut(lost).and_then(Value::as_object_mut) {
                let first = map.keys().next().expect("not empty").clone();
                map.remove(&first);
                map.insert(".".into(), json!({}));
            }
            assert!(!covers(&fields, &deployment()), "{lost}");
        }
        let set = json!({"f:finalizers": {"v:\"a\"": {}}});
        assert!(covers(&set, &json!({"finalizers": ["a"]})));
        assert!(!covers(&set, &json!({"finalizers": ["a", "b"]})));
    }

    #[test]
    fn paths_of_the_server_are_found_in_the_manifest() {
        let cases = [
            (".spec.replicas", true),
            (".metadata.labels.a.b/c", true),
            (".metadata.labels.a.b", false),
            (".spec.template.spec.containers[name=\"c\"].image", true),
            (".spec.template.spec.containers[name=\"c\"].env", false),
            (".spec.template.spec.containers[name=\"x\"].image", false),
            (
                ".spec.template.spec.containers[name=\"c\"].ports[containerPort=80,protocol=\"TCP\"].containerPort",
                true,
            ),
            (".spec.template.spec.containers[name=\"c\"].args[0]", true),
            (
                ".spec.template.spec.containers[name=\"c\"].args[=\"x\"]",
                true,
            ),
            (".spec.template.spec.containers[name=\"c\"", false),
        ];
        for (path, want) in cases {
            assert_eq!(sets_path(&deployment(), path), want, "{path}");
        }
    }

    #[test]
    fn predecessors_are_taken_over_and_others_left() {
        let entries = vec![
            json!({"manager": "karmada-agent", "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:data": {"f:a": {}}}}),
            json!({"manager": "kubectl-client-side-apply", "operation": "Update", "apiVersion": "v1", "fieldsV1": {"f:data": {"f:b": {}}}}),
            json!({"manager": "other", "operation": "Update", "fieldsV1": {"f:data": {"f:c": {}}}}),
        ];
        let taken = take_over(&entries, "towline").expect("something to take");
        assert_eq!(taken.len(), 2);
        assert_eq!(
            applied_by(&taken, "towline"),
            Some(&json!({"f:data": {"f:a": {}, "f:b": {}}}))
        );
        assert_eq!(take_over(&taken, "towline"), None);
    }
}
