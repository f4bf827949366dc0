//! What placement looks at of a cluster, and all clusters at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Amounts by resource: `cpu` in thousandths, everything else in whole units.
pub type Amounts = BTreeMap<Arc<str>, i64>;

/// One cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Its name.
    pub name: Arc<str>,
    /// What filters look at, shared by all clusters that look the same.
    pub shape: Arc<Shape>,
    /// Whether it is being deleted.
    pub leaving: bool,
    /// What it has room for.
    pub capacity: Capacity,
}

impl Cluster {
    /// Whether it may take what it did not take before: not while it goes, nor when it only has more taints.
    pub fn may_gain_over(&self, before: Option<&Self>) -> bool {
        let Some(before) = before.filter(|it| !it.leaving) else {
            return !self.leaving;
        };
        let untainted = |cluster: &Self| Shape {
            taints: Vec::new(),
            ..(*cluster.shape).clone()
        };
        let lost = |taint: &Taint| !self.shape.taints.contains(taint);
        !self.leaving
            && (untainted(self) != untainted(before) || before.shape.taints.iter().any(lost))
    }
}

/// What filters look at of a cluster, except its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Labels.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Provider; never empty.
    pub provider: Option<Arc<str>>,
    /// Region; never empty.
    pub region: Option<Arc<str>>,
    /// Zones.
    pub zones: BTreeSet<Arc<str>>,
    /// Taints, in the order of the Cluster.
    pub taints: Vec<Taint>,
    /// Kinds that it serves.
    pub apis: Arc<Apis>,
}

/// Kinds by group and version, as in apiVersion.
pub type Apis = BTreeMap<Arc<str>, BTreeSet<Arc<str>>>;

/// A taint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// Key.
    pub key: Arc<str>,
    /// Value; often empty.
    pub value: Arc<str>,
    /// Effect.
    pub effect: Effect,
}

/// What a taint does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Nothing new comes.
    NoSchedule,
    /// Keeps nobody away.
    PreferNoSchedule,
    /// Nothing new comes, and what is there leaves.
    NoExecute,
}

impl Effect {
    /// As the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

/// What a cluster has room for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Capacity {
    /// What is free of each resource that its nodes offer; none before it reported.
    pub free: Option<Amounts>,
    /// Its nodes by grade; none where they are not counted.
    pub nodes: Option<Nodes>,
}

impl Capacity {
    /// Whether more of anything may fit than fitted `before`.
    pub fn may_fit_more_than(&self, before: &Self) -> bool {
        let Some(free) = &self.free else {
            return false;
        };
        let Some(was) = &before.free else {
            return true;
        };
        // What is taken more than once is as full as what is taken.
        let of = |name: &Arc<str>| was.get(name).copied().unwrap_or(0).max(0);
        if free.iter().any(|(name, amount)| *amount > of(name)) {
            return true;
        }
        match (&self.nodes, &before.nodes) {
            (None, None) => false,
            (Some(nodes), Some(were)) if nodes.grades == were.grades => {
                let mut counts = nodes.counts.iter().zip(&were.counts);
                counts.any(|(count, was)| count > was)
            }
            // They are counted in another way.
            _ => true,
        }
    }
}

/// Nodes by grade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    /// What a node of each grade has at least, lowest grade first; shared by clusters with the same grades.
    pub grades: Arc<Vec<Amounts>>,
    /// How many nodes are of each grade, parallel to `grades`.
    pub counts: Vec<i64>,
}

/// Makes equal shapes, sets of kinds and grades one.
#[derive(Debug, Default)]
pub struct Interner {
    shapes: Pool<Shape>,
    apis: Pool<Apis>,
    grades: Pool<Vec<Amounts>>,
}

impl Interner {
    /// The one shape that equals this; its set of kinds should be interned before.
    pub fn shape(&mut self, shape: Shape) -> Arc<Shape> {
        self.shapes.one(shape)
    }

    /// The one set of kinds that equals this.
    pub fn apis(&mut self, apis: Apis) -> Arc<Apis> {
        self.apis.one(apis)
    }

