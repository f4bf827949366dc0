//! What the server writes into policies, bindings and Works by itself, as Karmada's webhooks do: defaults
//! that depend on other fields or on the request, permanent ids, and finalizers.

use super::Facts;
use crate::apiserver::metadata;
use crate::apiserver::value::{at, is_set, list, object_at, text};
use common::labels::{
    BINDING_PERMANENT_ID, CLUSTER_BINDING_PERMANENT_ID, CLUSTER_POLICY_FINALIZER,
    CLUSTER_POLICY_PERMANENT_ID, POLICY_FINALIZER, POLICY_PERMANENT_ID, WORK_PERMANENT_ID,
};
use serde_json::{Value, json};

const POLICIES: &str = "policy.karmada.io";
const WORK: &str = "work.karmada.io";
/// How long an old copy may stay, in seconds, where a policy does not say.
const GRACE_SECONDS: i64 = 600;

/// Completes what is left out of an object that is made or changed.
pub(crate) fn complete(facts: &Facts<'_>, object: &mut Value) {
    let context = facts.context;
    match ours(facts) {
        Some((POLICIES, "propagationpolicies")) => {
            select_in(object, &context.namespace);
            default_policy(object);
        }
        Some((POLICIES, "clusterpropagationpolicies")) => default_policy(object),
        Some((POLICIES, "overridepolicies")) => select_in(object, &context.namespace),
        _ => {}
    }
}

/// Marks a new object as itself, by an id that `draw` gives and nothing else has. A policy's id is never
/// one that somebody chose: what it holds is known by it.
pub(crate) fn identify(facts: &Facts<'_>, object: &mut Value, draw: impl FnOnce() -> String) {
    let (label, finalizer) = match ours(facts) {
        Some((POLICIES, "propagationpolicies")) => (POLICY_PERMANENT_ID, Some(POLICY_FINALIZER)),
        Some((POLICIES, "clusterpropagationpolicies")) => {
            (CLUSTER_POLICY_PERMANENT_ID, Some(CLUSTER_POLICY_FINALIZER))
        }
        Some((WORK, "resourcebindings")) => (BINDING_PERMANENT_ID, None),
        Some((WORK, "clusterresourcebindings")) => (CLUSTER_BINDING_PERMANENT_ID, None),
        Some((WORK, "works")) => (WORK_PERMANENT_ID, None),
        _ => return,
    };
    let labels = ["metadata", "labels"];
    if finalizer.is_some() || !is_set(object, &["metadata", "labels", label]) {
        object_at(object, &labels).insert(label.to_owned(), Value::from(draw()));
    }
    if let Some(finalizer) = finalizer {
        add_finalizer(object, finalizer);
    }
}

/// Group and resource that a write to a custom kind itself, no subresource of it, is about.
fn ours<'f>(facts: &'f Facts<'_>) -> Option<(&'f str, &'f str)> {
    let resource = &facts.context.resource;
    let itself = facts.context.subresource.is_empty() && resource.is_custom();
    itself.then_some((&*resource.group, &*resource.plural))
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    let mut all: Vec<String> = metadata::finalizers(object)
        .into_iter()
        .map(str::to_owned)
        .collect();
    if all.iter().any(|one| one == finalizer) {
        return;
    }
    all.push(finalizer.to_owned());
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    metadata::set_finalizers(object, &all);
}

/// The objects of the list at `path`.
fn objects<'a>(value: &'a mut Value, path: &[&str]) -> impl Iterator<Item = &'a mut Value> {
    let list = path
        .iter()
        .try_fold(value, |value, key| value.get_mut(*key));
    let list = list.and_then(Value::as_array_mut).into_iter().flatten();
    list.filter(|one| one.is_object())
}

/// A selector without a namespace is one of the policy's own.
fn select_in(object: &mut Value, namespace: &str) {
    for selector in objects(object, &["spec", "resourceSelectors"]) {
        if !is_set(selector, &["namespace"]) {
            selector["namespace"] = json!(namespace);
        }
    }
}

