//! Jobs select the pods that they make by their own uid.

use super::{Dependents, Facts, Generation, Strategy};
use crate::apiserver::metadata;
use crate::apiserver::request::DeleteOptions;
use crate::apiserver::value::{at, copy, is_set, object_at, put};
use serde_json::{Value, json};

const UID: &str = "batch.kubernetes.io/controller-uid";
const NAME: &str = "batch.kubernetes.io/job-name";

/// What is said to who deletes a Job and not what becomes of its pods.
const KEPT: &str = "child pods are preserved by default when jobs are deleted; set \
    propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

pub(super) struct Jobs;

impl Strategy for Jobs {
    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn dependents(&self) -> Dependents {
        Dependents::Orphan
    }

    fn deletion_warning(&self, options: &DeleteOptions) -> Option<&'static str> {
        let silent = options.propagation.is_none() && options.orphan_dependents.is_none();
        silent.then_some(KEPT)
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["status.successful"]
    }

    fn field(&self, object: &Value, field: &str) -> String {
        super::workloads::field(object, field)
    }

    fn prepare_create(&self, _: &Facts<'_>, object: &mut Value) {
        let manual = at(object, &["spec", "manualSelector"]) == Some(&Value::Bool(true));
        if manual {
            return;
        }
        let (name, uid) = (
            metadata::name(object).to_owned(),
            metadata::uid(object).to_owned(),
        );
        let labels = object_at(object, &["spec", "template", "metadata", "labels"]);
        for (key, value) in [
            (UID, &uid),
            ("controller-uid", &uid),
            (NAME, &name),
            ("job-name", &name),
        ] {
            labels.entry(key).or_insert_with(|| json!(value));
        }
        let selector = object_at(object, &["spec", "selector", "matchLabels"]);
        selector.insert(UID.to_owned(), json!(uid));
        if !is_set(object, &["metadata", "labels"]) {
            let labels = at(object, &["spec", "template", "metadata", "labels"]).cloned();
            put(object, &["metadata", "labels"], labels);
        }
    }

    fn prepare_update(&self, facts: &Facts<'_>, object: &mut Value, old: &Value) {
        if facts.context.subresource.is_empty() && !is_set(object, &["spec", "selector"]) {
            copy(object, old, &["spec", "selector"]);
        }
    }
}
