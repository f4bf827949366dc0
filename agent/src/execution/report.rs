//! The status of a Work: what it should say, and the patch that makes it say so.
//!
//! Pure. Nothing is written when the hub already says it.

pub mod reporter;

use super::manifest::hash_value;
use super::state::{ObjectKey, State, WorkRecord};
use super::wire::WorkMeta;
use chrono::{DateTime, Utc};
use common::api::work::{INTERPRETED, ResourceHealth, WORKLOAD_HEALTHY};
use common::conditions;
use common::gvk::Gvk;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Map, Value, json};

/// Longest reflected status of all manifests of a Work together, in bytes of JSON: Work and status share
/// one object of etcd.
const STATUS_BUDGET: usize = 512 * 1024;

/// The same for what an orphaned Work wanted; it lies in an otherwise empty Work.
const TELL_BUDGET: usize = 1024 * 1024;

/// A status to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The merge patch.
    pub patch: Value,
    /// The conditions in it.
    pub conditions: Vec<Condition>,
    /// Hash of the manifest statuses in it.
    pub reported: u64,
}

/// The status that `name` should have, unless the hub has it.
pub fn report(state: &State, name: &str, now: DateTime<Utc>) -> Option<Report> {
    // What the hub has of a Work that it has not shown in this life is not known.
    let record = state.works.get(name).filter(|record| record.confirmed)?;
    let mut conditions = record.conditions.clone();
    let mut changed = false;
    for verdict in &record.verdicts {
        let condition = conditions::new(
            verdict.kind,
            verdict.status,
            verdict.reason,
            verdict.message.clone(),
            now,
        );
        changed |= conditions::set(&mut conditions, condition, now);
    }
    changed |= diagnose(&mut conditions, state, name, record, now);
    changed |= interpret(&mut conditions, state, name, record, now);
    let statuses = statuses(state, name, record);
    let reported = hash_value(&statuses);
    let restated = reported != record.reported;
    if !changed && !restated {
        return None;
    }
    let mut status = Map::new();
    if changed {
        status.insert("conditions".into(), json!(conditions));
    }
    if restated {
        status.insert("manifestStatuses".into(), statuses);
    }
    Some(Report {
        patch: json!({
            "metadata": {"uid": record.uid, "resourceVersion": record.resource_version},
            "status": status,
        }),
        conditions,
        reported,
    })
}

/// Has the conditions say why workloads are not healthy, as far as that is known, and no more once they are.
fn diagnose(
    conditions: &mut Vec<Condition>,
    state: &State,
    work: &str,
    record: &WorkRecord,
    now: DateTime<Utc>,
) -> bool {
    let live = record
        .items
        .iter()
        .filter_map(|item| state.live(item.key.as_deref()?));
    let health: Vec<ResourceHealth> = live
        .filter(|live| live.work.as_deref() == Some(work))
        .map(|live| live.health)
        .collect();
    // Of what is not seen yet nobody knows.
    if health.is_empty() {
        return false;
    }
    if !health.contains(&ResourceHealth::Unhealthy) {
        let before = conditions.len();
        conditions.retain(|it| it.type_ != WORKLOAD_HEALTHY);
        return conditions.len() < before;
    }
    let Some(found) = &record.diagnosis else {
        return false;
    };
    let condition = conditions::new(
        found.kind,
        found.status,
        found.reason,
        found.message.as_str(),
        now,
    );
    conditions::set(conditions, condition, now)
}

/// Has the conditions say which scripts about the objects fail, and no more once none does.
fn interpret(
    conditions: &mut Vec<Condition>,
    state: &State,
    work: &str,
    record: &WorkRecord,
    now: DateTime<Utc>,
) -> bool {
    let live = (record.items.iter()).filter_map(|item| state.live(item.key.as_deref()?));
    let of_work = live.filter(|live| live.work.as_deref() == Some(work));
    // As of health: of what is not seen yet nobody knows.
    let Some(problems) = of_work
        .map(|live| live.problem.as_deref())
        .reduce(|first, next| first.or(next))
    else {
        return false;
    };
    let Some(problem) = problems else {
        let before = conditions.len();
        conditions.retain(|it| it.type_ != INTERPRETED);
        return conditions.len() < before;
    };
    let condition = conditions::new(INTERPRETED, false, "ScriptFailed", problem, now);
    conditions::set(conditions, condition, now)
}

