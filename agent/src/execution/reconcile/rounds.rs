//! The end of a round on a Work: what became of its manifests is noted, what left it goes, and the hub is told.

use super::deletion::BLOCKED_AFTER;
use super::job::Job;
use crate::context::ErrorReport;
use crate::execution::apply::Ended;
use crate::execution::apply::object::Outcome;
use crate::execution::conditions::{self, Verdict};
use crate::execution::decide::{BACKOFF_CAP, Waiting};
use crate::execution::manifest::Target;
use crate::execution::persist::Persister;
use crate::execution::prune::{Pruned, Pruner};
use crate::execution::report::reporter::Reporter;
use crate::execution::state::{Failure, Item, ObjectKey, Shared, Stuck};
use chrono::{DateTime, Utc};
use common::backoff::Backoff;
use common::chance::SharedStream;
use common::errors::chain;
use common::queue::Queue;
use common::time::SharedClock;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// First delay of a manifest that failed.
const BACKOFF_BASE: Duration = Duration::from_millis(200);
/// Least time between two rounds that nothing new asks for.
const LEAST_PAUSE: Duration = Duration::from_millis(50);
/// When what left a Work and does not go is tried again.
const PRUNE_AGAIN: Duration = Duration::from_secs(5);

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
        let mut waits = false;
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
                    waits = true;
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
        let complete = errors.is_empty() && outage.is_none() && !waits;
        let leaving = self.note_round(&job, items, complete);
        let pruned = self.prune(&job, leaving).await;
        if pruned.as_ref().is_some_and(Pruned::waits) {
            soonest(now + PRUNE_AGAIN);
        }
        let blockers = self.note_stuck(&job, pruned, now);
        if let Some(error) = &outage {
            // Nothing is known about the objects: the conditions stay as they are.
            tracing::warn!(work = %job.name, error = %chain(error), "the member does not answer");
            self.errors.report("member", &chain(error));
        } else {
            self.errors.clear("member");
            let applied = conditions::applied(job.manifests.len(), &errors);
            let mut verdicts = vec![applied, conditions::dispatching(false)];
            let is_told = {
                let state = self.state.lock();
                // It may be another Work of that name by now.
                let record = state.works.get(&job.name);
                let record = record.filter(|record| *record.uid == *job.uid);
                let standing = record.and_then(|record| {
                    common::conditions::get(&record.conditions, conditions::DEGRADED)
                });
                verdicts.extend(degraded(standing, blockers.as_deref(), &notes));
                // The hub learns it when it is back; then it is looked at again.
                record.is_some_and(|record| record.confirmed)
            };
            if is_told {
                self.reporter.set_verdicts(&job.name, verdicts);
            }
        }
        self.reporter.report(&job.name).await;
        again.map(|at| {
            let delay = (at - now).to_std().unwrap_or_default();
            delay.max(LEAST_PAUSE)
        })
    }

    /// Takes what left a Work out of the member; none when that was not tried.
    async fn prune(&self, job: &Job, leaving: Vec<Target>) -> Option<Pruned> {
        if leaving.is_empty() {
            return Some(Pruned::default());
        }
        // A manifest that cannot be read may be the one that is missing.
        if job.manifests.iter().any(Result::is_err) {
            return None;
        }
        // While the hub's list is read, an heir may be on its next page; the end of the list takes it up again.
        let is_listing = || self.state.lock().is_listing();
        if is_listing() {
            return None;
        }
        // A later life that does not hear of the hub would make again what is gone.
        self.persister.leaving_is_stored(&job.name).await;
        if is_listing() {
            return None;
        }
        Some(self.pruner.prune(&job.name, leaving).await)
    }

    /// Takes note of what does not go; returns what of it the hub is told, or none when nothing is known of it.
    fn note_stuck(
        &self,
        job: &Job,
        pruned: Option<Pruned>,
        now: DateTime<Utc>,
    ) -> Option<Vec<String>> {
        let mut state = self.state.lock();
        let record = state.works.get_mut(&job.name);
        let record = record.filter(|record| *record.uid == *job.uid)?;
        let answered = pruned.as_ref().is_some_and(|pruned| !pruned.outage);
        record.stuck = still_stuck(record.stuck.take(), pruned, now);
        if !answered && record.stuck.is_none() {
            return None;
        }
        let standing = common::conditions::get(&record.conditions, conditions::DEGRADED);
        let is_told = standing.is_some_and(is_deletion_blocked);
        Some(told(record.stuck.as_deref(), is_told, now))
    }

    /// Stores the round's results; returns what is to leave.
    fn note_round(&self, job: &Job, items: Vec<Item>, complete: bool) -> Vec<Target> {
        let mut state = self.state.lock();
        let keep: BTreeSet<Arc<ObjectKey>> = items.iter().filter_map(|i| i.key.clone()).collect();
        let bad = job.manifests.iter().any(Result::is_err);
        // It may be another Work of that name by now.
        let record = state.works.get(&job.name);
        let Some(record) = record.filter(|record| *record.uid == *job.uid) else {
            return Vec::new();
        };
        let (leaves, stays) = (record.leaving.clone(), record.left.clone());
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
            return Vec::new();
        };
        record.items = items;
        if complete && record.hash == job.hash {
            record.before = None;
        }
        let leaving = record.leaving.clone();
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
        leaving
    }
}

