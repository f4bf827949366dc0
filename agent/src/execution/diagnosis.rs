//! Why workloads are not healthy: what their pods and Events say, told with the Work while it is so.
//!
//! Read on demand and paced: nothing of the member's pods or Events is watched or kept, one Work is looked at in a
//! second at most, so many in all, and each again ever less often. What is found is a condition on the Work, one
//! kilobyte at most, that goes with the report in which the workload is healthy again.

pub mod decide;
mod read;

use super::report::reporter::Reporter;
use super::state::{ObjectKey, Shared};
use crate::member::api::Member;
use common::api::work::ResourceHealth;
use common::controller::{Failure, Reconcile, Requeue};
use common::errors::chain;
use common::gvk::Gvk;
use common::queue::Queue;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// How long a workload may be unhealthy before anybody asks why: rollouts are, for a while.
const SETTLED: Duration = Duration::from_secs(10);
/// Between one Work and the next.
const PACE: Duration = Duration::from_secs(1);
/// How long until a Work is looked at again, at first.
const AGAIN: Duration = Duration::from_secs(20);
/// How long at most; it doubles until then.
const LONGEST: Duration = Duration::from_secs(320);
/// Works that are looked at, of all that are unhealthy; the others have their turn when these are well.
pub const MOST: usize = 256;
/// Objects of one Work that are looked at.
const OBJECTS: usize = 2;

/// Asks the member why.
pub struct Diagnoser {
    member: Arc<Member>,
    state: Shared,
    reporter: Arc<Reporter>,
    /// Works to be looked at.
    pub(super) queue: Queue<Arc<str>>,
    known: Mutex<Known>,
}

/// The Works that are looked at, and how often each was.
#[derive(Debug, Default)]
struct Known {
    works: BTreeMap<Arc<str>, u32>,
    last: Option<Instant>,
}

/// An object that is not healthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sick {
    pub gvk: Arc<Gvk>,
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
}

/// What cannot happen: what is not found out now is found out later.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Never(Infallible);

impl Failure for Never {
    fn reason(&self) -> &'static str {
        "Never"
    }
}

impl Reconcile for Diagnoser {
    const NAME: &'static str = "diagnosis";
    type Key = Arc<str>;
    type Error = Never;

    async fn reconcile(&self, work: &Arc<str>) -> Result<Requeue, Never> {
        let sick = self.sick(work);
        if sick.is_empty() {
            self.forget(work);
            return Ok(Requeue::Never);
        }
        let Some((tries, turn)) = self.admit(work) else {
            return Ok(Requeue::After(LONGEST));
        };
        tokio::time::sleep_until(turn).await;
        let mut seen = Vec::new();
        for object in &sick {
            match read::read(&self.member, object).await {
                Ok(found) => seen.push(found),
                Err(error) => {
                    let (object, error) = (&object.name, chain(&error));
                    tracing::debug!(work = %work, %object, %error, "failed to find out why it is unhealthy");
                }
            }
        }
        self.note(work, decide::verdict(&seen));
        let again = AGAIN.saturating_mul(1 << tries.min(4));
        Ok(Requeue::After(again.min(LONGEST)))
    }
}

impl Diagnoser {
    /// Of the Works of a state, whose pods the member has.
    pub fn new(member: Arc<Member>, state: Shared, reporter: Arc<Reporter>) -> Self {
        Self {
            member,
            state,
            reporter,
            queue: Queue::new(),
            known: Mutex::default(),
        }
    }

    /// Has a Work looked at, the status of an object of which changed.
    pub fn changed(&self, work: &Arc<str>, health: ResourceHealth) {
        let is_known = self.known().works.contains_key(work);
        match (health == ResourceHealth::Unhealthy, is_known) {
            (true, false) => self.queue.add_after(work.clone(), SETTLED),
            (false, true) => self.queue.add(work.clone()),
            // It has its next turn already, or needs none.
            (true, true) | (false, false) => {}
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        common::lock::lock(&self.known)
    }

    /// The objects of a Work that are not healthy.
    fn sick(&self, work: &Arc<str>) -> Vec<Sick> {
        let state = self.state.lock();
        let Some(record) = state.works.get(work).filter(|it| !it.deleting) else {
            return Vec::new();
        };
        let items = record.items.iter().filter_map(|item| {
            let (key, gvk): (&Arc<ObjectKey>, _) = item.key.as_ref().zip(item.gvk.as_ref())?;
            let live = state
                .live(key)
                .filter(|it| it.health == ResourceHealth::Unhealthy)?;
            Some(Sick {
                gvk: gvk.clone(),
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                uid: live.uid.clone(),
            })
        });
        items.take(OBJECTS).collect()
    }

    /// How often a Work was looked at, and when it may be; none while too many are.
    fn admit(&self, work: &Arc<str>) -> Option<(u32, Instant)> {
        let mut known = self.known();
        if known.works.len() >= MOST && !known.works.contains_key(work) {
            return None;
        }
        let now = Instant::now();
        let turn = known.last.map_or(now, |last| now.max(last + PACE));
        known.last = Some(turn);
        let tries = known.works.entry(work.clone()).or_default();
        let before = *tries;
        *tries = tries.saturating_add(1);
        Some((before, turn))
    }

    fn forget(&self, work: &Arc<str>) {
        self.known().works.remove(work);
        if let Some(record) = self.state.lock().works.get_mut(work) {
            record.diagnosis = None;
        }
    }

    /// Takes note of what was found, and has the hub told.
    fn note(&self, work: &Arc<str>, verdict: Option<super::conditions::Verdict>) {
        let changed = {
            let mut state = self.state.lock();
            let Some(record) = state.works.get_mut(work) else {
                return;
            };
            let verdict = verdict.map(Box::new);
            let changed = record.diagnosis != verdict;
            record.diagnosis = verdict;
            changed
        };
        if changed {
            self.reporter.report_soon(work, false);
        }
    }
}

#[cfg(test)]
mod tests;
