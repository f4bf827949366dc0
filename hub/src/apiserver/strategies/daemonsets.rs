//! DaemonSets count the changes of their template in an annotation.

use super::{Facts, Generation, Strategy};
use crate::apiserver::value::{put, same, text};
use serde_json::{Value, json};

/// Counts the changes of the template, as the first versions of the kind did in a field.
pub(crate) const TEMPLATE: &str = "deprecated.daemonset.template.generation";
const PATH: [&str; 3] = ["metadata", "annotations", TEMPLATE];

pub(super) struct DaemonSets;

impl Strategy for DaemonSets {
    fn generation(&self) -> Generation {
        Generation::Spec
    }

    fn default(&self, _: &Facts<'_>, object: &mut Value) {
        if text(object, &PATH).is_empty() {
            put(object, &PATH, Some(json!("0")));
        }
    }

    fn prepare_create(&self, _: &Facts<'_>, object: &mut Value) {
        put(object, &PATH, Some(json!("1")));
    }

    fn prepare_update(&self, facts: &Facts<'_>, object: &mut Value, old: &Value) {
        if !facts.context.subresource.is_empty() {
            return;
        }
        let before: i64 = text(old, &PATH).parse().unwrap_or_default();
        let moved = i64::from(!same(object, old, &["spec", "template"]));
        put(object, &PATH, Some(json!((before + moved).to_string())));
    }
}
