//! The end of a round on a Work: what became of its manifests is noted, what left it goes, and the hub is told.

use super::job::Job;
use crate::context::ErrorReport;
use crate::execution::apply::Ended;
use crate::execution::apply::object::Outcome;
use crate::execution::conditions;
use crate::execution::decide::{BACKOFF_CAP, Waiting};
use crate::execution::manifest::Target;
use crate::execution::persist::Persister;
use crate::execution::prune::Pruner;
use crate::execution::report::reporter::Reporter;
use crate::execution::state::{Failure, Item, ObjectKey, Shared};
use chrono::{DateTime, Utc};
use common::backoff::Backoff;
use common::chance::SharedStream;
use common::errors::chain;
use common::queue::Queue;
use common::time::SharedClock;
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// First delay of a manifest that failed.
const BACKOFF_BASE: Duration = Duration::from_millis(200);
/// Least time between two rounds that nothing new asks for.
const LEAST_PAUSE: Duration = Duration::from_millis(50);

/// Ends rounds.
pub struct Rounds {
    pub(crate) state: Shared,
    pub(crate) queue: Queue<Arc<str>>,
    pub(crate) persister: Arc<Persister>,
    pub(crate) pruner: Arc<Pruner>,
    pub(crate) reporter: Arc<Reporter>,
    pub(crate) clock: SharedClock,
    pub(crate) errors: ErrorReport,
    /// Spreads the next attempts.
    pub(crate) retries: SharedStream,
}

impl Rounds {
    /// Takes note of what became of the manifests, prunes what left, and reports.
    pub async fn conclude(&self, job: Job, ended: Vec<Ended>) -> Option<Duration> {
        let now = self.clock.now();
        let mut again: Option<DateTime<Utc>> = None;
        let mut soonest = |at: DateTime<Utc>| again = Some(again.map_or(at, |old| old.min(at)));
        let mut texts: BTreeMap<usize, String> = job
            .manifests
            .iter()
            .enumerate()
            .filter_map(|(i, m)| Some((i, m.as_ref().err()?.to_string())))
            .collect();
        let mut items: Vec<Item> = vec![Item::default(); job.manifests.len()];
        let mut outage = None;
        let mut notes = Vec::new();
        {
            let mut state = self.state.lock();
            for (item, manifest) in items.iter_mut().zip(&job.manifests) {
                item.gvk = manifest.as_ref().ok().map(|m| state.version(&m.target.gvk));
            }
        }
        for end in ended {
            let previous = job
                .items
                .get(end.ordinal)
                .and_then(|item| item.failure.clone());
            let item = &mut items[end.ordinal];
            item.key = Some(end.key);
            match end.outcome {
                Outcome::Done => {}
                Outcome::Failed(message) => {
                    let failure = self
                        .retries
                        .draw(|rng| next_failure(previous, message.clone(), end.hash, now, rng));
                    soonest(failure.retry_at);
                    texts.insert(end.ordinal, message);
                    item.failure = Some(failure);
                }
                Outcome::Later(at, why) => {
                    soonest(at);
                    let target = job.manifests[end.ordinal].as_ref().ok().map(|m| &m.target);
                    match (why, previous, target) {
                        (Waiting::Backoff, Some(failure), _) => {
                            texts.insert(end.ordinal, failure.message.clone());
                            item.failure = Some(failure);
                        }
                        (Waiting::Held, _, Some(target)) => {
                            notes.push(format!("{target} is held until {}", stamp(at)));
                        }
                        (Waiting::Fight, _, Some(target)) => notes.push(format!(
                            "{target} is changed by others again and again; it is healed next at {}",
                            stamp(at)
                        )),
                        _ => {}
                    }
                }
                Outcome::Outage(error) => {
                    let delay = error.retry_after().unwrap_or(Duration::from_secs(2));
                    soonest(now + delay);
                    item.failure = previous;
                    outage = Some(error);
                }
            }
        }
        let errors: Vec<String> = texts.into_values().collect();
        let (confirmed, leaving) =
            self.note_round(&job, items, errors.is_empty() && outage.is_none());
        if let Some(error) = &outage {
            // Nothing is known about the objects: the conditions stay as they are.
            tracing::warn!(work = %job.name, error = %chain(error), "the member does not answer");
            self.errors.report("member", &chain(error));
        } else {
            self.errors.clear("member");
            let applied = conditions::applied(job.manifests.len(), &errors);
            let mut verdicts = vec![applied, conditions::dispatching(false)];
            let degraded = self
                .state
                .lock()
                .works
                .get(&job.name)
                .is_some_and(|record| {
                    common::conditions::get(&record.conditions, conditions::DEGRADED).is_some()
                });
            if degraded || !notes.is_empty() {
                verdicts.push(conditions::degraded(&notes));
            }
            // The hub learns it when it is back; then it is looked at again.
            if confirmed {
                self.reporter.set_verdicts(&job.name, verdicts);
            }
        }
        // While the hub's list is read, an heir may be on its next page; the end of the list takes it up again.
        let is_listing = self.state.lock().is_listing();
        if !is_listing && self.pruner.prune(&job.name, leaving).await {
            soonest(now + Duration::from_secs(5));
        }
        self.reporter.report(&job.name).await;
        again.map(|at| {
            let delay = (at - now).to_std().unwrap_or_default();
            delay.max(LEAST_PAUSE)
        })
    }

