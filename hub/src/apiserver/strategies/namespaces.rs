//! Namespaces: they end in two steps, and three of them never.

use super::{Facts, Strategy};
use crate::apiserver::error::{ApiError, FieldError, FieldErrors};
use crate::apiserver::metadata;
use crate::apiserver::names::{self, NameRule};
use crate::apiserver::request::{DeleteOptions, Propagation};
use crate::apiserver::value::{at, copy, list, put, text, texts};
use serde_json::{Value, json};

/// These stay for ever.
pub(crate) const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
const FINALIZER: &str = "kubernetes";

pub(super) struct Namespaces;

impl Strategy for Namespaces {
    fn name_rule(&self) -> NameRule {
        NameRule::Label
    }

    fn selectable(&self) -> &'static [&'static str] {
        &["status.phase"]
    }

    fn default(&self, _: &Facts<'_>, object: &mut Value) {
        label(object);
    }

    fn admit(
        &self,
        facts: &Facts<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        if object.is_some() {
            return Ok(());
        }
        let name = old.map_or(facts.context.name.as_str(), metadata::name);
        if IMMORTAL.contains(&name) {
            return Err(ApiError::forbidden(
                &facts.context.resource.group_resource(),
                name,
                "this namespace may not be deleted",
            ));
        }
        Ok(())
    }

    fn prepare_create(&self, _: &Facts<'_>, object: &mut Value) {
        put(object, &["status"], Some(json!({"phase": "Active"})));
        let mut finalizers: Vec<Value> = list(object, &["spec", "finalizers"]).to_vec();
        if !finalizers.iter().any(|one| one == FINALIZER) {
            finalizers.push(json!(FINALIZER));
        }
        put(object, &["spec", "finalizers"], Some(json!(finalizers)));
        label(object);
    }

    fn prepare_update(&self, facts: &Facts<'_>, object: &mut Value, old: &Value) {
        match facts.context.subresource.as_str() {
            "" => copy(object, old, &["spec"]),
            "finalize" => copy(object, old, &["status"]),
            _ => {}
        }
        label(object);
    }

    fn validate(&self, facts: &Facts<'_>, object: &Value, old: Option<&Value>) -> FieldErrors {
        if facts.context.subresource == "status" {
            return validate_phase(object);
        }
        let mut errors = FieldErrors::new();
        if old.is_none() || facts.context.subresource == "finalize" {
            for (index, one) in texts(object, &["spec", "finalizers"]).iter().enumerate() {
                let path = format!("spec.finalizers[{index}]");
                for why in names::qualified(one) {
                    errors.push(FieldError::invalid(path.clone(), json!(one), why));
                }
                if !one.contains('/') && *one != FINALIZER {
                    errors.push(FieldError::invalid(
                        path,
                        json!(one),
                        "name is neither a standard finalizer name nor is it fully qualified",
                    ));
                }
            }
        }
        errors
    }

    fn may_go(&self, object: &Value) -> bool {
        list(object, &["spec", "finalizers"]).is_empty()
    }

    fn begin_delete(&self, facts: &Facts<'_>, object: &mut Value, options: &DeleteOptions) -> bool {
        if metadata::is_deleting(object) {
            return false;
        }
        put(
            object,
            &["metadata", "deletionTimestamp"],
            Some(json!(metadata::timestamp(facts.now))),
        );
        put(object, &["status", "phase"], Some(json!("Terminating")));
        let had = metadata::finalizers(object);
        let wanted = |finalizer: &str, by: Propagation| match (
            options.orphan_dependents,
            options.propagation,
        ) {
            (Some(orphan), _) => orphan && by == Propagation::Orphan,
            (None, Some(propagation)) => propagation == by,
            (None, None) => had.contains(&finalizer),
        };
        let (orphan, foreground) = (
            wanted(metadata::ORPHAN, Propagation::Orphan),
            wanted(metadata::FOREGROUND, Propagation::Foreground),
        );
        let mut finalizers: Vec<String> = had
            .into_iter()
            .filter(|one| ![metadata::ORPHAN, metadata::FOREGROUND].contains(one))
            .map(str::to_owned)
            .collect();
        finalizers.extend(orphan.then(|| metadata::ORPHAN.to_owned()));
        finalizers.extend(foreground.then(|| metadata::FOREGROUND.to_owned()));
        let finalizers: Vec<&str> = finalizers.iter().map(String::as_str).collect();
        metadata::set_finalizers(object, &finalizers);
        true
    }

    fn delete_pending(&self, object: &Value) -> bool {
        metadata::is_deleting(object) && !self.may_go(object)
    }
}

fn label(object: &mut Value) {
    let name = metadata::name(object).to_owned();
    if !name.is_empty() {
        put(
            object,
            &["metadata", "labels", NAME_LABEL],
            Some(json!(name)),
        );
    }
}

fn validate_phase(object: &Value) -> FieldErrors {
    let phase = text(object, &["status", "phase"]);
    let (expected, why) = if metadata::is_deleting(object) {
        (
            "Terminating",
            "may only be 'Terminating' if `deletionTimestamp` is not empty",
        )
    } else {
        (
            "Active",
            "may only be 'Active' if `deletionTimestamp` is empty",
        )
    };
    if phase == expected {
        return FieldErrors::new();
    }
    let value = at(object, &["status", "phase"]).cloned();
    let value = value.unwrap_or_else(|| json!(""));
    FieldError::invalid("status.Phase", value, why).into()
}
