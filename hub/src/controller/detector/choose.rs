//! Which of several policies a template goes by, and which may take it from another.
//!
//! Pure. A name beats labels, labels beat a kind; among policies the priority counts first, and those of the
//! template's own namespace come before cluster-wide ones whatever their priority.

use crate::propagation::{Policy, Template, group};
use common::api::policy::{PreemptionBehavior, PropagationSpec, ResourceSelector};
use common::selector;
use std::cmp::Reverse;

/// How closely a selector names a template; more is closer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// By kind.
    Kind,
    /// By labels.
    Labels,
    /// By name.
    Name,
}

/// How closely a selector names a template; none when it does not. Any version of a kind is that kind: objects
/// are the same in all of them.
fn rank_of(selector: &ResourceSelector, template: &Template) -> Option<Rank> {
    let given = |text: &'_ Option<String>| text.clone().filter(|text| !text.is_empty());
    let kind = selector.kind == template.kind && group(&selector.api_version) == template.group();
    let namespace = given(&selector.namespace);
    if !kind || namespace.is_some() && namespace != template.namespace {
        return None;
    }
    if let Some(name) = given(&selector.name) {
        return (name == template.name).then_some(Rank::Name);
    }
    if template.is_made_everywhere() {
        return None;
    }
    let label = |key: &str| template.labels.get(key).map(String::as_str);
    match &selector.label_selector {
        Some(labels) => selector::matches(labels, label).then_some(Rank::Labels),
        None => Some(Rank::Kind),
    }
}

/// How closely a policy names a template; none when it does not. A policy with a namespace names nothing outside
/// of it, and none names what the hub's control plane made, whatever its selectors say.
pub fn rank(policy: &Policy, template: &Template) -> Option<Rank> {
    let namespace = &policy.name.namespace;
    let elsewhere = namespace.is_some() && *namespace != template.namespace;
    if elsewhere || template.is_of_control_plane() {
        return None;
    }
    let selectors = policy.spec.resource_selectors.iter();
    selectors.filter_map(|it| rank_of(it, template)).max()
}

/// Whether a policy can hold anything: it is not going, and has its permanent id.
pub fn is_in_force(policy: &Policy) -> bool {
    !policy.deleting && !policy.id.is_empty()
}

/// The policy that a template without one goes by.
pub fn best<'a>(
    policies: impl IntoIterator<Item = &'a Policy>,
    template: &Template,
) -> Option<&'a Policy> {
    let matching = policies
        .into_iter()
        .filter(|policy| is_in_force(policy))
        .filter_map(|policy| Some((rank(policy, template)?, policy)));
    let first = matching.min_by(|(a, x), (b, y)| order(*a, x).cmp(&order(*b, y)));
    first.map(|(_, policy)| policy)
}

/// Sorts policies by who comes first.
fn order(rank: Rank, policy: &Policy) -> (bool, Reverse<i32>, Reverse<Rank>, &str) {
    let cluster_wide = policy.name.namespace.is_none();
    let priority = Reverse(policy.spec.priority);
    (cluster_wide, priority, Reverse(rank), &policy.name.name)
}

/// The policy that takes a template from its `holder`; none when none does.
pub fn preemptor<'a>(
    policies: impl IntoIterator<Item = &'a Policy>,
    holder: &Policy,
    template: &Template,
) -> Option<&'a Policy> {
    let stronger = policies.into_iter().filter(|policy| {
        policy.spec.preemption == PreemptionBehavior::Always
            && policy.name != holder.name
            && outranks(policy, holder)
            && rank(policy, template) == Some(Rank::Name)
            && names_wholly(&policy.spec, policy.name.namespace.is_some(), template)
    });
    best(stronger, template)
}

fn outranks(policy: &Policy, holder: &Policy) -> bool {
    match (&policy.name.namespace, &holder.name.namespace) {
        (Some(_), None) => true,
        (None, Some(_)) => false,
        _ => policy.spec.priority > holder.spec.priority,
    }
}

/// Whether a selector names the template by namespace and name; of a policy with a namespace, that is its own.
fn names_wholly(spec: &PropagationSpec, namespaced: bool, template: &Template) -> bool {
    spec.resource_selectors.iter().any(|selector| {
        let whole = namespaced || selector.namespace == template.namespace;
        whole && rank_of(selector, template) == Some(Rank::Name)
    })
}
