//! The objects of the built-in API server: kept in memory for reading, on disk for ever.
//!
//! One writer, on a thread of its own, has the disk. It checks each write against memory, gives it the next revision, makes a group
//! of them durable in one transaction, and only then lets readers see them and answers. Reads,
//! lists and watches never touch the disk.
//!
//! One exception: a Lease write that moves only `renewTime` ([`Class::Renewal`]) is answered from
//! memory and reaches the disk seconds later. Its revision is reserved, so none is ever used twice.

mod absent;
mod backup;
mod directory;
mod disk;
mod error;
mod feed;
mod inbox;
mod key;
mod key_file;
pub mod metrics;
mod scan;
mod state;
mod stored;
mod table;
mod watcher;
mod writer;

pub use absent::{Make, NoDatabase};
pub use backup::{Attachment, Restore, check_backup, restore};
pub use directory::{is_served, keep_unserved, lock_keys};
pub use disk::{Edit, Fault, MemoryDisk, Moment};
pub use error::{Ended, Error, Gone, OpenError};
pub use feed::{Event, Kind, Limits};
pub use key::{Key, Scope};
pub use state::Snapshot;
pub use stored::Stored;
pub use table::Table;
pub use watcher::Watcher;

use crate::apiserver::sealing::Keyring;
use common::signal;
use disk::{Disk, Sqlite};
use inbox::{Inbox, Job};
use prometheus_client::metrics::histogram::Histogram;
use serde_json::Value;
use state::Shared;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stored::Draft;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use writer::Writer;

/// The database within a data directory.
pub const DATABASE: &str = "hub.db";

/// How the store behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// How much history is kept of each resource.
    pub history: Limits,
    /// Resources whose renewals may be lost by a kill; watches of them end with the process.
    pub volatile: BTreeSet<String>,
    /// The file of keys by which Secrets are encrypted; one in the data directory unless named.
    pub key_file: Option<PathBuf>,
    /// When a database is made where there is none.
    pub make: Make,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            history: Limits::default(),
            volatile: BTreeSet::from(["coordination.k8s.io/leases".to_owned()]),
            key_file: None,
            make: Make::default(),
        }
    }
}

/// Whether the store takes writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// It does.
    Ready,
    /// The disk is full, or fails; reads and renewals go on.
    Full {
        /// What SQLite said.
        why: Arc<str>,
    },
    /// It was closed.
    Closed,
}

/// What a write expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Nothing: it creates.
    Absent,
    /// The object at this revision.
    Revision(u64),
}

/// What a write does.
#[derive(Debug)]
pub enum Change {
    /// Puts the object there; `metadata.resourceVersion` is set by the store.
    Put(Value),
    /// Deletes the object.
    Delete,
}

/// What an answered write has survived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It is on disk.
    Durable,
    /// It is in memory: for a Lease whose holder stays and whose `renewTime` moved.
    Renewal,
}

/// One write.
#[derive(Debug)]
pub struct Write {
    /// Storage name of the resource, `group/plural`.
    pub resource: Arc<str>,
    /// The object.
    pub key: Key,
    /// What has to be there.
    pub expect: Expect,
    /// What becomes of it.
    pub change: Change,
    /// What the answer promises.
    pub class: Class,
}

/// The store; clones are the same store.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    ring: Keyring,
    shared: Arc<Shared>,
    inbox: Arc<Inbox>,
    health: signal::Receiver<Health>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

impl Store {
    /// Opens a data directory, made if need be and if `options` say so, and reads it into memory. Blocks
    /// meanwhile.
    pub fn open(dir: &Path, options: Options) -> Result<Self, OpenError> {
        let make = options.make;
        let disk = Sqlite::open(dir, options.key_file.as_deref(), make)?;
        let ring = disk.ring().clone();
        let (store, writer) = Self::over(Box::new(disk), ring, options)?;
        if store.is_empty() {
            absent::check_empty(dir, make)?;
        }
        let thread = std::thread::Builder::new().name("store".to_owned());
        let runtime = Handle::try_current();
        let started = thread.spawn(move || {
            // Its intervals are those of the runtime that opened it, so that paused tests move them too.
            let _entered = runtime.as_ref().map(Handle::enter);
            writer.run();
        });
        started.map_err(|source| OpenError::Io {
            action: "start the writer of",
            path: dir.to_owned(),
            source,
        })?;
        Ok(store)
    }

    /// For simulations: a store over a disk in memory, and its writer, which works while it is polled. No
    /// thread and no file; a writer that is dropped was killed.
    pub fn simulated(
        disk: &MemoryDisk,
        options: Options,
    ) -> Result<(Self, impl Future<Output = ()> + Send + use<>), OpenError> {
        let ring = Keyring::of_simulations()?;
        let (store, writer) = Self::over(Box::new(disk.open()), ring, options)?;
        let disk = disk.clone();
        Ok((store, writer.run_as_task(move || disk.latency())))
    }

