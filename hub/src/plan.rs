//! What a change of policies, overrides, templates or clusters would do, before it is done.
//!
//! Pure: from a [`Snapshot`] of a hub and from [`Change`]s it says which clusters each template would come to be in,
//! with how many replicas, and what would differ there. It decides nothing by itself: `settle` carries out, in memory,
//! what the hub's own controllers decide, on `state`, until nothing is left to do; `copies` renders what members get of
//! it, before and after, `member` compares that for one of them, and `told` for all; `stirred` says what is rendered
//! anew. `bindings` and `templates` find what a decision asks for without looking at all there are.
//!
//! Changes are carried out one after another, as `kubectl apply` sends them. Where they would end otherwise all at once,
//! where the UID that a new template will get settles a tie, and where it matters whether a template was edited while
//! its policy waited, which only the hub remembers, the plan says so.

mod answer;
mod bindings;
mod copies;
mod difference;
mod looks;
mod member;
mod settle;
mod state;
mod stirred;
mod templates;
#[cfg(test)]
pub(crate) mod tests;
mod told;

pub use answer::{ClusterPlan, Plan, Refused, Share, Step, TemplatePlan, Verdict};
pub use copies::unmarked;
pub use difference::{Difference, differences, without_secrets};
pub use state::{Change, Subject};

use crate::controller::detector::Problem;
use crate::controller::detector::skip::Skips;
use crate::controller::eviction;
use crate::snapshot::Snapshot;
use crate::world::TemplateName;
use chrono::{DateTime, Utc};
use common::gvk::Gvk;
use settle::Settling;
use state::{Sort, State, sort};
use std::collections::{BTreeMap, BTreeSet};

/// What a hub was told at its start, as far as it says where templates go.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is never propagated.
    pub skips: Skips,
    /// What leaves clusters with NoExecute taints, and how.
    pub eviction: eviction::Options,
}

/// What `changes` of the hub of `snapshot` would do, made at `now`.
pub fn plan(
    now: DateTime<Utc>,
    options: &Options,
    snapshot: &Snapshot,
    changes: &[Change],
) -> Plan {
    let before = State::of(snapshot);
    let waited = waited(now, options, &before);
    let mut ways = ways(&waited, &before, changes).into_iter();
    let known = || (before.clone(), &waited);
    let mut run = || Some(run(now, options, known(), changes, &ways.next()?));
    let Some((after, refused)) = run() else {
        return Plan::default();
    };
    let others: Vec<_> = std::iter::from_fn(run).map(|(other, _)| other).collect();
    let mut told = told::tell(&before, &waited, &after, &others);
    if changes.len() > 1 {
        let untold = told::untold(&told);
        told.unknown.extend(untold);
    }
    told.refused = refused;
    told
}

/// Templates that wait as things are, and for what.
fn waited(
    now: DateTime<Utc>,
    options: &Options,
    before: &State,
) -> BTreeMap<TemplateName, Problem> {
    Settling::new(before.clone(), &options.skips, &options.eviction, now).waiting()
}

/// The kinds of templates that decisions after these changes look at and that the snapshot lacks: they are to be read,
/// and the plan made again.
pub fn lacks(
    now: DateTime<Utc>,
    options: &Options,
    snapshot: &Snapshot,
    changes: &[Change],
) -> BTreeSet<Gvk> {
    let way = Way {
        groups: straight(changes.len()),
        ..Way::default()
    };
    let known = (State::of(snapshot), &BTreeMap::new());
    let (after, _) = run(now, options, known, changes, &way);
    let reached = Snapshot {
        policies: after.state.policies,
        bindings: after.state.bindings.into_all(),
        ..Snapshot::default()
    };
    let mut wanted = reached.wanted(&options.skips);
    wanted.retain(|kind| !snapshot.kinds.contains_key(&kind.group_kind()));
    wanted
}

fn is_new(before: &State, change: &Change) -> bool {
    let Change::Apply(object) = change else {
        return false;
    };
    let subject = Subject::of(object).filter(|it| sort(&it.kind) == Sort::Template);
    subject.is_some_and(|it| before.templates.get(&it.template()).is_none())
}

/// What nobody can know before.
#[derive(Debug, Clone, Default)]
struct Way {
    /// How changes come to the hub.
    groups: Groups,
    /// Of which parity the UIDs of new templates are.
    odd: bool,
    /// Templates that were edited, and of which nothing came yet.
    edited: BTreeSet<TemplateName>,
}