/// One entry for each manifest that has an object, by ordinal.
fn statuses(state: &State, work: &str, record: &WorkRecord) -> Value {
    if record.order.tell {
        return told(state, work);
    }
    let mut left = STATUS_BUDGET;
    let entries: Vec<Value> = record
        .items
        .iter()
        .enumerate()
        .filter_map(|(ordinal, item)| {
            let (key, gvk) = item.key.as_deref().zip(item.gvk.as_deref())?;
            let live = state
                .live(key)
                .filter(|live| live.work.as_deref() == Some(work));
            let mut entry = Map::new();
            entry.insert("identifier".into(), identifier(ordinal, gvk, key));
            // An object that is not in the member, or not ours, has no health that we could judge.
            let health = live.map_or(ResourceHealth::Unknown, |live| live.health);
            entry.insert("health".into(), json!(health));
            if let Some(status) = live.and_then(|live| live.status.as_deref())
                && status.len() <= left
                && let Ok(status) = serde_json::from_str::<Value>(status)
            {
                left -= status.to_string().len();
                entry.insert("status".into(), status);
            }
            Some(Value::Object(entry))
        })
        .collect();
    Value::Array(entries)
}

/// What an orphaned Work wanted, manifest by manifest, so that the operator's command can write it anew.
/// One that is too long is named without its content. Last comes the Work itself, when its objects were to
/// outlive it.
fn told(state: &State, work: &str) -> Value {
    let Some(orphaned) = state.orphaned.get(work) else {
        return Value::Array(Vec::new());
    };
    let text = orphaned.manifests.text();
    let manifests: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
    let mut left = TELL_BUDGET;
    let itself = orphaned.preserve.then(|| {
        json!({
            "identifier": {"ordinal": manifests.len(), "group": "work.karmada.io",
                "version": "v1alpha1", "kind": "Work", "resource": "", "namespace": "", "name": work},
            "status": {"preserveResourcesOnDeletion": true},
        })
    });
    let entries = manifests.into_iter().enumerate().map(|(ordinal, manifest)| {
        let part = |path: &str| {
            let found = manifest.pointer(path).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let (api, kind) = (part("/apiVersion"), part("/kind"));
        let (group, version) = api.split_once('/').unwrap_or(("", &api));
        let mut entry = json!({
            "identifier": {"ordinal": ordinal, "group": group, "version": version, "kind": kind,
                "resource": "", "namespace": part("/metadata/namespace"), "name": part("/metadata/name")},
        });
        let size = manifest.to_string().len();
        if manifest.is_object() && size <= left {
            left -= size;
            entry["status"] = manifest;
        }
        entry
    });
    Value::Array(entries.chain(itself).collect())
}

fn identifier(ordinal: usize, gvk: &Gvk, key: &ObjectKey) -> Value {
    let Gvk {
        group,
        version,
        kind,
    } = gvk;
    let mut id = json!({
        "ordinal": ordinal,
        "version": version,
        "kind": kind,
        // Karmada's agent leaves it empty, and so does whoever compares.
        "resource": "",
        "name": key.name,
    });
    for (field, value) in [("group", group.as_str()), ("namespace", &key.namespace)] {
        if !value.is_empty() {
            id[field] = value.into();
        }
    }
    id
}

/// Takes note of a report that was written.
pub fn written(record: &mut WorkRecord, report: Report, meta: &WorkMeta) {
    record.conditions = report.conditions;
    record.reported = report.reported;
    record.resource_version = meta.resource_version.as_str().into();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::conditions;
    use crate::execution::interpret::Shown;
    use crate::execution::state::{Item, LiveRecord};
    use crate::execution::wire::{LiveMeta, WireWork};
    use std::sync::Arc;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000 + seconds, 0).expect("in range")
    }

    fn state() -> State {
        let mut state = State::default();
        let wire: WireWork = serde_json::from_value(json!({
            "metadata": {"name": "w", "uid": "u", "resourceVersion": "7", "generation": 1},
            "spec": {"workload": {"manifests": [{}]}}
        }))
        .expect("decodes");
        let (name, _) = state.upsert(&wire);
        let gvk = Gvk::new("apps/v1", "Deployment").expect("sound");
        let key = Arc::new(ObjectKey {
            kind: state.kind(&gvk),
            namespace: "n".into(),
            name: "a".into(),
        });
        let live = json!({"metadata": {"uid": "o", "labels": {"karmada.io/managed": "true"},
            "annotations": {"work.karmada.io/namespace": "es", "work.karmada.io/name": "w"}},
            "spec": {"replicas": 1}, "status": {"replicas": 1}});
        let live = LiveRecord::new(
            Shown::built_in(&gvk, &live),
            LiveMeta::read(&live),
            "es",
            true,
        );
        state.set_live(&key, Some(live));
        let record = state.works.get_mut(&name).expect("there");
        record.items = vec![
            Item::default(),
            Item {
                key: Some(key),
                gvk: Some(Arc::new(gvk)),
                failure: None,
            },
        ];
        record.verdicts = vec![
            conditions::applied(2, &["bad".into()]),
            conditions::dispatching(false),
        ];
        state
    }

    #[test]
    fn a_report_says_all_once() {
        let mut state = state();
        let first = report(&state, "w", at(0)).expect("news");
        assert_eq!(first.patch["metadata"]["resourceVersion"], "7");
        assert_eq!(
            first.patch["status"]["conditions"][0]["reason"],
            "AppliedFailed"
        );
        assert_eq!(
            first.patch["status"]["manifestStatuses"],
            json!([{"identifier": {"ordinal": 1, "group": "apps", "version": "v1", "kind": "Deployment",
                "resource": "", "namespace": "n", "name": "a"}, "health": "Unhealthy", "status": {"replicas": 1}}])
        );
        let meta: WireWork =
            serde_json::from_str(r#"{"metadata":{"name":"w","resourceVersion":"8"}}"#)
                .expect("decodes");
        written(
            state.works.get_mut("w").expect("there"),
            first,
            &meta.metadata,
        );
        assert_eq!(report(&state, "w", at(9)), None);
        // Only what changed is written, and the transition time stays.
        let record = state.works.get_mut("w").expect("there");
        record.verdicts = vec![conditions::applied(2, &["worse".into()])];
        let second = report(&state, "w", at(9)).expect("news");
        assert_eq!(second.patch["status"].get("manifestStatuses"), None);
        assert_eq!(second.conditions.len(), 2);
        assert_eq!(
            second.conditions[0].last_transition_time,
            common::time::to_time(at(0))
        );
    }

    #[test]
    fn a_script_that_fails_is_told_until_it_does_not() {
        let mut state = state();
        let key = state.works["w"].items[1].key.clone().expect("an object");
        let mut live = state.live(&key).cloned().expect("there");
        live.problem = Some("ResourceInterpreterCustomization x, InterpretHealth: no".into());
        state.set_live(&key, Some(live.clone()));
        let told = report(&state, "w", at(0)).expect("news");
        let condition = common::conditions::get(&told.conditions, INTERPRETED).expect("told");
        assert_eq!(
            (condition.status.as_str(), condition.reason.as_str()),
            ("False", "ScriptFailed")
        );
        assert!(condition.message.ends_with(": no"));
        state.works.get_mut("w").expect("there").conditions = told.conditions;
        live.problem = None;
        state.set_live(&key, Some(live));
        let told = report(&state, "w", at(1)).expect("news");
        assert!(common::conditions::get(&told.conditions, INTERPRETED).is_none());
    }
}
