//! Which regions are chosen, and which clusters in them.
//!
//! Regions are tried in the order of their size, weight (larger first) and name. A choice is an ascending path
//! through them that has enough regions and clusters, and had not before its last step. The heaviest wins, then
//! the one with more clusters, then the earlier one; and where the heaviest regions of the winner are a choice
//! by themselves, they win instead.

use super::explain::Cause;
use super::filter::Candidate;
use super::rules::Bounds;
use std::cmp::Reverse;

/// One replica that finds room outweighs any score.
const ROOM: i64 = 1000;
/// Beyond so many states a choice that satisfies is taken instead of the heaviest.
const STATES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Region {
    /// Its place in the order of names.
    place: usize,
    clusters: usize,
    weight: i64,
}

/// The chosen clusters: the best of each chosen region, then the best of all others in them. `needed` is for
/// how many replicas there must be room; none where every cluster gets all `replicas`.
pub(super) fn choose_regions(
    sorted: &[Candidate],
    regions: usize,
    bounds: Bounds,
    clusters: Bounds,
    needed: Option<i64>,
    replicas: i64,
) -> Result<Vec<Candidate>, Cause> {
    let mut members: Vec<Vec<Candidate>> = vec![Vec::new(); regions];
    for one in sorted {
        let region = one.region.and_then(|place| members.get_mut(place));
        if let Some(region) = region {
            region.push(*one);
        }
    }
    let filled = || members.iter().filter(|members| !members.is_empty());
    if filled().count() < bounds.least {
        return Err(Cause::FewRegions);
    }
    let weight = |members: &[Candidate]| match needed {
        None => weight_of_copies(members, replicas),
        Some(needed) => weight_of_shares(members, needed, bounds, clusters),
    };
    let mut known: Vec<Region> = members
        .iter()
        .enumerate()
        .filter(|(_, members)| !members.is_empty())
        .map(|(place, members)| Region {
            place,
            clusters: members.len(),
            weight: weight(members),
        })
        .collect();
    known.sort_unstable_by_key(|region| (region.clusters, Reverse(region.weight), region.place));
    let chosen = choose(&known, bounds, clusters.least).ok_or(Cause::FewClustersInRegions)?;

    let mut result: Vec<Candidate> = Vec::new();
    let mut open = vec![false; regions];
    for region in &chosen {
        if let Some(members) = members.get(region.place) {
            result.extend(members.first());
        }
        if let Some(open) = open.get_mut(region.place) {
            *open = true;
        }
    }
    let mut best_of: Vec<usize> = result.iter().map(|one| one.rank).collect();
    best_of.sort_unstable();
    let others = sorted.iter().filter(|one| {
        let open = one.region.and_then(|place| open.get(place));
        open.is_some_and(|open| *open) && best_of.binary_search(&one.rank).is_err()
    });
    let more = clusters.most.saturating_sub(result.len());
    result.extend(others.take(more));
    Ok(result)
}

