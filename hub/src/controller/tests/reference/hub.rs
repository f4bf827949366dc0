//! A hub in memory, on which recorded scenarios are played: objects, and every decision about them carried out
//! until nothing is left to do. Placements come from the record, for others decide them.

use crate::controller::binding_status::{self, Work, collect, is_stirring};
use crate::controller::dependencies::{attach, parent, sought};
use crate::controller::detector::{self, Write, claim, marks, skip::Skips, wake};
use crate::propagation::{Binding, Dependent, Policy, PolicyName, Template};
use common::api::binding::ResourceBindingStatus;
use common::api::work::{ManifestStatus, ResourceIdentifier, WorkStatus};
use common::gvk::Gvk;
use common::interpreter::aggregate::aggregate;
use common::interpreter::dependencies::dependencies;
use common::interpreter::replicas;
use common::names::binding_name;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const POLICIES: [&str; 2] = ["PropagationPolicy", "ClusterPropagationPolicy"];
const OVERRIDES: [&str; 2] = ["OverridePolicy", "ClusterOverridePolicy"];
const CLUSTER_SCOPED: [&str; 5] = [
    "WorkloadRebalancer",
    "ClusterPropagationPolicy",
    "ClusterOverridePolicy",
    "Gadget",
    "ClusterRole",
];
/// More rounds than any scenario needs to come to rest.
const ROUNDS: usize = 20;

/// A binding, its status, and what its members reported.
#[derive(Default)]
pub(super) struct Held {
    pub(super) binding: Binding,
    pub(super) status: ResourceBindingStatus,
    reports: BTreeMap<String, WorkStatus>,
    stirred: bool,
}

