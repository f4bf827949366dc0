//! Which policy holds a template, and why the others do not. Pure.

use super::mend::{self, on_hub, short};
use super::template::Seen;
use super::{Broken, Cause, Detail, Stage, Walk};
use crate::controller::detector::choose::{self, Rank};
use crate::controller::detector::wake;
use crate::propagation::{Policy, PolicyName, Template, group};
use common::api::policy::ResourceSelector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Policies that are told why they do not hold it.
const OTHERS: usize = 5;
/// Clusters that a policy is suggested for by name.
const NAMED: usize = 3;

/// The policy that holds the template; none when the walk ended or when it only follows others.
pub(super) fn walk<'a>(seen: &'a Seen, template: &Template, walk: &mut Walk) -> Option<&'a Policy> {
    if template.deleting {
        let what = "it is being deleted";
        let get = seen.command("get", "-o jsonpath='{.metadata.finalizers}'");
        let mend = on_hub("Wait, or see what holds it back.", [get]);
        walk.breaks(broken(Cause::Deleting, what, mend), Vec::new());
        return None;
    }
    if seen.skips.template(template) {
        return skipped(seen, template, walk);
    }
    let Some((policy, holds)) = chosen(&seen.policies, template) else {
        if !seen.follows().is_empty() {
            let what = format!("follows {}", seen.follows().join(", "));
            walk.holds(Stage::Policy, what, Vec::new());
        } else {
            let broken = not_selected(seen, template);
            walk.breaks(broken, others(seen, template, None));
        }
        return None;
    };
    if let Some(broken) = waits(policy, &seen.overrides, &seen.priority_classes) {
        walk.breaks(broken, Vec::new());
        return None;
    }
    if !holds {
        let what = format!(
            "{} selects it, and the hub has not put its claim on it",
            short(&policy.name)
        );
        walk.breaks(seen.late(Stage::Policy, what), Vec::new());
        return None;
    }
    let by = match choose::rank(policy, template) {
        Some(Rank::Name) => "by name",
        Some(Rank::Labels) => "by labels",
        _ => "by kind",
    };
    let what = format!("{} selects it {by}", short(&policy.name));
    walk.holds(Stage::Policy, what, others(seen, template, Some(policy)));
    Some(policy)
}

fn broken(cause: Cause, what: impl Into<String>, mend: super::Mend) -> Broken {
    Broken {
        stage: Stage::Policy,
        cause,
        cluster: None,
        what: what.into(),
        mend,
    }
}

fn skipped<'a>(seen: &Seen, template: &Template, walk: &mut Walk) -> Option<&'a Policy> {
    let namespace = template.namespace.as_deref().unwrap_or_default();
    let (what, mend) = if seen.skips.kind(&template.api_version, &template.kind) {
        let what = format!("objects of kind {} are never propagated", template.kind);
        (
            what,
            on_hub("Nothing is to be done: it stays on the hub.", []),
        )
    } else if seen.skips.namespace(namespace) {
        let what = format!("nothing is propagated out of namespace {namespace} of the hub");
        let mend = on_hub(
            "Put it into another namespace, or have the hub started without that namespace in \
             --skipped-propagating-namespaces.",
            [format!(
                "kubectl create namespace {}",
                mend::word(&format!("{}-fleet", namespace))
            )],
        );
        (what, mend)
    } else {
        let what = "another controller propagates it, as its label resourcetemplate.karmada.io/claimed-by says";
        let take_off = seen.command("label", "resourcetemplate.karmada.io/claimed-by-");
        (
            what.to_owned(),
            on_hub(
                "Take the label off to have policies apply to it.",
                [take_off],
            ),
        )
    };
    walk.breaks(broken(Cause::Skipped, what, mend), Vec::new());
    None
}

/// The policy of a template, and whether the template shows its claim already.
pub fn chosen<'a>(policies: &'a [Policy], template: &Template) -> Option<(&'a Policy, bool)> {
    let holder = wake::holder(template).and_then(|name| {
        let mut all = policies.iter();
        all.find(|it| {
            it.name == name && choose::is_in_force(it) && choose::rank(it, template).is_some()
        })
    });
    let best = || choose::best(policies, template);
    let holds = holder.is_some();
    Some((holder.or_else(best)?, holds))
}

