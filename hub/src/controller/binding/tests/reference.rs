//! Recorded scenarios: from templates, override policies and bindings come the Works that Karmada made.

use super::super::overrides::Overrides;
use super::super::overrides::cluster::ClusterFacts;
use super::super::render::{Binding, Renderer};
use super::super::targets::{WorkName, decide};
use super::super::write::{content, patch};
use super::defaults;
use common::api::binding::ResourceBinding;
use common::api::cluster::Cluster;
use common::api::override_policy::{ClusterOverridePolicy, OverridePolicy};
use common::api::work::Work;
use common::labels::{APPLIED_CLUSTER_OVERRIDES, APPLIED_OVERRIDES, TEMPLATE_GENERATION};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Areas whose Works depend on nothing but what is replayed here.
const AREAS: [&str; 20] = [
    "affinity",
    "affinity-groups",
    "cluster-taint-policy",
    "eviction",
    "failure-text",
    "jobs",
    "override-image",
    "override-order",
    "override-other",
    "preserve-and-conflict",
    "protection",
    "rebalance",
    "replicas-aggregated",
    "replicas-duplicated",
    "replicas-dynamic",
    "replicas-static",
    "resource-models",
    "spread",
    "suspension",
    "taints-and-apis",
];
/// Where we differ on purpose: scenario, step from 0, what is taken out of the recorded Works by its path, why.
const ON_PURPOSE: &[(&str, usize, &[&str], &str)] = &[
    (
        "s0391",
        0,
        &["/fa-2/web-748475b74"],
        "docker.example.org:5000/:1.27 is no image",
    ),
    (
        "s0471",
        2,
        &[
            "/fa-1/x-5dfbfcdcc4/annotations/policy.karmada.io~1applied-overrides",
            "/fa-2/x-5dfbfcdcc4/annotations/policy.karmada.io~1applied-overrides",
            "/fa-4/x-5dfbfcdcc4/annotations/policy.karmada.io~1applied-overrides",
        ],
        "an override that applies no more is not told",
    ),
    (
        "s0473",
        1,
        &[
            "/fa-1/x-f468d697b/annotations/policy.karmada.io~1applied-overrides",
            "/fa-2/x-f468d697b/annotations/policy.karmada.io~1applied-overrides",
            "/fa-4/x-f468d697b/annotations/policy.karmada.io~1applied-overrides",
        ],
        "an override that applies no more is not told",
    ),
    (
        "s0483",
        2,
        &["/fa-1/x-655fcc4f99/annotations/policy.karmada.io~1applied-overrides"],
        "an override that applies no more is not told",
    ),
    (
        "s0483",
        3,
        &[
            "/fa-1/x-655fcc4f99/annotations/policy.karmada.io~1applied-overrides",
            "/fa-2/x-655fcc4f99/annotations/policy.karmada.io~1applied-overrides",
        ],
        "an override that applies no more is not told",
    ),
];

/// By member and name.
type Works = BTreeMap<(String, String), Work>;

/// What a scenario has come to.
struct Scenario<'a> {
    id: &'a str,
    clusters: Vec<Cluster>,
    /// What its actions left, by kind and name.
    objects: BTreeMap<String, Value>,
    /// Recorded parts; what a step does not tell is as before.
    seen: BTreeMap<&'static str, Value>,
    works: Works,
}

fn area(name: &str) -> Value {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../e2e/reference");
    let text = std::fs::read_to_string(dir.join(format!("{name}.json"))).expect("recorded data");
    serde_json::from_str(&text).expect("JSON")
}

fn typed<T: DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

fn list<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value[key].as_array().into_iter().flatten()
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

impl<'a> Scenario<'a> {
    fn begin(area: &Value, scenario: &'a Value) -> Self {
        let id = scenario["id"].as_str().expect("an id");
        let fleet = scenario["fleet"]
            .as_str()
            .map(|fleet| &area["fleets"][fleet]);
        let clusters = fleet.unwrap_or(&scenario["clusters"]).as_array();
        let cluster = |recorded: &Value| {
            let mut spec = recorded["spec"].clone();
            spec["syncMode"] = json!("Pull");
            typed(
                &json!({"metadata": {"name": recorded["name"], "labels": recorded["labels"]}, "spec": spec}),
            )
        };
        Self {
            id,
            clusters: clusters.into_iter().flatten().map(cluster).collect(),
            objects: BTreeMap::new(),
            seen: BTreeMap::new(),
            works: Works::new(),
        }
    }