/// Everything there is, by `Kind/name`.
pub(super) struct Hub {
    id: String,
    version: u64,
    pub(super) objects: BTreeMap<String, Value>,
    pub(super) bindings: BTreeMap<String, Held>,
    edited: BTreeSet<String>,
    /// Events told so far: reason and message.
    pub(super) told: Vec<(&'static str, String)>,
}

impl Hub {
    pub(super) fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            version: 0,
            objects: BTreeMap::new(),
            bindings: BTreeMap::new(),
            edited: BTreeSet::new(),
            told: Vec::new(),
        }
    }

    /// Carries out one action of a scenario; `recorded` is what the record has at the end of its step.
    pub(super) fn act(&mut self, action: &Value, recorded: &Value) {
        let name = |key: &str| action.get(key).and_then(Value::as_str).map(str::to_owned);
        if let Some(object) = action.get("create") {
            self.create(object.clone(), recorded);
        } else if let Some(key) = name("patch") {
            let merge = |object: &mut Value| json_patch::merge(object, &action["with"]);
            self.change(&key, name("sub").is_some(), merge);
        } else if let Some(key) = name("json") {
            let patch: json_patch::Patch =
                serde_json::from_value(action["with"].clone()).expect("a patch");
            let apply = |object: &mut Value| json_patch::patch(object, &patch).expect("applies");
            self.change(&key, false, apply);
        } else if let Some(key) = name("delete") {
            self.delete(&key);
        } else if let Some(cluster) = name("report") {
            self.report(&cluster, action);
        } else {
            panic!("an action that nobody knows: {action}");
        }
        self.settle(recorded);
    }

    fn next(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }

    fn create(&mut self, mut object: Value, recorded: &Value) {
        let kind = object["kind"].as_str().expect("a kind").to_owned();
        let key = format!(
            "{kind}/{}",
            object["metadata"]["name"].as_str().expect("a name")
        );
        let version = self.next();
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(format!("uid {version}"));
        metadata["resourceVersion"] = json!(version);
        metadata["generation"] = json!(1);
        if !CLUSTER_SCOPED.contains(&kind.as_str()) && metadata.get("namespace").is_none() {
            metadata["namespace"] = json!(self.id);
        }
        default(&mut object);
        // What an API server writes into the status of a new object.
        let status = &recorded["objects"][&key]["status"];
        let first = !self.objects.contains_key(&key) && self.bindings.is_empty();
        if status.is_object() && first {
            object["status"] = status.clone();
        }
        self.edited.insert(key.clone());
        self.objects.insert(key, object);
    }

    fn change(&mut self, key: &str, of_status: bool, change: impl FnOnce(&mut Value)) {
        if let Some(held) = self.bindings.get(key) {
            let mut binding = held.binding.clone();
            let mut spec = json!({ "spec": serde_json::to_value(&binding.spec).expect("encodes") });
            change(&mut spec);
            binding.spec = serde_json::from_value(spec["spec"].take()).expect("decodes");
            self.write(key, binding);
            return;
        }
        let version = self.next();
        let object = self
            .objects
            .get_mut(key)
            .unwrap_or_else(|| panic!("no {key}"));
        let before = object.clone();
        change(object);
        bump(&before, object, &version);
        if !of_status {
            self.edited.insert(key.to_owned());
        }
    }

    fn delete(&mut self, key: &str) {
        let kind = key.split('/').next().unwrap_or_default();
        if POLICIES.contains(&kind) {
            let policy = self.objects.get_mut(key).expect("there");
            policy["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            return;
        }
        let object = self.objects.remove(key).expect("there");
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let of_object = |held: &Held| held.binding.owner.as_ref().is_some_and(|it| it.uid == uid);
        self.bindings.retain(|_, held| !of_object(held));
    }

    fn report(&mut self, cluster: &str, action: &Value) {
        let key = action["of"].as_str().expect("of");
        let template = Template::of(&self.objects[key]).expect("a template");
        let held = self.bindings.get_mut(&key_of(&template)).expect("bound");
        let applied = action["applied"].as_str().unwrap_or("True");
        let condition = json!({"type": "Applied", "status": applied, "reason": "R",
            "message": action["message"].as_str().unwrap_or_default(),
            "lastTransitionTime": "2020-01-01T00:00:00Z"});
        let conditions = serde_json::from_value(json!([condition])).expect("conditions");
        let (group, version) = template
            .api_version
            .split_once('/')
            .unwrap_or(("", &template.api_version));
        let manifest = ManifestStatus {
            identifier: ResourceIdentifier {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: template.kind.clone(),
                namespace: template.namespace.clone().unwrap_or_default(),
                name: template.name.clone(),
                ..ResourceIdentifier::default()
            },
            status: action.get("status").cloned(),
            health: serde_json::from_value(action["health"].clone()).unwrap_or_default(),
        };
        let status = WorkStatus {
            conditions,
            manifest_statuses: if applied == "True" {
                vec![manifest]
            } else {
                Vec::new()
            },
        };
        held.reports.insert(cluster.to_owned(), status);
    }

    /// Decides about everything until nothing changes.
    fn settle(&mut self, recorded: &Value) {
        for round in 0.. {
            assert!(round < ROUNDS, "{} does not come to rest", self.id);
            let before = self.version;
            self.mark_policies();
            self.rebalance();
            for key in self.templates() {
                self.detect(&key);
            }
            self.place(recorded);
            self.distribute();
            if self.version == before {
                break;
            }
        }
        self.answer();
    }

    fn templates(&self) -> Vec<String> {
        let other = |key: &String| {
            let kind = key.split('/').next().unwrap_or_default();
            POLICIES.contains(&kind) || OVERRIDES.contains(&kind)
        };
        self.objects
            .keys()
            .filter(|key| !other(key))
            .cloned()
            .collect()
    }

    fn policies(&self) -> Vec<Arc<Policy>> {
        let of_kind = |key: &&String| POLICIES.contains(&key.split('/').next().unwrap_or_default());
        let keys = self.objects.keys().filter(of_kind);
        keys.map(|key| Arc::new(policy(&self.objects[key])))
            .collect()
    }

    fn mark_policies(&mut self) {
        let held: BTreeSet<PolicyName> = self
            .templates()
            .iter()
            .filter_map(|key| wake::holder(&Template::of(&self.objects[key])?))
            .collect();
        for policy in self.policies() {
            let kind = POLICIES[usize::from(policy.name.namespace.is_none())];
            let key = format!("{kind}/{}", policy.name.name);
            let object = &self.objects[&key];
            let finalizers = texts(&object["metadata"]["finalizers"]);
            let id = format!("<id of {key}>");
            let holds = held.contains(&policy.name);
            let Some(patch) = marks::patch(&policy, "", &finalizers, holds, &id) else {
                continue;
            };
            let version = self.next();
            let object = self.objects.get_mut(&key).expect("there");
            json_patch::merge(object, &patch);
            object["metadata"]["resourceVersion"] = json!(version);
            if policy.deleting && texts(&object["metadata"]["finalizers"]).is_empty() {
                self.objects.remove(&key);
            }
        }
    }

    fn observed(&self, key: &str) -> Option<detector::Observed> {
        let template = Template::of(&self.objects[key])?;
        if Skips::parse("", ["kube-.*"])
            .expect("sound")
            .template(&template)
        {
            return None;
        }
        let gvk = Gvk::new(&template.api_version, &template.kind).expect("sound");
        let overrides = self
            .objects
            .iter()
            .filter(|(key, _)| OVERRIDES.contains(&key.split('/').next().unwrap_or_default()));
        let dependents = self.bindings.values().filter(|held| {
            let namespace = held.binding.namespace.as_deref();
            sought::refers(&held.binding, &template)
                && namespace.is_some_and(|it| attach::may_follow(&template, it))
        });
        Some(detector::Observed {
            edited: self.edited.contains(key).then_some(wake::Edit::Content),
            policies: self.policies(),
            overrides: overrides.map(|(_, object)| policy_name(object)).collect(),
            replicas: Ok(replicas::get(&gvk, &self.objects[key])),
            priority_classes: BTreeMap::new(),
            binding: self
                .bindings
                .get(&key_of(&template))
                .map(|held| held.binding.clone()),
            dependents: dependents
                .filter_map(|held| Dependent::of(&held.binding))
                .collect(),
            fresh_id: format!("<id of {}>", key_of(&template)),
            template,
        })
    }

    fn detect(&mut self, key: &str) {
        let Some(seen) = self.observed(key) else {
            return;
        };
        let decision = detector::decide(&seen);
        self.edited.remove(key);
        let binding = key_of(&seen.template);
        if let Some(patch) = &decision.claim {
            let version = self.next();
            let object = self.objects.get_mut(key).expect("there");
            let before = object.clone();
            json_patch::merge(object, &patch.body(None));
            bump(&before, object, &version);
        }
        let told = decision.events.into_iter().chain(decision.binding_events);
        self.told
            .extend(told.map(|notice| (notice.reason, notice.message)));
        match decision.binding {
            Some(Write::Create(created)) => self.write(&binding, *created),
            Some(Write::Update(updated)) => self.write(&binding, *updated),
            Some(Write::Delete(_) | Write::Replace(_)) => {
                self.next();
                self.bindings.remove(&binding);
            }
            None => {}
        }
    }

    pub(super) fn write(&mut self, key: &str, mut binding: Binding) {
        binding.resource_version = self.next();
        let held = self.bindings.entry(key.to_owned()).or_default();
        let was_placed = !held.binding.spec.clusters.is_empty();
        held.stirred |= is_stirring(&held.binding, &binding, was_placed);
        let before = targets(&held.binding);
        held.binding = binding;
        let after = targets(&held.binding);
        held.reports.retain(|cluster, _| after.contains(cluster));
        held.stirred |= before.difference(&after).count() > 0;
    }

    /// What the scheduler of the record decided.
    fn place(&mut self, recorded: &Value) {
        for key in self.bindings.keys().cloned().collect::<Vec<_>>() {
            let mut binding = self.bindings[&key].binding.clone();
            let clusters = &recorded["bindings"][&key]["spec"]["clusters"];
            if binding.spec.placement.is_none() || !clusters.is_array() {
                continue;
            }
            binding.spec.clusters = serde_json::from_value(clusters.clone()).expect("clusters");
            if binding != self.bindings[&key].binding {
                self.write(&key, binding);
            }
        }
    }

    fn distribute(&mut self) {
        for key in self.bindings.keys().cloned().collect::<Vec<_>>() {
            let binding = self.bindings[&key].binding.clone();
            let resource = &binding.spec.resource;
            let template = format!("{}/{}", resource.kind, resource.name);
            let gvk = Gvk::new(&resource.api_version, &resource.kind).expect("sound");
            let known = self
                .objects
                .get(&template)
                .and_then(|it| dependencies(&gvk, it));
            let names = |held: &Held| {
                held.binding
                    .spec
                    .required_by
                    .iter()
                    .any(|it| it.name == binding.name)
            };
            let seen = parent::Observed {
                dependencies: known.map(|known| known.map_err(|error| error.to_string())),
                is_required: self.bindings.values().any(names),
                binding,
            };
            let decision = parent::decide(&seen).expect("encodes");
            if let Some(binding) = decision.binding {
                self.write(&key, binding);
            }
        }
    }

    /// Statuses of bindings and templates.
    fn answer(&mut self) {
        for held in self.bindings.values_mut() {
            let resource = held.binding.spec.resource.clone();
            let works = targets(&held.binding).into_iter().map(|cluster| Work {
                status: held.reports.get(&cluster).cloned().unwrap_or_default(),
                cluster,
                deleting: false,
            });
            let works: Vec<Work> = works.collect();
            let items = collect(&resource, &works);
            let key = format!("{}/{}", resource.kind, resource.name);
            let object = self.objects.get(&key);
            let gvk = Gvk::new(&resource.api_version, &resource.kind).expect("sound");
            let template = object.and_then(|object| {
                let before = object.get("status").cloned().unwrap_or_default();
                let expected = binding_status::expected(&held.binding.spec, &items);
                Some((before, Ok(aggregate(&gvk, object, &expected)?)))
            });
            let seen = binding_status::Observed {
                binding: held.binding.clone(),
                status: held.status.clone(),
                works,
                template,
                stirred: std::mem::take(&mut held.stirred),
                taken: false,
            };
            let now = chrono::DateTime::UNIX_EPOCH;
            let decision = binding_status::decide(now, &seen, &items);
            held.status = decision.status.unwrap_or(seen.status);
            if let (Some(status), Some(object)) = (decision.template, self.objects.get_mut(&key)) {
                object["status"] = status;
            }
        }
    }
}

