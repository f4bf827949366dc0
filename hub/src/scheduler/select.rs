//! Which of the clusters that may be chosen are chosen.

use super::demand::Demand;
use super::explain::Cause;
use super::filter::Candidate;
use super::region::choose_regions;
use super::rules::{Bounds, Spread, Strategy};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How many replicas the chosen clusters must have room for together; none where that does not matter.
pub(super) fn needed_room(demand: &Demand) -> Option<i64> {
    if demand.rules.strategy == Strategy::Duplicated {
        None
    } else if demand.in_sets() {
        Some(1)
    } else {
        Some(demand.replicas)
    }
}

/// Best first: the group before those it overflows into, where it is before where it is not, more room before
/// less, then by name.
pub(super) fn sort(candidates: &mut [Candidate]) {
    candidates
        .sort_unstable_by_key(|one| (one.tier, Reverse(one.score), Reverse(one.avail()), one.rank));
}

/// The chosen ones of `sorted`, best first.
pub(super) fn select(
    sorted: Vec<Candidate>,
    regions: usize,
    demand: &Demand,
) -> Result<Vec<Candidate>, Cause> {
    let needed = needed_room(demand);
    match demand.rules.spread {
        Spread::All => Ok(sorted),
        Spread::Clusters(bounds) => by_clusters(sorted, bounds, needed),
        Spread::Regions {
            regions: bounds,
            clusters,
        } => {
            let replicas = demand.replicas;
            choose_regions(&sorted, regions, bounds, clusters, needed, replicas)
        }
        Spread::Unsupported => Err(Cause::Spread),
    }
}

fn by_clusters(
    mut sorted: Vec<Candidate>,
    bounds: Bounds,
    needed: Option<i64>,
) -> Result<Vec<Candidate>, Cause> {
    if sorted.len() < bounds.least {
        return Err(Cause::FewClusters);
    }
    let count = sorted.len().min(bounds.most);
    let mut rest = sorted.split_off(count);
    let mut chosen = sorted;
    let Some(needed) = needed else {
        return Ok(chosen);
    };
    let mut room = chosen
        .iter()
        .fold(0_i64, |sum, one| sum.saturating_add(one.avail()));
    // Of equals, the first in the rest.
    let mut roomiest: BinaryHeap<(i64, Reverse<usize>)> = rest
        .iter()
        .enumerate()
        .map(|(place, one)| (one.avail(), Reverse(place)))
        .collect();
    for one in chosen.iter_mut().rev() {
        if room >= needed {
            break;
        }
        let Some(mut top) = roomiest.peek_mut() else {
            break;
        };
        let (avail, Reverse(place)) = *top;
        let Some(other) = rest.get_mut(place).filter(|_| avail > one.avail()) else {
            continue;
        };
        room = room.saturating_add(avail - one.avail());
        std::mem::swap(one, other);
        *top = (other.avail(), Reverse(place));
    }
    if chosen.is_empty() || room < needed {
        return Err(Cause::LittleRoomInSelection(count));
    }
    Ok(chosen)
}
