//! How much more fits into a cluster, by what it reported: sums of free resources, and nodes by grade.

use super::cluster::{Amounts, Capacity, Nodes};
use super::demand::{Component, Demand};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Room of a cluster for what takes none.
const ENDLESS: i64 = i32::MAX as i64;
/// Pods that fit on a node of any grade.
const PODS_OF_NODE: i64 = 110;
/// The resource that counts pods.
const PODS: &str = "pods";

/// Says how much more fits; what depends only on the grades of nodes is worked out once for each list of them.
pub(super) struct Estimator<'a> {
    demand: &'a Demand,
    /// What one set of components asks for, and how many pods it is.
    set: Option<(Amounts, i64)>,
    /// By where a list of grades is: how many replicas fit on a node of each.
    by_grades: BTreeMap<usize, Vec<i64>>,
}

impl<'a> Estimator<'a> {
    pub(super) fn new(demand: &'a Demand) -> Self {
        Self {
            demand,
            set: demand.in_sets().then(|| sum(&demand.components)),
            by_grades: BTreeMap::new(),
        }
    }

    /// How many more replicas fit, or sets of components.
    pub(super) fn room(&mut self, capacity: &Capacity) -> i64 {
        if self.set.is_none() && self.demand.replicas == 0 {
            return ENDLESS;
        }
        let Some(free) = &capacity.free else {
            return 0;
        };
        let pods = free.get(PODS).copied().unwrap_or(0);
        if pods <= 0 {
            return 0;
        }
        let room = match (&self.set, &self.demand.request, &capacity.nodes) {
            (Some((request, pods_of_set)), ..) => {
                let by_sums = fits(free, request).min(pods / pods_of_set);
                let nodes = capacity.nodes.as_ref();
                by_sums.min(nodes.map_or(ENDLESS, |nodes| sets(nodes, &self.demand.components)))
            }
            (None, None, _) => pods,
            (None, Some(request), None) => pods.min(fits(free, request)),
            (None, Some(request), Some(nodes)) => {
                let known = self.by_grades.entry(Arc::as_ptr(&nodes.grades).addr());
                let of_node = known.or_insert_with(|| {
                    let grades = nodes.grades.iter();
                    grades
                        .map(|least| fits(least, request).min(PODS_OF_NODE))
                        .collect()
                });
                let counted = nodes.counts.iter().zip(of_node.iter());
                let in_nodes = counted.fold(0_i64, |sum, (count, of_node)| {
                    sum.saturating_add(count.saturating_mul(*of_node))
                });
                pods.min(in_nodes)
            }
        };
        room.clamp(0, ENDLESS)
    }
}

/// How often a request fits into amounts; a resource that is not there fits never.
fn fits(free: &Amounts, request: &Amounts) -> i64 {
    let wanted = request.iter().filter(|(_, wanted)| **wanted > 0);
    let each = wanted.map(|(name, wanted)| free.get(name).copied().unwrap_or(0).max(0) / wanted);
    each.min().unwrap_or(ENDLESS)
}

fn sum(components: &[Component]) -> (Amounts, i64) {
    let mut request = Amounts::new();
    let mut pods: i64 = 0;
    for component in components {
        pods = pods.saturating_add(component.replicas);
        for (name, amount) in &component.request {
            let sum = request.entry(name.clone()).or_insert(0_i64);
            *sum = sum.saturating_add(amount.saturating_mul(component.replicas));
        }
    }
    (request, pods.max(1))
}

/// Nodes that are alike: what each has left, for how many pods, and how many they are.
#[derive(Clone)]
struct Alike {
    left: Amounts,
    pods: i64,
    nodes: i64,
}

/// How many sets of components fit onto nodes: 0 when not even one does, replica by replica onto the first
/// node with room, lowest grade first; else what the nodes would take of each component alone.
fn sets(nodes: &Nodes, components: &[Component]) -> i64 {
    let counted = nodes.grades.iter().zip(&nodes.counts);
    let counted = counted.filter(|(_, count)| **count > 0);
    let fresh: Vec<Alike> = counted
        .map(|(least, count)| Alike {
            left: least.clone(),
            pods: PODS_OF_NODE,
            nodes: *count,
        })
        .collect();
    let mut state = fresh.clone();
    let mut alone = ENDLESS;
    for component in components.iter().filter(|one| one.replicas > 0) {
        let total = fresh.iter().fold(0_i64, |sum, alike| {
            sum.saturating_add(alike.nodes.saturating_mul(on_one(alike, component)))
        });
        alone = alone.min(total / component.replicas);
        let Some(after) = put(state, component) else {
            return 0;
        };
        state = after;
    }
    alone
}

fn on_one(alike: &Alike, component: &Component) -> i64 {
    fits(&alike.left, &component.request).min(alike.pods)
}

/// Puts the replicas of a component onto nodes; none when they do not fit.
fn put(state: Vec<Alike>, component: &Component) -> Option<Vec<Alike>> {
    let mut open = component.replicas;
    let mut after = Vec::with_capacity(state.len() + 2);
    for alike in state {
        let each = on_one(&alike, component);
        if each == 0 || open == 0 {
            after.push(alike);
            continue;
        }
        let filled = alike.nodes.min(open / each);
        let begun = i64::from(filled < alike.nodes && open % each > 0);
        let rest = if begun == 1 { open % each } else { 0 };
        for (nodes, replicas) in [(filled, each), (begun, rest)] {
            if nodes > 0 {
                after.push(less(&alike, component, replicas, nodes));
            }
        }
        let untouched = alike.nodes - filled - begun;
        if untouched > 0 {
            after.push(Alike {
                nodes: untouched,
                ..alike
            });
        }
        open -= filled * each + rest;
    }
    (open == 0).then_some(after)
}

fn less(alike: &Alike, component: &Component, replicas: i64, nodes: i64) -> Alike {
    let mut left = alike.left.clone();
    for (name, amount) in &component.request {
        if let Some(left) = left.get_mut(name) {
            *left = left.saturating_sub(amount.saturating_mul(replicas));
        }
    }
    Alike {
        left,
        pods: alike.pods - replicas,
        nodes,
    }
}
