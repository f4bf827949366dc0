//! The binding of a template that others refer to: who they are, and where it goes for them.
//!
//! Pure. Who may write a workload decides about its namespace and nothing else: what follows it lies there too, and
//! neither tokens nor namespaces of the system nor what the hub's control plane made follow anything.

use super::sought;
use crate::propagation::{Binding, Dependent, Notice, Template};
use common::api::binding::BindingSnapshot;
use common::api::policy::ConflictResolution;
use common::labels::DEPENDED_BY_PREFIX;
use common::names::dependent_id;
use common::reserved::RESERVED_PREFIXES;
use std::collections::BTreeSet;

/// Most dependents that a binding lists, as its schema has it.
const DEPENDENTS_MAX: usize = 1000;
/// Most clusters and components in them that a binding lists under its dependents, each as often as dependents are there:
/// with the longest names about a megabyte, where etcd takes one and a half.
const MENTIONS_MAX: usize = 10_000;
/// What the names of the hub's own namespaces begin with, beside those that are reserved in members.
const OWN_PREFIX: &str = "karmada-";
/// Types of Secrets that are somebody's identity.
const TOKENS: [&str; 2] = [
    "kubernetes.io/service-account-token",
    "bootstrap.kubernetes.io/token",
];

/// Whether a template may be taken along by bindings of `namespace`.
pub fn may_follow(template: &Template, namespace: &str) -> bool {
    let own = namespace.starts_with(OWN_PREFIX)
        || RESERVED_PREFIXES.iter().any(|it| namespace.starts_with(it));
    let core_secret = template.group().is_empty() && template.kind == "Secret";
    let token = template
        .secret_type
        .as_deref()
        .is_some_and(|it| TOKENS.contains(&it));
    let unmeant = own || core_secret && token || template.is_of_control_plane();
    template.namespace.as_deref() == Some(namespace) && !unmeant
}

/// Of some bindings those that take a template along. Its own is none of them, whatever it refers to.
pub fn those_of<'a>(
    template: &Template,
    bindings: impl IntoIterator<Item = &'a Binding>,
) -> Vec<Dependent> {
    let follow = bindings.into_iter().filter(|binding| {
        let namespace = binding.namespace.as_deref().unwrap_or_default();
        binding.name != template.binding_name()
            && may_follow(template, namespace)
            && sought::refers(binding, template)
    });
    follow.filter_map(Dependent::of).collect()
}

/// The dependents that are somewhere, in the order of their names, each once. Of more than a binding can list,
/// those stay whose clusters no other one has.
pub fn those_placed(dependents: &[Dependent]) -> Vec<Dependent> {
    let placed = dependents.iter().filter(|it| !it.clusters.is_empty());
    let mut placed: Vec<Dependent> = placed.cloned().collect();
    placed.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    placed.dedup_by(|a, b| (&a.namespace, &a.name) == (&b.namespace, &b.name));
    if placed.len() > DEPENDENTS_MAX {
        let mut reached = BTreeSet::new();
        placed.sort_by_cached_key(|it| {
            let mut names = it.clusters.iter().map(|cluster| cluster.name.clone());
            let adds = names.any(|name| !reached.contains(&name));
            reached.extend(it.clusters.iter().map(|cluster| cluster.name.clone()));
            !adds
        });
        placed.truncate(DEPENDENTS_MAX);
        placed.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    }
    placed
}

/// Whether a binding shows that others refer to its template.
pub fn is_attached(binding: &Binding) -> bool {
    !binding.spec.required_by.is_empty() || binding.labels.keys().any(|it| is_ours(it))
}

fn is_ours(label: &str) -> bool {
    label.starts_with(DEPENDED_BY_PREFIX)
}

/// Writes the dependents (see [`those_placed`]) into a binding, in place of those it lists. Where no policy of its
/// own says it, theirs say what happens to objects that are not ours, and whether objects stay.
pub fn set(binding: &mut Binding, dependents: &[Dependent]) {
    binding.labels.retain(|key, _| !is_ours(key));
    for dependent in dependents {
        let id = dependent_id(&dependent.namespace, &dependent.name);
        let key = format!("{DEPENDED_BY_PREFIX}{id}");
        binding.labels.insert(key, dependent.id.clone());
    }
    binding.spec.required_by = snapshots(dependents);
    if binding.spec.placement.is_none() && !dependents.is_empty() {
        binding.spec.conflict_resolution = if dependents.iter().any(overwrites) {
            ConflictResolution::Overwrite
        } else {
            ConflictResolution::Abort
        };
        let preserve = dependents.iter().any(|it| it.preserve);
        binding.spec.preserve_resources_on_deletion = Some(preserve);
    }
}

/// A binding without the dependents that it lists and that no longer take its template along; none where it lists no such
/// ones. Those that it does not list yet do not come to it.
pub fn without_those_gone(binding: &Binding, dependents: &[Dependent]) -> Option<Binding> {
    let name = |it: &Dependent| (Some(it.namespace.clone()), it.name.clone());
    let parents = binding.spec.required_by.iter();
    let listed: BTreeSet<_> = parents
        .map(|it| (it.namespace.clone(), it.name.clone()))
        .collect();
    if listed.is_subset(&dependents.iter().map(name).collect()) {
        return None;
    }
    let stay = dependents.iter().filter(|it| listed.contains(&name(it)));
    let stay: Vec<Dependent> = stay.cloned().collect();
    let mut wanted = binding.clone();
    set(&mut wanted, &those_placed(&stay));
    Some(wanted)
}

/// The dependents as a binding lists them. All that read the list unite its clusters, and of one that is named twice
/// take the first mention: where all mentions would outgrow an object, the others are left out.
fn snapshots(dependents: &[Dependent]) -> Vec<BindingSnapshot> {
    let clusters = dependents.iter().flat_map(|it| &it.clusters);
    let mentions: usize = clusters.map(|it| 1 + it.components.len()).sum();
    let mut named = BTreeSet::new();
    let mut is_listed = |name: &str| mentions <= MENTIONS_MAX || named.insert(name.to_owned());
    let snapshot = |it: &Dependent| BindingSnapshot {
        namespace: Some(it.namespace.clone()),
        name: it.name.clone(),
        clusters: it
            .clusters
            .iter()
            .filter(|cluster| is_listed(&cluster.name))
            .cloned()
            .collect(),
    };
    dependents.iter().map(snapshot).collect()
}

fn overwrites(dependent: &Dependent) -> bool {
    dependent.conflict_resolution == ConflictResolution::Overwrite
}

/// That dependents want different things, to be told on the binding.
pub fn conflict(binding: &Binding, dependents: &[Dependent]) -> Option<Notice> {
    if binding.spec.placement.is_some() {
        return None;
    }
    let mixed =
        |is: &dyn Fn(&Dependent) -> bool| dependents.iter().any(is) && !dependents.iter().all(is);
    let mut parts = Vec::new();
    if mixed(&overwrites) {
        parts.push("ConflictResolution conflicted (Overwrite vs Abort)");
    }
    if mixed(&|it| it.preserve) {
        parts.push("PreserveResourcesOnDeletion conflicted (true vs false)");
    }
    let message = format!("Dependency policy conflict detected: {}.", parts.join("; "));
    (!parts.is_empty()).then(|| Notice::warning("DependencyPolicyConflict", message))
}
