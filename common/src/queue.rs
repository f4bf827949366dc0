//! A work queue on tokio time: each key at most once, never two workers on one key, a delay, a priority
//! and a fair turn for each.
//!
//! It holds no more entries than there are distinct keys, so it needs no other limit.
//!
//! * **Once.** A key that is added while it waits stays where it is; one that is added while a worker has it
//!   comes again when the worker is done.
//! * **Delays.** Of several the shortest counts. A key that is added now needs no delay any more: whoever
//!   works on it says anew when it is to come again.
//! * **Priorities.** What is more urgent goes first, and of that what has the higher rank, but every
//!   [`STEP_BACK`]th turn begins at the other end, so that nothing waits for ever.
//! * **Shares.** Keys of one share take turns with those of the others ([`Queue::with_shares`]): a thousand keys
//!   of one owner do not keep the single key of another waiting. Within a share the first added is the first
//!   served.

mod state;

use state::State;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

pub use state::STEP_BACK;

/// What a key of a queue is.
pub trait Key: Eq + Hash + Clone + Send + Sync + 'static {}

impl<K: Eq + Hash + Clone + Send + Sync + 'static> Key for K {}

/// How soon a key should have its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    /// After everything else: what is found at a start.
    Backlog,
    /// In turn.
    #[default]
    Normal,
    /// Before everything else: what a person waits for.
    Urgent,
}

/// The queue; clones share it.
pub struct Queue<K>(Arc<Inner<K>>);

struct Inner<K> {
    state: Mutex<State<K>>,
    changed: Notify,
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K: Key> Default for Queue<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> std::fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").finish_non_exhaustive()
    }
}

impl<K: Key> Queue<K> {
    /// An empty queue, in which every key has the same share.
    pub fn new() -> Self {
        Self::with_shares(|_| 0)
    }

    /// An empty queue in which keys of the same number share a turn.
    pub fn with_shares(share: fn(&K) -> u64) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State::new(share)),
            changed: Notify::new(),
        }))
    }

    /// Adds a key now.
    pub fn add(&self, key: K) {
        self.add_with(key, Priority::Normal);
    }

    /// Adds a key now; of several priorities the highest counts.
    pub fn add_with(&self, key: K, priority: Priority) {
        self.add_ranked(key, priority, 0);
    }

    /// The same with a rank: of what is as urgent, the higher rank goes first.
    pub fn add_ranked(&self, key: K, priority: Priority, rank: i32) {
        self.lock().add(key, (priority, rank), Instant::now());
        self.0.changed.notify_one();
    }

    /// Adds a key after a delay.
    pub fn add_after(&self, key: K, delay: Duration) {
        self.add_at(key, Instant::now() + delay, Priority::Normal);
    }

    /// Adds a key at a time.
    pub fn add_at(&self, key: K, at: Instant, priority: Priority) {
        self.lock().add_at(key, at, priority);
        self.0.changed.notify_one();
    }

    /// Takes the next key; it belongs to the caller until [`Queue::done`].
    pub async fn next(&self) -> K {
        loop {
            // Registered before looking, so that no change falls in between.
            let changed = self.0.changed.notified();
            let timer = {
                let mut state = self.lock();
                if let Some(key) = state.take(Instant::now()) {
                    // Another worker may wait, and one word wakes one of them.
                    if state.ready() > 0 {
                        self.0.changed.notify_one();
                    }
                    return key;
                }
                state.next_due()
            };
            match timer {
                Some(at) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Takes the next key that is due, if there is one; it belongs to the caller until [`Queue::done`].
    pub fn try_next(&self) -> Option<K> {
        self.lock().take(Instant::now())
    }

    /// Gives a key back.
    pub fn done(&self, key: &K) {
        self.lock().done(key, Instant::now());
        self.0.changed.notify_one();
    }

    /// Keys that wait for a worker.
    pub fn len(&self) -> usize {
        self.lock().ready()
    }

    /// Whether no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a key waits for a worker, or one has it.
    pub fn is_busy(&self) -> bool {
        self.lock().is_busy()
    }

    /// Whether it knows no key at all: none waits for a worker or a time, and no worker has one.
    pub fn is_idle(&self) -> bool {
        self.lock().known() == 0
    }

    /// For how long the first key has waited for a worker.
    pub fn oldest(&self) -> Duration {
        let since = self.lock().waiting_since();
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
