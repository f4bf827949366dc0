//! Two states of a hub, compared template by template and member by member. Pure.

use super::answer::{ClusterPlan, Plan, Share, Step, TemplatePlan, Verdict};
use super::copies;
use super::member::in_cluster;
use super::settle::Settling;
use super::state::State;
use crate::controller::detector::{Problem, claim, keep, wake};
use crate::propagation::{Binding, PolicyName};
use crate::scheduler::Strategy;
use crate::world::{self, ObjectName, TemplateName};
use common::api::binding::{ObjectReference, SCHEDULED};
use common::conditions;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

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
    let all = before.bindings.iter().chain(after.state.bindings.iter());
    let keys: BTreeMap<&ObjectName, &Arc<world::Binding>> = others_too.chain(all).collect();
    let mut told: BTreeSet<TemplateName> = BTreeSet::new();
    for (key, held) in keys {
        let Some(name) = TemplateName::of_binding(&held.binding) else {
            continue;
        };
        let others: Vec<_> = others
            .iter()
            .filter(|way| !ends_alike(after, way, key, &name))
            .collect();
        let stays = same_around && is_same(before, &after.state, key);
        let is_held_up = after.is_held_up(&name);
        if others.is_empty() && stays && !is_held_up {
            plan.unchanged += 1;
            continue;
        }
        let told_by = |way: &Settling<'_>| {
            let resource = &held.binding.spec.resource;
            let mut told = template(before, way, key, resource, &name);
            told.waits = waits(waited, way, &name);
            told
        };
        let mut template = told_by(after);
        template.or = alternatives(key, after, others.iter().copied());
        let otherwise = others.iter().map(|way| told_by(way));
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
        if changes || is_held || is_held_up {
            plan.templates.push(template);
        }
    }
    let untold = after.problems.keys().filter(|it| !told.contains(*it));
    for name in untold.filter(|it| after.is_held_up(it)) {
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
        let unplaced = held.and_then(|it| unplaced(it));
        let kept = way.kept(name).map(|it| it.object.clone());
        (binding, unplaced, holder, problem, way.is_kept(name), kept)
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
    let scripts = |state: &State| -> Vec<_> {
        let all = state.customizations.iter();
        all.map(|(name, it)| (name.clone(), it.spec.clone()))
            .collect()
    };
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
        && scripts(before) == scripts(after)
        && before.clusters.keys().eq(after.clusters.keys())
}

fn is_same(before: &State, after: &State, key: &ObjectName) -> bool {
    let (Some(old), Some(new)) = (before.bindings.get(key), after.bindings.get(key)) else {
        return false;
    };
    let object = |state: &State| {
        let name = TemplateName::of_binding(&old.binding)?;
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
    // What is edited while its policy waits goes to members when its Works are made next.
    let kept = after.kept(name);
    let is_untold = after.is_kept(name) && kept.is_none();
    let (was, will) = (
        copies::of(before, key, None),
        copies::of(&after.state, key, kept),
    );
    let preserved = are_preserved(before, after, key);
    let clusters: BTreeSet<&String> = was.keys().chain(will.keys()).collect();
    let clusters = clusters.into_iter().map(|cluster| {
        let (was, will) = (was.get(cluster), will.get(cluster));
        let at_once = after.passed(key, cluster);
        let mut told = in_cluster(cluster, was, will, at_once, preserved);
        if is_untold && will.is_some_and(|it| !it.leaving) {
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
/// end, or the policy that the binding shows does. One that its policy let go, and others still take along, says so until
/// the Works that it leaves do; here it has come to rest, and says so no longer.
fn are_preserved(before: &State, after: &Settling<'_>, key: &ObjectName) -> bool {
    let says = |held: &world::Binding| {
        let spec = &held.binding.spec;
        spec.preserve_resources_on_deletion == Some(true)
    };
    let policy = |binding: &Binding| {
        let holder = claim::holder(&binding.labels, &binding.annotations)?;
        // A policy that is deleted is there until its templates are let go.
        let policy = after.state.policies.get(&holder);
        policy.or_else(|| before.policies.get(&holder))
    };
    let known = before.bindings.get(key);
    if let Some(held) = after.state.bindings.get(key) {
        let is_released = |old: &Arc<world::Binding>| {
            let policy = policy(&old.binding).map(AsRef::as_ref);
            keep::first_released(&old.binding, &held.binding, policy).is_some()
        };
        return says(held) || known.is_some_and(is_released);
    }
    let last = after.ended(key).or(known);
    last.is_some_and(|held| {
        let binding = &held.binding;
        let policy = policy(binding).map(AsRef::as_ref);
        says(held) || keep::first(binding, policy).is_some()
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
fn alternatives<'w>(
    key: &ObjectName,
    after: &Settling<'_>,
    others: impl Iterator<Item = &'w Settling<'w>>,
) -> Vec<Vec<Share>> {
    let known = shares(&after.state, key);
    let others: BTreeSet<Vec<Share>> = others.map(|it| shares(&it.state, key)).collect();
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
