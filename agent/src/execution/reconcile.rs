//! The work on one Work: from what the hub wants of it to what is in the member.

pub mod deletion;
pub mod job;
pub mod rounds;
#[cfg(test)]
mod tests;

use super::apply::Applier;
use super::conditions;
use super::contact::Contact;
use super::persist::Persister;
use super::prune::orphans::Orphans;
use super::report::reporter::Reporter;
use super::state::Shared;
use super::writes::{NotWritten, WorkWriter};
use common::controller::{Failure, Reconcile, Requeue};
use common::rest;
use deletion::Deletion;
use job::Job;
use rounds::Rounds;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// When orphans that were ordered to go, and do not yet, are looked at again.
const ORPHANS_WAIT: Duration = Duration::from_secs(2);

/// Works on Works.
pub struct Reconciler {
    pub(super) state: Shared,
    pub(super) contact: Arc<Contact>,
    pub(super) works: Arc<WorkWriter>,
    pub(super) persister: Arc<Persister>,
    pub(super) reporter: Arc<Reporter>,
    pub(super) orphans: Arc<Orphans>,
    pub(super) applier: Applier,
    pub(super) rounds: Rounds,
    pub(super) deletion: Deletion,
}

/// Why the work on a Work is begun anew.
#[derive(Debug, thiserror::Error)]
#[error("failed to write the finalizer of the Work")]
pub struct Error(#[source] rest::Error);

impl Failure for Error {
    fn reason(&self) -> &'static str {
        "FinalizerNotWritten"
    }
}

impl NotWritten {
    /// When it is tried again.
    fn again(self) -> Result<Option<Duration>, Error> {
        match self {
            Self::Rests(until) => Ok(Some(until.saturating_duration_since(Instant::now()))),
            Self::Failed(error) => Err(Error(error)),
        }
    }
}

impl Reconcile for Reconciler {
    const NAME: &'static str = "work";
    type Key = Arc<str>;
    type Error = Error;

    async fn reconcile(&self, name: &Arc<str>) -> Result<Requeue, Error> {
        let again = self.sync(name).await?;
        Ok(again.map_or(Requeue::Never, Requeue::After))
    }
}

impl Reconciler {
    /// Works on a Work until nothing is left to do now; says when it is to be looked at again.
    async fn sync(&self, name: &Arc<str>) -> Result<Option<Duration>, Error> {
        let (uid, deleting, suspended, finalizer, ordered) = {
            let state = self.state.lock();
            let Some(record) = state.works.get(name) else {
                return Ok(None);
            };
            if !record.confirmed && !self.contact.is_alone() {
                return Ok(None);
            }
            // The end of the list takes it up again.
            if record.deleting && state.is_listing() {
                return Ok(None);
            }
            let ordered = !record.order.delete.is_empty();
            let finalizer = record.has_finalizer();
            let uid = record.uid.clone();
            (uid, record.deleting, record.suspended, finalizer, ordered)
        };
        if deleting {
            return self.deletion.delete_work(name).await;
        }
        let waits = ordered && self.orphans.delete_ordered(name).await;
        let again = waits.then_some(ORPHANS_WAIT);
        let later = if suspended {
            let verdict = conditions::dispatching(true);
            self.reporter.set_verdicts(name, vec![verdict]);
            self.reporter.report(name).await;
            None
        } else {
            self.deliver(name, &uid, finalizer).await?
        };
        // Whichever comes first.
        Ok(again.into_iter().chain(later).min())
    }

    /// Brings what a Work wants to the member, once it has our finalizer.
    async fn deliver(
        &self,
        name: &Arc<str>,
        uid: &str,
        finalizer: bool,
    ) -> Result<Option<Duration>, Error> {
        if !finalizer {
            match self.works.write_finalizer(name, uid, true).await {
                Ok(true) => self.persister.touch(name),
                // Gone or new: the watch says which.
                Ok(false) => return Ok(None),
                Err(not) => return not.again(),
            }
        }
        let Some(mut job) = Job::read(&self.state.lock(), name) else {
            return Ok(None);
        };
        self.refuse_doubles(&mut job).await;
        let ended = self.applier.apply(&job).await;
        Ok(self.rounds.conclude(job, ended).await)
    }

    /// Two manifests of one name in different namespaces are one object if its kind has none, which the member says.
    async fn refuse_doubles(&self, job: &mut Job) {
        let mut cluster_scoped = BTreeSet::new();
        for gvk in job.kinds_of_namesakes() {
            if let Ok(Some(resource)) = self.applier.member.resolve(&gvk).await
                && !resource.namespaced
            {
                cluster_scoped.insert(gvk.group_kind());
            }
        }
        job.refuse_doubles(&cluster_scoped);
    }
}