/// What an API server writes into a new object, as far as anybody asks for it here.
fn default(object: &mut Value) {
    if object["kind"] == "Job" && object["spec"].get("parallelism").is_none() {
        object["spec"]["parallelism"] = json!(1);
    }
    if object["kind"] == "Pod" {
        let of = |key: &str| {
            json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists",
                "effect": "NoExecute", "tolerationSeconds": 300})
        };
        object["spec"]["tolerations"] = json!([of("not-ready"), of("unreachable")]);
    }
}

fn key_of(template: &Template) -> String {
    binding_key(
        template.namespace.as_deref(),
        &template.kind,
        &template.name,
    )
}

/// `ResourceBinding/name` of a template.
pub(super) fn binding_key(namespace: Option<&str>, kind: &str, name: &str) -> String {
    let of = match namespace {
        Some(_) => "ResourceBinding",
        None => "ClusterResourceBinding",
    };
    format!("{of}/{}", binding_name(kind, name))
}

/// Where a binding's Works are.
fn targets(binding: &Binding) -> BTreeSet<String> {
    let required = binding.spec.required_by.iter().flat_map(|it| &it.clusters);
    let all = binding.spec.clusters.iter().chain(required);
    all.map(|cluster| cluster.name.clone()).collect()
}

/// As an API server counts: the generation of a Deployment also follows its annotations.
fn bump(before: &Value, object: &mut Value, version: &str) {
    let annotated = object["kind"] == "Deployment"
        && before["metadata"]["annotations"] != object["metadata"]["annotations"];
    if before.get("spec") != object.get("spec") || annotated {
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
        object["metadata"]["generation"] = json!(generation + 1);
    }
    object["metadata"]["resourceVersion"] = json!(version);
}

