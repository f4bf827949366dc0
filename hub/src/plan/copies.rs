//! What each member has of a template, by what a state of the hub says. Pure.

use super::difference::{Difference, differences, without_secrets};
use super::state::{State, within};
use super::templates::Held;
use crate::controller::binding::facts::Facts;
use crate::controller::binding::overrides::{Overrides, Policy, is_of_the_system};
use crate::controller::binding::render::{Binding, Renderer};
use crate::controller::binding::targets::targets;
use crate::snapshot::trial::LAST_APPLIED;
use crate::world::{self, ObjectName, TemplateName};
use common::api::binding::TargetCluster;
use common::api::policy::PurgeMode;
use common::errors::chain;
use common::labels::{APPLIED_CLUSTER_OVERRIDES, APPLIED_OVERRIDES};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a member has, or is to have.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Copy {
    /// Its replicas, of what has any.
    pub replicas: Option<i32>,
    /// It was left, and stays until something else serves.
    pub leaving: bool,
    /// It is told, and carries nothing of it out.
    pub suspended: bool,
    /// What it is told to run, without the system's own marks; why it cannot be told, and nothing where it stays as it
    /// was.
    pub manifest: Option<Result<Value, String>>,
    /// What one that was left was told, if it came there as things are.
    pub left: Option<Value>,
    /// The override policies that change something in it.
    pub overrides: Vec<String>,
    /// What they change.
    pub overridden: Vec<Difference>,
}

impl Copy {
    /// Whether a Work tells it something that it carries out.
    pub(super) fn is_dispatched(&self) -> bool {
        !self.suspended && !self.leaving && matches!(self.manifest, Some(Ok(_)))
    }
}

/// The copies of a binding, by member: of its template as it is, or as it was when they were made.
pub(super) fn of(state: &State, key: &ObjectName, was: Option<&Held>) -> BTreeMap<String, Copy> {
    let Some(held) = state.bindings.get(key) else {
        return BTreeMap::new();
    };
    let mut copies = rendered(state, held, was, &targets(&held.binding.spec));
    let tasks = held.binding.spec.graceful_eviction_tasks.iter();
    let stays = tasks.filter(|it| it.purge_mode.unwrap_or_default() != PurgeMode::Directly);
    for task in stays {
        // Of a cluster that is gone nothing stays.
        if state.clusters.contains_key(&task.from_cluster) {
            let target = TargetCluster {
                name: task.from_cluster.clone(),
                replicas: task.replicas,
                ..TargetCluster::default()
            };
            let made = || rendered(state, held, was, &[&target]).remove(&target.name);
            let left = copies.entry(task.from_cluster.clone());
            left.or_insert_with(|| Copy {
                replicas: task.replicas,
                leaving: true,
                left: made().and_then(|it| it.manifest?.ok()),
                ..Copy::default()
            });
        }
    }
    copies
}

fn rendered(
    state: &State,
    held: &world::Binding,
    was: Option<&Held>,
    all: &[&TargetCluster],
) -> BTreeMap<String, Copy> {
    let binding = &held.binding;
    let failed = |target: &TargetCluster, why: String| Copy {
        replicas: target.replicas,
        manifest: Some(Err(why)),
        ..Copy::default()
    };
    let each = |copy: &dyn Fn(&TargetCluster) -> Copy| -> BTreeMap<String, Copy> {
        let copies = all.iter().map(|target| (target.name.clone(), copy(target)));
        copies.collect()
    };
    let name = TemplateName::of_binding(binding);
    let is = || Some(&**state.templates.get(&name?)?);
    let Some(template) = was.or_else(is) else {
        return each(&|target| failed(target, "the template is gone".to_owned()));
    };
    let object = &template.object;
    let namespace = binding.namespace.as_deref().into_iter();
    let here = namespace.flat_map(|it| overrides(state, Some(it)));
    let overrides = Overrides::of(object, overrides(state, None), here);
    let none = Overrides::of(object, [], []);
    let interpreter = &state.interpreter;
    let (with, without) = (
        Renderer::new(object, Binding::of(binding), &overrides, interpreter),
        Renderer::new(object, Binding::of(binding), &none, interpreter),
    );
    let (with, without) = match (with, without) {
        (Ok(with), Ok(without)) => (with, without),
        (Err(error), _) | (_, Err(error)) => {
            let why = chain(&error).to_string();
            return each(&|target| failed(target, why.clone()));
        }
    };
    each(&|target| {
        let cluster = state.clusters.get(&target.name);
        let Some(placing) = cluster.and_then(|it| it.record.placing.as_ref()) else {
            return failed(target, format!("there is no Cluster {:?}", target.name));
        };
        let facts = Facts::of(placing);
        let work = match with.render(target, &facts.borrowed(), None) {
            Ok(work) => work,
            Err(error) => return failed(target, chain(&error).to_string()),
        };
        let annotations = work.metadata.annotations.unwrap_or_default();
        let told = [APPLIED_CLUSTER_OVERRIDES, APPLIED_OVERRIDES].map(|key| annotations.get(key));
        let overrides = told
            .into_iter()
            .flatten()
            .flat_map(|told| names(told))
            .collect();
        let suspended = work.spec.suspend_dispatching == Some(true);
        let manifest = work.spec.workload.manifests.into_iter().next();
        let manifest = unmarked(manifest.unwrap_or_default());
        let plain = without.render(target, &facts.borrowed(), None).ok();
        let plain = plain.and_then(|it| it.spec.workload.manifests.into_iter().next());
        let plain = plain.map(unmarked);
        Copy {
            replicas: target.replicas,
            leaving: false,
            suspended,
            left: None,
            overridden: plain.map_or_else(Vec::new, |plain| {
                without_secrets(&manifest, differences(&plain, &manifest))
            }),
            manifest: Some(Ok(manifest)),
            overrides,
        }
    })
}

/// The override policies of a namespace; without one, those of the hub.
fn overrides<'s>(state: &'s State, namespace: Option<&'s str>) -> impl Iterator<Item = Policy<'s>> {
    within(&state.overrides, namespace)
        .map(|policy| (&policy.metadata, &policy.spec, policy.problem.as_deref()))
}

/// The policies of an annotation that tells which were applied, each once.
fn names(told: &str) -> Vec<String> {
    let told: Vec<Value> = serde_json::from_str(told).unwrap_or_default();
    let mut names: Vec<String> = told
        .iter()
        .filter_map(|it| Some(it["policyName"].as_str()?.to_owned()))
        .collect();
    names.dedup();
    names
}

/// A manifest without what the system marks it with.
pub fn unmarked(mut manifest: Value) -> Value {
    for part in ["labels", "annotations"] {
        let texts = manifest.pointer_mut(&format!("/metadata/{part}"));
        if let Some(texts) = texts.and_then(Value::as_object_mut) {
            texts.retain(|key, _| !is_of_the_system(key) && key != LAST_APPLIED);
        }
        let metadata = manifest.get_mut("metadata").and_then(Value::as_object_mut);
        let empty = |it: &Value| it.as_object().is_some_and(serde_json::Map::is_empty);
        if let Some(metadata) = metadata.filter(|it| it.get(part).is_some_and(empty)) {
            metadata.remove(part);
        }
    }
    manifest
}

/// Where a binding is placed, by cluster, with its replicas there.
pub(super) fn placed(state: &State, key: &ObjectName) -> BTreeMap<String, Option<i32>> {
    let held = state.bindings.get(key);
    let all = held
        .into_iter()
        .flat_map(|held| targets(&held.binding.spec));
    all.map(|target| (target.name.clone(), target.replicas))
        .collect()
}
