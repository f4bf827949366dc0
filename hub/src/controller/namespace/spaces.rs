//! Which members have something of a namespace, or are to have.

use super::decide;
use crate::controller::detector::skip::Skips;
use crate::world::{self, Index, Object, ObjectName, TemplateName, World};
use common::gvk::Gvk;
use common::names::{EXECUTION_PREFIX, work_name};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Which namespaces members get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum NamespaceSync {
    /// Those that something is propagated into.
    #[default]
    Needed,
    /// All that are not reserved, as Karmada does it.
    All,
}

/// What all agree on who bring members a namespace, or take it away. Clones are the same.
#[derive(Clone)]
pub struct Spaces {
    world: World,
    skips: Skips,
    mode: NamespaceSync,
    /// Bindings by their namespace.
    placed: Index<Arc<str>>,
    /// The same by their namespace and each member where they are.
    wanted: Index<(Arc<str>, Arc<str>)>,
    /// Works that follow from bindings, by member and by the namespace that they are about.
    content: Index<(Arc<str>, Arc<str>)>,
}

impl Spaces {
    /// As the world tells it.
    pub fn watching(skips: Skips, mode: NamespaceSync, world: &World) -> Self {
        let bindings = &world.propagation.bindings;
        Self {
            world: world.clone(),
            skips,
            mode,
            placed: bindings.index(|name, _| vec![Arc::clone(&name.namespace)]),
            wanted: bindings.index(|name, held| {
                let members = places(Some(held)).into_iter();
                let under = |member: String| (Arc::clone(&name.namespace), member.into());
                members.map(under).collect()
            }),
            content: world.works.index(|name, work| {
                let of = work.binding.as_ref().map(|it| Arc::clone(&it.namespace));
                let of = of.filter(|it| !it.is_empty());
                of.into_iter()
                    .map(|of| (Arc::clone(&name.namespace), of))
                    .collect()
            }),
        }
    }

    /// Whether every member gets every namespace.
    pub(super) fn are_all(&self) -> bool {
        self.mode == NamespaceSync::All
    }

    /// Whether a namespace is brought to nobody.
    pub(super) fn are_not(&self, namespace: &str) -> bool {
        decide::is_reserved(namespace) || self.skips.namespace(namespace)
    }

    /// How many bindings of a namespace are placed in a member.
    pub(super) fn count(&self, namespace: &Arc<str>, member: &str) -> usize {
        self.wanted.count(&(Arc::clone(namespace), member.into()))
    }

    /// Whether a member, by its execution namespace, has Works about what is in a namespace.
    pub(super) fn is_held(&self, space: &Arc<str>, namespace: &Arc<str>) -> bool {
        let under = (Arc::clone(space), Arc::clone(namespace));
        self.content.count(&under) > 0
    }

    /// Members that are to have a namespace.
    pub(super) fn wanted(&self, namespace: &Arc<str>) -> BTreeSet<String> {
        if self.are_all() {
            return self.all();
        }
        let mut clusters = BTreeSet::new();
        for name in self.placed.names(namespace) {
            if let Some(held) = self.world.propagation.binding(&name) {
                clusters.extend(places(Some(&held)));
            }
        }
        clusters
    }

    /// Members that nobody deletes.
    pub(super) fn living(&self) -> BTreeSet<String> {
        let mut clusters = BTreeSet::new();
        self.world.clusters.for_each(|name, held| {
            if lives(held) {
                clusters.insert(name.name.to_string());
            }
        });
        clusters
    }

    /// All members. One that is being deleted still has what it had: its objects may be meant to stay there.
    fn all(&self) -> BTreeSet<String> {
        let mut clusters = BTreeSet::new();
        self.world.clusters.for_each_name(|name| {
            clusters.insert(name.name.to_string());
        });
        clusters
    }

    /// Whether the Work that a binding lets go of brings a namespace in which its member has, or is to have, something:
    /// it is this controller's from then on.
    pub fn keep(&self, name: &ObjectName, work: &world::Work) -> bool {
        let of_cluster = work
            .binding
            .as_ref()
            .is_some_and(|of| of.namespace.is_empty());
        let namespace = namespace_of(&name.name).filter(|of| of_cluster && !self.are_not(of));
        let (Some(of), Some(member)) = (namespace, name.namespace.strip_prefix(EXECUTION_PREFIX))
        else {
            return false;
        };
        let is_needed = self.count(&of, member) > 0
            || self.is_held(&name.namespace, &of)
            || self.are_all() && self.all().contains(member);
        is_needed && self.stays(&of)
    }

    /// Whether the hub has a namespace, and nobody deletes it. As long as namespaces are not listed, or one cannot be
    /// read, nothing says that it goes.
    fn stays(&self, namespace: &Arc<str>) -> bool {
        let Some(kind) = kind().map(|kind| kind.group_kind()) else {
            return true;
        };
        let templates = &self.world.propagation.templates;
        if !templates.is_synced(&kind) {
            return true;
        }
        let name = ObjectName::new(None, namespace);
        let held = templates.get(&TemplateName { kind, name });
        held.is_some_and(|held| held.record.is_none_or(|it| !decide::is_going(&it.object())))
    }
}

/// The kind of namespaces.
pub(super) fn kind() -> Option<Gvk> {
    Gvk::new("v1", "Namespace")
}

/// Whether nobody deletes a member.
pub(super) fn lives(held: &Object<world::Cluster>) -> bool {
    let known = held.record.as_ref();
    known.is_none_or(|it| it.lifecycle.deleted.is_none())
}

/// Where a binding places something.
pub(super) fn places(held: Option<&world::Binding>) -> BTreeSet<String> {
    let spec = held
        .filter(|it| !it.binding.deleting)
        .map(|it| &it.binding.spec);
    let clusters = spec.into_iter().flat_map(|spec| {
        let required = spec.required_by.iter().flat_map(|it| &it.clusters);
        spec.clusters
            .iter()
            .chain(required)
            .map(|it| it.name.clone())
    });
    clusters.collect()
}

/// The namespace that a Work of this name would bring.
pub(super) fn namespace_of(work: &str) -> Option<Arc<str>> {
    let (namespace, _) = work.rsplit_once('-')?;
    (work_name("Namespace", None, namespace) == work).then(|| namespace.into())
}