    /// The one list of grades that equals this.
    pub fn grades(&mut self, grades: Vec<Amounts>) -> Arc<Vec<Amounts>> {
        self.grades.one(grades)
    }
}

#[derive(Debug)]
struct Pool<T> {
    held: BTreeSet<Arc<T>>,
    /// When to let go of what nobody else holds.
    sweep_at: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self {
            held: BTreeSet::new(),
            sweep_at: 64,
        }
    }
}

impl<T: Ord> Pool<T> {
    fn one(&mut self, value: T) -> Arc<T> {
        if let Some(known) = self.held.get(&value) {
            return known.clone();
        }
        if self.held.len() >= self.sweep_at {
            self.held.retain(|held| Arc::strong_count(held) > 1);
            self.sweep_at = (2 * self.held.len()).max(64);
        }
        let value = Arc::new(value);
        self.held.insert(value.clone());
        value
    }
}

/// All clusters at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// By name; a cluster's place here is its rank.
    clusters: Vec<Arc<Cluster>>,
    shapes: Vec<Arc<Shape>>,
    /// Of each cluster, the place of its shape.
    shape_of: Vec<usize>,
    regions: Vec<Arc<str>>,
    /// Of each shape, the place of its region.
    region_of: Vec<Option<usize>>,
}

impl Snapshot {
    /// From clusters in any order; of two with one name, the later counts.
    pub fn new(clusters: impl IntoIterator<Item = Arc<Cluster>>) -> Self {
        let by_name: BTreeMap<Arc<str>, Arc<Cluster>> = clusters
            .into_iter()
            .map(|cluster| (cluster.name.clone(), cluster))
            .collect();
        let clusters: Vec<Arc<Cluster>> = by_name.into_values().collect();
        let mut places: BTreeMap<usize, usize> = BTreeMap::new();
        let mut shapes: Vec<Arc<Shape>> = Vec::new();
        let shape_of = clusters.iter().map(|cluster| {
            // Interned ones are told apart by where they are; others are only looked at more often.
            let address = Arc::as_ptr(&cluster.shape).addr();
            *places.entry(address).or_insert_with(|| {
                shapes.push(cluster.shape.clone());
                shapes.len() - 1
            })
        });
        let shape_of = shape_of.collect();
        let regions: BTreeSet<Arc<str>> = shapes.iter().filter_map(|s| s.region.clone()).collect();
        let regions: Vec<Arc<str>> = regions.into_iter().collect();
        let region_of = shapes.iter().map(|shape| {
            let region = shape.region.as_ref()?;
            regions.binary_search(region).ok()
        });
        let region_of = region_of.collect();
        Self {
            clusters,
            shapes,
            shape_of,
            regions,
            region_of,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.clusters.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.clusters.is_empty()
    }

    /// All of them, by name.
    pub fn clusters(&self) -> &[Arc<Cluster>] {
        &self.clusters
    }

    /// The cluster of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<Cluster>> {
        self.clusters.get(self.rank(name)?)
    }

    /// The place of a name.
    pub(super) fn rank(&self, name: &str) -> Option<usize> {
        let found = self.clusters.binary_search_by(|c| (*c.name).cmp(name));
        found.ok()
    }

    /// Each cluster with its rank and the place of its shape.
    pub(super) fn ranked(&self) -> impl Iterator<Item = (usize, &Cluster, usize)> {
        let shapes = self.shape_of.iter();
        let clusters = self.clusters.iter().zip(shapes).enumerate();
        clusters.map(|(rank, (cluster, shape))| (rank, &**cluster, *shape))
    }

    /// The name of the cluster at a rank.
    pub(super) fn name(&self, rank: usize) -> Arc<str> {
        let cluster = self.clusters.get(rank);
        cluster.map_or_else(|| "".into(), |cluster| cluster.name.clone())
    }

    /// How many shapes there are.
    pub(super) fn shapes(&self) -> usize {
        self.shapes.len()
    }

    /// The place of the region of a shape; places are in the order of names.
    pub(super) fn region(&self, shape: usize) -> Option<usize> {
        self.region_of.get(shape).copied().flatten()
    }

    /// How many regions there are.
    pub(super) fn regions(&self) -> usize {
        self.regions.len()
    }
}