fn whole(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn weight_of_copies(members: &[Candidate], replicas: i64) -> i64 {
    let fit = members.iter().filter(|one| one.avail() >= replicas);
    let (count, scores) = fit.fold((0, 0), |(count, scores), one| {
        (count + 1, scores + one.score)
    });
    if count == 0 {
        return 0;
    }
    ROOM * count + scores / count
}

/// Room beyond the region's fair share is worth nothing.
pub(super) fn weight_of_shares(
    members: &[Candidate],
    needed: i64,
    bounds: Bounds,
    clusters: Bounds,
) -> i64 {
    let regions = whole(bounds.least.max(1));
    let share = (needed / regions).saturating_add(i64::from(needed % regions > 0));
    let least = whole(clusters.least.max(bounds.least));
    let (mut room, mut scores, mut taken) = (0_i64, 0, 0_i64);
    for one in members {
        room = room.saturating_add(one.avail());
        scores += one.score;
        taken += 1;
        if taken >= least && room >= share {
            break;
        }
    }
    room.min(share)
        .saturating_mul(ROOM)
        .saturating_add(scores / taken.max(1))
}

/// The chosen regions, heaviest first; none where no choice has enough clusters.
fn choose(known: &[Region], bounds: Bounds, clusters: usize) -> Option<Vec<Region>> {
    let least = bounds.least.max(1);
    if bounds.most < least || known.len() < least {
        return None;
    }
    let mut best = if clusters <= least {
        // Every region has a cluster: any `least` of them will do, so the heaviest do.
        let mut heaviest = known.to_vec();
        heaviest.sort_by_key(|region| (Reverse(region.weight), Reverse(region.clusters)));
        heaviest.truncate(least);
        heaviest
    } else {
        heaviest_path(known, least, bounds.most, clusters)?
    };
    best.sort_unstable_by_key(|region| (Reverse(region.weight), region.place));
    // One that is shorter has the same last step, and before it even less.
    let enough = |regions: &[Region]| {
        let sum: usize = regions.iter().map(|region| region.clusters).sum();
        sum >= clusters
    };
    let shorter = (least..best.len()).find(|length| best.get(..*length).is_some_and(enough));
    best.truncate(shorter.unwrap_or(best.len()));
    Some(best)
}

/// The heaviest path that has `clusters` clusters in `least` to `most` regions.
fn heaviest_path(
    known: &[Region],
    least: usize,
    most: usize,
    clusters: usize,
) -> Option<Vec<Region>> {
    // A path that is long enough has enough clusters, and ends.
    let longest = most.min(clusters).min(known.len());
    let width = clusters + 1;
    let states = (longest + 1).saturating_mul(width);
    if states.saturating_mul(known.len()) > STATES {
        return largest_path(known, least, most, clusters);
    }
    // For a path of `length` regions with `sum` clusters (no more are counted than are wanted), the most that
    // the regions from `place` on can add: weight, then clusters.
    let at = |length: usize, sum: usize| length * width + sum;
    let done = |length: usize, sum: usize| length >= least && sum >= clusters;
    let mut adds: Vec<Option<(i64, usize)>> = vec![None; states];
    let ends = (0..=longest).filter(|length| done(*length, clusters));
    for length in ends {
        if let Some(end) = adds.get_mut(at(length, clusters)) {
            *end = Some((0, 0));
        }
    }
    let mut takes: Vec<Vec<bool>> = Vec::with_capacity(known.len());
    for region in known.iter().rev() {
        let mut taken = vec![false; states];
        let mut before = adds.clone();
        for length in 0..longest {
            for sum in 0..=clusters {
                if done(length, sum) {
                    continue;
                }
                let to = at(length + 1, (sum + region.clusters).min(clusters));
                let with = adds.get(to).copied().flatten();
                let with = with.map(|(weight, more)| {
                    (weight.saturating_add(region.weight), more + region.clusters)
                });
                let here = at(length, sum);
                let (Some(best), Some(taken)) = (before.get_mut(here), taken.get_mut(here)) else {
                    continue;
                };
                // Of equals, the earlier path: the one that takes this region.
                if with.is_some() && with >= *best {
                    *best = with;
                    *taken = true;
                }
            }
        }
        adds = before;
        takes.push(taken);
    }
    adds.first().copied().flatten()?;
    let (mut length, mut sum) = (0, 0);
    let mut path = Vec::new();
    for (region, taken) in known.iter().zip(takes.iter().rev()) {
        if done(length, sum) {
            break;
        }
        if taken.get(at(length, sum)).is_some_and(|taken| *taken) {
            path.push(*region);
            length += 1;
            sum = (sum + region.clusters).min(clusters);
        }
    }
    Some(path)
}

/// The largest regions, as few as will do.
fn largest_path(
    known: &[Region],
    least: usize,
    most: usize,
    clusters: usize,
) -> Option<Vec<Region>> {
    let mut largest = known.to_vec();
    largest.sort_by_key(|region| (Reverse(region.clusters), Reverse(region.weight)));
    let mut sum = 0;
    for (length, region) in (1..=most).zip(&largest) {
        sum += region.clusters;
        if length >= least && sum >= clusters {
            largest.truncate(length);
            return Some(largest);
        }
    }
    None
}