/// What a policy waits for before anything is done by it: overrides and a class that do not exist. Those that do are
/// `overrides` and `classes`, at least of those that it names.
pub fn waits(
    policy: &Policy,
    overrides: &BTreeSet<PolicyName>,
    classes: &BTreeSet<String>,
) -> Option<Broken> {
    let missing = wake::overrides_of(policy);
    let missing = missing.into_iter().filter(|it| !overrides.contains(it));
    let missing: Vec<String> = missing.map(|it| it.name).collect();
    if let Some(first) = missing.first() {
        return Some(waits_for(policy, &missing, first));
    }
    let class = &policy.spec.schedule_priority.as_ref()?.priority_class_name;
    (!classes.contains(class)).then(|| without_class(policy, class))
}

fn waits_for(policy: &Policy, missing: &[String], first: &str) -> Broken {
    let what = format!(
        "{} waits for overrides that do not exist: {}",
        short(&policy.name),
        missing.join(", ")
    );
    let named = policy.spec.dependent_overrides.iter();
    let left: Vec<&String> = named.filter(|it| !missing.contains(it)).collect();
    let change = mend::patch_policy(&policy.name, &json!({"spec": {"dependentOverrides": left}}));
    let mend = on_hub(
        format!("Create {first}, or wait for it no longer."),
        [change],
    );
    broken(Cause::OverrideMissing, what, mend)
}

fn without_class(policy: &Policy, class: &str) -> Broken {
    let what = format!(
        "{} names PriorityClass {class:?}, which does not exist",
        short(&policy.name)
    );
    let change = mend::patch_policy(&policy.name, &json!({"spec": {"schedulePriority": null}}));
    let mend = on_hub("Create it, or have the policy name none.", [change]);
    broken(Cause::PriorityClassMissing, what, mend)
}

/// Nothing selects it.
fn not_selected(seen: &Seen, template: &Template) -> Broken {
    if let Some(elsewhere) = seen.policies.iter().find(|it| would(it, template)) {
        let name = &elsewhere.name;
        let home = name.namespace.as_deref().unwrap_or_default();
        let here = template.namespace.as_deref().unwrap_or_default();
        let what = format!(
            "no policy holds it: PropagationPolicy {name} means it, and selects in its own namespace {home} alone"
        );
        let mut spec = json!(elsewhere.spec);
        spec["resourceSelectors"] = json!([selector_of(template)]);
        let object = policy_object(Some(here), &name.name, &spec);
        let mend = on_hub(
            format!("Make the same policy in namespace {here}, or a ClusterPropagationPolicy."),
            [mend::apply(&object)],
        );
        return broken(Cause::PolicyElsewhere, what, mend);
    }
    if let Some((policy, labels)) = near(seen, template) {
        let texts = labels.match_labels.iter().flatten();
        let texts: Vec<String> = texts
            .map(|(key, value)| mend::word(&format!("{key}={value}")))
            .collect();
        let what = format!(
            "no policy holds it: {} selects by labels that it has not",
            short(&policy.name)
        );
        let label = seen.command("label", &format!("--overwrite {}", texts.join(" ")));
        let mend = on_hub("Give it the labels, or change the policy.", [label]);
        return broken(Cause::NoPolicy, what, mend);
    }
    let names = seen
        .clusters
        .iter()
        .filter_map(|it| it.metadata.name.as_deref());
    let names: Vec<&str> = names.collect();
    let placement = match names.len() {
        1..=NAMED => json!({"clusterAffinity": {"clusterNames": names}}),
        _ => json!({}),
    };
    let spec = json!({"resourceSelectors": [selector_of(template)], "placement": placement});
    let object = policy_object(template.namespace.as_deref(), &template.name, &spec);
    let mend = on_hub(
        "Select it in a policy, with the clusters that you mean.",
        [mend::apply(&object)],
    );
    broken(
        Cause::NoPolicy,
        "no policy holds it: it stays on the hub",
        mend,
    )
}

fn selector_of(template: &Template) -> Value {
    json!({"apiVersion": template.api_version, "kind": template.kind, "name": template.name})
}

fn policy_object(namespace: Option<&str>, name: &str, spec: &Value) -> Value {
    let (kind, metadata) = match namespace {
        Some(namespace) => (
            "PropagationPolicy",
            json!({"name": name, "namespace": namespace}),
        ),
        None => ("ClusterPropagationPolicy", json!({"name": name})),
    };
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec})
}

/// Whether a policy of another namespace would select it if it were of the template's.
fn would(policy: &Policy, template: &Template) -> bool {
    let elsewhere = policy.name.namespace.is_some() && policy.name.namespace != template.namespace;
    if !elsewhere || template.namespace.is_none() {
        return false;
    }
    let mut here = policy.clone();
    here.name.namespace.clone_from(&template.namespace);
    for selector in &mut here.spec.resource_selectors {
        selector.namespace = None;
    }
    choose::rank(&here, template).is_some_and(|rank| rank > Rank::Kind)
}

