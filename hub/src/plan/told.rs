//! What a plan says: two states of a hub, compared template by template and member by member. Pure.

use super::copies;
use super::difference::Difference;
use super::member::in_cluster;
use super::settle::Settling;
use super::state::{Change, State, Subject};
use crate::controller::detector::{Problem, keep, wake};
use crate::propagation::PolicyName;
use crate::scheduler::Strategy;
use crate::world::{self, ObjectName, TemplateName};
use common::api::binding::{ObjectReference, SCHEDULED};
use common::conditions;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What changes would do.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// Templates of which something changes, or of which something is to be told.
    pub templates: Vec<TemplatePlan>,
    /// Templates that are in members, and of which nothing changes.
    pub unchanged: usize,
    /// Changes that the hub refuses.
    pub refused: Vec<Refused>,
    /// What nobody can know before.
    pub unknown: Vec<String>,
}

impl Plan {
    /// Whether anything changes.
    pub fn changes(&self) -> bool {
        self.templates.iter().any(TemplatePlan::changes)
    }
}

/// A change that the hub refuses.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refused {
    /// `group/version` of the object.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Why.
    pub message: String,
}

impl Refused {
    /// Of a change.
    pub fn of(change: &Change, message: String) -> Option<Self> {
        let subject = match change {
            Change::Apply(object) => Subject::of(object)?,
            Change::Delete(subject) => subject.clone(),
        };
        let namespace = subject.name.namespace.to_string();
        Some(Self {
            api_version: subject.kind.api_version(),
            kind: subject.kind.kind,
            namespace: Some(namespace).filter(|it| !it.is_empty()),
            name: subject.name.name.to_string(),
            message,
        })
    }
}

/// Something before and after.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Step<T> {
    /// As it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<T>,
    /// As it will be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<T>,
}

impl<T> Step<T> {
    /// Whether there is nothing before nor after.
    pub fn is_none(&self) -> bool {
        self.before.is_none() && self.after.is_none()
    }
}

/// One template.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplatePlan {
    /// `group/version`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// The policy that holds it; none for what goes along with others.
    pub policy: Step<String>,
    /// Each cluster that it is in, or comes to.
    pub clusters: Vec<ClusterPlan>,
    /// Why it is placed nowhere, or not as its policy wants it.
    #[serde(skip_serializing_if = "Step::is_none")]
    pub unplaced: Step<String>,
    /// What it waits for before its policy is carried out.
    #[serde(skip_serializing_if = "Step::is_none")]
    pub waits: Step<String>,
    /// Seconds until it is so, where that takes its time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_seconds: Option<i64>,
    /// Where it may go instead; which it is cannot be known before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub or: Vec<Vec<Share>>,
    /// What may be otherwise in the end, beside where it goes; whether it is so cannot be known before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub otherwise: Vec<String>,
}

impl TemplatePlan {
    /// Whether it may end in more than one way.
    pub fn is_open(&self) -> bool {
        !self.or.is_empty() || !self.otherwise.is_empty()
    }

    /// Whether anything of it changes: in a member, or in why it is not there.
    pub fn changes(&self) -> bool {
        self.policy.before != self.policy.after
            || self.unplaced.before != self.unplaced.after
            || self.waits.before != self.waits.after
            || self.is_open()
            || self.clusters.iter().any(|it| it.verdict != Verdict::Stays)
    }
}

/// A cluster and its replicas.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Share {
    /// The cluster.
    pub cluster: String,
    /// Its replicas, of what has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
}

/// What becomes of a template in one cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub enum Verdict {
    /// Nothing.
    #[default]
    Stays,
    /// It comes there.
    Gained,
    /// It goes from there.
    Lost,
    /// It goes from there once others serve in its place.
    Leaves,
    /// It is another there than before.
    Changed,
}

/// One template in one cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPlan {
    /// The cluster.
    pub cluster: String,
    /// What becomes of it.
    pub verdict: Verdict,
    /// It comes there and leaves again at once: whether there is time for a copy, nobody can know before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub passing: bool,
    /// What becomes another of it is held back: its policy suspends dispatching.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// Whatever was held back of it comes there.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
    /// Its objects stay there when it goes.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub preserved: bool,
    /// Its replicas.
    pub replicas: Step<i32>,
    /// In what it differs from what is there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<Difference>,
    /// Override policies that are about it there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<String>,
    /// In what these make it differ from the template.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overridden: Vec<Difference>,
    /// Why the cluster is not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What the cluster is told, without the system's marks.
    #[serde(skip)]
    pub manifest: Option<Value>,
    /// It is told nothing: it has what it had.
    #[serde(skip)]
    pub untold: bool,
}

