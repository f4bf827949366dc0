//! How templates and bindings show which policy holds them.
//!
//! Pure. The claim of a PropagationPolicy is a label with its permanent id and annotations with its namespace and
//! name; that of a ClusterPropagationPolicy a label and an annotation. Both at once are never written.

use crate::propagation::{Policy, PolicyName, Texts};
use common::labels::{
    CLUSTER_POLICY_NAME, CLUSTER_POLICY_PERMANENT_ID, POLICY_NAME, POLICY_NAMESPACE,
    POLICY_PERMANENT_ID,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const LABELS: [&str; 2] = [POLICY_PERMANENT_ID, CLUSTER_POLICY_PERMANENT_ID];
const ANNOTATIONS: [&str; 3] = [POLICY_NAMESPACE, POLICY_NAME, CLUSTER_POLICY_NAME];

/// The policy that holds an object with this metadata, when the claim is whole.
pub fn holder(labels: &Texts, annotations: &Texts) -> Option<PolicyName> {
    let some = |texts: &Texts, key: &str| texts.get(key).filter(|text| !text.is_empty()).cloned();
    let namespaced = || {
        some(labels, POLICY_PERMANENT_ID)?;
        Some(PolicyName {
            namespace: Some(some(annotations, POLICY_NAMESPACE)?),
            name: some(annotations, POLICY_NAME)?,
        })
    };
    let cluster_wide = || {
        some(labels, CLUSTER_POLICY_PERMANENT_ID)?;
        Some(PolicyName {
            namespace: None,
            name: some(annotations, CLUSTER_POLICY_NAME)?,
        })
    };
    namespaced().or_else(cluster_wide)
}

/// Whether metadata has any part of a claim.
pub fn has_any(labels: &Texts, annotations: &Texts) -> bool {
    LABELS.iter().any(|key| labels.contains_key(*key))
        || ANNOTATIONS.iter().any(|key| annotations.contains_key(*key))
}

/// Whether a key is part of a claim.
pub fn is_part(key: &str) -> bool {
    LABELS.contains(&key) || ANNOTATIONS.contains(&key)
}

/// Puts the claim of `policy` in place of any other; none takes every claim away.
pub fn set(policy: Option<&Policy>, labels: &mut Texts, annotations: &mut Texts) {
    labels.retain(|key, _| !LABELS.contains(&key.as_str()));
    annotations.retain(|key, _| !ANNOTATIONS.contains(&key.as_str()));
    let Some(policy) = policy else { return };
    let mut annotate =
        |key: &str, value: &str| annotations.insert(key.to_owned(), value.to_owned());
    let label = match &policy.name.namespace {
        Some(namespace) => {
            annotate(POLICY_NAMESPACE, namespace);
            annotate(POLICY_NAME, &policy.name.name);
            POLICY_PERMANENT_ID
        }
        None => {
            annotate(CLUSTER_POLICY_NAME, &policy.name.name);
            CLUSTER_POLICY_PERMANENT_ID
        }
    };
    labels.insert(label.to_owned(), policy.id.clone());
}

/// A change of an object's labels and annotations: values to set, none for keys to take away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetadataPatch {
    /// Labels.
    pub labels: BTreeMap<String, Option<String>>,
    /// Annotations.
    pub annotations: BTreeMap<String, Option<String>>,
}

impl MetadataPatch {
    /// As a merge patch of the object; with `resource_version` it fails on any other version than that.
    pub fn body(&self, resource_version: Option<&str>) -> Value {
        let mut metadata = json!({});
        if !self.labels.is_empty() {
            metadata["labels"] = json!(self.labels);
        }
        if !self.annotations.is_empty() {
            metadata["annotations"] = json!(self.annotations);
        }
        if let Some(version) = resource_version {
            metadata["resourceVersion"] = json!(version);
        }
        json!({ "metadata": metadata })
    }
}

/// What makes the claim of `policy`, or none at all, out of what metadata shows; none when nothing is to change.
pub fn patch(
    policy: Option<&Policy>,
    labels: &Texts,
    annotations: &Texts,
) -> Option<MetadataPatch> {
    let (mut wanted_labels, mut wanted_annotations) = (labels.clone(), annotations.clone());
    set(policy, &mut wanted_labels, &mut wanted_annotations);
    let patch = MetadataPatch {
        labels: changes(labels, &wanted_labels),
        annotations: changes(annotations, &wanted_annotations),
    };
    (patch != MetadataPatch::default()).then_some(patch)
}

fn changes(from: &Texts, to: &Texts) -> BTreeMap<String, Option<String>> {
    let set = to
        .iter()
        .filter(|(key, value)| from.get(*key) != Some(*value));
    let gone = from.keys().filter(|key| !to.contains_key(*key));
    set.map(|(key, value)| (key.clone(), Some(value.clone())))
        .chain(gone.map(|key| (key.clone(), None)))
        .collect()
}
