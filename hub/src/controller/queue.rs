//! A queue of keys on tokio time: each key at most once, never two workers on one key, delays for each.
//!
//! It holds no more entries than there are distinct keys, so it needs no other limit.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The queue; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Queue(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    ready: VecDeque<String>,
    /// The keys of `ready`.
    waiting: HashSet<String>,
    /// Keys a worker has; in `true` those that were added meanwhile.
    active: BTreeMap<String, bool>,
    timers: BTreeSet<(Instant, String)>,
    /// When each key of `timers` is due.
    due: BTreeMap<String, Instant>,
}

impl Queue {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key now.
    pub fn add(&self, key: &str) {
        self.lock().add(key);
        self.0.changed.notify_one();
    }

    /// Adds a key after a delay; of several delays the shortest counts.
    pub fn add_after(&self, key: &str, delay: Duration) {
        let at = Instant::now() + delay;
        let mut state = self.lock();
        match state.due.get(key).copied() {
            Some(earlier) if earlier <= at => return,
            Some(later) => {
                state.timers.remove(&(later, key.to_owned()));
            }
            None => {}
        }
        state.timers.insert((at, key.to_owned()));
        state.due.insert(key.to_owned(), at);
        drop(state);
        self.0.changed.notify_one();
    }

    /// Takes the next key; it belongs to the caller until [`Queue::done`].
    pub async fn next(&self) -> String {
        loop {
            // Registered before looking, so that no change falls in between.
            let changed = self.0.changed.notified();
            let timer = {
                let mut state = self.lock();
                state.expire(Instant::now());
                if let Some(key) = state.take() {
                    return key;
                }
                state.timers.first().map(|(at, _)| *at)
            };
            match timer {
                Some(at) => tokio::select! {
                    () = changed => {}
                    () = sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Gives a key back.
    pub fn done(&self, key: &str) {
        let mut state = self.lock();
        if state.active.remove(key) == Some(true) {
            state.add(key);
        }
        drop(state);
        self.0.changed.notify_one();
    }

    /// Keys that wait for a worker.
    pub fn len(&self) -> usize {
        self.lock().ready.len()
    }

    /// Whether no key waits for a worker.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, key: &str) {
        if let Some(again) = self.active.get_mut(key) {
            *again = true;
        } else if self.waiting.insert(key.to_owned()) {
            self.ready.push_back(key.to_owned());
        }
    }

    fn expire(&mut self, now: Instant) {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.timers.pop_first() {
                self.due.remove(&key);
                self.add(&key);
            }
        }
    }

    fn take(&mut self) -> Option<String> {
        let key = self.ready.pop_front()?;
        self.waiting.remove(&key);
        self.active.insert(key.clone(), false);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_held_once_and_comes_again_when_added_meanwhile() {
        let queue = Queue::new();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!(queue.next().await, "a");
        queue.add("a");
        assert_eq!(queue.next().await, "b");
        assert!(queue.is_empty());
        queue.done("a");
        assert_eq!(queue.next().await, "a");
        queue.done("a");
        queue.done("b");
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_shortest_delay_counts() {
        let queue = Queue::new();
        let start = Instant::now();
        queue.add_after("a", Duration::from_secs(10));
        queue.add_after("a", Duration::from_secs(3));
        queue.add_after("a", Duration::from_secs(7));
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed().as_secs(), 3);
        queue.done("a");
        let second = tokio::time::timeout(Duration::from_secs(60), queue.next()).await;
        assert!(second.is_err(), "the key came twice");
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_worker_hears_of_a_new_key() {
        let queue = Queue::new();
        let worker = tokio::spawn({
            let queue = queue.clone();
            async move { queue.next().await }
        });
        tokio::task::yield_now().await;
        queue.add("a");
        assert_eq!(worker.await.expect("joins"), "a");
    }
}