/// The only policy that could hold it if it had other labels, and which.
fn near<'a>(seen: &'a Seen, template: &Template) -> Option<(&'a Policy, &'a LabelSelector)> {
    let mut found = seen.policies.iter().filter_map(|policy| {
        let here = policy.name.namespace.is_none() || policy.name.namespace == template.namespace;
        let mut selectors = policy.spec.resource_selectors.iter();
        let labels = selectors.find_map(|it| {
            let unnamed = it.name.as_deref().unwrap_or_default().is_empty();
            let plain = |labels: &&LabelSelector| {
                labels.match_expressions.as_ref().is_none_or(Vec::is_empty)
                    && labels
                        .match_labels
                        .as_ref()
                        .is_some_and(|it| !it.is_empty())
            };
            let fits = is_of_kind(it, template) && is_of_namespace(it, template) && unnamed;
            it.label_selector.as_ref().filter(plain).filter(|_| fits)
        })?;
        (here && choose::is_in_force(policy)).then_some((policy, labels))
    });
    let only = found.next()?;
    found.next().is_none().then_some(only)
}

fn is_of_kind(selector: &ResourceSelector, template: &Template) -> bool {
    selector.kind == template.kind && group(&selector.api_version) == template.group()
}

fn is_of_namespace(selector: &ResourceSelector, template: &Template) -> bool {
    let named = selector.namespace.as_deref().unwrap_or_default();
    named.is_empty() || Some(named) == template.namespace.as_deref()
}

/// Why the other policies do not hold it: those first that are nearest to it.
fn others(seen: &Seen, template: &Template, holder: Option<&Policy>) -> Vec<Detail> {
    let mut told: Vec<(u8, Detail)> = Vec::new();
    for policy in &seen.policies {
        if holder.is_some_and(|holder| holder.name == policy.name) {
            continue;
        }
        let Some((nearness, why)) = why_not(policy, template, holder) else {
            continue;
        };
        let name = match &policy.name.namespace {
            Some(namespace) if template.namespace.as_ref() != Some(namespace) => {
                format!("{} of {namespace}", short(&policy.name))
            }
            _ => short(&policy.name),
        };
        told.push((nearness, Detail::new(name, why)));
    }
    told.sort_by(|(a, x), (b, y)| (Reverse(a), &x.of).cmp(&(Reverse(b), &y.of)));
    let all = told.into_iter().map(|(_, detail)| detail);
    all.take(OTHERS).collect()
}

/// Why a policy does not hold it, and how near it is to that; none when it has nothing to do with the kind.
fn why_not(policy: &Policy, template: &Template, holder: Option<&Policy>) -> Option<(u8, String)> {
    let mut of_kind = policy
        .spec
        .resource_selectors
        .iter()
        .filter(|it| is_of_kind(it, template));
    let first = of_kind.next()?;
    if policy.deleting {
        return Some((2, "is being deleted".to_owned()));
    }
    if would(policy, template) {
        let home = policy.name.namespace.as_deref().unwrap_or_default();
        return Some((
            3,
            format!("means it, and selects in its own namespace {home} alone"),
        ));
    }
    if policy.name.namespace.is_some() && policy.name.namespace != template.namespace {
        return None;
    }
    if policy.id.is_empty() {
        return Some((3, "has not been taken in by the hub yet".to_owned()));
    }
    if choose::rank(policy, template).is_some() {
        let why = match holder {
            Some(holder) if holder.name.namespace.is_some() && policy.name.namespace.is_none() => {
                "selects it too; a policy of its namespace comes first".to_owned()
            }
            Some(holder) if holder.spec.priority != policy.spec.priority => format!(
                "selects it too, with priority {} beside {}",
                policy.spec.priority, holder.spec.priority
            ),
            _ => "selects it too, and comes after it".to_owned(),
        };
        return Some((4, why));
    }
    let name = first.name.as_deref().unwrap_or_default();
    let why = if !is_of_namespace(first, template) {
        format!(
            "selects in namespace {}",
            first.namespace.as_deref().unwrap_or_default()
        )
    } else if !name.is_empty() {
        format!("selects {name} by name")
    } else if first.label_selector.is_some() {
        "selects by labels that it has not".to_owned()
    } else {
        "passes over what every control plane makes for itself".to_owned()
    };
    Some((1, why))
}
