//! The runtime that every controller runs in, and the only place that loops over keys.
//!
//! A [`Controller`] is a [`Reconcile`] (key in, requeue or error out), the sources that add keys to its queue,
//! and how many keys it works on at once. The runtime owns what is the same for all of them: the queue,
//! backoff for each key, bounded concurrency, tracing spans, metrics, and an end that waits for what is
//! under way. An error or a panic, of a reconcile or of a source, is counted, said, and tried again with
//! backoff, other than an error that says that it lasts.

mod metrics;
#[cfg(test)]
mod tests;

pub use metrics::{Metrics, Outcome};

use crate::backoff::Backoff;
use crate::chance::Chance;
use crate::errors::chain;
use crate::queue::{Key, Queue};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use rand::rngs::StdRng;
use std::collections::HashMap;
use std::fmt::Display;
use std::future::Future;
use std::ops::ControlFlow::{self, Break, Continue};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

/// First delay of what failed.
const BACKOFF_BASE: Duration = Duration::from_millis(100);
/// Longest delay of what failed.
const BACKOFF_CAP: Duration = Duration::from_secs(60);
/// A source that lasted so long begins its backoff anew.
const LASTING: Duration = Duration::from_secs(60);

/// What becomes of a key that was reconciled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// Nothing until something changes.
    Never,
    /// Looked at again after this time.
    After(Duration),
}

/// An error the runtime can count and judge.
pub trait Failure: std::error::Error + Send + 'static {
    /// One CamelCase word for Events, conditions and metrics.
    fn reason(&self) -> &'static str;
    /// A lost race: tried again at once, from a fresh observation, and not worth a warning.
    fn is_conflict(&self) -> bool {
        false
    }
    /// It is so until what wakes the key changes: tried again before, it would be the same.
    fn lasts(&self) -> bool {
        false
    }
}

/// What a controller does for one key.
pub trait Reconcile: Send + Sync + 'static {
    /// Its name in spans and metrics.
    const NAME: &'static str;
    /// What it is called for.
    type Key: Key + Display;
    /// What can go wrong.
    type Error: Failure;
    /// Waits for what has to be known before the first key. The end of the controller ends the wait.
    fn ready(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
    /// Makes the world as it should be for one key.
    fn reconcile(
        &self,
        key: &Self::Key,
    ) -> impl Future<Output = Result<Requeue, Self::Error>> + Send;
}

impl<R: Reconcile> Reconcile for Arc<R> {
    const NAME: &'static str = R::NAME;
    type Key = R::Key;
    type Error = R::Error;

    async fn ready(&self) {
        R::ready(self).await;
    }

    async fn reconcile(&self, key: &R::Key) -> Result<Requeue, R::Error> {
        R::reconcile(self, key).await
    }
}

/// Adds keys to a queue for ever. It is called again when it ends or panics.
type Source = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// A controller, ready to run.
pub struct Controller<R: Reconcile> {
    reconciler: R,
    queue: Queue<R::Key>,
    sources: Vec<Source>,
    workers: usize,
}

impl<R: Reconcile> Controller<R> {
    /// A controller with one worker and no source.
    pub fn new(reconciler: R) -> Self {
        Self::over(Queue::new(), reconciler)
    }

    /// The same over a queue that others have too: what a reconcile finds out may concern other keys.
    pub fn over(queue: Queue<R::Key>, reconciler: R) -> Self {
        Self {
            reconciler,
            queue,
            sources: Vec::new(),
            workers: 1,
        }
    }

