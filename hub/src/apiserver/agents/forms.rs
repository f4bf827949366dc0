//! What an object of an agent must look like; each rule is an expression of `install::admission::cel`.

use common::identity::{CERTIFICATE_LIFETIME_CAP, CSR_PREFIX, SIGNER, is_agents_manager};
use common::labels::{ANCIENT_CHANGES, WORK_FINALIZER};
use serde_json::{Map, Value};

/// The server changes these at every write.
const OF_THE_SERVER: [&str; 3] = ["managedFields", "resourceVersion", "generation"];
/// Longest request, in base64.
const REQUEST_MAX: usize = 4096_usize.div_ceil(3) * 4;
/// Largest sum of what field ownership holds.
const OWNERSHIP_MAX: usize = 8192;

/// Whether two objects have the same fields with the same values, but for those that may differ.
fn same_fields(a: &Value, b: &Value, differ: &[&str]) -> bool {
    let none = Map::new();
    let (a, b) = (
        a.as_object().unwrap_or(&none),
        b.as_object().unwrap_or(&none),
    );
    let covered = |one: &Map<String, Value>, other: &Map<String, Value>| {
        one.iter()
            .all(|(key, value)| differ.contains(&key.as_str()) || other.get(key) == Some(value))
    };
    covered(a, b) && covered(b, a)
}

pub(super) fn metadata_same(object: &Value, old: &Value) -> bool {
    same_fields(&object["metadata"], &old["metadata"], &OF_THE_SERVER)
}

pub(super) fn metadata_same_but_finalizer(object: &Value, old: &Value) -> bool {
    let differ = [&OF_THE_SERVER[..], &["finalizers"]].concat();
    let others = |object: &Value| -> Vec<Value> {
        let finalizers = object["metadata"]["finalizers"].as_array();
        let finalizers = finalizers.into_iter().flatten();
        finalizers
            .filter(|finalizer| *finalizer != WORK_FINALIZER)
            .cloned()
            .collect()
    };
    same_fields(&object["metadata"], &old["metadata"], &differ) && others(object) == others(old)
}

/// Whether all top-level fields but metadata and one more are as they were.
pub(super) fn same_but(object: &Value, old: &Value, field: &str) -> bool {
    same_fields(object, old, &["metadata", field])
}

pub(super) fn lease_same_but_time(object: &Value, old: &Value) -> bool {
    same_fields(&object["spec"], &old["spec"], &["renewTime"])
}

/// Whether every entry of field ownership is an agent's, or as old as it was.
pub(super) fn manager_is_own(object: &Value, old: &Value) -> bool {
    let entries = |object: &Value| object["metadata"]["managedFields"].as_array().cloned();
    let before = entries(old).unwrap_or_default();
    entries(object).unwrap_or_default().iter().all(|entry| {
        let manager = entry["manager"].as_str().unwrap_or_default();
        let same = |other: &Value| {
            ["manager", "operation", "subresource", "time"]
                .iter()
                .all(|field| other[field] == entry[field])
        };
        manager == ANCIENT_CHANGES || is_agents_manager(manager) || before.iter().any(same)
    })
}

fn length(value: &Value) -> usize {
    value.as_str().map_or(0, |text| text.chars().count())
}

/// Field ownership is a writer's own making: a large one would fill the store where nobody counts.
pub(super) fn ownership_is_small(object: &Value) -> bool {
    let entries = object["metadata"]["managedFields"].as_array();
    let sum: usize = entries
        .into_iter()
        .flatten()
        .map(|entry| {
            length(&entry["manager"])
                + length(&entry["apiVersion"])
                + length(&entry["subresource"])
                + keys(&entry["fieldsV1"], 4)
        })
        .sum();
    sum <= OWNERSHIP_MAX
}

/// The length of all names to a depth; whatever lies deeper counts as too much.
fn keys(value: &Value, depth: usize) -> usize {
    let none = Map::new();
    let map = value.as_object().unwrap_or(&none);
    map.iter()
        .map(|(key, inner)| {
            let below = if depth == 1 {
                100_000 * inner.as_object().map_or(0, Map::len)
            } else {
                keys(inner, depth - 1)
            };
            key.chars().count() + below
        })
        .sum()
}

/// Whether an Event is about what it was about, from whom it was.
pub(super) fn event_same(event: &Value, old: &Value) -> bool {
    ["involvedObject", "source"]
        .iter()
        .all(|field| event[*field] == old[*field])
}

/// Whether an Event is about a Work of this namespace, from an agent, ours or Karmada's, and small.
pub(super) fn event(event: &Value, namespace: &str) -> bool {
    let about = &event["involvedObject"];
    let none = Map::new();
    let at_most = |value: &Value, limit| length(value) <= limit;
    let reporter = event["reportingComponent"].as_str().unwrap_or_default();
    let source = event["source"]["component"].as_str().unwrap_or_default();
    let version = about["apiVersion"].as_str().unwrap_or_default();
    ownership_is_small(event)
        && about
            .as_object()
            .unwrap_or(&none)
            .values()
            .all(|value| at_most(value, 253))
        && at_most(&event["source"]["host"], 253)
        && at_most(&event["reportingInstance"], 128)
        && at_most(&event["type"], 64)
        && about["kind"] == "Work"
        && version.starts_with("work.karmada.io/")
        && about["namespace"] == namespace
        && event.get("related").is_none_or(Value::is_null)
        && matches!(
            source,
            "towline-agent" | "execution-controller" | "work-status-controller"
        )
        && (reporter.is_empty() || reporter == source)
        && at_most(&event["message"], 1024)
        && at_most(&event["reason"], 128)
        && at_most(&event["action"], 128)
        && ["labels", "annotations", "finalizers", "ownerReferences"]
            .iter()
            .all(|field| event["metadata"].get(field).is_none())
}

/// Whether a certificate signing request is one of an agent's.
pub(super) fn request(request: &Value) -> Result<(), &'static str> {
    if !ownership_is_small(request) {
        return Err("a certificate signing request must not bring field ownership along");
    }
    let metadata = &request["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let named = name.strip_prefix(CSR_PREFIX).is_some_and(|rest| {
        rest.len() >= 32
            && rest
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    });
    let bare = ["generateName", "labels", "finalizers", "ownerReferences"]
        .iter()
        .all(|field| metadata.get(field).is_none());
    let none = Map::new();
    let annotated = metadata["annotations"]
        .as_object()
        .unwrap_or(&none)
        .iter()
        .all(|(key, value)| key == "towline.dev/cluster-id" && length(value) <= 64);
    if !(named && bare && annotated) {
        return Err(
            "a certificate signing request must be named towline-[a-z0-9]{32,} and have no labels, \
             finalizers or owners, and no annotation but towline.dev/cluster-id",
        );
    }
    let spec = &request["spec"];
    let seconds = spec["expirationSeconds"].as_i64().unwrap_or(0);
    if spec["signerName"] != SIGNER
        || !(600..=CERTIFICATE_LIFETIME_CAP).contains(&seconds)
        || length(&spec["request"]) > REQUEST_MAX
    {
        return Err(
            "a certificate signing request must be for signer kubernetes.io/kube-apiserver-client, \
             have expirationSeconds from 600 up to 90 days, and a request of at most 4 KiB",
        );
    }
    Ok(())
}
