//! What readers see: the published state of every resource, replaced by the writer batch by batch.

use super::error::Gone;
use super::feed::{Event, Feed};
use super::key::Key;
use super::stored::Stored;
use super::table::Table;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// All objects of a resource at one revision. Costs nothing to take, and never changes.
#[derive(Clone)]
pub struct Snapshot {
    /// The revision; every change up to it is in `table`, and none after it.
    pub revision: u64,
    /// The objects.
    pub table: Table,
}

/// Shared by readers, watchers and the writer.
pub(super) struct Shared {
    state: RwLock<State>,
    /// The revision of `state`, readable without a lock.
    published: AtomicU64,
    /// How long transactions took until they were on disk, in seconds.
    pub(super) commits: Histogram,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) revision: u64,
    /// No watch of any resource begins before it: where a restored store begins.
    pub(super) begin: u64,
    /// Whether the writer has ended.
    pub(super) closed: bool,
    pub(super) resources: BTreeMap<Arc<str>, Resource>,
}

#[derive(Clone)]
pub(super) struct Resource {
    pub(super) table: Table,
    pub(super) feed: Arc<Feed>,
}

impl Shared {
    pub(super) fn new(state: State) -> Self {
        Self {
            published: AtomicU64::new(state.revision),
            state: RwLock::new(state),
            // 0.25 ms to 4 s.
            commits: Histogram::new(exponential_buckets(0.000_25, 2.0, 15)),
        }
    }

    /// A revision that is published; the newest one, or one that was the newest a moment ago.
    pub(super) fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        // Only the writer changes the state; if it panicked, the store is closed and nobody asks.
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The history of a resource, which may have none yet.
    pub(super) fn feed(&self, resource: &str) -> Arc<Feed> {
        if let Some(found) = self.read().resources.get(resource) {
            return found.feed.clone();
        }
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.resource(&resource.into()).feed.clone()
    }

    /// Lets readers see a batch, all of it at once.
    pub(super) fn publish(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        self.published.store(state.revision, Ordering::Release);
    }
}

impl State {
    /// A resource, made if there was none.
    pub(super) fn resource(&mut self, name: &Arc<str>) -> &mut Resource {
        let (begin, closed) = (self.begin, self.closed);
        self.resources.entry(name.clone()).or_insert_with(|| {
            let feed = Arc::new(Feed::new(begin));
            if closed {
                feed.close();
            }
            let table = Table::default();
            Resource { table, feed }
        })
    }

    pub(super) fn get(&self, resource: &str, key: &Key) -> Option<Arc<Stored>> {
        self.resources.get(resource)?.table.get(key).cloned()
    }

    pub(super) fn snapshot(&self, resource: &str) -> Snapshot {
        let found = self.resources.get(resource);
        Snapshot {
            revision: self.revision,
            table: found.map(|r| r.table.clone()).unwrap_or_default(),
        }
    }
}

/// Takes a state back, newest event first.
pub(super) fn undo(mut table: Table, events: Vec<Event>) -> Table {
    for event in events.into_iter().rev() {
        match event.previous {
            Some(previous) => table.insert(previous),
            None => table.remove(event.object.joined()),
        };
    }
    table
}

impl Snapshot {
    /// This resource at an older revision, made from the events since.
    pub(super) fn at(self, revision: u64, newer: Result<Vec<Event>, Gone>) -> Result<Self, Gone> {
        Ok(Self {
            revision,
            table: undo(self.table, newer?),
        })
    }
}
