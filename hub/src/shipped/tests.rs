//! What the files say, held against their tables; the definitions there take whatever scripts make.

use super::{FILES, VERSIONS, customizations, specs};
use crate::apiserver::schema::Schema;
use common::api::binding::AggregatedStatusItem;
use common::api::interpreter::ResourceInterpreterCustomization;
use common::gvk::Gvk;
use common::interpreter::custom::{Operation, Rules, check};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// A table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    definition: Value,
    object: Value,
    replicas: Option<i32>,
    requirements: Option<Value>,
    revised: Option<Revised>,
    retained: Option<Retained>,
    dependencies: Value,
    live: Vec<Live>,
    aggregate: Vec<Aggregate>,
}

#[derive(Debug, Deserialize)]
struct Revised {
    to: i32,
    spec: Value,
}

/// What the member's spec has, and what the manifest's has of it then.
#[derive(Debug, Deserialize)]
struct Retained {
    observed: Value,
    spec: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Live {
    status: Value,
    #[serde(default)]
    spec: Value,
    health: String,
    shown: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Aggregate {
    items: Vec<Value>,
    status: Value,
}

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("customizations")
}

fn tables() -> Vec<(String, Table)> {
    let all = FILES.iter().map(|file| {
        let read: ResourceInterpreterCustomization = serde_yaml::from_str(file).expect("is one");
        let name = read.metadata.name.expect("has a name");
        let path = folder().join("tests").join(format!("{name}.yaml"));
        let text = std::fs::read_to_string(&path).expect("has a table");
        let table = serde_yaml::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        (name, table)
    });
    all.collect()
}

fn rules(table: &Table) -> Arc<Rules> {
    let text = |key: &str| table.object[key].as_str().expect("a text");
    let gvk = Gvk::new(text("apiVersion"), text("kind")).expect("sound");
    Arc::clone(customizations().of(&gvk).expect("is known"))
}

/// The object with other fields in its spec.
fn with(object: &Value, spec: &Value) -> Value {
    let mut object = object.clone();
    for (key, value) in spec.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

#[test]
fn every_file_ships_and_can_be_read() {
    let files = std::fs::read_dir(folder()).expect("there");
    let files = files.filter(|it| it.as_ref().expect("there").path().is_file());
    assert_eq!(files.count(), FILES.len());
    let all = specs();
    for (name, spec) in &all {
        assert!(check(spec).is_empty(), "{name}");
    }
    let further = FILES.iter().filter(|file| file.contains(VERSIONS)).count();
    assert!(all.len() >= FILES.len() + further);
    // Each kind once: they would else decide by name.
    let kinds: BTreeSet<_> = all
        .values()
        .map(|it| (&it.target.api_version, &it.target.kind))
        .collect();
    assert_eq!(kinds.len(), all.len());
}

#[test]
fn templates_are_understood() {
    for (name, table) in tables() {
        let (rules, object) = (rules(&table), &table.object);
        let found = rules.replicas(object).map(|it| it.expect("answers"));
        assert_eq!(
            found.as_ref().map(|it| it.replicas),
            table.replicas,
            "{name}"
        );
        let needs = found.and_then(|it| it.requirements).map(|it| json!(it));
        assert_eq!(needs, table.requirements, "{name}");
        // Whoever divides replicas writes each member's share.
        assert_eq!(
            rules.has(Operation::Replica),
            rules.has(Operation::ReviseReplica),
            "{name}"
        );
        assert_eq!(
            rules.has(Operation::ReviseReplica),
            table.revised.is_some(),
            "{name}"
        );
        if let Some(Revised { to, spec }) = &table.revised {
            let revised = rules.revise(object, *to).expect("asked");
            assert_eq!(revised.expect("answers"), with(object, spec), "{name}");
        }
        assert_eq!(
            rules.has(Operation::Retain),
            table.retained.is_some(),
            "{name}"
        );
        if let Some(Retained { observed, spec }) = &table.retained {
            let kept = rules
                .retain(object, &with(object, observed))
                .expect("asked");
            assert_eq!(kept.expect("answers"), with(object, spec), "{name}");
            let kept = rules.retain(object, object).expect("asked");
            assert_eq!(&kept.expect("answers"), object, "{name}");
        }
        let needed = rules.dependencies(object).expect("asked");
        let needed = json!(needed.unwrap_or_else(|failed| panic!("{name}: {failed}")));
        let sorted = |list: &Value| -> BTreeSet<String> {
            list.as_array()
                .into_iter()
                .flatten()
                .map(Value::to_string)
                .collect()
        };
        assert_eq!(sorted(&needed), sorted(&table.dependencies), "{name}");
        // Of one that says next to nothing nobody wants anything.
        let mut bare = object.clone();
        bare["spec"] = json!({});
        let needed = rules.dependencies(&bare).expect("asked");
        let needed = needed.unwrap_or_else(|failed| panic!("{name}: {failed}"));
        assert!(needed.is_empty(), "{name}: {needed:?}");
    }
}

#[test]
fn members_are_understood() {
    for (name, table) in tables() {
        let rules = rules(&table);
        for live in &table.live {
            let mut object = with(&table.object, &live.spec);
            object["metadata"]["generation"] = 2.into();
            object["metadata"]["annotations"] =
                json!({"resourcetemplate.karmada.io/generation": "5"});
            object["status"] = live.status.clone();
            let health = rules.health(&object).expect("asked");
            let health = json!(health.unwrap_or_else(|failed| panic!("{name}: {failed}")));
            assert_eq!(health, json!(live.health), "{name}: {}", live.status);
            let shown = rules.reflect(&object).expect("asked");
            let shown = shown.unwrap_or_else(|failed| panic!("{name}: {failed}"));
            if let Some(want) = &live.shown {
                assert_eq!(&shown, want, "{name}");
            }
        }
        let mut bare = table.object.clone();
        bare.as_object_mut().expect("an object").remove("status");
        for answer in [
            rules.health(&bare).map(|it| it.map(drop)),
            rules.reflect(&bare).map(|it| it.map(drop)),
        ] {
            answer
                .expect("asked")
                .unwrap_or_else(|failed| panic!("{name}: {failed}"));
        }
        for Aggregate { items, status } in &table.aggregate {
            let items: Vec<AggregatedStatusItem> = (items.iter().enumerate())
                .map(|(at, item)| AggregatedStatusItem {
                    cluster_name: format!("m{}", at + 1),
                    status: Some(item.clone()),
                    ..AggregatedStatusItem::default()
                })
                .collect();
            let made = rules.aggregate(&table.object, &items).expect("asked");
            let made = made.unwrap_or_else(|failed| panic!("{name}: {failed}"));
            assert_eq!(&made, status, "{name}");
        }
        let silent = AggregatedStatusItem {
            cluster_name: "m1".to_owned(),
            ..AggregatedStatusItem::default()
        };
        let made = rules.aggregate(&table.object, &[silent]).expect("asked");
        made.unwrap_or_else(|failed| panic!("{name}: {failed}"));
    }
}

/// The definitions are real ones: whatever the tables have is taken by them, and nothing of it is dropped.
#[test]
fn definitions_take_what_scripts_make() {
    for (name, table) in tables() {
        let version = &table.definition["spec"]["versions"][0];
        let schema = Schema::of_crd(&version["schema"]["openAPIV3Schema"], false);
        let mut all = vec![table.object.clone()];
        all.extend(table.revised.iter().map(|it| with(&table.object, &it.spec)));
        all.extend(
            table
                .retained
                .iter()
                .map(|it| with(&table.object, &it.spec)),
        );
        let statuses = table.live.iter().map(|it| &it.status);
        let statuses = statuses.chain(table.aggregate.iter().map(|it| &it.status));
        all.extend(statuses.map(|status| {
            let mut object = table.object.clone();
            object["status"] = status.clone();
            object
        }));
        for mut object in all {
            // What every object has, a definition does not say.
            let fields = object.as_object_mut().expect("an object");
            fields.retain(|key, _| matches!(key.as_str(), "spec" | "status"));
            let verdict = schema.validate(&object, None);
            assert!(verdict.errors.is_empty(), "{name}: {:?}", verdict.errors);
            let mut pruned = object.clone();
            schema.prune(&mut pruned);
            assert_eq!(pruned, object, "{name}");
        }
    }
}
