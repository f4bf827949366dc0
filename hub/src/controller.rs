//! The shell every controller runs in, and the only place of the hub that loops over keys.
//!
//! A controller is a [`Reconcile`]: key in, requeue or error out. The shell owns what is the same for
//! all of them: a queue that holds each key once, backoff for each key, bounded concurrency, a tracing
//! span, metrics, and an end that waits for what is under way.

pub mod cluster;
pub mod events;
pub mod metrics;
pub mod monitor;
pub mod quarantine;
pub mod queue;
pub mod registration;
pub mod rights;

use common::backoff::Backoff;
use common::errors::chain;
use metrics::{Metrics, Outcome};
use queue::Queue;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// First delay of a key that failed.
const BACKOFF_BASE: Duration = Duration::from_millis(100);
/// Longest delay of a key that failed.
const BACKOFF_CAP: Duration = Duration::from_secs(60);

/// What becomes of a key that was reconciled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// Nothing until something changes.
    Never,
    /// Looked at again after this time.
    After(Duration),
}

/// An error the shell can count and judge.
pub trait Failure: std::error::Error + Send + 'static {
    /// One CamelCase word for Events, conditions and metrics.
    fn reason(&self) -> &'static str;
    /// A lost race: tried again at once, from a fresh observation, and not worth a warning.
    fn is_conflict(&self) -> bool {
        false
    }
}

/// A controller: everything about it but the loop.
pub trait Reconcile: Send + Sync + 'static {
    /// Its name in spans and metrics.
    const NAME: &'static str;
    /// What can go wrong.
    type Error: Failure;
    /// Makes the world as it should be for one key.
    fn reconcile(&self, key: &str) -> impl Future<Output = Result<Requeue, Self::Error>> + Send;
}

/// Runs a controller until `shutdown`, then waits for the keys that are under way.
pub async fn run<R: Reconcile>(
    reconciler: Arc<R>,
    queue: Queue,
    concurrency: usize,
    metrics: Metrics,
    shutdown: CancellationToken,
) {
    let mut shell = Shell {
        reconciler,
        queue,
        metrics,
        running: JoinSet::new(),
        keys: HashMap::new(),
        backoffs: BTreeMap::new(),
        rng: StdRng::from_os_rng(),
    };
    loop {
        tokio::select! {
            // Order matters: an end is heard first, and results free places before keys take them.
            biased;
            () = shutdown.cancelled() => break,
            Some(result) = shell.running.join_next_with_id() => shell.finished(result),
            key = shell.queue.next(), if shell.running.len() < concurrency => shell.start(key),
        }
    }
    while let Some(result) = shell.running.join_next_with_id().await {
        shell.finished(result);
    }
}

struct Shell<R: Reconcile> {
    reconciler: Arc<R>,
    queue: Queue,
    metrics: Metrics,
    running: JoinSet<Result<Requeue, R::Error>>,
    keys: HashMap<Id, (String, Instant)>,
    /// Only keys that failed last time.
    backoffs: BTreeMap<String, Backoff>,
    rng: StdRng,
}

impl<R: Reconcile> Shell<R> {
    fn start(&mut self, key: String) {
        let reconciler = Arc::clone(&self.reconciler);
        let span = tracing::debug_span!("reconcile", controller = R::NAME, object.name = %key);
        let name = key.clone();
        let task = async move { reconciler.reconcile(&name).await }.instrument(span);
        let id = self.running.spawn(task).id();
        self.keys.insert(id, (key, Instant::now()));
        self.metrics.queue_length(R::NAME, self.queue.len());
    }

    fn finished(
        &mut self,
        result: Result<(Id, Result<Requeue, R::Error>), tokio::task::JoinError>,
    ) {
        let (id, outcome) = match result {
            Ok((id, outcome)) => (id, Some(outcome)),
            Err(error) => (error.id(), None),
        };
        let (key, started) = self
            .keys
            .remove(&id)
            .expect("invariant: every task was put into keys when it was spawned");
        self.queue.done(&key);
        let (label, reason) = match outcome {
            Some(Ok(requeue)) => {
                self.backoffs.remove(&key);
                if let Requeue::After(delay) = requeue {
                    self.queue.add_after(&key, delay);
                }
                (Outcome::Done, "")
            }
            Some(Err(error)) => {
                let conflict = error.is_conflict();
                self.again(&key, &chain(&error), conflict);
                let label = if conflict {
                    Outcome::Conflict
                } else {
                    Outcome::Failed
                };
                (label, error.reason())
            }
            None => {
                self.again(&key, &"the reconciler panicked", false);
                (Outcome::Panicked, "Panicked")
            }
        };
        self.metrics
            .reconciled(R::NAME, label, reason, started.elapsed());
    }

    fn again(&mut self, key: &str, error: &dyn std::fmt::Display, conflict: bool) {
        let backoff = self
            .backoffs
            .entry(key.to_owned())
            .or_insert(Backoff::new(BACKOFF_BASE, BACKOFF_CAP));
        let first = backoff.failures() == 0;
        let delay = backoff.next(&mut self.rng);
        // Said once as a warning; the same key failing again is only worth a debug line.
        if first && !conflict {
            tracing::warn!(controller = R::NAME, object.name = key, %error, "reconcile failed");
        } else {
            tracing::debug!(controller = R::NAME, object.name = key, %error, "reconcile failed again");
        }
        self.queue.add_after(key, delay);
    }
}

#[cfg(test)]
mod tests;