/// Changes that come to a hub one after another; those of one group come at once.
type Groups = Vec<Vec<usize>>;

/// Most changes of which every order is gone through.
const ALL_ORDERS: usize = 3;

/// One after another, as they are made.
fn straight(many: usize) -> Groups {
    (0..many).map(|one| vec![one]).collect()
}

/// In which orders a hub may see `many` changes, as its watches of different kinds tell of them as it happens. First the
/// one in which they are made.
fn orders(many: usize) -> Vec<Groups> {
    let straight = straight(many);
    if many > ALL_ORDERS {
        let turned = straight.iter().rev().cloned().collect();
        return vec![straight, vec![(0..many).collect()], turned];
    }
    let mut orders = vec![Vec::new()];
    for next in 0..many {
        orders = orders.iter().flat_map(|it| with(it, next)).collect();
    }
    orders.sort_by_key(|it| (*it != straight, it.len(), it.clone()));
    orders
}

/// All such groups with one change more: alone, or with others.
fn with(known: &Groups, next: usize) -> Vec<Groups> {
    let mut all = Vec::new();
    for place in 0..=known.len() {
        let mut alone = known.clone();
        alone.insert(place, vec![next]);
        all.push(alone);
        let mut joined = known.clone();
        if let Some(group) = joined.get_mut(place) {
            group.push(next);
            all.push(joined);
        }
    }
    all
}

/// Every way, the likeliest first.
fn ways(waited: &BTreeMap<TemplateName, Problem>, before: &State, changes: &[Change]) -> Vec<Way> {
    let mut memories = vec![BTreeSet::new()];
    if !waited.is_empty() {
        memories.push(waited.keys().cloned().collect());
    }
    let is_new = changes.iter().any(|change| is_new(before, change));
    let orders = orders(changes.len());
    let mut ways = Vec::new();
    for edited in memories {
        for odd in [false, true] {
            for groups in orders.iter().filter(|_| is_new || !odd) {
                ways.push(Way {
                    groups: groups.clone(),
                    odd,
                    edited: edited.clone(),
                });
            }
        }
    }
    ways
}

/// A plan for each of the ways, or for those in which changes are made one after another.
#[cfg(test)]
pub(crate) fn each(
    now: DateTime<Utc>,
    options: &Options,
    snapshot: &Snapshot,
    changes: &[Change],
    one_by_one: bool,
) -> Vec<Plan> {
    let before = State::of(snapshot);
    let waited = waited(now, options, &before);
    let ways = ways(&waited, &before, changes).into_iter();
    let plan = |way: Way| {
        let known = (before.clone(), &waited);
        let (after, _) = run(now, options, known, changes, &way);
        told::tell(&before, &waited, &after, &[])
    };
    let straight = straight(changes.len());
    ways.filter(|it| !one_by_one || it.groups == straight)
        .map(plan)
        .collect()
}

/// A hub after changes, in one way, and those that it refused; of before there is also what waits then.
fn run<'a>(
    now: DateTime<Utc>,
    options: &'a Options,
    (before, waited): (State, &BTreeMap<TemplateName, Problem>),
    changes: &[Change],
    way: &Way,
) -> (Settling<'a>, Vec<Refused>) {
    let mut settling = Settling::new(before, &options.skips, &options.eviction, now);
    settling.remember(waited, &way.edited);
    let mut refused = Vec::new();
    for group in &way.groups {
        let group = group.iter().filter_map(|it| changes.get(*it));
        let (going, others): (Vec<&Change>, Vec<&Change>) =
            group.partition(|it| leaves(it).is_some());
        // A cluster is left, together with whatever else changes, before it is gone.
        for cluster in going.iter().filter_map(|it| leaves(it)) {
            settling.begin_to_leave(cluster);
        }
        for part in [others, going] {
            for change in part {
                if let Err(why) = settling.change(change, way.odd) {
                    refused.extend(Refused::of(change, why));
                }
            }
            settling.settle();
        }
    }
    settling.pass();
    (settling, refused)
}

/// The cluster that goes with a change.
fn leaves(change: &Change) -> Option<&str> {
    let Change::Delete(subject) = change else {
        return None;
    };
    (sort(&subject.kind) == Sort::Cluster).then_some(&*subject.name.name)
}

/// Whether plans say what objects of a kind do.
pub fn foretells(kind: &Gvk) -> bool {
    sort(kind) != Sort::Other
}
