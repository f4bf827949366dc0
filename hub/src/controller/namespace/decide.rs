//! Which members have the Work of a namespace, and what is in it. Pure.

use crate::world::{self, WORK_ANNOTATIONS, WORK_LABELS, digest};
use common::gvk::Gvk;
use common::interpreter::prune::prune;
use common::labels::{
    MANAGED, MANAGED_ANNOTATIONS, MANAGED_LABELS, MANAGED_VALUE, SKIP_NAMESPACE, TEMPLATE_UID,
    WORK_FINALIZER, WORK_NAME, WORK_NAMESPACE, WORK_PERMANENT_ID, skips,
};
use common::names::{CLUSTER_NAMESPACE, EXECUTION_PREFIX, SYSTEM_NAMESPACE};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What was seen around one namespace.
pub(super) struct Observed<'a> {
    /// The namespace; none when it is gone.
    pub template: Option<Value>,
    /// The name of its Works.
    pub name: String,
    /// Members that nobody deletes: others get nothing new, and what they have, their own end takes away.
    pub clusters: BTreeSet<String>,
    /// Members that should have it.
    pub wanted: BTreeSet<String>,
    /// Members that still have something of it.
    pub occupied: BTreeSet<String>,
    /// Members that have it by a binding of its own.
    pub bound: BTreeSet<String>,
    /// Its Works, by member.
    pub existing: &'a BTreeMap<String, Existing>,
}

/// A Work as it was seen.
pub(super) struct Existing {
    pub version: Box<str>,
    pub work: Arc<world::Work>,
}

/// A change of one of its Works: of which member, and what is sent.
#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Create(String, Value),
    Update(String, Value),
    Delete(String, Value),
}

impl Step {
    pub(super) fn verb(&self) -> &'static str {
        match self {
            Self::Create(..) => "create",
            Self::Update(..) => "update",
            Self::Delete(..) => "delete",
        }
    }

    pub(super) fn cluster(&self) -> &str {
        match self {
            Self::Create(cluster, _) | Self::Update(cluster, _) | Self::Delete(cluster, _) => {
                cluster
            }
        }
    }
}

/// Whether a namespace is every member's own.
pub(super) fn is_reserved(namespace: &str) -> bool {
    namespace == "default"
        || namespace.starts_with("kube-")
        || namespace == SYSTEM_NAMESPACE
        || namespace == CLUSTER_NAMESPACE
        || namespace.starts_with(EXECUTION_PREFIX)
}

/// Whether a namespace is being deleted.
pub(super) fn is_going(template: &Value) -> bool {
    template.pointer("/metadata/deletionTimestamp").is_some()
}

/// What is to be done, by member.
pub(super) fn decide(seen: &Observed<'_>) -> Vec<Step> {
    let template = seen.template.as_ref().filter(|it| !is_going(it));
    let mut steps = Vec::new();
    for (cluster, Existing { version, work }) in seen.existing {
        // What is left of the namespace goes first: what is to be preserved would go with it.
        let stays =
            seen.occupied.contains(cluster) || template.is_some() && seen.wanted.contains(cluster);
        if !stays && !work.deleting {
            // A binding may have taken it over meanwhile.
            let options = json!({"preconditions": {"resourceVersion": version}});
            steps.push(Step::Delete(cluster.clone(), options));
        }
    }
    let Some(template) = template else {
        return steps;
    };
    let skipped = template
        .pointer("/metadata/labels")
        .and_then(|labels| labels.get(SKIP_NAMESPACE));
    let skipped = skipped.and_then(Value::as_str).is_some_and(skips);
    for cluster in seen.wanted.intersection(&seen.clusters) {
        match seen.existing.get(cluster).map(|it| &it.work) {
            Some(work) if work.deleting => {}
            Some(work) => {
                let id = work.id.as_deref().unwrap_or_default();
                let wanted = work_of(template, cluster, &seen.name, id);
                if content(&wanted) != work.content {
                    let patch = json!({
                        "metadata": {"labels": wanted["metadata"]["labels"]},
                        "spec": wanted["spec"],
                    });
                    steps.push(Step::Update(cluster.clone(), patch));
                }
            }
            None if skipped || seen.bound.contains(cluster) => {}
            None => {
                let id = id_of(template, cluster);
                let wanted = work_of(template, cluster, &seen.name, &id);
                steps.push(Step::Create(cluster.clone(), wanted));
            }
        }
    }
    steps
}

fn content(work: &Value) -> u64 {
    let texts = |pointer: &str, keys: &[&str]| -> BTreeMap<String, String> {
        let map = work.pointer(pointer);
        let text = |key: &&str| {
            let text = map?.get(*key)?.as_str()?;
            Some(((*key).to_owned(), text.to_owned()))
        };
        keys.iter().filter_map(text).collect()
    };
    let labels = texts("/metadata/labels", &WORK_LABELS);
    let annotations = texts("/metadata/annotations", &WORK_ANNOTATIONS);
    digest(&labels, &annotations, true, &work["spec"])
}

/// The id of a Work, the same whenever it is made.
fn id_of(template: &Value, cluster: &str) -> String {
    let uid = template.pointer("/metadata/uid").and_then(Value::as_str);
    crate::controller::binding::render::new_id(uid.unwrap_or_default(), cluster)
}

fn work_of(template: &Value, cluster: &str, name: &str, id: &str) -> Value {
    let space = format!("{EXECUTION_PREFIX}{cluster}");
    let text = |pointer: &str| template.pointer(pointer).and_then(Value::as_str);
    let uid = text("/metadata/uid").unwrap_or_default();
    let own_name = text("/metadata/name").unwrap_or_default();
    let mut manifest = template.clone();
    if let Some(kind) = Gvk::new("v1", "Namespace") {
        prune(&kind, &mut manifest);
    }
    let texts = |value: Option<&Value>| -> Map<String, Value> {
        value
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let mut labels = texts(manifest.pointer("/metadata/labels"));
    labels.insert(MANAGED.to_owned(), json!(MANAGED_VALUE));
    labels.insert(WORK_PERMANENT_ID.to_owned(), json!(id));
    let keys = |map: &Map<String, Value>| {
        let keys: Vec<&str> = map.keys().map(String::as_str).collect();
        keys.join(",")
    };
    let mut annotations = texts(manifest.pointer("/metadata/annotations"));
    annotations.insert(TEMPLATE_UID.to_owned(), json!(uid));
    annotations.insert(WORK_NAME.to_owned(), json!(name));
    annotations.insert(WORK_NAMESPACE.to_owned(), json!(space));
    annotations.insert(MANAGED_LABELS.to_owned(), json!(keys(&labels)));
    // The list names itself.
    annotations.insert(MANAGED_ANNOTATIONS.to_owned(), json!(""));
    let all = keys(&annotations);
    annotations.insert(MANAGED_ANNOTATIONS.to_owned(), json!(all));
    manifest["metadata"]["labels"] = Value::Object(labels);
    manifest["metadata"]["annotations"] = Value::Object(annotations);
    json!({
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {
            "name": name,
            "namespace": space,
            "labels": {WORK_PERMANENT_ID: id},
            "finalizers": [WORK_FINALIZER],
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Namespace", "name": own_name, "uid": uid,
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"workload": {"manifests": [manifest]}},
    })
}
