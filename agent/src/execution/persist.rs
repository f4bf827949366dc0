//! Keeps the stored set: `recall` reads it at the start, `write` writes what changed, gathered, and `waits` holds back
//! what must not go before that is stored.

mod recall;
mod waits;
mod write;

use super::state::Shared;
use super::stored::place::Place;
use super::stored::plan::Plan;
use crate::context::ErrorReport;
use common::chance::Chance;
use common::errors::chain;
use common::leader::Standing;
use common::signal;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

/// How long a deletion waits for the stored set before it is tried again later: a write that is not answered, and
/// another one.
const PATIENCE: Duration = Duration::from_secs(12);
/// How long the last write may take when the agent stops.
const LAST_WRITE: Duration = Duration::from_secs(3);
/// The part's name in the agent's errors.
const PART: &str = "stored Works";

/// The stored set, and what of it has to change.
pub struct Persister {
    /// The execution namespace: a set of another is not believed.
    namespace: Arc<str>,
    place: Place,
    /// Bound the requests to the member at the same time.
    permits: Arc<Semaphore>,
    state: Shared,
    errors: ErrorReport,
    chance: Chance,
    inner: Mutex<Inner>,
    wake: Notify,
    flushed: signal::Sender<Flushed>,
    /// Whether this replica leads; none where there is one alone.
    standing: Option<signal::Receiver<Standing>>,
    /// One flush at a time.
    turn: tokio::sync::Mutex<()>,
}

/// How far the set is written.
#[derive(Debug, Clone, Copy, Default)]
struct Flushed {
    /// Everything touched up to this count is.
    count: u64,
    /// Whether the last write failed.
    failing: bool,
}

#[derive(Default)]
struct Inner {
    plan: Plan,
    touched: BTreeSet<Arc<str>>,
    count: u64,
    urgent: bool,
    /// It is not written: we may not read it either, or another replica leads and writes it.
    off: bool,
    stopped: bool,
}

impl Persister {
    /// The set at `place`, of which nothing is known yet.
    pub fn new(
        namespace: Arc<str>,
        place: Place,
        permits: Arc<Semaphore>,
        state: Shared,
        errors: ErrorReport,
        chance: Chance,
    ) -> Self {
        Self {
            namespace,
            place,
            permits,
            state,
            errors,
            chance,
            inner: Mutex::default(),
            wake: Notify::new(),
            flushed: signal::Sender::new(Flushed::default()),
            standing: None,
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Writes only as long as this replica is known to lead.
    pub fn while_it_leads(mut self, standing: Option<signal::Receiver<Standing>>) -> Self {
        self.standing = standing;
        self
    }

    /// What is stored of a Work may have to change. Returns up to where it must be flushed.
    fn mark(&self, work: &Arc<str>, urgent: bool) -> u64 {
        let mut inner = self.lock();
        if inner.off {
            return 0;
        }
        inner.touched.insert(work.clone());
        inner.count += 1;
        inner.urgent |= urgent;
        self.wake.notify_one();
        inner.count
    }

    /// Waits until everything touched up to `count` is written; false when it was not in time.
    async fn reached(&self, count: u64) -> bool {
        let mut flushed = self.flushed.subscribe();
        let done = flushed.wait_for(|flushed| flushed.count >= count);
        matches!(timeout(PATIENCE, done).await, Ok(Ok(_)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds it; a poisoned lock still holds a sound value.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another replica leads: what this one knows is not written over what that one stores.
    pub fn hand_over(&self) {
        self.lock().off = true;
    }

    /// A hub that lists our Works has us registered: so much is stored, too.
    pub fn healing_goes_on(&self) {
        let mut inner = self.lock();
        if std::mem::take(&mut inner.stopped) {
            inner.plan.spoil_all();
            self.wake.notify_one();
        }
    }

    /// Stores that our registration is gone, for later lives.
    pub async fn healing_stops(&self) {
        {
            let mut inner = self.lock();
            inner.stopped = true;
            inner.plan.spoil_all();
        }
        match timeout(LAST_WRITE, self.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %chain(&error), "not stored that healing ends");
            }
            Err(_) => tracing::warn!("not stored in time that healing ends"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::testing::{Handles, map, wire};

    /// A life after that of `parts`, from what it stored.
    pub(super) async fn next_life(parts: &Handles, namespace: &str) -> (Shared, bool) {
        let state = Shared::default();
        let place = Place::Directory(parts.directory.path().to_owned());
        let permits = Arc::new(Semaphore::new(1));
        let errors = ErrorReport::default();
        let next = Persister::new(
            namespace.into(),
            place,
            permits,
            state.clone(),
            errors,
            Chance::seeded(1),
        );
        let stopped = next.recall().await;
        (state, stopped)
    }

    #[tokio::test(start_paused = true)]
    async fn that_healing_ends_is_known_in_the_next_life_until_a_hub_lists_works() {
        let parts = Handles::alone().await;
        let work = parts.knows(&wire("w", "1", &[map("a")]));
        parts.persister.touch(&work);
        parts.persister.healing_stops().await;
        assert!(next_life(&parts, "karmada-es-m1").await.1);
        parts.persister.healing_goes_on();
        parts.persister.flush_at_end().await;
        assert!(!next_life(&parts, "karmada-es-m1").await.1);
    }
}
