//! Which clusters may be chosen, and what refused the others.
//!
//! What looks at a cluster's shape is asked once for each shape; only names are looked at cluster by cluster.

use super::cluster::{Cluster, Effect, Shape, Snapshot};
use super::demand::{Demand, Previous};
use super::explain::{Reason, Tally};
use super::rules::{Affinity, Group};
use std::collections::BTreeSet;

/// Score of a cluster where it already is.
const HERE: i64 = 100;

/// A cluster that may be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Its place among all clusters, which is the order of names.
    pub rank: usize,
    /// The place of its region, if it has one.
    pub region: Option<usize>,
    /// 0 in the chosen group, or the set it overflows into, from 1.
    pub tier: usize,
    /// Higher is better.
    pub score: i64,
    /// How many more replicas, or sets of components, would fit.
    pub room: i64,
    /// How many are there already.
    pub placed: i64,
    /// The place that it has among the clusters where it is.
    pub place: usize,
}

impl Candidate {
    /// How many it could have in all.
    pub(super) fn avail(&self) -> i64 {
        self.room.saturating_add(self.placed)
    }
}

/// What filters left.
pub(super) struct Passed {
    /// By name; room is not known yet.
    pub candidates: Vec<Candidate>,
    pub refused: Tally,
}

/// Remembers for each shape whether an affinity matches it.
pub(super) struct Matcher<'a> {
    affinity: &'a Affinity,
    known: Vec<Option<bool>>,
}

impl<'a> Matcher<'a> {
    pub(super) fn new(affinity: &'a Affinity, snapshot: &Snapshot) -> Self {
        Self {
            affinity,
            known: vec![None; snapshot.shapes()],
        }
    }

    pub(super) fn matches(&mut self, cluster: &Cluster, shape: usize) -> bool {
        if !self.affinity.matches_name(&cluster.name) {
            return false;
        }
        let by_shape = || self.affinity.matches_shape(&cluster.shape);
        match self.known.get_mut(shape) {
            Some(known) => *known.get_or_insert_with(by_shape),
            None => by_shape(),
        }
    }
}

/// What the filters say of a shape.
struct Verdict {
    /// Of clusters where it is not yet.
    newcomer: Option<Reason>,
    /// Of every cluster.
    property: Option<Reason>,
}

fn verdict(demand: &Demand, shape: &Shape) -> Verdict {
    let served = shape.apis.get(&demand.api_version);
    let newcomer = if served.is_none_or(|kinds| !kinds.contains(&demand.kind)) {
        Some(Reason::Api)
    } else {
        untolerated(demand, shape)
    };
    let required = demand.rules.required;
    let property = if required.provider && shape.provider.is_none() {
        Some(Reason::NoProvider)
    } else if required.region && shape.region.is_none() {
        Some(Reason::NoRegion)
    } else if required.zone && shape.zones.is_empty() {
        Some(Reason::NoZone)
    } else {
        None
    };
    Verdict { newcomer, property }
}

fn untolerated(demand: &Demand, shape: &Shape) -> Option<Reason> {
    let tolerations = &demand.rules.tolerations;
    let refusing = shape.taints.iter().find(|taint| {
        taint.effect != Effect::PreferNoSchedule
            && !tolerations.iter().any(|one| one.tolerates(taint))
    })?;
    Some(Reason::Taint(
        refusing.key.clone(),
        refusing.value.clone(),
        refusing.effect.as_str(),
    ))
}

/// Asks every filter about every cluster; the first that refuses one is counted.
pub(super) fn filter(
    snapshot: &Snapshot,
    demand: &Demand,
    group: Option<&Group>,
    previous: Option<&Previous>,
) -> Passed {
    let overflow = group.map_or(&[][..], |group| &group.overflow);
    let overflow = if demand.is_workload() { overflow } else { &[] };
    let own = group.map_or(&demand.rules.affinity, |group| &group.affinity);
    let affinities = std::iter::once(own).chain(overflow);
    let mut tiers: Vec<Matcher<'_>> = affinities.map(|a| Matcher::new(a, snapshot)).collect();
    let mut placed: Vec<Option<(usize, i64)>> = vec![None; snapshot.len()];
    let targets = previous.into_iter().flat_map(|previous| &previous.targets);
    for (place, target) in targets.enumerate() {
        let here = snapshot.rank(&target.cluster);
        if let Some(here) = here.and_then(|rank| placed.get_mut(rank)) {
            *here = Some((place, target.replicas));
        }
    }
    let mut verdicts: Vec<Option<Verdict>> = Vec::new();
    verdicts.resize_with(snapshot.shapes(), || None);
    let mut refused = Tally {
        clusters: snapshot.len(),
        ..Tally::default()
    };
    let mut candidates = Vec::new();
    for ((rank, cluster, shape), placed) in snapshot.ranked().zip(placed) {
        if cluster.leaving {
            refused.leaving += 1;
            continue;
        }
        let tier = tiers
            .iter_mut()
            .position(|tier| tier.matches(cluster, shape));
        let Some(tier) = tier else {
            refused.add(&Reason::Affinity, &cluster.name);
            continue;
        };
        let of_shape = verdicts
            .get_mut(shape)
            .map(|known| &*known.get_or_insert_with(|| verdict(demand, &cluster.shape)));
        let of_name = by_name(demand, cluster, placed.is_some());
        let newcomer = of_shape.and_then(|verdict| verdict.newcomer.as_ref());
        let newcomer = newcomer.filter(|_| placed.is_none());
        let property = of_shape.and_then(|verdict| verdict.property.as_ref());
        if let Some(reason) = newcomer.or(property).or(of_name.as_ref()) {
            refused.add(reason, &cluster.name);
            continue;
        }
        let (place, replicas) = placed.unwrap_or_default();
        candidates.push(Candidate {
            rank,
            region: snapshot.region(shape),
            tier,
            score: if placed.is_some() { HERE } else { 0 },
            room: 0,
            placed: replicas,
            place,
        });
    }
    Passed {
        candidates,
        refused,
    }
}

fn by_name(demand: &Demand, cluster: &Cluster, here: bool) -> Option<Reason> {
    let name = &cluster.name;
    let elsewhere = |together: &BTreeSet<_>| !together.contains(name);
    if demand.evicted.contains(name) {
        Some(Reason::Evicted)
    } else if !here && demand.together.as_ref().is_some_and(elsewhere) {
        Some(Reason::Elsewhere)
    } else if !here && demand.apart.contains(name) {
        Some(Reason::Occupied)
    } else {
        None
    }
}