    /// Stores the round's results; returns whether the hub knows the Work, and what is to leave.
    fn note_round(&self, job: &Job, items: Vec<Item>, complete: bool) -> (bool, Vec<Target>) {
        let mut state = self.state.lock();
        let keep: BTreeSet<Arc<ObjectKey>> = items.iter().filter_map(|i| i.key.clone()).collect();
        let bad = job.manifests.iter().any(Result::is_err);
        let (leaves, stays) = state
            .works
            .get(&job.name)
            .map(|record| (record.leaving.clone(), record.left.clone()))
            .unwrap_or_default();
        let left = leaves.iter().map(|t| state.key_of(t, &t.namespace));
        let mut left: Vec<Arc<ObjectKey>> = left.collect();
        // What the stored set wanted and the hub does not any more is an orphan from now on.
        for target in &stays {
            let key = state.key_of(target, &target.namespace);
            if state.wants(&key, &job.name) {
                left.push(key);
            }
        }
        let gone: BTreeSet<Arc<ObjectKey>> = job
            .items
            .iter()
            .filter_map(|item| item.key.clone())
            .chain(left)
            .filter(|key| !keep.contains(key))
            .collect();
        let mut others = BTreeSet::new();
        for key in &gone {
            others.extend(state.unwant(key, &job.name));
        }
        let Some(record) = state.works.get_mut(&job.name) else {
            return (false, Vec::new());
        };
        if *record.uid != job.uid {
            return (false, Vec::new());
        }
        record.items = items;
        if complete && record.hash == job.hash {
            record.before = None;
        }
        // A manifest that cannot be read may be the one that is missing.
        let leaving = if bad {
            Vec::new()
        } else {
            record.leaving.clone()
        };
        let confirmed = record.confirmed;
        let same = record.hash == job.hash;
        let settles = complete && same && !bad && leaving.is_empty() && record.left.is_empty();
        let settled = settles && state.settle_claims(&job.name, &keep);
        drop(state);
        if settled {
            self.persister.touch(&job.name);
        }
        for other in others {
            self.queue.add(other);
        }
        (confirmed, leaving)
    }
}

fn stamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

fn next_failure(
    previous: Option<Box<Failure>>,
    message: String,
    hash: u64,
    now: DateTime<Utc>,
    rng: &mut impl Rng,
) -> Box<Failure> {
    let mut failure = previous
        .filter(|failure| failure.hash == hash)
        .unwrap_or_else(|| {
            Box::new(Failure {
                message: String::new(),
                hash,
                backoff: Backoff::new(BACKOFF_BASE, BACKOFF_CAP),
                retry_at: now,
            })
        });
    let delay = failure.backoff.next(rng);
    failure.retry_at = now + delay;
    failure.message = message;
    failure
}
