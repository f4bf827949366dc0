//! A hub at one moment, for whoever explains or foretells what it does: read once through a client, and kept as the
//! records that its controllers decide on.
//!
//! Reading is all that is done here; nothing is watched, and nothing is written. [`Reader::read`] begins with what says
//! where templates go, and reads templates of the kinds that follow from it, as the hub watches them.

mod read;
pub mod trial;

pub use read::{Error, Reader};

use crate::controller::dependencies::sought;
use crate::controller::detector::skip::Skips;
use crate::propagation::{Policy, PolicyName};
use crate::world::{self, ObjectName, TemplateName};
use common::gvk::{GroupKind, Gvk};
use common::interpreter::custom::Customizations;
use common::interpreter::layers::Interpreter;
use common::mapper::Resource;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Which Works are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Works {
    /// None.
    #[default]
    None,
    /// Whose they are, without what they bring.
    Names,
    /// All of each, with what their agents say.
    Whole,
}

/// What is read.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// Which Works.
    pub works: Works,
    /// Kinds of templates beside those that policies select and bindings refer to.
    pub kinds: BTreeSet<Gvk>,
}

/// A Cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// The object, without managedFields.
    pub object: Value,
    /// What decisions look at.
    pub record: Arc<world::Cluster>,
}

/// An object that is there and cannot be read: what it decides stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unreadable {
    /// Its kind.
    pub kind: String,
    /// Its namespace and name.
    pub name: ObjectName,
    /// Why.
    pub why: String,
}

/// A hub at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// PropagationPolicies and ClusterPropagationPolicies.
    pub policies: BTreeMap<PolicyName, Arc<Policy>>,
    /// OverridePolicies and ClusterOverridePolicies.
    pub overrides: BTreeMap<PolicyName, Arc<world::Override>>,
    /// ResourceBindings and ClusterResourceBindings.
    pub bindings: BTreeMap<ObjectName, Arc<world::Binding>>,
    /// Clusters, by name.
    pub clusters: BTreeMap<String, Cluster>,
    /// Templates, of the kinds in `kinds`.
    pub templates: BTreeMap<TemplateName, Arc<world::Template>>,
    /// Works.
    pub works: BTreeMap<ObjectName, Arc<world::Work>>,
    /// Namespaces, without managedFields.
    pub namespaces: BTreeMap<String, Value>,
    /// Numbers of PriorityClasses.
    pub priority_classes: BTreeMap<String, i32>,
    /// Kinds that were looked for, and how each is served; none where it is not.
    pub kinds: BTreeMap<GroupKind, Option<Arc<Resource>>>,
    /// ResourceInterpreterCustomizations, by name.
    pub customizations: BTreeMap<String, Arc<world::Customization>>,
    /// What is known of kinds where none of them says it.
    pub shipped: Arc<Customizations>,
    /// What could not be read.
    pub unreadable: Vec<Unreadable>,
}

impl Snapshot {
    /// The kinds of templates that a hub with these policies and bindings watches.
    pub fn wanted(&self, skips: &Skips) -> BTreeSet<Gvk> {
        let selectors = self
            .policies
            .values()
            .flat_map(|policy| &policy.spec.resource_selectors);
        let selected = selectors.filter_map(|it| Gvk::new(&it.api_version, &it.kind));
        let bound = self.bindings.values().flat_map(|held| {
            let own = &held.binding.spec.resource;
            let own = Gvk::new(&own.api_version, &own.kind);
            let sought = sought::recorded(&held.binding).into_iter();
            let sought = sought.filter_map(|it| Gvk::new(&it.api_version, &it.kind));
            own.into_iter().chain(sought)
        });
        selected
            .chain(bound)
            .filter(|it| !skips.kind(&it.api_version(), &it.kind))
            .collect()
    }

    /// What is known of kinds.
    pub fn interpreter(&self) -> Interpreter {
        world::interpreter_of(&self.customizations, &self.shipped)
    }

    /// Whether an object of this kind and name is there and cannot be read.
    pub fn is_unreadable(&self, kind: &str, name: &ObjectName) -> bool {
        let mut all = self.unreadable.iter();
        all.any(|it| it.kind == kind && it.name == *name)
    }
}
