//! What Karmada gives members of namespaces, as it was recorded (e2e/reference), played against `decide` as
//! `--namespace-sync=all` asks it.

mod shell;

use super::decide::{Existing, Observed, Step, decide};
use crate::world::{Record as _, Work};
use common::labels::WORK_PERMANENT_ID;
use common::names::work_name;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The Works of a namespace by member, as objects.
type Works = BTreeMap<String, Value>;

fn recorded() -> Vec<Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/reference/namespace-sync.json");
    let text = fs::read_to_string(file).expect("the record is there");
    let area: Value = serde_json::from_str(&text).expect("JSON");
    area["scenarios"].as_array().expect("scenarios").clone()
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The namespace of a scenario, as its API server has it.
fn namespace(scenario: &Value) -> Value {
    let id = &scenario["id"];
    let mut labels = json!({"kubernetes.io/metadata.name": id});
    if scenario["propagateNamespace"] != true {
        labels["namespace.karmada.io/skip-auto-propagation"] = json!("true");
    }
    if let Some(own) = scenario.get("namespaceLabels") {
        json_patch::merge(&mut labels, own);
    }
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {
            "name": id, "labels": labels, "resourceVersion": "1",
            "uid": format!("<uid of Namespace/{}>", id.as_str().expect("an id")),
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    })
}

/// A Work as a view has it.
fn seen(work: &Value) -> Existing {
    let read = Work::read(&work.to_string()).expect("an object");
    Existing {
        version: work["metadata"]["resourceVersion"]
            .as_str()
            .expect("a version")
            .into(),
        work: Arc::new(read.expect("held")),
    }
}

/// One round of the controller; how much it wrote.
fn sync(
    template: Option<&Value>,
    name: &str,
    clusters: &BTreeSet<String>,
    works: &mut Works,
) -> usize {
    let existing = works
        .iter()
        .map(|(cluster, work)| (cluster.clone(), seen(work)));
    let existing = existing.collect();
    let steps = decide(&Observed {
        template: template.cloned(),
        name: name.to_owned(),
        clusters: clusters.clone(),
        wanted: clusters.clone(),
        occupied: BTreeSet::new(),
        bound: BTreeSet::new(),
        existing: &existing,
    });
    let written = steps.len();
    for step in steps {
        match step {
            Step::Create(cluster, mut work) => {
                work["metadata"]["uid"] = json!(format!("of {cluster}"));
                work["metadata"]["resourceVersion"] = json!("1");
                works.insert(cluster, work);
            }
            Step::Update(cluster, patch) => {
                json_patch::merge(works.get_mut(&cluster).expect("there"), &patch);
            }
            Step::Delete(cluster, _) => {
                works.remove(&cluster);
            }
        }
    }
    written
}

/// Works as the recorder shows them.
fn shown(works: &Works) -> Value {
    let mut all = json!({});
    for (cluster, work) in works {
        let metadata = &work["metadata"];
        let name = metadata["name"].as_str().expect("a name");
        let owner = &metadata["ownerReferences"][0];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let one = json!({
            "labels": metadata["labels"], "finalizers": metadata["finalizers"],
            "owners": [format!("{}/{} controller", text(&owner["kind"]), text(&owner["name"]))],
            "manifests": work["spec"]["workload"]["manifests"],
        });
        let id = text(&metadata["labels"][WORK_PERMANENT_ID]);
        let named = format!("<id of Work/{cluster}/{name}>");
        let one = one.to_string().replace(&id, &named);
        all[cluster] = json!({ name: serde_json::from_str::<Value>(&one).expect("JSON") });
    }
    all
}

