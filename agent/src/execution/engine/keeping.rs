//! Keeps the stored set: reads it at the start, and writes what changed, gathered.

use super::{Engine, lock};
use crate::execution::queue::Urgency;
use crate::execution::stored::place::{Error, Place};
use crate::execution::stored::plan::{Plan, slice};
use crate::execution::stored::{Entry, Header, Volume, assemble, decode, encode};
use common::backoff::Backoff;
use common::errors::chain;
use common::names::WORKS_SECRETS;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

/// How long changes are gathered before they are written.
const GATHER: Duration = Duration::from_secs(1);
/// The same when a deletion waits for it.
const GATHER_URGENT: Duration = Duration::from_millis(20);
/// Least time between two writes, from beginning to beginning.
const SPACING: Duration = Duration::from_millis(250);
/// How long a deletion waits for the stored set before it is tried again later.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the last write may take when the agent stops.
const LAST_WRITE: Duration = Duration::from_secs(3);
/// How long the hub may be silent after a start before the stored set alone counts.
const GRACE: Duration = Duration::from_secs(10);
/// The part's name in the agent's errors.
const PART: &str = "stored Works";

/// Whether Works that the hub has not confirmed in this life are worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alone {
    /// Not yet: the hub may answer.
    NotYet,
    /// Yes: the hub does not answer.
    Yes,
    /// No: the hub said that our registration is gone.
    Never,
}

/// What is known of the stored set.
pub(super) struct Keeping {
    place: Place,
    inner: Mutex<Inner>,
    wake: Notify,
    /// Everything touched up to this count is written.
    flushed: watch::Sender<u64>,
    /// One flush at a time.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Inner {
    plan: Plan,
    touched: HashSet<Arc<str>>,
    count: u64,
    urgent: bool,
    /// Without the right to read it, it is not written either.
    off: bool,
    stopped: bool,
}

