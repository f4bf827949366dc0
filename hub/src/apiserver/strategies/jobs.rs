//! Jobs select the pods that they make by their own uid.

use super::{Facts, Generation, Strategy};
use crate::apiserver::registry::metadata;
use crate::apiserver::registry::value::{at, copy, is_set, object_at, put};
use serde_json::{Value, json};

const UID: &str = "batch.kubernetes.io/controller-uid";
const NAME: &str = "batch.kubernetes.io/job-name";

pub(super) struct Jobs;

impl Strategy for Jobs {
    fn generation(&self) -> Generation {
        Generation::Spec
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
