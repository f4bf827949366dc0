//! From what is wanted and what is there to what must be done, and doing it.
//!
//! Whether an object would change is asked of the API server itself, by a dry run of the apply: it alone
//! knows its defaults and who owns which field. [`decide`] is the pure half.

use super::object::{Desired, ObjectKey};
use common::labels::INIT_FIELD_MANAGER;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Client, Error as KubeError};
use serde_json::Value;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// An applied object that changed meanwhile is looked at again this often.
const CONFLICT_RETRIES: usize = 5;

/// The path under which a difference in ownership alone is shown.
const OWNERSHIP: &str = "metadata.managedFields";

/// What is to be done with one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It is missing.
    Create,
    /// These fields differ.
    Change(Vec<String>),
    /// It is as it should be.
    Unchanged,
    /// It belongs to somebody else and serves as it is.
    Keep,
    /// These parts of somebody else's object are taken away.
    Remove(Vec<String>),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create => "create",
            Self::Change(_) => "change",
            Self::Unchanged => "unchanged",
            Self::Keep => "keep",
            Self::Remove(_) => "remove",
        })
    }
}

/// One line of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The object.
    pub key: ObjectKey,
    /// What is done with it.
    pub action: Action,
}

/// What was done with an object, and how it is known from then on.
#[derive(Debug, Clone)]
pub struct Enforced {
    /// What was done.
    pub step: Step,
    /// The object as it should be.
    pub mark: Mark,
}

/// Another one as soon as anything of an object changed that [`decide`] looks at. With it an object
/// that is as it was found need not be compared again, which costs a dry run of the apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64);

impl Mark {
    /// Of an object with this metadata.
    pub fn of(metadata: &ObjectMeta) -> Self {
        let mut hasher = DefaultHasher::new();
        metadata.uid.hash(&mut hasher);
        metadata.labels.hash(&mut hasher);
        metadata.annotations.hash(&mut hasher);
        // What has a generation changes without it in its metadata and status alone.
        match metadata.generation {
            Some(generation) if generation > 0 => generation.hash(&mut hasher),
            _ => metadata.resource_version.hash(&mut hasher),
        }
        let deleting = metadata.deletion_timestamp.is_some();
        deleting.hash(&mut hasher);
        metadata.finalizers.hash(&mut hasher);
        for owner in metadata.owner_references.iter().flatten() {
            owner.uid.hash(&mut hasher);
        }
        for entry in metadata.managed_fields.iter().flatten() {
            let operation = entry.operation.as_deref();
            if entry.manager.as_deref() == Some(INIT_FIELD_MANAGER) && operation == Some("Apply") {
                entry.api_version.hash(&mut hasher);
                entry.fields_v1.as_ref().map(|set| &set.0).hash(&mut hasher);
            }
        }
        Self(hasher.finish())
    }
}

/// A request that failed, with the object it was about.
#[derive(Debug, thiserror::Error)]
#[error("failed to {verb} {key}")]
pub struct Error {
    /// What was attempted.
    pub verb: &'static str,
    /// The object.
    pub key: ObjectKey,
    /// The cause.
    #[source]
    pub source: Box<KubeError>,
}

/// What must be done, from the live object and what a dry run of the apply made of it.
pub fn decide(live: Option<&Value>, applied: Option<&Value>) -> Action {
    let (Some(live), Some(applied)) = (live, applied) else {
        return Action::Create;
    };
    let mut fields = Vec::new();
    differences("", &comparable(live), &comparable(applied), &mut fields);
    // Who owns a field is worth a word only when nothing else differs.
    if fields.iter().any(|field| field != OWNERSHIP) {
        fields.retain(|field| field != OWNERSHIP);
    }
    if fields.is_empty() {
        Action::Unchanged
    } else {
        Action::Change(fields)
    }
}

/// Looks at one object.
pub async fn examine(client: &Client, desired: &Desired) -> Result<Step, Error> {
    Ok(look(client, desired).await?.step)
}

/// Whether an object is still what it was when it had this mark.
pub async fn stands(client: &Client, desired: &Desired, mark: Mark) -> Result<bool, Error> {
    let key = desired.key();
    let api = desired.api(client.clone());
    let live = api.get_metadata_opt(&key.name).await;
    let live = live.map_err(|source| failed("get", desired, source))?;
    Ok(live.is_some_and(|live| Mark::of(&live.metadata) == mark))
}

/// Brings one object to what it should be, and says what was done.
pub async fn enforce(client: &Client, desired: &Desired) -> Result<Enforced, Error> {
    let mut tries = 0;
    loop {
        let Look { step, mark, value } = look(client, desired).await?;
        if let (Action::Unchanged, Some(mark)) = (&step.action, mark) {
            return Ok(Enforced { step, mark });
        }
        match apply(client, desired, &value, false).await {
            Ok(applied) => {
                let mark = Mark::of(&applied.metadata);
                return Ok(Enforced { step, mark });
            }
            // The resourceVersion that `look` put in was overtaken.
            Err(KubeError::Api(status)) if status.code == 409 && tries < CONFLICT_RETRIES => {
                tries += 1;
            }
            Err(source) => return Err(failed("apply", desired, source)),
        }
    }
}

/// What is to be done with an object.
struct Look {
    step: Step,
    /// Of the object that is there.
    mark: Option<Mark>,
    /// The object as it must be applied.
    value: Value,
}