    /// Works on so many keys at once.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Adds a source: a future that adds keys to the queue it is given, for ever.
    pub fn source<F>(mut self, source: impl Fn(Queue<R::Key>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let queue = self.queue.clone();
        self.sources
            .push(Box::new(move || source(queue.clone()).boxed()));
        self
    }

    /// Its queue, for sources that run elsewhere.
    pub fn queue(&self) -> Queue<R::Key> {
        self.queue.clone()
    }

    /// Runs until `shutdown`, then waits for the keys that are under way.
    pub async fn run(self, metrics: Metrics, chance: Chance, shutdown: CancellationToken) {
        let _told = metrics.queue(R::NAME, &self.queue);
        // Dropped at the end, with whatever they were doing: they only read.
        let mut sources: JoinSet<()> = JoinSet::new();
        for source in self.sources {
            let source = move || source().map(Continue);
            let rng = chance.stream(R::NAME);
            sources.spawn(keep_up(R::NAME, metrics.clone(), rng, source));
        }
        let mut shell = Shell {
            reconciler: Arc::new(self.reconciler),
            queue: self.queue,
            metrics,
            running: JoinSet::new(),
            keys: HashMap::new(),
            backoffs: HashMap::new(),
            rng: chance.stream(R::NAME),
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = shell.reconciler.ready() => {}
        }
        loop {
            tokio::select! {
                // Order matters: an end is heard first, and results free places before keys take them.
                biased;
                () = shutdown.cancelled() => break,
                Some(result) = shell.running.join_next_with_id() => shell.finished(result),
                key = shell.queue.next(), if shell.running.len() < self.workers => shell.start(key),
            }
        }
        drop(sources);
        while let Some(result) = shell.running.join_next_with_id().await {
            shell.finished(result);
        }
    }
}

/// Calls a source again whenever it panics, and when it ends though it says [`Continue`].
pub async fn keep_up<F>(
    controller: &'static str,
    metrics: Metrics,
    mut rng: StdRng,
    source: impl Fn() -> F,
) where
    F: Future<Output = ControlFlow<()>>,
{
    let mut backoff = Backoff::new(BACKOFF_BASE, BACKOFF_CAP);
    loop {
        let started = Instant::now();
        let ended = AssertUnwindSafe(source()).catch_unwind().await;
        let (outcome, reason) = match ended {
            Ok(Break(())) => return,
            Ok(Continue(())) => (Outcome::Failed, "SourceEnded"),
            Err(_) => (Outcome::Panicked, "SourcePanicked"),
        };
        metrics.reconciled(controller, outcome, reason, started.elapsed());
        if started.elapsed() >= LASTING {
            backoff.reset();
        }
        let delay = backoff.next(&mut rng);
        tracing::error!(controller, reason, again_in = ?delay, "a source ended; this is a defect");
        tokio::time::sleep(delay).await;
    }
}

struct Shell<R: Reconcile> {
    reconciler: Arc<R>,
    queue: Queue<R::Key>,
    metrics: Metrics,
    running: JoinSet<Result<Requeue, R::Error>>,
    keys: HashMap<Id, (R::Key, Instant)>,
    /// Only keys that failed last time.
    backoffs: HashMap<R::Key, Backoff>,
    rng: StdRng,
}

impl<R: Reconcile> Shell<R> {
    fn start(&mut self, key: R::Key) {
        let reconciler = Arc::clone(&self.reconciler);
        let span = tracing::debug_span!("reconcile", controller = R::NAME, object.name = %key);
        let of = key.clone();
        let task = async move { reconciler.reconcile(&of).await }.instrument(span);
        let id = self.running.spawn(task.in_current_span()).id();
        self.keys.insert(id, (key, Instant::now()));
    }

    fn finished(
        &mut self,
        result: Result<(Id, Result<Requeue, R::Error>), tokio::task::JoinError>,
    ) {
        let (id, outcome) = match result {
            Ok((id, outcome)) => (id, Some(outcome)),
            Err(error) => (error.id(), None),
        };
        let Some((key, started)) = self.keys.remove(&id) else {
            return;
        };
        self.queue.done(&key);
        let (label, reason) = match outcome {
            Some(Ok(requeue)) => {
                self.backoffs.remove(&key);
                if let Requeue::After(delay) = requeue {
                    self.queue.add_after(key, delay);
                }
                (Outcome::Done, "")
            }
            Some(Err(error)) => {
                let conflict = error.is_conflict();
                let delay = self.failed(&key, &chain(&error), conflict);
                if !error.lasts() {
                    self.queue.add_after(key, delay);
                }
                let label = if conflict {
                    Outcome::Conflict
                } else {
                    Outcome::Failed
                };
                (label, error.reason())
            }
            None => {
                let delay = self.failed(&key, &"the reconciler panicked", false);
                self.queue.add_after(key, delay);
                (Outcome::Panicked, "Panicked")
            }
        };
        self.metrics
            .reconciled(R::NAME, label, reason, started.elapsed());
    }

    /// Says what went wrong; how long to wait before it is tried again.
    fn failed(&mut self, key: &R::Key, error: &dyn Display, conflict: bool) -> Duration {
        let backoff = self
            .backoffs
            .entry(key.clone())
            .or_insert(Backoff::new(BACKOFF_BASE, BACKOFF_CAP));
        let first = backoff.failures() == 0;
        let delay = backoff.next(&mut self.rng);
        // Said once as a warning; the same key failing again is only worth a debug line.
        if first && !conflict {
            tracing::warn!(controller = R::NAME, object.name = %key, %error, "reconcile failed");
        } else {
            tracing::debug!(controller = R::NAME, object.name = %key, %error, "reconcile failed again");
        }
        delay
    }
}
