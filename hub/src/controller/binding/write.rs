//! Whether a Work is to be written, and how: what others added to it stays, and nothing is written twice.
//!
//! Pure.

use common::api::work::Work;
use common::labels::{APPLIED_CLUSTER_OVERRIDES, APPLIED_OVERRIDES};
use std::collections::{BTreeMap, BTreeSet};

/// A Work that cannot be written because it goes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("work {namespace}/{name} is being deleted")]
pub struct BeingDeleted {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The Work to write over `existing` so that it is as wanted; none when it is already. Labels, annotations and
/// finalizers of others stay; the spec is as wanted, and no override is told that does not apply any more.
pub fn needs_write(existing: &Work, wanted: &Work) -> Result<Option<Work>, BeingDeleted> {
    let (ours, theirs) = (&wanted.metadata, &existing.metadata);
    if theirs.deletion_timestamp.is_some() {
        return Err(BeingDeleted {
            namespace: theirs.namespace.clone().unwrap_or_default(),
            name: theirs.name.clone().unwrap_or_default(),
        });
    }
    let mut labels = theirs.labels.clone().unwrap_or_default();
    labels.extend(ours.labels.clone().unwrap_or_default());
    let wanted_annotations = ours.annotations.clone().unwrap_or_default();
    let mut annotations = theirs.annotations.clone().unwrap_or_default();
    for key in [APPLIED_OVERRIDES, APPLIED_CLUSTER_OVERRIDES] {
        if !wanted_annotations.contains_key(key) {
            annotations.remove(key);
        }
    }
    annotations.extend(wanted_annotations);
    let finalizers = merged_finalizers(
        theirs.finalizers.as_deref().unwrap_or_default(),
        ours.finalizers.as_deref().unwrap_or_default(),
    );
    let same = |map: &BTreeMap<String, String>, other: &Option<BTreeMap<String, String>>| {
        other
            .as_ref()
            .map_or_else(|| map.is_empty(), |other| map == other)
    };
    if same(&labels, &theirs.labels)
        && same(&annotations, &theirs.annotations)
        && finalizers.is_none()
        && existing.spec == wanted.spec
    {
        return Ok(None);
    }
    let mut written = Work {
        metadata: theirs.clone(),
        spec: wanted.spec.clone(),
        status: existing.status.clone(),
    };
    written.metadata.labels = Some(labels);
    written.metadata.annotations = Some(annotations);
    if finalizers.is_some() {
        written.metadata.finalizers = finalizers;
    }
    Ok(Some(written))
}

/// All of both, sorted; none when nothing is missing.
fn merged_finalizers(theirs: &[String], ours: &[String]) -> Option<Vec<String>> {
    if ours.iter().all(|finalizer| theirs.contains(finalizer)) {
        return None;
    }
    let all: BTreeSet<&String> = theirs.iter().chain(ours).collect();
    Some(all.into_iter().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn work(metadata: Value, spec: Value) -> Work {
        serde_json::from_value(
            json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": metadata, "spec": spec}),
        )
        .expect("a Work")
    }

    fn wanted() -> Work {
        work(
            json!({"name": "w", "namespace": "n", "labels": {"a": "1"}, "annotations": {"b": "1"}, "finalizers": ["m"]}),
            json!({"workload": {"manifests": [{"kind": "x"}]}, "suspendDispatching": false}),
        )
    }

    #[test]
    fn nothing_equal_is_written() {
        assert_eq!(needs_write(&wanted(), &wanted()), Ok(None));
        let mut existing = wanted();
        let metadata = &mut existing.metadata;
        metadata.resource_version = Some("7".into());
        metadata.finalizers = Some(vec!["z".into(), "m".into()]);
        let labels = metadata.labels.get_or_insert_default();
        labels.insert("theirs".into(), "1".into());
        assert_eq!(needs_write(&existing, &wanted()), Ok(None));
    }

    #[test]
    fn what_differs_is_written_and_what_is_others_stays() {
        let existing = work(
            json!({"name": "w", "namespace": "n", "resourceVersion": "7", "labels": {"a": "0", "theirs": "1"},
                "annotations": {"theirs": "1", APPLIED_OVERRIDES: "[]"}, "finalizers": ["z"]}),
            json!({"workload": {"manifests": [{"kind": "y"}]}, "preserveResourcesOnDeletion": true}),
        );
        let written = needs_write(&existing, &wanted())
            .expect("it lives")
            .expect("a write");
        let want = work(
            json!({"name": "w", "namespace": "n", "resourceVersion": "7", "labels": {"a": "1", "theirs": "1"},
                "annotations": {"b": "1", "theirs": "1"}, "finalizers": ["m", "z"]}),
            json!({"workload": {"manifests": [{"kind": "x"}]}, "suspendDispatching": false}),
        );
        assert_eq!(written, want);
        assert_eq!(needs_write(&written, &wanted()), Ok(None));
    }

    #[test]
    fn an_override_that_applies_no_more_is_not_told() {
        for key in [APPLIED_OVERRIDES, APPLIED_CLUSTER_OVERRIDES] {
            let mut existing = wanted();
            let annotations = existing.metadata.annotations.get_or_insert_default();
            annotations.insert(key.into(), "[]".into());
            assert_eq!(needs_write(&existing, &wanted()), Ok(Some(wanted())));
            assert_eq!(needs_write(&existing, &existing), Ok(None));
        }
    }

    #[test]
    fn a_work_that_goes_is_left() {
        let going =
            json!({"name": "w", "namespace": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"});
        let error = needs_write(&work(going, json!({})), &wanted()).expect_err("it goes");
        assert_eq!(error.to_string(), "work n/w is being deleted");
    }
}