/// Compares what was with what comes, and that with what may come as well.
pub(super) fn tell(
    before: &State,
    waited: &BTreeMap<TemplateName, Problem>,
    after: &Settling<'_>,
    others: &[Settling<'_>],
) -> Plan {
    let mut plan = Plan::default();
    let same_around = same_around(before, &after.state);
    let others_too = others.iter().flat_map(|it| it.state.bindings.iter());
    let all = before.bindings.iter().chain(&after.state.bindings);
    let keys: BTreeMap<&ObjectName, &Arc<world::Binding>> = others_too.chain(all).collect();
    let mut told: BTreeSet<TemplateName> = BTreeSet::new();
    for (key, held) in keys {
        let Some(name) = TemplateName::of(&held.binding.spec.resource) else {
            continue;
        };
        let others: Vec<&Settling<'_>> = others
            .iter()
            .filter(|it| !ends_alike(after, it, key, &name))
            .collect();
        let stays = same_around && is_same(before, &after.state, key);
        if others.is_empty() && stays && !after.problems.contains_key(&name) {
            plan.unchanged += 1;
            continue;
        }
        let told_by = |way: &Settling<'_>| {
            let mut told = template(before, way, key, &held.binding.spec.resource, &name);
            told.waits = waits(waited, way, &name);
            told
        };
        let mut template = told_by(after);
        template.or = alternatives(key, after, &others);
        let otherwise = others.iter().map(|it| told_by(it));
        let otherwise: BTreeSet<String> =
            otherwise.flat_map(|it| differs(&template, &it)).collect();
        template.otherwise = otherwise.into_iter().collect();
        told.insert(name);
        let changes = template.changes();
        if changes {
            plan.unknown.extend(unreported(&after.state, key));
            plan.unknown.extend(released(&template));
        } else {
            plan.unchanged += 1;
        }
        // That it waits, or is held back, is told each time: what was meant to change does not.
        let is_held = template.clusters.iter().any(|it| it.held);
        if changes || is_held || template.waits.after.is_some() {
            plan.templates.push(template);
        }
    }
    for name in after.problems.keys().filter(|it| !told.contains(it)) {
        let held = after.state.templates.get(name);
        let reference = held.map(|held| held.identity.reference());
        let mut waiting = reference.map(|it| named(&it)).unwrap_or_default();
        waiting.policy = holders(before, &after.state, name);
        waiting.waits = waits(waited, after, name);
        plan.templates.push(waiting);
    }
    plan.templates
        .sort_by(|a, b| (&a.namespace, &a.kind, &a.name).cmp(&(&b.namespace, &b.kind, &b.name)));
    plan.unknown.extend(after.held.iter().map(|name| {
        format!("{name} would be left, but too many clusters are lost at once: nothing leaves them until most are heard again")
    }));
    if !after.rests || others.iter().any(|it| !it.rests) {
        let text = "where it ends: some decisions undo each other for ever";
        plan.unknown.push(text.to_owned());
    }
    plan.unknown.sort();
    plan.unknown.dedup();
    plan
}

/// Whether two ways come to the same for one template.
fn ends_alike(
    one: &Settling<'_>,
    other: &Settling<'_>,
    key: &ObjectName,
    name: &TemplateName,
) -> bool {
    let of = |way: &Settling<'_>| {
        let held = way.state.bindings.get(key);
        let binding = held.map(|it| (it.binding.spec.clone(), it.binding.labels.clone()));
        let template = way.state.templates.get(name);
        let holder = template.and_then(|it| wake::holder(&it.identity));
        let problem = way.problems.get(name).cloned();
        (binding, held.and_then(|it| unplaced(it)), holder, problem)
    };
    of(one) == of(other)
}

