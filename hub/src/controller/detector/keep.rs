//! That objects stay in the members: said to a binding before it goes, also where nothing else could be carried out of
//! what its policy says.
//!
//! An agent goes by what a Work says when that is deleted, and the Work by its binding. A policy says it last just
//! before it is deleted itself: its templates are then released without having been looked at in between.

use super::claim;
use crate::propagation::{Binding, Policy, PolicyName};
use crate::world::{ObjectName, World};

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
    if binding.spec.preserve_resources_on_deletion == Some(true) {
        return None;
    }
    let holder = holder(binding)?;
    let mut policies = policies.into_iter();
    let policy = policies.find(|policy| policy.name == holder)?;
    if policy.spec.preserve_resources_on_deletion != Some(true) {
        return None;
    }
    let mut wanted = binding.clone();
    wanted.spec.preserve_resources_on_deletion = Some(true);
    Some(wanted)
}

/// The same, of the policies that the world has.
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