async fn look(client: &Client, desired: &Desired) -> Result<Look, Error> {
    let key = desired.key();
    let live = desired.api(client.clone()).get_opt(&key.name).await;
    let live = live.map_err(|source| failed("get", desired, source))?;
    let mut value = desired.value();
    let Some(live) = live else {
        let action = Action::Create;
        return Ok(Look {
            step: Step { key, action },
            mark: None,
            value,
        });
    };
    let mark = Some(Mark::of(&live.metadata));
    let live = to_value(&live);
    if key.kind == "CustomResourceDefinition" {
        crate::epoch::carry(&live, &mut value);
    }
    // Between look and apply nobody else's write may be lost.
    value["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    let applied = match apply(client, desired, &value, true).await {
        Ok(applied) => to_value(&applied),
        // Overtaken at once; the caller's apply will notice too, and look again.
        Err(KubeError::Api(status)) if status.code == 409 => value.clone(),
        Err(source) => return Err(failed("apply (dry run)", desired, source)),
    };
    let action = decide(Some(&live), Some(&applied));
    Ok(Look {
        step: Step { key, action },
        mark,
        value,
    })
}

async fn apply(
    client: &Client,
    desired: &Desired,
    value: &Value,
    dry_run: bool,
) -> Result<DynamicObject, KubeError> {
    // Forced: what init makes is not shared; a field that somebody changed is taken back.
    let mut params = PatchParams::apply(INIT_FIELD_MANAGER).force();
    params.dry_run = dry_run;
    let name = desired.key().name;
    desired
        .api(client.clone())
        .patch(&name, &params, &Patch::Apply(value))
        .await
}

fn failed(verb: &'static str, desired: &Desired, source: KubeError) -> Error {
    Error {
        verb,
        key: desired.key(),
        source: Box::new(source),
    }
}

fn to_value(object: &DynamicObject) -> Value {
    serde_json::to_value(object).expect("invariant: a decoded object is JSON")
}

/// Leaves out what the server writes at every request, and what controllers report.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
        metadata.remove("generation");
        // Of the field managers only what init owns; others come, go and change places.
        if let Some(managers) = metadata
            .get_mut("managedFields")
            .and_then(Value::as_array_mut)
        {
            managers.retain(|entry| {
                entry["manager"] == INIT_FIELD_MANAGER && entry["operation"] == "Apply"
            });
            for entry in managers.iter_mut().filter_map(Value::as_object_mut) {
                entry.remove("time");
                // One field to the server, whoever changes a word in it: a raised epoch makes it the hub's.
                if let Some(spec) = entry.get_mut("fieldsV1")
                    && let Some(spec) = spec.get_mut("f:spec").and_then(Value::as_object_mut)
                {
                    spec.remove("f:versions");
                }
            }
        }
    }
    object
}

/// Paths that differ, at most three levels deep: enough for a human to know where to look.
fn differences(path: &str, a: &Value, b: &Value, found: &mut Vec<String>) {
    const DEPTH: usize = 3;
    if a == b {
        return;
    }
    let deep = path.split('.').count() >= DEPTH && !path.is_empty();
    match (a, b) {
        (Value::Object(a), Value::Object(b)) if !deep => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                let path = match path {
                    "" => key.clone(),
                    path => format!("{path}.{key}"),
                };
                let part = |map: &serde_json::Map<String, Value>| map.get(key).cloned();
                let (a, b) = (part(a).unwrap_or_default(), part(b).unwrap_or_default());
                differences(&path, &a, &b, found);
            }
        }
        _ => found.push(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_missing_object_is_created_and_an_equal_one_left() {
        let object = json!({"metadata": {"name": "a"}, "rules": [1]});
        assert_eq!(decide(None, None), Action::Create);
        assert_eq!(decide(Some(&object), Some(&object)), Action::Unchanged);
    }

    #[test]
    fn what_the_server_writes_is_no_change() {
        let live = json!({
            "metadata": {"resourceVersion": "1", "generation": 1,
                "managedFields": [
                    {"manager": "towline-init", "operation": "Apply", "time": "a"},
                    {"manager": "kube-controller-manager", "operation": "Update"},
                ]},
            "status": {"a": 1},
        });
        let applied = json!({
            "metadata": {"resourceVersion": "2", "generation": 2,
                "managedFields": [
                    {"manager": "towline-init", "operation": "Apply", "time": "b"},
                ]},
            "status": {"a": 2},
        });
        assert_eq!(decide(Some(&live), Some(&applied)), Action::Unchanged);
    }

    #[test]
    fn who_owns_the_versions_of_a_definition_is_no_change() {
        let owned = |spec: Value| {
            json!({"metadata": {"managedFields": [
                {"manager": INIT_FIELD_MANAGER, "operation": "Apply", "fieldsV1": {"f:spec": spec}},
            ]}})
        };
        let live = owned(json!({"f:group": {}}));
        let applied = owned(json!({"f:group": {}, "f:versions": {}}));
        assert_eq!(decide(Some(&live), Some(&applied)), Action::Unchanged);
        let less = owned(json!({"f:versions": {}}));
        assert_ne!(decide(Some(&live), Some(&less)), Action::Unchanged);
    }

    #[test]
    fn a_change_names_its_fields() {
        let live = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"x": {"y": {"z": 1}}}});
        let applied = json!({"metadata": {"labels": {"a": "2"}}, "spec": {"x": {"y": {"z": 2}}}});
        let fields = vec!["metadata.labels.a".to_owned(), "spec.x.y".to_owned()];
        assert_eq!(decide(Some(&live), Some(&applied)), Action::Change(fields));
    }

    proptest! {
        #[test]
        fn a_change_is_seen_in_any_field(key in "[a-z]{1,8}", a in 0..9, b in 0..9) {
            prop_assume!(key != "status" && key != "metadata");
            let live = json!({"metadata": {}, key.clone(): a});
            let applied = json!({"metadata": {}, key.clone(): b});
            let expected = if a == b { Action::Unchanged } else { Action::Change(vec![key]) };
            prop_assert_eq!(decide(Some(&live), Some(&applied)), expected);
        }
    }
}