#[test]
fn members_get_the_namespaces_that_the_reference_gives_them() {
    let scenarios = recorded();
    assert_eq!(scenarios.len(), 4);
    for scenario in &scenarios {
        let id = scenario["id"].as_str().expect("an id");
        let (template, name) = (namespace(scenario), work_name("Namespace", None, id));
        let named = |cluster: &Value| cluster["name"].as_str().expect("a name").to_owned();
        let mut clusters: BTreeSet<String> = items(&scenario["clusters"]).map(named).collect();
        let mut works = Works::new();
        sync(Some(&template), &name, &clusters, &mut works);
        for (number, step) in items(&scenario["steps"]).enumerate() {
            for action in items(&step["actions"]) {
                clusters.insert(named(&action["join"]));
            }
            sync(Some(&template), &name, &clusters, &mut works);
            let theirs = &scenario["expect"][number]["works"];
            assert_eq!(shown(&works), *theirs, "{id} step {number}");
            let again = sync(Some(&template), &name, &clusters, &mut works);
            assert_eq!(again, 0, "{id}: written again");
        }
    }
}

#[test]
fn a_namespace_is_skipped_however_its_label_spells_true() {
    let clusters = BTreeSet::from(["m1".to_owned()]);
    let mut template = namespace(&recorded()[0]);
    for (value, written) in [("True", 0), ("TRUE", 0), ("true", 0), ("false", 1), ("", 1)] {
        template["metadata"]["labels"]["namespace.karmada.io/skip-auto-propagation"] = json!(value);
        let made = sync(Some(&template), "w", &clusters, &mut Works::new());
        assert_eq!(made, written, "{value:?}");
    }
}

#[test]
fn a_namespace_that_changes_or_ends_does_so_in_every_member() {
    let scenarios = recorded();
    let mut template = namespace(&scenarios[0]);
    let clusters = BTreeSet::from(["m1".to_owned(), "m2".to_owned()]);
    let mut works = Works::new();
    assert_eq!(sync(Some(&template), "w", &clusters, &mut works), 2);
    template["metadata"]["labels"]["team"] = json!("b");
    assert_eq!(sync(Some(&template), "w", &clusters, &mut works), 2);
    for work in works.values() {
        let manifest = &work["spec"]["workload"]["manifests"][0];
        assert_eq!(manifest["metadata"]["labels"]["team"], "b");
    }
    let one = BTreeSet::from(["m1".to_owned()]);
    sync(Some(&template), "w", &one, &mut works);
    assert_eq!(works.keys().collect::<Vec<_>>(), ["m1"]);
    sync(None, "w", &one, &mut works);
    assert_eq!(works, Works::new());
}

#[test]
fn what_a_policy_brings_is_not_brought_twice() {
    let template = namespace(&recorded()[0]);
    let both = BTreeSet::from(["m1".to_owned(), "m2".to_owned()]);
    let steps = decide(&Observed {
        template: Some(template),
        name: "w".to_owned(),
        clusters: both.clone(),
        wanted: both,
        occupied: BTreeSet::new(),
        bound: BTreeSet::from(["m1".to_owned()]),
        existing: &BTreeMap::new(),
    });
    let made: Vec<&str> = steps.iter().map(Step::cluster).collect();
    assert_eq!(made, ["m2"]);
}

#[test]
fn a_namespace_goes_after_what_is_in_it() {
    let template = namespace(&recorded()[0]);
    let one = BTreeSet::from(["m1".to_owned()]);
    let mut works = Works::new();
    sync(Some(&template), "w", &one, &mut works);
    works.get_mut("m1").expect("there")["metadata"]["resourceVersion"] = json!("7");
    let existing = BTreeMap::from([("m1".to_owned(), seen(&works["m1"]))]);
    // A binding that takes it over meanwhile keeps it.
    let options = json!({"preconditions": {"resourceVersion": "7"}});
    for (template, occupied, gone) in [
        (None, one.clone(), false),
        (None, BTreeSet::new(), true),
        (Some(&template), one.clone(), false),
        (Some(&template), BTreeSet::new(), true),
    ] {
        let steps = decide(&Observed {
            template: template.cloned(),
            name: "w".to_owned(),
            clusters: one.clone(),
            wanted: BTreeSet::new(),
            occupied,
            bound: BTreeSet::new(),
            existing: &existing,
        });
        let wanted = gone.then(|| Step::Delete("m1".to_owned(), options.clone()));
        assert_eq!(
            steps,
            wanted.into_iter().collect::<Vec<_>>(),
            "{template:?}"
        );
    }
}