impl Keeping {
    pub(super) fn new(place: Place) -> Self {
        Self {
            place,
            inner: Mutex::default(),
            wake: Notify::new(),
            flushed: watch::Sender::new(0),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// What is stored of a Work may have to change. Returns up to where it must be flushed.
    pub(super) fn touch(&self, work: &Arc<str>, urgent: bool) -> u64 {
        let mut inner = lock(&self.inner);
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
        let done = flushed.wait_for(|flushed| *flushed >= count);
        matches!(timeout(PATIENCE, done).await, Ok(Ok(_)))
    }
}

impl Engine {
    /// Reads the stored set. Returns when it is known, or known not to be readable.
    pub(super) async fn recall(&self) {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
        let volumes = loop {
            match self.read_volumes().await {
                Ok(volumes) => break volumes,
                Err(error) if error.is_denied() => {
                    tracing::error!(error = %chain(&error), "the agent cannot go on without its hub: it may not read what it stored");
                    self.errors.report(PART, &chain(&error));
                    lock(&self.keeping.inner).off = true;
                    return;
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "the stored Works are not read yet");
                    self.errors.report(PART, &chain(&error));
                    let pause = backoff.next(&mut rand::rng());
                    tokio::time::sleep(pause).await;
                }
            }
        };
        self.errors.clear(PART);
        for (volume, read) in &volumes {
            match read {
                Err(bad) => tracing::warn!(volume, %bad, "stored Works are not believed"),
                Ok(read) if read.header.namespace != self.namespace => tracing::warn!(
                    volume,
                    of = read.header.namespace,
                    "stored Works of another registration are not believed"
                ),
                Ok(_) => {}
            }
        }
        let set = assemble(&self.namespace, volumes);
        let count = set.works.len();
        let mut inner = lock(&self.keeping.inner);
        inner.plan = set.plan;
        inner.stopped = set.stopped;
        if !inner.plan.dirty().is_empty() {
            self.keeping.wake.notify_one();
        }
        drop(inner);
        if set.stopped {
            tracing::error!(
                "the hub said that this registration is gone: nothing is healed until a hub lists Works"
            );
            self.alone.send_replace(Alone::Never);
        }
        let mut state = self.state();
        for (entry, manifests) in set.works {
            state.recall(entry, manifests);
        }
        drop(state);
        if count > 0 {
            tracing::info!(count, "stored Works are known");
        }
    }

    async fn read_volumes(
        &self,
    ) -> Result<Vec<(usize, Result<Volume, crate::execution::stored::Bad>)>, Error> {
        let mut volumes = Vec::new();
        for number in 0..WORKS_SECRETS {
            let read = {
                let _permit = self.permits.acquire().await;
                self.keeping.place.read(number).await?
            };
            if let Some(bytes) = read {
                volumes.push((number, decode(&bytes)));
            }
        }
        Ok(volumes)
    }

    /// Goes by the stored set once the hub has been silent for a while.
    pub(super) async fn await_hub(self: Arc<Self>) {
        tokio::time::sleep(GRACE).await;
        self.stand_alone();
        std::future::pending::<()>().await;
    }

    /// The hub does not answer: Works of the stored set are worked on without it.
    pub(super) fn stand_alone(&self) {
        let first = self.alone.send_if_modified(|alone| {
            let first = *alone == Alone::NotYet;
            if first {
                *alone = Alone::Yes;
            }
            first
        });
        if !first {
            return;
        }
        let unconfirmed: Vec<Arc<str>> = {
            let state = self.state();
            let works = state.works.iter().filter(|(_, record)| !record.confirmed);
            works.map(|(name, _)| name.clone()).collect()
        };
        if !unconfirmed.is_empty() {
            let count = unconfirmed.len();
            tracing::warn!(count, "the hub does not answer: going by the stored Works");
        }
        for work in &unconfirmed {
            self.enqueue(work, Urgency::Backlog);
        }
    }

    /// Whether Works are worked on that are known from the stored set alone.
    pub(super) fn is_alone(&self) -> bool {
        *self.alone.borrow() == Alone::Yes
    }

    /// A hub that lists our Works has us registered.
    pub(super) fn hub_lists(&self) {
        self.alone.send_replace(Alone::Yes);
        let mut inner = lock(&self.keeping.inner);
        if std::mem::take(&mut inner.stopped) {
            inner.plan.spoil_all();
            self.keeping.wake.notify_one();
        }
    }

    /// The verified hub says that our registration is gone: from now on, and in later lives, nothing is
    /// healed, until a hub lists Works again.
    pub async fn stop_healing(&self) {
        self.alone.send_replace(Alone::Never);
        {
            let mut inner = lock(&self.keeping.inner);
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

    /// Writes what changed, for ever.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let mut full = false;
        loop {
            self.keeping.wake.notified().await;
            self.gather().await;
            let begun = Instant::now();
            match self.flush().await {
                Ok(()) => {
                    backoff.reset();
                    if !full {
                        self.errors.clear(PART);
                    }
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "the Works are not stored");
                    self.errors.report(PART, &chain(&error));
                    let pause = backoff.next(&mut rand::rng());
                    tokio::time::sleep(pause).await;
                    self.keeping.wake.notify_one();
                }
            }
            full = self.tell_what_has_no_room();
            tokio::time::sleep_until(begun + SPACING).await;
        }
    }

    /// Waits for more changes, not long when a deletion waits.
    async fn gather(&self) {
        let until = Instant::now() + GATHER;
        loop {
            if lock(&self.keeping.inner).urgent {
                return tokio::time::sleep(GATHER_URGENT).await;
            }
            tokio::select! {
                () = tokio::time::sleep_until(until) => return,
                () = self.keeping.wake.notified() => {}
            }
        }
    }

    /// The last write of a life, within limits.
    pub(super) async fn flush_at_end(&self) {
        if let Ok(Err(error)) = timeout(LAST_WRITE, self.flush()).await {
            tracing::warn!(error = %chain(&error), "the last changes of Works are not stored");
        }
    }

    async fn flush(&self) -> Result<(), Error> {
        let _turn = self.keeping.turn.lock().await;
        let count = self.take_touched();
        loop {
            let next = {
                let inner = lock(&self.keeping.inner);
                inner.plan.dirty().first().copied()
            };
            let Some(volume) = next else { break };
            let bytes = self.volume(volume);
            let present = lock(&self.keeping.inner).plan.is_present(volume);
            let _permit = self.permits.acquire().await;
            // It counts as written while it is: what changes meanwhile makes it dirty again.
            lock(&self.keeping.inner)
                .plan
                .written(volume, bytes.is_some());
            let written = match bytes {
                Some(bytes) => self.keeping.place.write(volume, bytes).await,
                None if present => self.keeping.place.remove(volume).await,
                None => Ok(()),
            };
            if let Err(error) = written {
                let mut inner = lock(&self.keeping.inner);
                inner.plan.written(volume, present);
                inner.plan.spoiled(volume);
                return Err(error);
            }
        }
        self.keeping.flushed.send_replace(count);
        Ok(())
    }

    /// Brings the plan up to date; returns up to where.
    fn take_touched(&self) -> u64 {
        let state = self.state();
        let mut inner = lock(&self.keeping.inner);
        inner.urgent = false;
        for name in std::mem::take(&mut inner.touched) {
            match state.to_store(&name, inner.plan.contains(&name)) {
                Some((entry, manifests)) => {
                    inner.plan.put(&name, manifests.bytes().len(), entry.print);
                }
                None => inner.plan.remove(&name),
            }
        }
        inner.count
    }

    /// The bytes of a volume; none when nothing lies in it.
    fn volume(&self, volume: usize) -> Option<Vec<u8>> {
        let state = self.state();
        let inner = lock(&self.keeping.inner);
        let entries: Vec<(Entry, Vec<u8>)> = inner
            .plan
            .members(volume)
            .into_iter()
            .filter_map(|member| {
                let (entry, manifests) = state.to_store(&member.name, true)?;
                // Grown since: it was touched, and finds another place in the next round.
                if manifests.bytes().len() > inner.plan.size(&member.name)? {
                    return None;
                }
                let bytes = slice(manifests.bytes(), member.part).to_vec();
                let entry = Entry {
                    part: member.part,
                    parts: member.parts,
                    sequence: member.sequence,
                    ..entry
                };
                Some((entry, bytes))
            })
            .collect();
        let header = Header {
            namespace: self.namespace.clone(),
            stopped: inner.stopped,
        };
        (!entries.is_empty()).then(|| encode(&header, entries))
    }

    /// Says which Works are not stored because there is no room.
    fn tell_what_has_no_room(&self) -> bool {
        let missing = lock(&self.keeping.inner).plan.refused();
        if missing > 0 {
            let text = format!(
                "{missing} Works are not stored for want of room; they are not healed while the hub is away"
            );
            self.errors.report(PART, &text);
        }
        missing > 0
    }

    /// Notes that what is stored of a Work may have to change.
    pub(super) fn keep_work(&self, name: &Arc<str>) {
        self.keeping.touch(name, false);
    }

    /// Notes that a Work is being deleted: before it is let go, the stored set must say so.
    pub(super) fn keep_deletion(&self, name: &Arc<str>) {
        if lock(&self.keeping.inner).plan.contains(name) {
            let count = self.keeping.touch(name, true);
            if let Some(record) = self.state().works.get_mut(name) {
                record.kept_at = count;
            }
        }
    }

    /// Waits until the stored set does not want a Work's objects any more.
    pub(super) async fn deletion_is_kept(&self, name: &Arc<str>) -> bool {
        let until = self.state().works.get(name).map_or(0, |r| r.kept_at);
        self.keeping.reached(until).await
    }
}