/// In what a template ends otherwise by another way, beside where it goes.
fn differs(one: &TemplatePlan, other: &TemplatePlan) -> Vec<String> {
    let mut texts = Vec::new();
    if one.policy.after != other.policy.after {
        let holder = other.policy.after.as_deref().unwrap_or("no policy");
        texts.push(format!("held by {holder}"));
    }
    if one.waits.after != other.waits.after {
        let waits = other
            .waits
            .after
            .as_deref()
            .unwrap_or("waiting for nothing");
        texts.push(waits.to_owned());
    }
    if one.unplaced.after != other.unplaced.after {
        let unplaced = other.unplaced.after.as_ref();
        texts.push(unplaced.map_or("placed as it should be".to_owned(), |why| {
            format!("not placed as it should be: {why}")
        }));
    }
    let placed = |it: &TemplatePlan| -> Vec<_> {
        let clusters = it.clusters.iter().filter(|it| it.verdict != Verdict::Lost);
        clusters
            .map(|it| (it.cluster.clone(), it.replicas.after))
            .collect()
    };
    if placed(one) == placed(other) {
        let clusters = one.clusters.iter().filter(|it| {
            let mut others = other.clusters.iter();
            let same = others.find(|other| other.cluster == it.cluster);
            same.is_some_and(|other| {
                (&it.manifest, &it.problem, it.verdict)
                    != (&other.manifest, &other.problem, other.verdict)
            })
        });
        texts.extend(clusters.map(|it| format!("another copy in {}", it.cluster)));
    }
    texts
}

/// What a template waits for.
fn waits(
    waited: &BTreeMap<TemplateName, Problem>,
    after: &Settling<'_>,
    name: &TemplateName,
) -> Step<String> {
    Step {
        before: waited.get(name).map(ToString::to_string),
        after: after.problems.get(name).map(ToString::to_string),
    }
}

/// Whether nothing changed that may be about any template.
fn same_around(before: &State, after: &State) -> bool {
    let overrides = |state: &State| -> Vec<_> {
        let all = state.overrides.values();
        all.map(|it| (it.metadata.clone(), it.spec.clone(), it.problem.clone()))
            .collect()
    };
    let clusters = |state: &State| -> Vec<_> {
        let all = state.clusters.values();
        all.map(|it| it.record.placing.as_ref().map(|it| it.shape.clone()))
            .collect()
    };
    overrides(before) == overrides(after)
        && clusters(before) == clusters(after)
        && before.clusters.keys().eq(after.clusters.keys())
}

fn is_same(before: &State, after: &State, key: &ObjectName) -> bool {
    let (Some(old), Some(new)) = (before.bindings.get(key), after.bindings.get(key)) else {
        return false;
    };
    let object = |state: &State| {
        let name = TemplateName::of(&old.binding.spec.resource)?;
        Some(state.templates.get(&name)?.object.clone())
    };
    old.binding.spec == new.binding.spec
        && old.binding.labels == new.binding.labels
        && object(before) == object(after)
}

fn named(resource: &ObjectReference) -> TemplatePlan {
    TemplatePlan {
        api_version: resource.api_version.clone(),
        kind: resource.kind.clone(),
        namespace: resource.namespace.clone(),
        name: resource.name.clone(),
        ..TemplatePlan::default()
    }
}

/// The policies that hold a template.
fn holders(before: &State, after: &State, name: &TemplateName) -> Step<String> {
    let holder = |state: &State| {
        let holder = wake::holder(&state.templates.get(name)?.identity)?;
        Some(shown(&holder))
    };
    Step {
        before: holder(before),
        after: holder(after),
    }
}

fn template(
    before: &State,
    after: &Settling<'_>,
    key: &ObjectName,
    resource: &ObjectReference,
    name: &TemplateName,
) -> TemplatePlan {
    let (old, new) = (before.bindings.get(key), after.state.bindings.get(key));
    let mut template = named(resource);
    template.policy = holders(before, &after.state, name);
    let (was, will) = (copies::of(before, key), copies::of(&after.state, key));
    // What is edited while its policy waits goes to members with whatever is written of its binding next.
    let same = |old: &world::Binding, new: &world::Binding| old.binding.spec == new.binding.spec;
    let waits = after.problems.contains_key(name)
        && old.zip(new).is_some_and(|(old, new)| same(old, new))
        && same_around(before, &after.state);
    let preserved = are_preserved(before, after, key);
    let clusters: BTreeSet<&String> = was.keys().chain(will.keys()).collect();
    let clusters = clusters.into_iter().map(|cluster| {
        let (was, will) = (was.get(cluster), will.get(cluster));
        let at_once = after.passed(key, cluster);
        let mut told = in_cluster(cluster, was, will, at_once, preserved);
        if waits && will.is_some_and(|it| !it.leaving) {
            (told.untold, told.manifest, told.verdict) = (true, None, Verdict::Stays);
            told.held = false;
            told.changes.clear();
        }
        told
    });
    template.clusters = clusters.collect();
    template.unplaced = Step {
        before: old.and_then(|it| unplaced(it)),
        after: new.and_then(|it| unplaced(it)),
    };
    let moved = after.moved_at.get(key);
    template.after_seconds = moved.map(|at| (*at - after.start()).num_seconds());
    template
}

