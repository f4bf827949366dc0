//! The end of a Work: its objects go, then its finalizer.

use super::Error;
use super::job::Job;
use crate::context::ClusterView;
use crate::execution::conditions;
use crate::execution::errors;
use crate::execution::manifest::Target;
use crate::execution::order::rank;
use crate::execution::persist::Persister;
use crate::execution::prune::kinds::Answers;
use crate::execution::prune::{Gone, Pruner};
use crate::execution::report::reporter::Reporter;
use crate::execution::state::{ObjectKey, Order, Shared, State, WorkRecord};
use crate::execution::writes::WorkWriter;
use chrono::Duration as Span;
use common::errors::chain;
use common::queue::Queue;
use common::rest;
use common::signal;
use common::time::SharedClock;
use common::unregister::Mode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// After that long, what a deletion waits for is reported.
pub(super) const BLOCKED_AFTER: Span = Span::seconds(5);
/// How often a deletion that waits is looked at without news, until then and after.
const LOOK: Duration = Duration::from_secs(1);
const RECHECK: Duration = Duration::from_secs(10);
/// When it is looked at again after the member did not answer.
const OUTAGE: Duration = Duration::from_secs(2);

/// Objects by rank.
type Ranks = BTreeMap<u8, Vec<Arc<ObjectKey>>>;

/// What is known of the Work that a job is of; none when another one has its name by now.
fn record_of<'a>(state: &'a State, job: &Job) -> Option<&'a WorkRecord> {
    let record = state.works.get(&job.name)?;
    (*record.uid == *job.uid).then_some(record)
}

/// Ends Works.
pub struct Deletion {
    pub(crate) state: Shared,
    pub(crate) queue: Queue<Arc<str>>,
    pub(crate) persister: Arc<Persister>,
    pub(crate) pruner: Arc<Pruner>,
    pub(crate) works: Arc<WorkWriter>,
    pub(crate) reporter: Arc<Reporter>,
    /// Our Cluster: whether it is being unregistered, and how.
    pub(crate) view: signal::Receiver<Option<ClusterView>>,
    pub(crate) clock: SharedClock,
}

impl Deletion {
    /// Whether the cluster is being unregistered with its workloads left in place. The hub deletes the
    /// Works only after this was seen and acknowledged.
    fn keeps_workloads(&self) -> bool {
        let view = self.view.borrow();
        view.as_ref()
            .is_some_and(|view| view.deleting && view.unregister == Some(Mode::KeepWorkloads))
    }

    /// Deletes the objects of a Work, then lets the Work go. Another one may have its name at any moment: that one is
    /// left alone, and is queued by whoever saw it.
    pub async fn delete_work(&self, name: &Arc<str>) -> Result<Option<Duration>, Error> {
        let Some(job) = Job::read(&self.state.lock(), name) else {
            return Ok(None);
        };
        let (preserve, foreground, finalizer, first) = {
            let state = self.state.lock();
            let Some(record) = record_of(&state, &job) else {
                return Ok(None);
            };
            let preserve = record.preserve || self.keeps_workloads();
            let first = record.deleting_since.is_none();
            (preserve, record.foreground, record.has_finalizer(), first)
        };
        // A later life that does not hear of the hub would make again what is gone. A store that fails does not
        // keep what is to go: it is waited for once.
        if first {
            self.persister.deletion_is_stored(name).await;
        }
        let mut answers = Answers::default();
        let (mut keys, mut known) = self.keys_of(&job, &mut answers).await;
        let past = {
            let state = self.state.lock();
            let record = record_of(&state, &job);
            let asks = record.is_some_and(|r| r.order != Order::default());
            let past = record
                .filter(|_| !asks)
                .map(|r| [&r.leaving[..], &r.left].concat());
            past.unwrap_or_default()
        };
        for target in &past {
            let key = self.pruner.key_of(target, &mut answers).await;
            // Of a kind without namespaces it may be named all the same.
            if known.insert(key.clone()) && !answers.lack(&target.gvk) {
                keys.entry(rank(&target.gvk)).or_default().push(key);
            }
        }
        {
            let state = self.state.lock();
            // A Work that carries an order was made to settle orphans: those are not its own.
            let asks = record_of(&state, &job).is_some_and(|r| r.order != Order::default());
            let stray = match asks {
                true => Vec::new(),
                false => state.strays(name, &known),
            };
            for key in stray {
                keys.entry(0).or_default().push(key);
            }
        }
        let mut blockers = Vec::new();
        let mut outage = None;
        // What was applied last goes first; a rank that waits holds back those before it.
        for group in keys.into_values().rev() {
            if record_of(&self.state.lock(), &job).is_none() {
                return Ok(None);
            }
            let job = &job;
            let fates = futures::future::join_all(group.iter().map(|key| async move {
                // Each may have waited for others.
                if record_of(&self.state.lock(), job).is_none() {
                    return Ok(Gone::Yes);
                }
                if preserve {
                    self.pruner.release_object(name, key).await
                } else {
                    self.pruner.delete_object(name, key, foreground).await
                }
            }))
            .await;
            for (key, fate) in group.iter().zip(fates) {
                match fate {
                    Ok(Gone::Yes) => {}
                    Ok(Gone::Waits(text)) => blockers.push(text),
                    Err(error) if error.is_outage() => outage = Some(error),
                    Err(error) => blockers.push(self.refused(key, &error).await),
                }
            }
            if !blockers.is_empty() || outage.is_some() {
                break;
            }
        }
        if let Some(error) = outage {
            tracing::warn!(work = %name, error = %chain(&error), "the member does not answer");
            return Ok(Some(OUTAGE));
        }
        if !blockers.is_empty() {
            return Ok(self.wait_for(&job, &blockers).await);
        }
        if !finalizer {
            self.forget_work(&job);
            return Ok(None);
        }
        if !self.persister.deletion_is_stored(name).await {
            let what = "the agent's store of Works in the member, to take note of it";
            return Ok(self.wait_for(&job, &[what.to_owned()]).await);
        }
        match self.works.write_finalizer(name, &job.uid, false).await {
            Ok(true) => self.forget_work(&job),
            // It is gone, or another one by that name.
            Ok(false) => self.drop_work(&job),
            Err(not) => return not.again(),
        }
        Ok(None)
    }