fn default_policy(object: &mut Value) {
    for constraint in objects(object, &["spec", "placement", "spreadConstraints"]) {
        if !is_set(constraint, &["spreadByField"]) && !is_set(constraint, &["spreadByLabel"]) {
            constraint["spreadByField"] = json!("cluster");
        }
        if constraint["minGroups"].as_i64().unwrap_or_default() == 0 {
            constraint["minGroups"] = json!(1);
        }
    }
    let imports = |selector: &Value| {
        text(selector, &["apiVersion"]) == "multicluster.x-k8s.io/v1alpha1"
            && text(selector, &["kind"]) == "ServiceImport"
    };
    if list(object, &["spec", "resourceSelectors"])
        .iter()
        .any(imports)
    {
        object_at(object, &["spec"]).insert("propagateDeps".to_owned(), json!(true));
    }
    let scheduling = ["spec", "placement", "replicaScheduling"];
    if text(
        at(object, &scheduling).unwrap_or(&Value::Null),
        &["replicaSchedulingType"],
    ) == "Divided"
        && !is_set(
            at(object, &scheduling).unwrap_or(&Value::Null),
            &["replicaDivisionPreference"],
        )
    {
        let preference = ("replicaDivisionPreference".to_owned(), json!("Weighted"));
        object_at(object, &scheduling).extend([preference]);
    }
    let failover = ["spec", "failover", "application"];
    let application = at(object, &failover).unwrap_or(&Value::Null);
    if text(application, &["purgeMode"]) == "Gracefully"
        && !is_set(application, &["gracePeriodSeconds"])
    {
        let grace = ("gracePeriodSeconds".to_owned(), json!(GRACE_SECONDS));
        object_at(object, &failover).extend([grace]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn defaulted(spec: Value) -> Value {
        let mut object = json!({"spec": spec});
        default_policy(&mut object);
        object["spec"].take()
    }

    #[test]
    fn defaults_depend_on_other_fields() {
        let spread = |constraints: Value| json!({"placement": {"spreadConstraints": constraints}});
        let divided = |more: Value| json!({"placement": {"replicaScheduling": more}});
        let failover = |more: Value| json!({"failover": {"application": more}});
        let import =
            json!([{"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport"}]);
        let cases = [
            (json!({}), json!({})),
            (
                spread(
                    json!([{}, {"spreadByLabel": "a"}, {"spreadByField": "region", "minGroups": 2}]),
                ),
                spread(json!([
                    {"spreadByField": "cluster", "minGroups": 1},
                    {"spreadByLabel": "a", "minGroups": 1},
                    {"spreadByField": "region", "minGroups": 2},
                ])),
            ),
            // Not what it should be: the schema says so afterwards.
            (spread(json!("a")), spread(json!("a"))),
            (spread(json!([1, null])), spread(json!([1, null]))),
            (
                divided(json!({"replicaSchedulingType": "Divided"})),
                divided(json!({
                    "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
                })),
            ),
            (
                divided(json!({"replicaSchedulingType": "Duplicated"})),
                divided(json!({"replicaSchedulingType": "Duplicated"})),
            ),
            (
                failover(json!({"purgeMode": "Gracefully"})),
                failover(json!({"purgeMode": "Gracefully", "gracePeriodSeconds": 600})),
            ),
            (
                failover(json!({"purgeMode": "Gracefully", "gracePeriodSeconds": 0})),
                failover(json!({"purgeMode": "Gracefully", "gracePeriodSeconds": 0})),
            ),
            (
                failover(json!({"purgeMode": "Never"})),
                failover(json!({"purgeMode": "Never"})),
            ),
            (
                json!({"resourceSelectors": import, "propagateDeps": false}),
                json!({"resourceSelectors": import, "propagateDeps": true}),
            ),
        ];
        for (given, wanted) in cases {
            let once = defaulted(given);
            assert_eq!(once, wanted);
            assert_eq!(defaulted(once), wanted, "again");
        }
    }

    #[test]
    fn a_finalizer_is_added_once_after_others() {
        let mut object = json!({"metadata": {"finalizers": ["a/b"]}});
        for _ in 0..2 {
            add_finalizer(&mut object, POLICY_FINALIZER);
        }
        assert_eq!(metadata::finalizers(&object), ["a/b", POLICY_FINALIZER]);
    }
}
