//! Whether a Work is to be written over one that exists, and how. Pure.
//!
//! Labels, annotations and finalizers of others stay; what is ours is as wanted, and nothing is written twice.

use crate::world::{WORK_ANNOTATIONS, WORK_LABELS, digest};
use common::api::work::Work;
use common::labels::{WORK_FINALIZER, WORK_PERMANENT_ID};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What a Work says that the hub writes, as a number (see [`digest`]).
pub fn content(work: &Work) -> Result<u64, serde_json::Error> {
    let finalizers = work.metadata.finalizers.iter().flatten();
    let mut finalizers = finalizers.filter(|one| *one == WORK_FINALIZER);
    digest_of(work, finalizers.next().is_some())
}

fn digest_of(work: &Work, finalized: bool) -> Result<u64, serde_json::Error> {
    let none = BTreeMap::new();
    let labels = work.metadata.labels.as_ref().unwrap_or(&none);
    let annotations = work.metadata.annotations.as_ref().unwrap_or(&none);
    let spec = serde_json::to_value(&work.spec)?;
    Ok(digest(labels, annotations, finalized, &spec))
}

/// The merge patch that makes a Work as wanted; none when what exists has this `content` already. Lists are replaced
/// whole: the finalizer that the agent needs goes into a patch only where nothing but it is missing.
pub fn patch(content: u64, wanted: &Work) -> Result<Option<Value>, serde_json::Error> {
    if digest_of(wanted, true)? == content {
        return Ok(None);
    }
    let told = |keys: &[&str], texts: &Option<BTreeMap<String, String>>| -> Value {
        let text = |key: &&str| texts.as_ref().and_then(|texts| texts.get(*key));
        let each = keys.iter().map(|key| ((*key).to_owned(), json!(text(key))));
        Value::Object(each.collect())
    };
    let mut patch = json!({
        "metadata": {
            "labels": told(&WORK_LABELS, &wanted.metadata.labels),
            "annotations": told(&WORK_ANNOTATIONS, &wanted.metadata.annotations),
        },
        "spec": wanted.spec,
    });
    if digest_of(wanted, false)? == content {
        patch["metadata"]["finalizers"] = json!([WORK_FINALIZER]);
    }
    Ok(Some(patch))
}

/// The merge patch after which the objects of a Work stay in the member when it goes.
pub fn preserved() -> Value {
    json!({"spec": {"preserveResourcesOnDeletion": true}})
}

/// The merge patch after which a Work is no binding's.
pub fn free() -> Value {
    let none = |keys: &[&str]| -> Value {
        let own = keys.iter().filter(|key| **key != WORK_PERMANENT_ID);
        own.map(|key| ((*key).to_owned(), Value::Null)).collect()
    };
    json!({
        "metadata": {"labels": none(&WORK_LABELS), "annotations": none(&WORK_ANNOTATIONS)},
        "spec": {"suspendDispatching": null, "preserveResourcesOnDeletion": null},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::labels::{
        APPLIED_OVERRIDES, BINDING_NAME, BINDING_PERMANENT_ID, CONFLICT_RESOLUTION,
    };

    fn work(metadata: Value, image: &str) -> Work {
        let spec = json!({"workload": {"manifests": [{"kind": "x", "image": image}]}, "suspendDispatching": false});
        let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work", "metadata": metadata, "spec": spec});
        serde_json::from_value(work).expect("a Work")
    }

    fn wanted() -> Work {
        let metadata = json!({"name": "w", "namespace": "n", "labels": {BINDING_PERMANENT_ID: "1"},
            "annotations": {CONFLICT_RESOLUTION: "abort"}, "finalizers": [WORK_FINALIZER]});
        work(metadata, "a")
    }

    fn written(existing: &Work) -> Option<Work> {
        let patch = patch(content(existing).expect("JSON"), &wanted()).expect("JSON")?;
        let mut object = json!(existing);
        json_patch::merge(&mut object, &patch);
        Some(serde_json::from_value(object).expect("a Work"))
    }

    #[test]
    fn nothing_equal_is_written() {
        let mut existing = wanted();
        assert_eq!(written(&existing), None);
        let metadata = &mut existing.metadata;
        metadata.resource_version = Some("7".into());
        metadata.finalizers = Some(vec!["z".into(), WORK_FINALIZER.into()]);
        let labels = metadata.labels.get_or_insert_default();
        labels.insert("theirs".into(), "1".into());
        assert_eq!(written(&existing), None);
    }

    #[test]
    fn what_differs_is_written_and_what_is_others_stays() {
        let metadata = json!({"name": "w", "namespace": "n", "labels": {BINDING_PERMANENT_ID: "0", "theirs": "1"},
            "annotations": {"theirs": "1", APPLIED_OVERRIDES: "[]"}, "finalizers": ["z", WORK_FINALIZER]});
        let now = written(&work(metadata, "b")).expect("a write");
        assert_eq!(
            json!(now.metadata.labels),
            json!({BINDING_PERMANENT_ID: "1", "theirs": "1"})
        );
        // An override that applies no more is not told.
        assert_eq!(
            json!(now.metadata.annotations),
            json!({"theirs": "1", CONFLICT_RESOLUTION: "abort"})
        );
        assert_eq!(json!(now.metadata.finalizers), json!(["z", WORK_FINALIZER]));
        assert_eq!(now.spec, wanted().spec);
        assert_eq!(written(&now), None);
    }

    #[test]
    fn what_is_free_is_no_bindings_and_keeps_what_is_others() {
        let metadata = json!({"name": "w", "namespace": "n", "labels": {BINDING_PERMANENT_ID: "1",
            WORK_PERMANENT_ID: "2", "theirs": "1"}, "annotations": {"theirs": "1",
            BINDING_NAME: "b", APPLIED_OVERRIDES: "[]"}, "finalizers": [WORK_FINALIZER]});
        let mut object = json!(work(metadata, "a"));
        json_patch::merge(&mut object, &free());
        let free: Work = serde_json::from_value(object.clone()).expect("a Work");
        let labels = json!({WORK_PERMANENT_ID: "2", "theirs": "1"});
        assert_eq!(json!(free.metadata.labels), labels);
        assert_eq!(json!(free.metadata.annotations), json!({"theirs": "1"}));
        assert_eq!(free.metadata.finalizers, wanted().metadata.finalizers);
        let spec = json!({"workload": {"manifests": [{"kind": "x", "image": "a"}]}});
        assert_eq!(object["spec"], spec);
    }

    #[test]
    fn the_agents_finalizer_is_put_back() {
        let mut existing = wanted();
        existing.metadata.finalizers = None;
        assert_eq!(written(&existing), Some(wanted()));
    }
}
