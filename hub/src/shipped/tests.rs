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

/// Null is a member that has said nothing.
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

/// The status of the object by what members say, from m1 on.
fn aggregated(name: &str, table: &Table, statuses: &[Value]) -> Value {
    let items = statuses.iter().enumerate();
    let items = items.map(|(at, status)| AggregatedStatusItem {
        cluster_name: format!("m{}", at + 1),
        status: Some(status.clone()).filter(|it| !it.is_null()),
        ..AggregatedStatusItem::default()
    });
    let items: Vec<AggregatedStatusItem> = items.collect();
    let made = rules(table).aggregate(&table.object, &items);
    made.expect("asked").expect(name)
}

/// What a member says in the first table of its kind.
fn first(table: &Table) -> &Value {
    let mut items = table.aggregate.iter().flat_map(|it| &it.items);
    items.find(|it| !it.is_null()).expect("one says something")
}

/// Whether a definition takes a status, and drops nothing of it.
fn takes(table: &Table, status: &Value) -> bool {
    let version = &table.definition["spec"]["versions"][0];
    let schema = Schema::of_crd(&version["schema"]["openAPIV3Schema"], false);
    let object = json!({"spec": table.object["spec"], "status": status});
    let mut pruned = object.clone();
    schema.prune(&mut pruned);
    schema.validate(&object, None).errors.is_empty() && pruned == object
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
            assert_eq!(&aggregated(&name, &table, items), status, "{name}");
        }
        let silent = AggregatedStatusItem {
            cluster_name: "m1".to_owned(),
            ..AggregatedStatusItem::default()
        };
        let made = rules.aggregate(&table.object, &[silent]).expect("asked");
        made.unwrap_or_else(|failed| panic!("{name}: {failed}"));
    }
}

/// Each place in a value, by its path.
fn places(value: &Value, path: &str, found: &mut Vec<String>) {
    found.push(path.to_owned());
    for (key, inner) in value.as_object().into_iter().flatten() {
        places(inner, &format!("{path}/{key}"), found);
    }
    for (at, inner) in value.as_array().into_iter().flatten().enumerate() {
        places(inner, &format!("{path}/{at}"), found);
    }
}

/// The value without what is at this place.
fn without(mut value: Value, path: &str) -> Value {
    let Some((parent, key)) = path.rsplit_once('/') else {
        return Value::Null;
    };
    let parent = value.pointer_mut(parent).expect("there");
    if let Some(items) = parent.as_array_mut() {
        items.remove(key.parse().expect("a position"));
    } else {
        parent.as_object_mut().expect("it has parts").remove(key);
    }
    value
}

/// What does not belong in a place where this is.
fn strangers(value: &Value) -> Vec<Value> {
    let all = [
        json!(-1),
        json!(1e300),
        json!(1.5),
        json!(true),
        json!("zzz"),
        json!("9999-99-99T99:99:99Z"),
        json!([7]),
        json!({"a": "b"}),
    ];
    let is_time = value.as_str().is_some_and(|it| it.contains("T0"));
    let belongs = |it: &Value| match it {
        Value::String(_) => value.is_string() && !is_time,
        Value::Array(_) | Value::Object(_) => value.is_array() || value.is_object(),
        _ => false,
    };
    all.into_iter().filter(|it| !belongs(it)).collect()
}

/// One member of another version, or one that was taken over, keeps out nobody else's word.
#[test]
fn what_has_another_form_counts_as_absent() {
    for (name, table) in tables() {
        let sound = first(&table);
        let mut paths = Vec::new();
        places(sound, "", &mut paths);
        for path in paths {
            let absent = without(sound.clone(), &path);
            let expected = aggregated(&name, &table, &[sound.clone(), absent]);
            for stranger in strangers(sound.pointer(&path).expect("there")) {
                let mut odd = sound.clone();
                *odd.pointer_mut(&path).expect("there") = stranger.clone();
                let made = aggregated(&name, &table, &[sound.clone(), odd.clone()]);
                assert_eq!(made, expected, "{name}: {stranger} at {path}");
                // What only the first is asked, or the only one, is asked the odd one.
                let ahead = aggregated(&name, &table, &[odd.clone(), sound.clone()]);
                let alone = aggregated(&name, &table, &[odd]);
                for made in [made, ahead, alone] {
                    assert!(takes(&table, &made), "{name}: {stranger} at {path}: {made}");
                }
            }
        }
    }
}

/// Texts of conditions are bounded by API servers, and who has a large fleet has many of them.
#[test]
fn what_many_members_say_is_cut() {
    for (name, table) in tables() {
        let says = |message: &str| {
            let condition = |kind: &str, status: &str| {
                json!({"type": kind, "status": status, "reason": "BuildFailed", "message": message,
                    "lastTransitionTime": "2026-01-02T03:04:05Z"})
            };
            let conditions = [condition("Ready", "False"), condition("Failed", "True")];
            json!({"conditions": conditions, "message": message, "phase": "Failed",
                "jobStatus": {"state": message}, "applicationState": {"errorMessage": message}})
        };
        for (members, bytes) in [(2, 20_000), (300, 200)] {
            let mut all = vec![says(&"\u{e4}".repeat(bytes / 2)); members];
            if name.starts_with("cloudnative") {
                let phase = |it: &mut Value, at: usize| {
                    it["phase"] = json!(format!("{at}{}", it["message"]));
                };
                all.iter_mut()
                    .enumerate()
                    .for_each(|(at, it)| phase(it, at));
            }
            let made = aggregated(&name, &table, &all);
            assert!(takes(&table, &made), "{name}: {made}");
            let length = made.to_string().len();
            assert!(length < 16 * 1024, "{name}: {length}");
            let tells = ["flux", "kubeflow", "cloudnative", "argo-workflow", "spark"];
            if members == 300 && tells.iter().any(|it| name.starts_with(it)) {
                let rest = if name.starts_with("kubeflow") {
                    "m300"
                } else {
                    " more"
                };
                assert!(made.to_string().contains(rest), "{name}: {made}");
            }
        }
    }
}

/// Nor if one of them says as much as it may, and all of it wrong.
#[test]
fn three_thousand_members_are_not_too_many_for_a_script() {
    for (name, table) in tables() {
        let mut all = vec![first(&table).clone(); 3000];
        let odd = |at: usize| json!({"type": "Ready", "status": "False", "lastTransitionTime": format!("z{at}")});
        all[7] = json!({"conditions": (0..2000).map(odd).collect::<Value>()});
        let made = aggregated(&name, &table, &all);
        assert!(takes(&table, &made), "{name}");
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