    /// What is told of an object that the member does not let go: of a right that the agent lacks, what to do.
    async fn refused(&self, key: &Arc<ObjectKey>, error: &rest::Error) -> String {
        let (gvk, key) = {
            let state = self.state.lock();
            (state.gvk(key.kind), state.placed(key))
        };
        let bare = || chain(error).to_string();
        let Some(gvk) = gvk else { return bare() };
        let Ok(Some(resource)) = self.pruner.member.resolve_any(&gvk).await else {
            return bare();
        };
        let target = Target {
            gvk: (*gvk).clone(),
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
        };
        errors::refused(error, &target, &resource)
    }

    /// Its objects are gone; it stays known while others keep it.
    fn forget_work(&self, job: &Job) {
        let kept = record_of(&self.state.lock(), job).is_some_and(|r| !r.finalizers.is_empty());
        if !kept {
            self.drop_work(job);
        }
    }

    fn drop_work(&self, job: &Job) {
        let others = {
            let mut state = self.state.lock();
            if record_of(&state, job).is_none() {
                return;
            }
            state.forget(&job.name)
        };
        self.persister.touch(&job.name);
        for other in others {
            self.queue.add(other);
        }
    }

    /// Tells what a deletion waits for, and when to look again.
    async fn wait_for(&self, job: &Job, blockers: &[String]) -> Option<Duration> {
        let name = &job.name;
        let now = self.clock.now();
        let since = {
            let mut state = self.state.lock();
            let record = state.works.get_mut(name);
            let record = record.filter(|record| *record.uid == *job.uid)?;
            *record.deleting_since.get_or_insert(now)
        };
        if now - since < BLOCKED_AFTER {
            return Some(LOOK);
        }
        let verdict = conditions::deletion_blocked(blockers);
        self.reporter.set_verdicts(name, vec![verdict]);
        self.reporter.report(name).await;
        Some(RECHECK)
    }

    /// The objects of a Work by rank, also when it was never worked on by this process, and all that it names: of kinds
    /// that are not served there are none.
    async fn keys_of(&self, job: &Job, answers: &mut Answers) -> (Ranks, BTreeSet<Arc<ObjectKey>>) {
        let mut keys = Ranks::new();
        let mut named = BTreeSet::new();
        for manifest in job.manifests.iter().flatten() {
            let target = &manifest.target;
            let key = self.pruner.key_of(target, answers).await;
            let _ = self.state.lock().want(&key, &job.name);
            if named.insert(key.clone()) && !answers.lack(&target.gvk) {
                keys.entry(rank(&target.gvk)).or_default().push(key);
            }
        }
        (keys, named)
    }
}
