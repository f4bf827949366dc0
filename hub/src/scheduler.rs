//! Which clusters a template goes to, with how many replicas: a pure function of the clusters, of what is to be
//! placed, and of where it is.
//!
//! Filters, capacity, selection and assignment follow each other; each group of clusters is tried until one does
//! not fail. Nothing here knows a clock or chance: ties are settled by the template's UID, and the same input
//! has the same result in whatever order it comes. Results equal Karmada's, to the replica, wherever those are
//! determined, but for what cannot be placed: it stays where it is (see [`Unplaceable::kept`]), and is tried
//! again when what it waits for changes ([`Unplaceable::waits_for`]).
//!
//! Types of Kubernetes end at [`from_api`].

mod apportion;
mod assign;
mod capacity;
mod cluster;
mod demand;
mod explain;
mod filter;
pub mod from_api;
mod needed;
mod region;
mod rules;
mod select;
#[cfg(test)]
mod tests;

pub use cluster::{
    Amounts, Apis, Capacity, Cluster, Effect, Interner, Nodes, Shape, Snapshot, Taint,
};
pub use demand::{Component, Demand, Placement, Previous, Target, same_targets};
pub use explain::{Cause, Failed, Filter, Reason, Taken, Tally, Unplaceable, WaitsFor};
pub use needed::{Need, Standing, Why, is_triggered, needed, rebalance};
pub use rules::{
    Affinity, Bounds, Field, FieldTest, Group, LabelTest, Required, Rules, Spread, Strategy,
    Toleration, Weights,
};

use std::sync::Arc;

/// Where a template goes, or why it goes nowhere.
pub fn schedule(
    snapshot: &Snapshot,
    demand: &Demand,
    previous: Option<&Previous>,
) -> Result<Placement, Unplaceable> {
    let groups = &demand.rules.groups;
    let afresh = previous.is_some_and(|previous| previous.fresh);
    let observed = previous.and_then(|previous| previous.group.as_deref());
    let start = if afresh {
        0
    } else {
        demand.rules.start(observed)
    };
    let attempt = |index: usize, group: Option<&Group>| {
        place(snapshot, demand, group, previous).map_err(|(cause, refused)| Failed {
            index,
            cause,
            refused,
        })
    };
    let first = match attempt(start, groups.get(start)) {
        Ok(placement) => return Ok(placement),
        Err(failed) => failed,
    };
    let mut later = Vec::new();
    for (index, group) in groups.iter().enumerate().skip(start + 1) {
        match attempt(index, Some(group)) {
            Ok(placement) => {
                let passed_over = std::iter::once(first).chain(later).collect();
                return Ok(Placement {
                    passed_over,
                    ..placement
                });
            }
            Err(failed) => later.push(failed),
        }
    }
    Err(Unplaceable {
        first,
        later,
        kept: keep(snapshot, demand, previous),
    })
}

/// One attempt.
fn place(
    snapshot: &Snapshot,
    demand: &Demand,
    group: Option<&Group>,
    previous: Option<&Previous>,
) -> Result<Placement, (Cause, Tally)> {
    let filter::Passed {
        mut candidates,
        refused,
    } = filter::filter(snapshot, demand, group, previous);
    if candidates.is_empty() {
        return Err((Cause::NoFit, refused));
    }
    let mut estimator = capacity::Estimator::new(demand);
    for one in &mut candidates {
        let cluster = snapshot.clusters().get(one.rank);
        one.room = cluster.map_or(0, |cluster| estimator.room(&cluster.capacity));
    }
    select::sort(&mut candidates);
    let fresh = previous.is_some_and(|previous| previous.fresh);
    let shares = select::select(candidates, snapshot.regions(), demand)
        .and_then(|chosen| assign::assign(snapshot, demand, group, &chosen, fresh));
    let shares = match shares {
        Ok(shares) => shares,
        Err(cause) => return Err((cause, refused)),
    };
    let components: Vec<(Arc<str>, i64)> = if demand.in_sets() {
        let all = demand.components.iter();
        all.map(|one| (one.name.clone(), one.replicas)).collect()
    } else {
        Vec::new()
    };
    let targets = shares.into_iter().map(|(rank, replicas)| Target {
        cluster: snapshot.name(rank),
        replicas,
        components: components.clone(),
    });
    Ok(Placement {
        targets: targets.collect(),
        group: group.map(|group| group.name.clone()),
        refused,
        passed_over: Vec::new(),
    })
}

/// What stays of a placement that cannot be replaced: every target on a cluster that stays and is not being left, whether
/// filters allow it still or not. A copy that they no longer allow goes when another is found a place, and not before.
fn keep(snapshot: &Snapshot, demand: &Demand, previous: Option<&Previous>) -> Vec<Target> {
    let targets = previous.map_or(&[][..], |previous| &previous.targets);
    let stays = |target: &&Target| {
        let cluster = snapshot.get(&target.cluster);
        cluster.is_some_and(|cluster| !cluster.leaving) && !demand.evicted.contains(&target.cluster)
    };
    targets.iter().filter(stays).cloned().collect()
}