    /// A store over a disk, and what writes for it.
    fn over(
        disk: Box<dyn Disk>,
        ring: Keyring,
        options: Options,
    ) -> Result<(Self, Writer), OpenError> {
        let inbox = Arc::new(Inbox::new());
        let (health, seen) = signal::channel(Health::Ready);
        let writer = Writer::begin(disk, options, inbox.clone(), health)?;
        let inner = Inner {
            ring,
            shared: writer.shared(),
            inbox,
            health: seen,
        };
        let inner = Arc::new(inner);
        Ok((Self { inner }, writer))
    }

    /// What seals Secrets on disk.
    pub fn keyring(&self) -> &Keyring {
        &self.inner.ring
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.inner.shared.read().revision
    }

    /// Whether there is no object at all, as before the first start.
    pub fn is_empty(&self) -> bool {
        let state = self.inner.shared.read();
        state.resources.values().all(|one| one.table.is_empty())
    }

    /// One object as it is now.
    pub fn get(&self, resource: &str, key: &Key) -> Option<Arc<Stored>> {
        self.inner.shared.read().get(resource, key)
    }

    /// All objects of a resource as they are now.
    pub fn snapshot(&self, resource: &str) -> Snapshot {
        self.inner.shared.read().snapshot(resource)
    }

    /// All objects of a resource as they were at a revision, while history reaches back that far.
    pub fn snapshot_at(&self, resource: &str, revision: u64) -> Result<Snapshot, Gone> {
        let feed = self.inner.shared.feed(resource);
        // No batch is half visible while this is held.
        let state = self.inner.shared.read();
        let now = state.snapshot(resource);
        let newer = feed.newer(revision);
        drop(state);
        now.at(revision, newer)
    }

    /// Makes a write and returns the object as it is then; of a deletion, as it was, at the revision
    /// of the deletion. Once the write waits in the queue it is made even if the caller goes away.
    pub async fn commit(&self, write: Write) -> Result<Arc<Stored>, Error> {
        self.commit_within(write, usize::MAX).await
    }

    /// The same of an object that has no more than `most` bytes as it is encoded.
    pub async fn commit_within(&self, write: Write, most: usize) -> Result<Arc<Stored>, Error> {
        let (resource, key) = (write.resource, write.key);
        let draft = match write.change {
            Change::Delete => None,
            Change::Put(object) => match Draft::new(object) {
                Ok(draft) if draft.len() > most => {
                    return Err(Error::TooLong {
                        resource,
                        key,
                        length: draft.len(),
                        most,
                    });
                }
                Ok(draft) => Some(draft),
                Err(why) => return Err(Error::Unfit { resource, key, why }),
            },
        };
        let (answer, answered) = oneshot::channel();
        let job = Job {
            resource,
            key,
            expect: write.expect,
            draft,
            class: write.class,
            answer,
        };
        self.inner.inbox.put(job).await?;
        answered.await.unwrap_or(Err(Error::Closed))
    }

    /// Follows a resource from a revision on: every event after it.
    pub fn watch(&self, resource: &str, scope: Scope, since: u64) -> Result<Watcher, Gone> {
        let feed = self.inner.shared.feed(resource);
        let shared = self.inner.shared.clone();
        // No batch is half visible while this is held.
        let _state = self.inner.shared.read();
        match scope {
            Scope::All => {
                let from = feed.follow(since)?;
                Ok(Watcher::all(shared, feed, since, from))
            }
            scope => {
                let queue = feed.subscribe(&scope, since)?;
                Ok(Watcher::part(shared, feed, since, scope, queue))
            }
        }
    }

    /// All objects of a resource and whatever happens to a part of it from then on.
    pub fn follow(&self, resource: &str, scope: Scope) -> (Snapshot, Watcher) {
        loop {
            let now = self.snapshot(resource);
            // History may be cut in between, under a load that leaves nothing of it.
            if let Ok(watcher) = self.watch(resource, scope.clone(), now.revision) {
                return (now, watcher);
            }
        }
    }

    /// How long transactions took until they were on disk, in seconds.
    pub fn commits(&self) -> Histogram {
        self.inner.shared.commits.clone()
    }

    /// Whether the store takes writes; changes can be waited for.
    pub fn health(&self) -> signal::Receiver<Health> {
        self.inner.health.clone()
    }

    /// Writes what waits, closes the files and ends every watcher. Returns when all is done.
    pub async fn close(&self) {
        self.inner.inbox.close();
        let mut health = self.inner.health.clone();
        // The sender goes when the writer ends, whichever way.
        while health.changed().await.is_ok() {}
    }
}

#[cfg(test)]
mod tests;
