//! How replicas are given to the chosen clusters.

use super::apportion::{Party, Ties, apportion};
use super::cluster::Snapshot;
use super::demand::Demand;
use super::explain::Cause;
use super::filter::{Candidate, Matcher};
use super::rules::{Group, Strategy, Weights};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Replicas by the rank of a cluster.
type Shares = BTreeMap<usize, i64>;

/// The share of each chosen cluster by its rank; those that get none are left out. `chosen` is best first, and so is
/// what each of them gets whole. What does not count replicas goes to all of them.
pub(super) fn assign(
    snapshot: &Snapshot,
    demand: &Demand,
    group: Option<&Group>,
    chosen: &[Candidate],
    fresh: bool,
) -> Result<Vec<(usize, i64)>, Cause> {
    if chosen.is_empty() {
        return Err(Cause::NothingSelected);
    }
    if !demand.has_replicas() {
        return Ok(chosen.iter().map(|one| (one.rank, 0)).collect());
    }
    let ties = Ties::of(&demand.uid);
    let overflows = group.is_some_and(|group| !group.overflow.is_empty());
    let shares = match &demand.rules.strategy {
        Strategy::Duplicated => {
            let whole = chosen.iter().map(|one| (one.rank, demand.replicas));
            return Ok(whole.filter(|(_, replicas)| *replicas > 0).collect());
        }
        Strategy::Static(weights) => {
            let parties = weigh(snapshot, weights, chosen);
            shares(demand.replicas, parties, ties)
        }
        Strategy::Unsupported => return Err(Cause::Strategy),
        Strategy::Dynamic | Strategy::Aggregated if overflows => {
            by_tiers(demand, chosen, fresh, ties)?
        }
        Strategy::Dynamic | Strategy::Aggregated => {
            by_room(demand, chosen, demand.replicas, fresh, ties)?
        }
    };
    Ok(shares
        .into_iter()
        .filter(|(_, replicas)| *replicas > 0)
        .collect())
}

/// Votes by rank.
type Votes = Vec<Party>;

fn shares(replicas: i64, mut votes: Votes, ties: Ties) -> Shares {
    votes.sort_unstable_by_key(|party| party.rank);
    let seats = apportion(replicas, &votes, ties);
    let ranks = votes.iter().map(|party| party.rank);
    ranks.zip(seats).collect()
}

/// The weight of each cluster: its largest; 1 for all where none has one.
fn weigh(snapshot: &Snapshot, weights: &Weights, chosen: &[Candidate]) -> Votes {
    let mut others: Vec<(Matcher<'_>, i64)> = weights
        .others
        .iter()
        .map(|(affinity, weight)| (Matcher::new(affinity, snapshot), *weight))
        .collect();
    let mut votes: BTreeMap<usize, i64> = chosen.iter().map(|one| (one.rank, 0)).collect();
    for (rank, cluster, shape) in snapshot.ranked() {
        let Some(vote) = votes.get_mut(&rank) else {
            continue;
        };
        let named = weights.by_name.get(&cluster.name).copied();
        let matching = others
            .iter_mut()
            .filter_map(|(matcher, weight)| matcher.matches(cluster, shape).then_some(*weight));
        *vote = matching.chain(named).max().unwrap_or(0);
    }
    let nobody = votes.values().all(|weight| *weight <= 0);
    let weight = |weight: i64| if nobody { 1 } else { weight };
    votes
        .into_iter()
        .map(|(rank, votes)| Party {
            rank,
            votes: weight(votes),
        })
        .collect()
}

/// Replicas that are there stay there; only the rest is given out, by room. What is too many is taken by
/// what each cluster has, and what is to be placed afresh goes by room and what each has.
fn by_room(
    demand: &Demand,
    chosen: &[Candidate],
    replicas: i64,
    fresh: bool,
    ties: Ties,
) -> Result<Shares, Cause> {
    let placed = chosen
        .iter()
        .fold(0_i64, |sum, one| sum.saturating_add(one.placed));
    let here = || chosen.iter().filter(|one| one.placed > 0);
    let party = |one: &Candidate, votes: i64| Party {
        rank: one.rank,
        votes,
    };
    let grows = !fresh && placed < replicas;
    let (mut votes, wanted): (Votes, i64) = if fresh {
        let all = chosen.iter().map(|one| party(one, one.avail()));
        (all.collect(), replicas)
    } else if grows {
        let all = chosen.iter().map(|one| party(one, one.room));
        (all.collect(), replicas - placed)
    } else if placed > replicas {
        let mut all: Vec<&Candidate> = here().collect();
        all.sort_unstable_by_key(|one| one.place);
        let all = all.into_iter().map(|one| party(one, one.placed));
        (all.collect(), replicas)
    } else {
        return Ok(here().map(|one| (one.rank, one.placed)).collect());
    };
    let room = votes
        .iter()
        .fold(0_i64, |sum, party| sum.saturating_add(party.votes));
    if room < wanted {
        return Err(Cause::LittleRoom { room, fresh });
    }
    if demand.rules.strategy == Strategy::Aggregated {
        let at: BTreeMap<usize, i64> = here().map(|one| (one.rank, one.placed)).collect();
        // Stable: of equals the better cluster, and where too many are the one that was named first.
        votes.sort_by_key(|party| {
            let newcomer = grows && !at.contains_key(&party.rank);
            (newcomer, Reverse(party.votes))
        });
        cut(&mut votes, wanted);
    }
    let mut result = shares(wanted, votes, ties);
    if grows {
        for one in here() {
            *result.entry(one.rank).or_insert(0) += one.placed;
        }
    }
    Ok(result)
}

/// Leaves as few of the first as have enough votes.
fn cut(votes: &mut Votes, wanted: i64) {
    let mut sum = 0_i64;
    let enough = votes.iter().take_while(|party| {
        let more = sum < wanted;
        sum = sum.saturating_add(party.votes);
        more
    });
    let count = enough.count();
    votes.truncate(count);
}

/// Tier by tier: each takes what it has room for, the next ones the rest.
fn by_tiers(
    demand: &Demand,
    chosen: &[Candidate],
    fresh: bool,
    ties: Ties,
) -> Result<Shares, Cause> {
    let mut tiers: BTreeMap<usize, Vec<Candidate>> = BTreeMap::new();
    for one in chosen {
        tiers.entry(one.tier).or_default().push(*one);
    }
    let mut open = demand.replicas;
    let mut result = Shares::new();
    for tier in tiers.values() {
        let avail = tier
            .iter()
            .fold(0_i64, |sum, one| sum.saturating_add(one.avail()));
        let here = open.min(avail);
        if here > 0 {
            result.extend(by_room(demand, tier, here, fresh, ties)?);
        }
        open -= here;
    }
    if open > 0 {
        return Err(Cause::LittleRoomInOverflow);
    }
    Ok(result)
}