    fn act(&mut self, action: &Value) {
        let named = |verb: &str| action[verb].as_str().map(str::to_owned);
        if let Some(object) = action.get("create") {
            let mut object = object.clone();
            let kind = object["kind"].as_str().expect("a kind").to_owned();
            if !kind.starts_with("Cluster")
                && kind != "Gadget"
                && object["metadata"]["namespace"].is_null()
            {
                object["metadata"]["namespace"] = json!(self.id);
            }
            defaults::fill(&mut object);
            let name = object["metadata"]["name"].as_str().expect("a name");
            self.objects.insert(format!("{kind}/{name}"), object);
        } else if let Some(name) = named("delete") {
            self.objects.remove(&name);
        } else if let Some(object) = named("patch").and_then(|name| self.objects.get_mut(&name)) {
            if action.get("sub").is_none() {
                json_patch::merge(object, &action["with"]);
            }
        } else if let Some(object) = named("json").and_then(|name| self.objects.get_mut(&name)) {
            let patch: json_patch::Patch = typed(&action["with"]);
            json_patch::patch(object, &patch).expect("the patch applies");
        }
    }

    fn see(&mut self, expected: &Value) {
        for part in ["bindings", "works", "objects"] {
            let same = list(expected, "same").any(|name| name == part);
            if !same {
                self.seen.insert(part, expected[part].clone());
            }
        }
    }

    fn policies<T: DeserializeOwned>(&self, kind: &str) -> Vec<T> {
        let prefix = format!("{kind}/");
        let objects = self.objects.iter();
        let found = objects.filter(|(name, _)| name.starts_with(&prefix));
        found.map(|(_, object)| typed(object)).collect()
    }

    /// The template as the hub had it: its author's, with what the hub and Karmada added.
    fn template(&self, reference: &Value) -> Value {
        let text = |key: &str| reference[key].as_str().expect("text");
        let key = format!("{}/{}", text("kind"), text("name"));
        let mut template = self
            .objects
            .get(&key)
            .unwrap_or_else(|| panic!("{key}"))
            .clone();
        let metadata = &mut template["metadata"];
        for field in ["labels", "annotations"] {
            metadata[field] = self.seen["objects"][&key][field].clone();
        }
        metadata["uid"] = json!(format!("<uid of {key}>"));
        // The recorder leaves generations out, but for the one in manifests.
        let manifests = members(&self.seen["works"]).flat_map(|(_, works)| members(works));
        let mut manifests = manifests.flat_map(|(_, work)| list(work, "manifests"));
        let ours = manifests
            .find(|it| it["kind"] == template["kind"] && it["metadata"]["name"] == text("name"));
        let generation =
            ours.and_then(|it| it["metadata"]["annotations"][TEMPLATE_GENERATION].as_str());
        template["metadata"]["generation"] =
            json!(generation.map_or(0, |text| text.parse::<i64>().expect("a number")));
        template
    }

    /// Does what the controller would do.
    fn sync(&mut self) {
        let bindings = self.seen["bindings"].clone();
        let mut known = Works::new();
        for (key, recorded) in members(&bindings) {
            let (kind, name) = key.split_once('/').expect("a kind and a name");
            let namespace = (kind == "ResourceBinding").then_some(self.id);
            let binding = json!({"metadata": {"name": name, "namespace": namespace, "labels": recorded["labels"]},
                "spec": recorded["spec"]});
            // A ClusterResourceBinding has the same spec, and no namespace.
            let binding: ResourceBinding = typed(&binding);
            let binding = Binding::new(&binding.metadata, &binding.spec);
            self.sync_one(binding, &recorded["spec"]["resource"], &mut known);
        }
        self.works = known;
    }

    fn sync_one(&self, binding: Binding<'_>, template: &Value, known: &mut Works) {
        let template = self.template(template);
        let cluster_policies: Vec<ClusterOverridePolicy> = self.policies("ClusterOverridePolicy");
        let policies: Vec<OverridePolicy> = self.policies("OverridePolicy");
        let overrides = Overrides::of(
            &template,
            cluster_policies
                .iter()
                .map(|policy| (&policy.metadata, &policy.spec.0, None)),
            policies
                .iter()
                .map(|policy| (&policy.metadata, &policy.spec, None)),
        );
        let interpreter = common::interpreter::layers::Interpreter::default();
        let renderer =
            Renderer::new(&template, binding, &overrides, &interpreter).expect("a template");
        let name = renderer.work_name();
        let ours: Vec<(String, &(String, String))> = self
            .works
            .keys()
            .filter(|(_, its)| its == name)
            .map(|key| (format!("karmada-es-{}", key.0), key))
            .collect();
        let existing = ours
            .iter()
            .map(|(namespace, _)| WorkName { namespace, name });
        let decision = decide(binding.spec, name, existing);
        for (namespace, key) in &ours {
            if !decision
                .orphans
                .iter()
                .any(|orphan| orphan.namespace == namespace)
            {
                known.insert((*key).clone(), self.works[*key].clone());
            }
        }
        for target in decision.targets {
            let cluster = self
                .clusters
                .iter()
                .find(|it| it.metadata.name.as_ref() == Some(&target.name));
            let facts = ClusterFacts::from(cluster.expect("a member"));
            let id = format!("<id of Work/{}/{name}>", target.name);
            // One member's error stops no other, and leaves what it has.
            let Ok(work) = renderer.render(target, &facts, Some(&id)) else {
                continue;
            };
            let key = (target.name.clone(), name.to_owned());
            let written = match known.get(&key) {
                Some(existing) => patched(existing, &work),
                None => work,
            };
            known.insert(key, written);
        }
    }
}

