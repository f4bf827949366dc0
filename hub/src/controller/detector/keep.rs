//! That objects stay in the members: said to a binding before it goes, also where nothing else could be carried out of
//! what its policy says.
//!
//! An agent goes by what a Work says when that is deleted, and the Work by its binding. A policy says it last just
//! before it is deleted itself: its templates are then released without having been looked at in between.

use super::claim;
use crate::controller::binding::targets::targets;
use crate::propagation::{Binding, Policy, PolicyName};
use crate::world::{ObjectName, World};
use std::collections::BTreeSet;

/// The policy that a binding shows: of the hub, or of the binding's own namespace.
fn holder(binding: &Binding) -> Option<PolicyName> {
    let holder = claim::holder(&binding.labels, &binding.annotations)?;
    let here = holder.namespace.is_none() || holder.namespace == binding.namespace;
    here.then_some(holder)
}

/// A binding as it has to be before it goes; none where it may go as it is. The policy that it shows, if it is among
/// these, says that objects stay, and the binding does not yet. What a Lazy policy says of that counts too: it comes to
/// no edit any more.
pub fn first<'p>(
    binding: &Binding,
    policies: impl IntoIterator<Item = &'p Policy>,
) -> Option<Binding> {
    if says_so(binding) {
        return None;
    }
    let holder = holder(binding)?;
    let mut policies = policies.into_iter();
    let policy = policies.find(|policy| policy.name == holder)?;
    if policy.spec.preserve_resources_on_deletion != Some(true) {
        return None;
    }
    Some(saying_so(binding))
}

/// The same of one whose policy lets it go while others still take its template along: as it is `wanted` then, but for
/// what these say of objects. By that go the Works of the members that it leaves; until they have, it says so (see
/// [`takes_back`]).
pub fn first_released<'p>(
    binding: &Binding,
    wanted: &Binding,
    policies: impl IntoIterator<Item = &'p Policy>,
) -> Option<Binding> {
    let is_released = shows_policy(binding) && !shows_policy(wanted);
    if !is_released || says_so(wanted) {
        return None;
    }
    let stay = says_so(binding) || first(binding, policies).is_some();
    stay.then(|| saying_so(wanted))
}

/// Whether a binding that shows no policy is to say no longer that objects stay.
pub fn takes_back(binding: &Binding, wanted: &Binding) -> bool {
    says_so(binding) && !says_so(wanted) && !shows_policy(binding)
}

/// Whether a Work that a binding leaves does not say yet that its objects stay. Of each there is its member, and whether
/// it says so or is going.
pub fn is_untold<'w>(wanted: &Binding, works: impl IntoIterator<Item = (&'w str, bool)>) -> bool {
    let targets = targets(&wanted.spec).into_iter();
    let stays: BTreeSet<&str> = targets.map(|it| it.name.as_str()).collect();
    let mut works = works.into_iter();
    works.any(|(member, is_told)| !is_told && !stays.contains(member))
}

fn says_so(binding: &Binding) -> bool {
    binding.spec.preserve_resources_on_deletion == Some(true)
}

/// The same binding, saying so.
pub fn saying_so(binding: &Binding) -> Binding {
    let mut wanted = binding.clone();
    wanted.spec.preserve_resources_on_deletion = Some(true);
    wanted
}

fn shows_policy(binding: &Binding) -> bool {
    claim::has_any(&binding.labels, &binding.annotations)
}

/// The same as [`first`], of the policies that the world has.
pub fn first_in(binding: &Binding, world: &World) -> Option<Binding> {
    let holder = holder(binding)?;
    let views = &world.propagation;
    let view = match holder.namespace {
        Some(_) => &views.policies,
        None => &views.cluster_policies,
    };
    let name = ObjectName::new(holder.namespace.as_deref(), &holder.name);
    let held = view.get(&name)?.record?;
    first(binding, [&*held.policy])
}
