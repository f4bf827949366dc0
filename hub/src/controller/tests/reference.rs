//! What Karmada decides, as it was recorded (e2e/reference), played against the decisions of this folder.
//!
//! Every scenario of an area is played, and every step compared. Where we mean to differ, an [`Exception`] says
//! after which steps, in what, and why; one that makes no difference any more fails.

mod hub;
mod rebalance;

use hub::{Hub, shown_claim};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const BINDINGS: &str = "bindings";
const CLAIMS: &str = "claims";
const STATUS: &str = "status";
const POLICIES: &str = "policies";

/// A difference that is meant.
struct Exception {
    id: &'static str,
    /// The steps that differ, from 0.
    steps: &'static [usize],
    /// The parts that differ in each of them.
    parts: &'static [&'static str],
    why: &'static str,
}

const RELEASED: &str =
    "a policy that is deleted, or selects a template no longer, leaves nothing behind";
const DETACHED: &str = "what no dependent refers to any more leaves nothing behind";
const ENDED: &str = "an API server refuses the end that the reference writes, and takes ours";

const fn differs(
    id: &'static str,
    steps: &'static [usize],
    parts: &'static [&'static str],
    why: &'static str,
) -> Exception {
    Exception {
        id,
        steps,
        parts,
        why,
    }
}

const EXCEPTIONS: &[Exception] = &[
    differs("s0011", &[2], &[BINDINGS, CLAIMS], RELEASED),
    differs("s0042", &[2], &[BINDINGS], RELEASED),
    differs("s0058", &[4], &[BINDINGS], RELEASED),
    differs("s0059", &[1], &[BINDINGS], RELEASED),
    differs("s0547", &[1], &[BINDINGS], RELEASED),
    differs("s0549", &[1, 2], &[BINDINGS], RELEASED),
    differs("s0554", &[1, 2], &[BINDINGS], RELEASED),
    differs("s0555", &[1, 2], &[BINDINGS], RELEASED),
    differs("s0364", &[2], &[BINDINGS], DETACHED),
    differs("s0367", &[1, 2], &[BINDINGS], DETACHED),
    differs("s0369", &[1, 2], &[BINDINGS], RELEASED),
    differs("s0372", &[1], &[BINDINGS], RELEASED),
    differs(
        "s0522",
        &[3],
        &[STATUS],
        "observedGeneration waits for members; the reference compares that of the wrong object",
    ),
    differs("s0524", &[3], &[STATUS], ENDED),
    differs("s0525", &[1, 2], &[STATUS], ENDED),
    differs("s0526", &[1], &[STATUS], ENDED),
    differs(
        "s0545",
        &[2],
        &[STATUS],
        "a status that somebody wrote by hand is put right when it is seen",
    ),
];

#[test]
fn policies_match() {
    play("policy-match");
}

#[test]
fn deletions_release() {
    play("deletion");
}

#[test]
fn dependencies_follow() {
    play("dependencies");
}

#[test]
fn statuses_are_gathered() {
    play("status");
}

#[test]
fn jobs_are_bound() {
    play("jobs");
}

#[test]
fn suspensions_are_carried_over() {
    play("suspension");
}

#[test]
fn preservation_and_conflicts_are_carried_over() {
    play("preserve-and-conflict");
}

#[test]
fn rebalancers_ask_for_bindings_to_be_placed_afresh() {
    play("rebalance");
}