fn shown(policy: &PolicyName) -> String {
    match policy.namespace {
        Some(_) => format!("PropagationPolicy {policy}"),
        None => format!("ClusterPropagationPolicy {policy}"),
    }
}

/// Whether the objects of a template stay in the members that it leaves: its binding says so when it is left, or at its
/// end, or the policy that the binding shows does.
fn are_preserved(before: &State, after: &Settling<'_>, key: &ObjectName) -> bool {
    let says = |held: &world::Binding| {
        let spec = &held.binding.spec;
        spec.preserve_resources_on_deletion == Some(true)
    };
    if let Some(held) = after.state.bindings.get(key) {
        return says(held);
    }
    let last = after.ended(key).or_else(|| before.bindings.get(key));
    last.is_some_and(|held| {
        // A policy that is deleted is there until its templates are let go.
        let policies = after.state.policies.values();
        let policies = policies.chain(before.policies.values());
        says(held) || keep::first(&held.binding, policies.map(|it| &**it)).is_some()
    })
}

/// Why the scheduler does not place it as it should.
pub(super) fn unplaced(held: &world::Binding) -> Option<String> {
    let condition = conditions::get(&held.status.conditions, SCHEDULED)?;
    (condition.status == "False").then(|| condition.message.clone())
}

/// Clusters that are not told how the last change leaves a template, and may have been told how one before it did.
pub(super) fn untold(plan: &Plan) -> Vec<String> {
    let text = |template: &TemplatePlan, one: &ClusterPlan| {
        let (kind, name) = (&template.kind, &template.name);
        let cluster = &one.cluster;
        format!(
            "what {cluster} has of {kind} {name}: it may be told what the changes came to before the last"
        )
    };
    let templates = plan.templates.iter();
    let clusters = templates.flat_map(|it| it.clusters.iter().map(move |one| (it, one)));
    let untold = clusters.filter(|(_, one)| {
        one.problem.is_some() && matches!(one.verdict, Verdict::Gained | Verdict::Changed)
    });
    untold.map(|(it, one)| text(it, one)).collect()
}

/// Clusters to which comes what was held back: what they have until then the hub does not know.
fn released(template: &TemplatePlan) -> Vec<String> {
    let clusters = template.clusters.iter().filter(|it| it.released);
    let text = |one: &ClusterPlan| {
        let (kind, name, cluster) = (&template.kind, &template.name, &one.cluster);
        format!(
            "what was held back from {cluster} of {kind} {name} goes there: what it has of it until then is not known"
        )
    };
    clusters.map(text).collect()
}

/// Other placements that are as likely, each once.
fn alternatives(
    key: &ObjectName,
    after: &Settling<'_>,
    others: &[&Settling<'_>],
) -> Vec<Vec<Share>> {
    let known = shares(&after.state, key);
    let others: BTreeSet<Vec<Share>> = others.iter().map(|it| shares(&it.state, key)).collect();
    others.into_iter().filter(|it| *it != known).collect()
}

fn shares(state: &State, key: &ObjectName) -> Vec<Share> {
    let copies = copies::placed(state, key);
    let share = |(cluster, replicas): (String, Option<i32>)| Share { cluster, replicas };
    copies.into_iter().map(share).collect()
}

/// Clusters that a divided template might go to and that have not said what room they have.
fn unreported(state: &State, key: &ObjectName) -> Vec<String> {
    let Some(held) = state.bindings.get(key) else {
        return Vec::new();
    };
    let Some(placement) = &held.placement else {
        return Vec::new();
    };
    let rules = &placement.rules;
    if !matches!(rules.strategy, Strategy::Dynamic | Strategy::Aggregated) {
        return Vec::new();
    }
    let clusters = state
        .clusters
        .values()
        .filter_map(|it| it.record.placing.as_ref());
    let silent = clusters.filter(|it| it.capacity.free.is_none() && rules.concern(it, None));
    let told: BTreeMap<_, _> = silent.map(|it| (it.name.to_string(), ())).collect();
    told.into_keys()
        .map(|name| format!("{name} has not reported what room it has: what is divided by room gives it nothing until it has"))
        .collect()
}