/// A Work after what was written over it.
fn patched(existing: &Work, wanted: &Work) -> Work {
    let patch = patch(content(existing).expect("JSON"), wanted).expect("JSON");
    let mut object = json!(existing);
    json_patch::merge(&mut object, &patch.unwrap_or_else(|| json!({})));
    serde_json::from_value(object).expect("a Work")
}

/// A Work as the recorder tells it.
fn told(work: &Work) -> Value {
    let mut annotations = json!(work.metadata.annotations);
    for key in [APPLIED_OVERRIDES, APPLIED_CLUSTER_OVERRIDES] {
        if let Some(text) = annotations.get_mut(key) {
            *text = serde_json::from_str(text.as_str().expect("text")).expect("JSON");
        }
    }
    json!({
        "labels": work.metadata.labels,
        "annotations": annotations,
        "finalizers": work.metadata.finalizers,
        "manifests": work.spec.workload.manifests,
        "spec": {
            "preserveResourcesOnDeletion": work.spec.preserve_resources_on_deletion,
            "suspendDispatching": work.spec.suspend_dispatching,
        },
    })
}

/// Takes what differs on purpose out of the recorded Works; it must be there.
fn without(recorded: &mut Value, at: &str, paths: &[&str]) {
    for path in paths {
        let (parent, key) = path.rsplit_once('/').expect("a path");
        let parent = recorded.pointer_mut(parent).and_then(Value::as_object_mut);
        let gone = parent.and_then(|parent| parent.remove(&key.replace("~1", "/")));
        assert!(gone.is_some(), "{at}: nothing is recorded at {path}");
    }
}

/// The first path at which two values differ.
fn difference(ours: &Value, theirs: &Value, path: &str) -> Option<String> {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys());
            keys.filter(|key| a.get(*key) != b.get(*key))
                .find_map(|key| {
                    let none = Value::Null;
                    let (a, b) = (a.get(key).unwrap_or(&none), b.get(key).unwrap_or(&none));
                    difference(a, b, &format!("{path}/{key}"))
                })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .find_map(|(at, (a, b))| difference(a, b, &format!("{path}/{at}"))),
        (a, b) if a == b => None,
        (a, b) => Some(format!("{path}: ours {a}, recorded {b}")),
    }
}

#[test]
fn works_are_those_of_the_reference() {
    let mut differences = Vec::new();
    let mut compared = 0;
    for name in AREAS {
        let area = area(name);
        for recorded in list(&area, "scenarios") {
            let mut scenario = Scenario::begin(&area, recorded);
            for (at, (step, expected)) in list(recorded, "steps")
                .zip(list(recorded, "expect"))
                .enumerate()
            {
                for (index, action) in list(step, "actions").enumerate() {
                    if !list(expected, "refused").any(|it| it["action"] == index) {
                        scenario.act(action);
                    }
                }
                scenario.see(expected);
                // Again once orphans are gone, which others waited for.
                scenario.sync();
                scenario.sync();
                let place = format!("{} step {at}", scenario.id);
                let mut theirs = scenario.seen["works"].clone();
                let on_purpose = ON_PURPOSE
                    .iter()
                    .filter(|it| it.0 == scenario.id && it.1 == at);
                for (_, _, paths, _) in on_purpose {
                    without(&mut theirs, &place, paths);
                }
                let mut ours = json!({});
                for ((cluster, name), work) in &scenario.works {
                    ours[cluster][name] = told(work);
                    compared += 1;
                }
                for cluster in theirs.as_object_mut().into_iter().flatten() {
                    if cluster.1.as_object().is_some_and(|works| works.is_empty()) {
                        *cluster.1 = Value::Null;
                    }
                }
                if theirs.is_null() {
                    theirs = json!({});
                }
                differences.extend(difference(&ours, &theirs, &place));
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(compared > 1000, "only {compared} Works were compared");
}
