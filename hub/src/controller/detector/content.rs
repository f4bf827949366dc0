//! What a binding says: the policy's part, and that of the bindings whose templates refer to this one.
//!
//! Pure. What others write (`clusters`, eviction tasks, `suspension.scheduling`, foreign labels and finalizers)
//! stays as it is.

use super::claim;
use crate::controller::dependencies::attach;
use crate::propagation::{Binding, Dependent, Policy, Template, Texts};
use common::api::binding::{
    BindingPriority, BindingSuspension, ResourceBindingSpec, WorkloadAffinityGroups,
};
use common::api::policy::{WorkloadAffinity, WorkloadAffinityTerm};
use common::interpreter::replicas::Replicas;
use common::labels::{BINDING_FINALIZER, CLUSTER_BINDING_FINALIZER};
use std::sync::Arc;

/// What a policy's part is made of.
pub(super) struct Held<'a> {
    /// The policy.
    pub(super) policy: &'a Policy,
    /// What the template asks for, when it is a workload.
    pub(super) replicas: Option<&'a Replicas>,
    /// The number of the PriorityClass that the policy names.
    pub(super) priority: Option<i32>,
}

/// The binding of a template as it is to be, from what it is.
pub(super) fn wanted(
    template: &Template,
    seen: Option<&Binding>,
    held: Option<&Held<'_>>,
    dependents: &[Dependent],
    fresh_id: &str,
) -> Binding {
    let mut binding = owned(template, seen, fresh_id);
    let policy = held.map(|held| held.policy);
    claim::set(policy, &mut binding.labels, &mut binding.annotations);
    match held {
        Some(held) => fill(&mut binding.spec, template, held),
        None => binding.spec = ResourceBindingSpec::default(),
    }
    binding.spec.resource = template.reference();
    attach::set(&mut binding, dependents);
    binding
}

/// The same, where the policy's part is to stay as it is.
pub(super) fn attached(
    template: &Template,
    seen: &Binding,
    dependents: &[Dependent],
    fresh_id: &str,
) -> Binding {
    let mut binding = owned(template, Some(seen), fresh_id);
    attach::set(&mut binding, dependents);
    binding
}

/// Identity, owner, finalizer and permanent id.
fn owned(template: &Template, seen: Option<&Binding>, fresh_id: &str) -> Binding {
    let mut binding = seen.cloned().unwrap_or_else(|| Binding {
        namespace: template.namespace.clone(),
        name: template.binding_name(),
        ..Binding::default()
    });
    binding.owner = Some(template.as_owner());
    let finalizer = match template.namespace {
        Some(_) => BINDING_FINALIZER,
        None => CLUSTER_BINDING_FINALIZER,
    };
    if !binding.finalizers.iter().any(|it| it == finalizer) {
        binding.finalizers.push(finalizer.to_owned());
    }
    if binding.id().is_empty() {
        let label = binding.id_label().to_owned();
        binding.labels.insert(label, fresh_id.to_owned());
    }
    binding
}

/// The policy's part.
fn fill(spec: &mut ResourceBindingSpec, template: &Template, held: &Held<'_>) {
    let policy = &held.policy.spec;
    // Bindings of one placement share what is kept of it.
    let same = spec.placement.take().filter(|it| **it == policy.placement);
    spec.placement = Some(same.unwrap_or_else(|| Arc::new(policy.placement.clone())));
    spec.failover.clone_from(&policy.failover);
    spec.conflict_resolution = policy.conflict_resolution;
    spec.preserve_resources_on_deletion = policy.preserve_resources_on_deletion;
    spec.scheduler_name = Some(policy.scheduler_name.clone());
    spec.propagate_deps = policy.propagate_deps.filter(|is_set| *is_set);
    spec.replicas = held
        .replicas
        .map(|it| it.replicas)
        .filter(|replicas| *replicas > 0);
    spec.replica_requirements = held.replicas.and_then(|it| it.requirements.clone());
    let scheduling = spec.suspension.as_ref().and_then(|it| it.scheduling);
    spec.suspension = match &policy.suspension {
        Some(suspension) => Some(BindingSuspension {
            dispatching: suspension.dispatching,
            dispatching_on_clusters: suspension.dispatching_on_clusters.clone(),
            scheduling,
        }),
        None => scheduling.map(|scheduling| BindingSuspension {
            scheduling: Some(scheduling),
            ..BindingSuspension::default()
        }),
    };
    if template.namespace.is_some() {
        let affinity = policy.placement.workload_affinity.as_ref();
        spec.schedule_priority = held.priority.map(|priority| BindingPriority { priority });
        spec.workload_affinity_groups = affinity.and_then(|it| groups(it, &template.labels));
    }
}

/// The groups that a template's labels put it in.
fn groups(affinity: &WorkloadAffinity, labels: &Texts) -> Option<WorkloadAffinityGroups> {
    let group = |term: &Option<WorkloadAffinityTerm>| {
        let key = &term.as_ref()?.group_by_label_key;
        Some(format!("{key}={}", labels.get(key)?))
    };
    let groups = WorkloadAffinityGroups {
        affinity_group: group(&affinity.affinity),
        anti_affinity_group: group(&affinity.anti_affinity),
    };
    (groups != WorkloadAffinityGroups::default()).then_some(groups)
}