fn texts(list: &Value) -> Vec<String> {
    serde_json::from_value(list.clone()).unwrap_or_default()
}

fn policy_name(object: &Value) -> PolicyName {
    let text = |key: &str| object["metadata"][key].as_str().map(str::to_owned);
    PolicyName {
        namespace: text("namespace"),
        name: text("name").expect("a name"),
    }
}

/// The record of a policy.
fn policy(object: &Value) -> Policy {
    let metadata = serde_json::from_value(object["metadata"].clone()).expect("metadata");
    let spec = serde_json::from_value(object["spec"].clone()).expect("a policy");
    Policy::of(&metadata, &spec)
}

/// The claim that a template shows, as its labels and annotations.
pub(super) fn shown_claim(object: &Value) -> Value {
    let Some(template) = Template::of(object) else {
        return Value::Null;
    };
    let (mut labels, mut annotations) = (template.labels.clone(), template.annotations.clone());
    claim::set(None, &mut labels, &mut annotations);
    let claims = |all: crate::propagation::Texts, others: crate::propagation::Texts| {
        let own = all.into_iter().filter(|(key, _)| !others.contains_key(key));
        own.collect::<BTreeMap<_, _>>()
    };
    json!({"labels": claims(template.labels, labels), "annotations": claims(template.annotations, annotations)})
}
