//! What of policies, and of protection from deletion, no definition of a kind can see. Pure.
//!
//! On an API server of Kubernetes the same rules are admission policies (`install::admission::propagation`),
//! and the texts are theirs.

use super::agents::Target;
use super::error::{ApiError, FieldError, GroupResource};
use super::names;
use super::value::{list, map, text};
use crate::install::admission::propagation::{
    FOREIGN_NAMESPACE, OVERRIDE_POLICY, PROPAGATION_POLICY, PROTECTION_POLICY, VALUE_NOT_ALLOWED,
    VALUE_REQUIRED, id_is_immutable, protected,
};
use common::labels::{
    BINDING_DEPENDENCIES, CLUSTER_POLICY_PERMANENT_ID, DELETION_PROTECTED,
    DELETION_PROTECTED_ALWAYS, POLICY_PERMANENT_ID,
};
use serde::de::IgnoredAny;
use serde_json::Value;

const POLICIES: &str = "policy.karmada.io";

/// Refuses the deletion of what is protected, whoever asks.
pub fn check_deletion(target: &Target<'_>, old: &Value) -> Result<(), ApiError> {
    let value = text(old, &["metadata", "labels", DELETION_PROTECTED]);
    if target.subresource.is_empty() && value == DELETION_PROTECTED_ALWAYS {
        return Err(target.refused(PROTECTION_POLICY, &protected()));
    }
    Ok(())
}

/// Refuses what is wrong with a policy or a binding that is made, or changed from `old`.
pub fn check(target: &Target<'_>, object: &Value, old: Option<&Value>) -> Result<(), ApiError> {
    if !target.subresource.is_empty() {
        return Ok(());
    }
    let wrong = |policy: &str, error: Option<FieldError>| match error {
        Some(error) => Err(target.refused(policy, &error.to_string())),
        None => Ok(()),
    };
    match (target.group, target.resource) {
        (POLICIES, "propagationpolicies") => {
            check_id(target, POLICY_PERMANENT_ID, object, old)?;
            wrong(PROPAGATION_POLICY, foreign_namespace(target, object))
        }
        (POLICIES, "clusterpropagationpolicies") => {
            check_id(target, CLUSTER_POLICY_PERMANENT_ID, object, old)
        }
        (POLICIES, "overridepolicies") => {
            let error = foreign_namespace(target, object).or_else(|| override_rules(object));
            wrong(OVERRIDE_POLICY, error)
        }
        (POLICIES, "clusteroverridepolicies") => wrong(OVERRIDE_POLICY, override_rules(object)),
        ("work.karmada.io", "resourcebindings") => match dependencies(object) {
            Some(error) => Err(ApiError::forbidden(
                &GroupResource::new(target.group, target.resource),
                target.name,
                &error.to_string(),
            )),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn check_id(
    target: &Target<'_>,
    label: &str,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let id = |of: &Value| text(of, &["metadata", "labels", label]).to_owned();
    let before = old.map(id).unwrap_or_default();
    if before.is_empty() || before == id(object) {
        return Ok(());
    }
    Err(target.refused(PROPAGATION_POLICY, &id_is_immutable(label)))
}

/// The first selector that reaches out of the policy's namespace.
fn foreign_namespace(target: &Target<'_>, object: &Value) -> Option<FieldError> {
    let selectors = list(object, &["spec", "resourceSelectors"]);
    selectors.iter().enumerate().find_map(|(at, selector)| {
        let namespace = text(selector, &["namespace"]);
        (!namespace.is_empty() && namespace != target.namespace).then(|| {
            let path = format!("spec.resourceSelectors[{at}].namespace");
            FieldError::invalid(path, Value::from(namespace), FOREIGN_NAMESPACE)
        })
    })
}

/// The first thing that is wrong with the rules of an override policy.
fn override_rules(object: &Value) -> Option<FieldError> {
    let rules = list(object, &["spec", "overrideRules"]);
    rules.iter().enumerate().find_map(|(at, rule)| {
        let path = format!("spec.overrideRules[{at}].overriders");
        field_overriders(rule, &path)
            .or_else(|| marks(rule, "labelsOverrider", &path, wrong_label))
            .or_else(|| marks(rule, "annotationsOverrider", &path, wrong_annotation))
    })
}

fn field_overriders(rule: &Value, path: &str) -> Option<FieldError> {
    let overriders = list(rule, &["overriders", "fieldOverrider"]);
    overriders.iter().enumerate().find_map(|(at, overrider)| {
        ["json", "yaml"].into_iter().find_map(|form| {
            let patches = list(overrider, &[form]).iter().enumerate();
            patches.into_iter().find_map(|(nth, patch)| {
                let value = patch.get("value");
                let why = match (text(patch, &["operator"]), value) {
                    ("remove", Some(_)) => VALUE_NOT_ALLOWED,
                    ("add" | "replace", None) => VALUE_REQUIRED,
                    _ => return None,
                };
                let path = format!("{path}.fieldOverrider[{at}].{form}[{nth}].value");
                let value = value.cloned().unwrap_or_default();
                Some(FieldError::invalid(path, value, why))
            })
        })
    })
}

/// The text that is wrong in an entry of labels or annotations, and why.
type Wrong<'a> = (&'a str, String);

fn marks(
    rule: &Value,
    kind: &str,
    path: &str,
    wrong: for<'a> fn(&'a str, &'a str) -> Option<Wrong<'a>>,
) -> Option<FieldError> {
    let overriders = list(rule, &["overriders", kind]).iter().enumerate();
    overriders.into_iter().find_map(|(at, overrider)| {
        let entries = map(overrider, &["value"]).into_iter().flatten();
        let (bad, why) = entries
            .into_iter()
            .find_map(|(key, value)| wrong(key, value.as_str().unwrap_or_default()))?;
        let path = format!("{path}.{kind}[{at}].value");
        Some(FieldError::invalid(path, Value::from(bad), why))
    })
}

fn wrong_label<'a>(key: &'a str, value: &'a str) -> Option<Wrong<'a>> {
    let first = |of: &'a str, wrong: Vec<String>| wrong.into_iter().next().map(|why| (of, why));
    first(key, names::qualified(key)).or_else(|| first(value, names::label_value(value)))
}

fn wrong_annotation<'a>(key: &'a str, _: &'a str) -> Option<Wrong<'a>> {
    let wrong = names::qualified(&key.to_ascii_lowercase());
    wrong.into_iter().next().map(|why| (key, why))
}

/// What a binding's template refers to is told in JSON.
fn dependencies(object: &Value) -> Option<FieldError> {
    let told = text(object, &["metadata", "annotations", BINDING_DEPENDENCIES]);
    if told.is_empty() || serde_json::from_str::<IgnoredAny>(told).is_ok() {
        return None;
    }
    Some(FieldError::invalid(
        format!("metadata.annotations.{BINDING_DEPENDENCIES}"),
        Value::from(told),
        "annotation value must be a valid JSON",
    ))
}

#[cfg(test)]
mod tests;