/// What does not go after a try to take it out of the member. Where none was made, or the member did not answer, nothing
/// new is known.
fn still_stuck(
    before: Option<Box<Stuck>>,
    pruned: Option<Pruned>,
    now: DateTime<Utc>,
) -> Option<Box<Stuck>> {
    let Some(Pruned {
        blockers,
        outage: false,
    }) = pruned
    else {
        return before;
    };
    let since = before.map_or(now, |before| before.since);
    (!blockers.is_empty()).then(|| Box::new(Stuck { since, blockers }))
}

/// What the hub is told of what does not go: nothing at first, for many objects take a moment; at once, when an earlier
/// life has told it.
fn told(stuck: Option<&Stuck>, is_told: bool, now: DateTime<Utc>) -> Vec<String> {
    let stuck = stuck.filter(|stuck| is_told || now - stuck.since >= BLOCKED_AFTER);
    stuck.map_or_else(Vec::new, |stuck| stuck.blockers.clone())
}

/// What the condition should say after a round; none when it stays as it is. Nobody needs to be told of a Work of which
/// nothing was ever amiss, and what an earlier life has told of a deletion stands until this one knows better.
fn degraded(
    standing: Option<&Condition>,
    blockers: Option<&[String]>,
    notes: &[String],
) -> Option<Verdict> {
    if blockers.is_none() && standing.is_some_and(is_deletion_blocked) {
        return None;
    }
    let blockers = blockers.unwrap_or_default();
    let is_told = standing.is_some() || !blockers.is_empty() || !notes.is_empty();
    is_told.then(|| conditions::degraded(blockers, notes))
}

fn is_deletion_blocked(condition: &Condition) -> bool {
    condition.status == "True" && condition.reason == conditions::DELETION_BLOCKED
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

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::Duration as Span;

    /// A restart and the list after it change nothing that is told: both come before the member is asked.
    #[test]
    fn what_is_told_of_a_deletion_stands_until_something_else_is_known() {
        let (a, b) = (["a".to_owned()], ["b is held".to_owned()]);
        let (none, waits, held): (&[String], &[String], &[String]) = (&[], &a, &b);
        let standing = |reason: &str| {
            let status = reason != "Healing";
            common::conditions::new(
                conditions::DEGRADED,
                status,
                reason,
                "",
                DateTime::default(),
            )
        };
        for (reason, blockers, notes, want) in [
            (None, None, none, None),
            (None, Some(none), none, None),
            (None, Some(waits), none, Some("DeletionBlocked")),
            (None, None, held, Some("HealingPaused")),
            (Some("DeletionBlocked"), None, none, None),
            (Some("DeletionBlocked"), None, held, None),
            (Some("DeletionBlocked"), Some(none), none, Some("Healing")),
            (
                Some("DeletionBlocked"),
                Some(waits),
                none,
                Some("DeletionBlocked"),
            ),
            (Some("HealingPaused"), None, none, Some("Healing")),
            (Some("Healing"), None, none, Some("Healing")),
        ] {
            let standing = reason.map(standing);
            let told = degraded(standing.as_ref(), blockers, notes);
            assert_eq!(
                told.map(|it| it.reason),
                want,
                "{reason:?} {blockers:?} {notes:?}"
            );
        }
    }

    #[test]
    fn what_does_not_go_is_told_after_a_while_and_until_it_goes() {
        let at = |seconds: i64| {
            DateTime::from_timestamp(1_800_000_000, 0).expect("in range") + Span::seconds(seconds)
        };
        let waits = |text: &str| Pruned {
            blockers: vec![text.to_owned()],
            outage: false,
        };
        let outage = Pruned {
            blockers: vec!["c".to_owned()],
            outage: true,
        };
        let mut stuck = None;
        // When it was tried, what came of it, whether the hub has it already, and what the hub is told.
        for (seconds, pruned, is_told, want) in [
            (0, Some(waits("a")), false, ""),
            (1, Some(waits("a")), true, "a"),
            (4, Some(waits("b")), false, ""),
            (5, Some(waits("b")), false, "b"),
            // Nobody tried, or nobody answered: it is as it was.
            (6, None, true, "b"),
            (7, Some(outage), true, "b"),
            (8, Some(Pruned::default()), true, ""),
            (9, Some(waits("d")), false, ""),
        ] {
            stuck = still_stuck(stuck, pruned, at(seconds));
            let told = told(stuck.as_deref(), is_told, at(seconds));
            assert_eq!(told.concat(), want, "{seconds}");
        }
    }
}
