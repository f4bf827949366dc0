//! Bindings that could not be placed: which of them are looked at again when a cluster changes, when that is, and when
//! it is written that they still wait. Times are passed in.
//!
//! What waits for room is looked at when a cluster that its policy means has more of it; members report every few
//! seconds, so that happens at most once in [`SPACING`], and [`RETRY`] after the last time in any case. A cluster that
//! changes otherwise has all of them looked at: what their conditions say counts clusters.
//!
//! A message that differs from the one that is written in nothing but numbers, and that only room has changed, is
//! written ever less often while that goes on: after twice the time before, up to [`RETRY`].

use super::decide::Decision;
use crate::scheduler::{Cluster, WaitsFor};
use crate::world::{Binding, ObjectName, SharedPlacement};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Reports of room have a binding looked at no more often than this.
const SPACING: Duration = Duration::from_secs(2);
/// What waits for room is looked at after this time even if none was seen to come, as the reference does.
const RETRY: Duration = Duration::from_secs(300);

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Waiting(BTreeMap<ObjectName, Wait>);

#[derive(Debug)]
struct Wait {
    what: WaitsFor,
    /// What says where it goes.
    placement: Option<Arc<SharedPlacement>>,
    /// Whether less room may have it placed too.
    fits_into_less: bool,
    /// When it was looked at last.
    decided: Instant,
    /// When it was last written why it waits.
    told: Option<Instant>,
    /// For how long after that other numbers are not written.
    pause: Duration,
    /// Something else than room changed since it was looked at.
    is_news: bool,
    /// It is in the queue, at the latest [`SPACING`] after it was looked at.
    is_woken: bool,
}

/// What follows from a decision.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Noted {
    /// What it says is not written yet.
    pub held_back: bool,
    /// When it is looked at again, whatever happens.
    pub again: Option<Instant>,
}

impl Waiting {
    /// A binding is about to be looked at; whether for something else than room.
    pub(super) fn begin(&mut self, name: &ObjectName) -> bool {
        self.0.get_mut(name).is_none_or(|wait| {
            wait.is_woken = false;
            std::mem::take(&mut wait.is_news)
        })
    }

    /// Something else than room changed, or what was to be written of it was not.
    pub(super) fn changed(&mut self, name: &ObjectName) {
        if let Some(wait) = self.0.get_mut(name) {
            wait.is_news = true;
        }
    }

    /// A binding is gone, or somebody else's.
    pub(super) fn forget(&mut self, name: &ObjectName) {
        self.0.remove(name);
    }

    /// A binding was looked at; `is_news` is what [`Self::begin`] said.
    pub(super) fn note(
        &mut self,
        name: &ObjectName,
        held: &Binding,
        decision: &Decision,
        is_news: bool,
        now: Instant,
    ) -> Noted {
        let Some(what) = decision.waits_for else {
            self.0.remove(name);
            return Noted::default();
        };
        let wait = self.0.entry(name.clone()).or_insert_with(|| Wait {
            what,
            placement: None,
            fits_into_less: false,
            decided: now,
            told: None,
            pause: SPACING,
            is_news: false,
            is_woken: false,
        });
        let components = held.binding.spec.components.len();
        let placement = held.placement.as_ref();
        wait.what = what;
        wait.fits_into_less = placement.is_some_and(|it| it.rules.may_fit_into_less(components));
        wait.placement = placement.cloned();
        wait.decided = now;
        let numbers = decision.numbers_only && !is_news;
        let due = wait.told.map(|told| told + wait.pause);
        if let Some(due) = due.filter(|due| numbers && now < *due) {
            return Noted {
                held_back: true,
                again: Some(due),
            };
        }
        if decision.status.is_some() {
            let lately = wait.told.is_some_and(|told| now < told + 2 * RETRY);
            wait.pause = if numbers && lately {
                (2 * wait.pause).min(RETRY)
            } else {
                SPACING
            };
            wait.told = Some(now);
        }
        Noted {
            held_back: false,
            again: (what == WaitsFor::Capacity).then(|| now + RETRY),
        }
    }

    /// Who is to be looked at, and when, because a cluster has other room than before.
    pub(super) fn has_other_room(
        &mut self,
        old: &Cluster,
        new: &Cluster,
        now: Instant,
    ) -> Vec<(ObjectName, Instant)> {
        let grew = new.capacity.may_fit_more_than(&old.capacity);
        let mut means = Means::any_of([Some(new), None]);
        let each = self.0.iter_mut().filter_map(|(name, wait)| {
            let may_help = wait.what == WaitsFor::Capacity && (grew || wait.fits_into_less);
            if wait.is_woken || !may_help || !means.by(wait.placement.as_ref()) {
                return None;
            }
            wait.is_woken = true;
            Some((name.clone(), now.max(wait.decided + SPACING)))
        });
        each.collect()
    }

    /// The same because a cluster came, went, or changed in what filters look at. Whoever may go there now is looked at
    /// at once.
    pub(super) fn looks_other(
        &mut self,
        old: Option<&Cluster>,
        new: Option<&Cluster>,
        now: Instant,
    ) -> Vec<(ObjectName, Instant)> {
        let mut means = Means::any_of([old, new]);
        let each = self.0.iter_mut().filter_map(|(name, wait)| {
            let is_meant = means.by(wait.placement.as_ref());
            let was_woken = std::mem::replace(&mut wait.is_woken, true);
            wait.is_news = true;
            let at = if is_meant {
                now
            } else {
                now.max(wait.decided + SPACING)
            };
            (is_meant || !was_woken).then(|| (name.clone(), at))
        });
        each.collect()
    }
}

/// Which placements mean one of these clusters; each is asked once.
struct Means<'a> {
    clusters: [Option<&'a Cluster>; 2],
    /// By where a placement is.
    known: BTreeMap<usize, bool>,
}

impl<'a> Means<'a> {
    fn any_of(clusters: [Option<&'a Cluster>; 2]) -> Self {
        Self {
            clusters,
            known: BTreeMap::new(),
        }
    }

    fn by(&mut self, placement: Option<&Arc<SharedPlacement>>) -> bool {
        let Some(placement) = placement else {
            return true;
        };
        let clusters = &self.clusters;
        let known = self.known.entry(Arc::as_ptr(placement).addr());
        *known.or_insert_with(|| {
            let mut clusters = clusters.iter().flatten();
            clusters.any(|it| placement.rules.concern(it, None))
        })
    }
}

#[cfg(test)]
mod tests;
