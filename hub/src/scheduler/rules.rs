//! A placement as the scheduler reads it: which clusters, how many of them, and how replicas are given out.

use super::cluster::{Cluster, Effect, Shape, Taint};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A placement, made ready for many decisions; bindings of one policy share it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// The clusters that may be chosen, where there are no groups.
    pub affinity: Affinity,
    /// Groups of clusters, tried in order.
    pub groups: Vec<Group>,
    /// Taints that keep nobody away.
    pub tolerations: Vec<Toleration>,
    /// What every cluster must have.
    pub required: Required,
    /// How many clusters are chosen.
    pub spread: Spread,
    /// Whether exactly one cluster is wanted.
    pub one_cluster: bool,
    /// How replicas are given out.
    pub strategy: Strategy,
}

impl Rules {
    /// Whether a binding with these rules would go to a cluster if it could, so that a change of the
    /// cluster is to wake it. `observed` is the group that it was placed by.
    pub fn concern(&self, cluster: &Cluster, observed: Option<&str>) -> bool {
        if self.groups.is_empty() {
            return self.affinity.matches(cluster);
        }
        let from = self.groups.iter().skip(self.start(observed));
        from.flat_map(Group::affinities)
            .any(|affinity| affinity.matches(cluster))
    }

    /// Whether what could not be placed may fit when a cluster has less room. Regions are chosen by what they have
    /// room for, and those that are chosen then may take it; and nodes are filled with sets of so many `components` from
    /// the first on, so that one that is not there any more may leave the others better filled.
    pub fn may_fit_into_less(&self, components: usize) -> bool {
        matches!(self.spread, Spread::Regions { .. }) || (self.one_cluster && components > 1)
    }

    /// The group that is tried first.
    pub fn start(&self, observed: Option<&str>) -> usize {
        let known = |name: &str| self.groups.iter().position(|group| *group.name == *name);
        observed.and_then(known).unwrap_or(0)
    }
}

/// A named set of clusters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: Arc<str>,
    /// Its clusters.
    pub affinity: Affinity,
    /// Sets that take what does not fit, in order.
    pub overflow: Vec<Affinity>,
}

impl Group {
    /// Its own set and those that it overflows into, in order.
    pub fn affinities(&self) -> impl Iterator<Item = &Affinity> {
        std::iter::once(&self.affinity).chain(&self.overflow)
    }
}

/// A set of clusters: those that meet every part. Empty, it is all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Affinity {
    /// Names; empty means any.
    pub names: BTreeSet<Arc<str>>,
    /// Names left out.
    pub exclude: BTreeSet<Arc<str>>,
    /// What labels must be.
    pub labels: Vec<LabelTest>,
    /// What provider, region and zones must be.
    pub fields: Vec<FieldTest>,
}

impl Affinity {
    /// Whether a cluster belongs to it.
    pub fn matches(&self, cluster: &Cluster) -> bool {
        self.matches_name(&cluster.name) && self.matches_shape(&cluster.shape)
    }

    /// The part that looks at the name.
    pub fn matches_name(&self, name: &str) -> bool {
        !self.exclude.contains(name) && (self.names.is_empty() || self.names.contains(name))
    }

    /// The part that looks at everything else.
    pub fn matches_shape(&self, shape: &Shape) -> bool {
        self.labels.iter().all(|test| test.holds(shape))
            && self.fields.iter().all(|test| test.holds(shape))
    }

    /// Whether only the name is looked at, and only for being listed.
    pub fn is_list_of_names(&self) -> bool {
        let others = self.labels.is_empty() && self.fields.is_empty() && self.exclude.is_empty();
        others && !self.names.is_empty()
    }
}

/// What a label must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabelTest {
    /// One of these.
    In(Arc<str>, BTreeSet<Arc<str>>),
    /// None of these, or absent.
    NotIn(Arc<str>, BTreeSet<Arc<str>>),
    /// Present.
    Exists(Arc<str>),
    /// Absent.
    Absent(Arc<str>),
    /// The selector is not valid: nothing matches.
    Never,
}

impl LabelTest {
    fn holds(&self, shape: &Shape) -> bool {
        let labels = &shape.labels;
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists(key) => labels.contains_key(key),
            Self::Absent(key) => !labels.contains_key(key),
            Self::Never => false,
        }
    }
}

/// What a field must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTest {
    /// The field.
    pub field: Field,
    /// Whether it must be one of the values, or none of them.
    pub within: bool,
    /// The values.
    pub values: BTreeSet<Arc<str>>,
}

impl FieldTest {
    fn holds(&self, shape: &Shape) -> bool {
        let listed = |value: &Arc<str>| self.values.contains(value);
        let hit = match self.field {
            Field::Provider => shape.provider.as_ref().is_some_and(listed),
            Field::Region => shape.region.as_ref().is_some_and(listed),
            Field::Zone => shape.zones.iter().any(listed),
        };
        hit == self.within
    }
}

/// A field of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// Its provider.
    Provider,
    /// Its region.
    Region,
    /// Its zones.
    Zone,
}

/// A taint that keeps nobody away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toleration {
    /// Its key; any when absent.
    pub key: Option<Arc<str>>,
    /// Its value; any when absent.
    pub value: Option<Arc<str>>,
    /// Its effect; any when absent.
    pub effect: Option<Effect>,
}

impl Toleration {
    /// Whether it is about a taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self
                .value
                .as_ref()
                .is_none_or(|value| *value == taint.value)
    }
}

/// What every cluster must have, because it is spread by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Required {
    /// A provider.
    pub provider: bool,
    /// A region.
    pub region: bool,
    /// A zone.
    pub zone: bool,
}

/// How many clusters are chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Spread {
    /// All that may be.
    #[default]
    All,
    /// So many.
    Clusters(Bounds),
    /// So many, of so many regions.
    Regions {
        /// Regions.
        regions: Bounds,
        /// Clusters in all of them.
        clusters: Bounds,
    },
    /// By something that cannot be spread by.
    Unsupported,
}

/// How many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// At least.
    pub least: usize,
    /// At most; 0 allows none, as in the reference.
    pub most: usize,
}

/// How replicas are given out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Every cluster gets all of them.
    #[default]
    Duplicated,
    /// Divided by fixed weights.
    Static(Weights),
    /// Divided by how many more would fit.
    Dynamic,
    /// Divided onto few clusters.
    Aggregated,
    /// Divided in a way that nobody said.
    Unsupported,
}

/// Fixed weights: of those that match a cluster, the largest counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Weights {
    /// Of entries that only list names.
    pub by_name: BTreeMap<Arc<str>, i64>,
    /// Of all others.
    pub others: Vec<(Affinity, i64)>,
}