fn play(area: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../e2e/reference/{area}.json"));
    let text = fs::read_to_string(&file).expect("the record is there");
    let area: Value = serde_json::from_str(&text).expect("JSON");
    let scenarios = area["scenarios"].as_array().expect("scenarios");
    assert!(scenarios.len() > 3, "{}", scenarios.len());
    let mut wrong = Vec::new();
    for scenario in scenarios {
        wrong.extend(differences(scenario));
    }
    assert!(
        wrong.is_empty(),
        "{} differences\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The differences of a scenario that nobody meant; of one that may end in several ways, those of the nearest.
fn differences(scenario: &Value) -> Vec<String> {
    let recordings = match scenario.get("expect") {
        Some(expect) => vec![expect.clone()],
        None => scenario["outcomes"].as_array().expect("outcomes").clone(),
    };
    let played = recordings
        .iter()
        .map(|recording| against(scenario, recording));
    played.min_by_key(Vec::len).expect("a recording")
}

fn against(scenario: &Value, recording: &Value) -> Vec<String> {
    let id = scenario["id"].as_str().expect("an id");
    let varies: BTreeSet<String> = scenario["varies"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|path| path.to_string())
        .collect();
    let mut hub = Hub::new(id);
    let mut wrong = Vec::new();
    let mut before = json!({});
    for (step, actions) in scenario["steps"]
        .as_array()
        .expect("steps")
        .iter()
        .enumerate()
    {
        let recorded = completed(&recording[step], &before);
        for action in actions["actions"].as_array().expect("actions") {
            hub.act(action, &recorded);
        }
        let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        compare(&hub, &recorded, &mut found);
        for (part, differences) in &mut found {
            differences.retain(|it| !varies.iter().any(|path| is_under(it, step, path)));
            let meant = exceptions(id, step, part).next().is_some();
            if !meant {
                let tell = |it: &String| format!("{id} step {step} {part}: {it}");
                wrong.extend(differences.iter().map(tell));
            }
        }
        for exception in EXCEPTIONS
            .iter()
            .filter(|it| it.id == id && it.steps.contains(&step))
        {
            for part in exception.parts {
                let none = found.get(part).is_none_or(Vec::is_empty);
                if none {
                    let why = exception.why;
                    wrong.push(format!("{id} step {step} {part}: no longer differs: {why}"));
                }
            }
        }
        before = recorded;
    }
    wrong
}

fn exceptions(id: &str, step: usize, part: &str) -> impl Iterator<Item = &'static Exception> {
    EXCEPTIONS
        .iter()
        .filter(move |it| it.id == id && it.steps.contains(&step) && it.parts.contains(&part))
}

/// Whether a difference lies where recordings vary: `path` is `[step, part, …]` as text.
fn is_under(difference: &str, step: usize, path: &str) -> bool {
    let path: Vec<Value> = serde_json::from_str(path).expect("a path");
    let of_step = path.first().and_then(Value::as_u64) == u64::try_from(step).ok();
    let mut names = path.iter().skip(2).filter_map(Value::as_str);
    of_step && names.all(|name| difference.contains(name))
}

/// What was recorded after a step, with what it says is the same as before.
fn completed(recorded: &Value, before: &Value) -> Value {
    let mut all = recorded.clone();
    for part in recorded["same"].as_array().into_iter().flatten() {
        let part = part.as_str().expect("a part");
        all[part] = before[part].clone();
    }
    all
}

fn compare(hub: &Hub, recorded: &Value, found: &mut BTreeMap<&'static str, Vec<String>>) {
    let mut ours = Map::new();
    let mut theirs = Map::new();
    for (key, held) in &hub.bindings {
        let mut binding = held.binding.object().expect("encodes");
        for key in ["uid", "resourceVersion"] {
            binding["spec"]["resource"]
                .as_object_mut()
                .expect("a map")
                .remove(key);
        }
        if let Some(time) = binding["spec"].get_mut("rescheduleTriggeredAt") {
            *time = json!("<time>");
        }
        let owner = held.binding.owner.as_ref().expect("an owner");
        let mut finalizers = held.binding.finalizers.clone();
        finalizers.sort();
        let applied = held
            .status
            .conditions
            .iter()
            .find(|it| it.type_ == "FullyApplied");
        let applied = applied
            .map(|it| json!({"status": it.status, "reason": it.reason, "message": it.message}));
        let shown = json!({
            "labels": held.binding.labels, "annotations": held.binding.annotations,
            "finalizers": finalizers, "owners": [format!("{}/{} controller", owner.kind, owner.name)],
            "spec": binding["spec"], "FullyApplied": applied,
            "aggregatedStatus": held.status.aggregated_status,
        });
        ours.insert(key.clone(), shown);
    }
    for (key, binding) in recorded["bindings"].as_object().expect("bindings") {
        let mut annotations = binding
            .get("annotations")
            .cloned()
            .unwrap_or_else(|| json!({}));
        let map = annotations.as_object_mut().expect("a map");
        map.remove("policy.karmada.io/applied-placement");
        let list = |key: &str| binding.get(key).cloned().unwrap_or_else(|| json!([]));
        let shown = json!({
            "labels": binding["labels"], "annotations": annotations,
            "finalizers": list("finalizers"), "owners": list("owners"), "spec": binding["spec"],
            "FullyApplied": binding["conditions"]["FullyApplied"],
            "aggregatedStatus": list("aggregatedStatus"),
        });
        theirs.insert(key.clone(), shown);
    }
    tell(
        BINDINGS,
        &Value::Object(ours),
        &Value::Object(theirs),
        found,
    );

    let (mut ours, mut theirs) = ([Map::new(), Map::new()], [Map::new(), Map::new()]);
    let objects = recorded["objects"].as_object().expect("objects");
    for (key, theirs_of_it) in objects {
        let mut named = theirs_of_it.clone();
        let (kind, name) = key.split_once('/').expect("a key");
        named["apiVersion"] = json!("v1");
        named["kind"] = json!(kind);
        json_patch::merge(&mut named, &json!({"metadata": {"name": name}}));
        for part in ["labels", "annotations"] {
            named["metadata"][part] = theirs_of_it.get(part).cloned().unwrap_or_default();
        }
        theirs[0].insert(key.clone(), shown_claim(&named));
        let status = theirs_of_it
            .get("status")
            .cloned()
            .unwrap_or_else(|| json!({}));
        theirs[1].insert(key.clone(), json!({ "status": status }));
    }
    let of_policy = |key: &str| key.contains("Policy/");
    for (key, object) in hub.objects.iter().filter(|(key, _)| !of_policy(key)) {
        ours[0].insert(key.clone(), shown_claim(object));
        let status = object.get("status").cloned().unwrap_or_else(|| json!({}));
        ours[1].insert(key.clone(), json!({ "status": rebalance::shown(&status) }));
    }
    let [our_claims, our_status] = ours.map(Value::Object);
    let [their_claims, their_status] = theirs.map(Value::Object);
    tell(CLAIMS, &our_claims, &their_claims, found);
    tell(STATUS, &our_status, &their_status, found);

    let mut ours = Map::new();
    for (key, object) in hub
        .objects
        .iter()
        .filter(|(key, _)| key.contains("PropagationPolicy/"))
    {
        let part = |name: &str| object["metadata"].get(name).cloned().unwrap_or_default();
        ours.insert(
            key.clone(),
            json!({"labels": part("labels"), "finalizers": part("finalizers")}),
        );
    }
    let mut theirs = Map::new();
    let policies = recorded["policies"].as_object().expect("policies");
    for (key, policy) in policies
        .iter()
        .filter(|(key, _)| key.contains("PropagationPolicy/"))
    {
        theirs.insert(key.clone(), policy.clone());
    }
    tell(
        POLICIES,
        &Value::Object(ours),
        &Value::Object(theirs),
        found,
    );
}

fn tell(
    part: &'static str,
    ours: &Value,
    theirs: &Value,
    found: &mut BTreeMap<&'static str, Vec<String>>,
) {
    differ(String::new(), ours, theirs, found.entry(part).or_default());
}

fn differ(path: String, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    if let (Value::Object(a), Value::Object(b)) = (ours, theirs) {
        let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
        for key in keys {
            let of = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
            differ(format!("{path} {key}"), &of(a), &of(b), found);
        }
    } else if ours != theirs {
        found.push(format!("{path}: ours {ours}, theirs {theirs}"));
    }
}
