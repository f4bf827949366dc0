//! The queue before the writer. What lies in it is written, whoever still waits for the answer.

use super::error::Error;
use super::key::Key;
use super::stored::{Draft, Stored};
use super::{Class, Expect};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::timeout;

/// How many writes may wait; who comes then waits before the queue.
const WAITING: usize = 1024;

/// How many writes go into one transaction at most: more, and the answer of the first waits for the
/// last.
const BATCH: usize = 64;

/// A transaction takes no further write once it has so many bytes.
const BATCH_BYTES: usize = 4 << 20;

/// A write that is ready but for its revision.
pub(super) struct Job {
    pub(super) resource: Arc<str>,
    pub(super) key: Key,
    pub(super) expect: Expect,
    /// `None` deletes.
    pub(super) draft: Option<Draft>,
    pub(super) class: Class,
    pub(super) answer: oneshot::Sender<Result<Arc<Stored>, Error>>,
}

/// The queue.
pub(super) struct Inbox {
    inner: Mutex<Inner>,
    /// Wakes a writer that is a thread.
    arrived: Condvar,
    /// Wakes one that is a task.
    told: Notify,
    room: Semaphore,
}

#[derive(Default)]
struct Inner {
    jobs: VecDeque<Job>,
    closing: bool,
}

impl Inner {
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && !self.closing
    }
}

/// What the writer found.
pub(super) struct Taken {
    pub(super) jobs: Vec<Job>,
    /// No more will come after these.
    pub(super) last: bool,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self {
            inner: Mutex::default(),
            arrived: Condvar::new(),
            told: Notify::new(),
            room: Semaphore::new(WAITING),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a write to the writer; once this returns the write will be made.
    pub(super) async fn put(&self, job: Job) -> Result<(), Error> {
        let Ok(permit) = self.room.acquire().await else {
            return Err(Error::Closed);
        };
        let mut inner = self.lock();
        if inner.closing {
            return Err(Error::Closed);
        }
        permit.forget();
        inner.jobs.push_back(job);
        // The writer waits only when there is nothing.
        let wake = inner.jobs.len() == 1;
        drop(inner);
        if wake {
            self.wake();
        }
        Ok(())
    }

    fn wake(&self) {
        self.arrived.notify_one();
        self.told.notify_one();
    }

    /// Waits for writes, as long as given or for ever, and takes what fits into a transaction. Keeps the
    /// thread meanwhile.
    pub(super) fn take(&self, patience: Option<Duration>) -> Taken {
        let mut inner = self.lock();
        let nothing = |inner: &mut Inner| inner.is_idle();
        inner = match patience {
            None => self
                .arrived
                .wait_while(inner, nothing)
                .unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let waited = self.arrived.wait_timeout_while(inner, limit, nothing);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        self.take_some(inner)
    }

    /// The same without a thread.
    pub(super) async fn arrival(&self, patience: Option<Duration>) -> Taken {
        let arrival = async {
            // Whoever comes between the look and the wait has left a permit.
            while self.lock().is_idle() {
                self.told.notified().await;
            }
        };
        match patience {
            None => arrival.await,
            // Whether it came or not is seen below.
            Some(limit) => timeout(limit, arrival).await.unwrap_or_default(),
        }
        self.take_some(self.lock())
    }

    fn take_some(&self, mut inner: MutexGuard<'_, Inner>) -> Taken {
        let mut bytes = 0;
        let fits = inner.jobs.iter().take(BATCH).take_while(|job| {
            let before = bytes;
            bytes += job.draft.as_ref().map_or(0, Draft::len);
            before < BATCH_BYTES
        });
        let count = fits.count();
        let jobs: Vec<Job> = inner.jobs.drain(..count).collect();
        let last = inner.closing && inner.jobs.is_empty();
        drop(inner);
        self.room.add_permits(count);
        Taken { jobs, last }
    }

    /// Takes nothing more; what is in it is still written.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.room.close();
        self.wake();
    }

    /// Drops what waits: nobody is left who could write it.
    pub(super) fn abandon(&self) {
        self.close();
        self.lock().jobs.clear();
    }
}
