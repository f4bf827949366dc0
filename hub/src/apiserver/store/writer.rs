//! The one that writes: takes what waits, makes it durable in one transaction, lets readers see it, and
//! answers. All of it happens in [`Writer::turn`], which waits for nothing but the disk; what runs the turns is
//! a thread, or in a simulation a task.

mod book;

use super::Health;
use super::disk::{Batch, Checkpoint, Disk, Op};
use super::error::{Error, OpenError};
use super::feed::{Feed, Limits};
use super::inbox::{Inbox, Job, Taken};
use super::state::{Resource, Shared, State};
use super::stored::Stored;
use book::Book;
use common::signal;
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How many revisions are reserved at once. A disk that is full takes no further reservation, and
/// renewals must go on meanwhile: half of this is what they have.
const RESERVE: u64 = 1 << 24;

/// How late a renewal is written to disk.
const LATE: Duration = Duration::from_secs(5);

/// How often the writer looks after history and the disk while anything is left to do.
const TICK: Duration = Duration::from_secs(1);

/// After so long without a write the log's file is made empty; as often it is looked at how much of the
/// database nothing uses.
const IDLE: Duration = Duration::from_secs(30);

/// After so long without a write what lies in SQLite's log is copied into its file.
const PAUSE: Duration = Duration::from_millis(20);

/// After so many pages it is copied in a pause; before, there is nothing to gain.
const CHECKPOINT_SOON: usize = 1024;

/// After so many pages it is copied even though somebody waits.
const CHECKPOINT_NOW: usize = 2048;

/// How many log entries are forgotten in one transaction.
const PIECE: usize = 256;

/// How many late renewals are written in one transaction: whoever comes meanwhile waits for it.
const FEW: usize = 32;

/// How long the next turn may wait until a write comes; for ever without an end.
pub(super) type Patience = Option<Duration>;

/// Everything that only the writer has.
pub(super) struct Writer {
    disk: Box<dyn Disk>,
    shared: Arc<Shared>,
    inbox: Abandon,
    health: signal::Sender<Health>,
    history: Limits,
    book: Book,
    /// No revision above this may be handed out yet.
    reserved: u64,
    /// Objects whose newest version is only in memory, by their number.
    late: BTreeMap<u64, Arc<Stored>>,
    late_since: Option<Instant>,
    /// While late renewals are written, the number of the last one that was.
    flushed: Option<u64>,
    /// Log entries that history forgot: row of the resource and revision.
    forgotten: VecDeque<(i64, u64)>,
    opened: Instant,
    ticked: Instant,
    wrote: Instant,
    /// When it was last looked at what nothing uses, and whether there is more to give back.
    looked: Instant,
    giving_back: bool,
}

/// The inbox; answers who waits there when the writer ends, whatever ended it.
struct Abandon(Arc<Inbox>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Writer {
    /// Takes over what is on a disk; the first reservation is durable when this returns.
    pub(super) fn begin(
        mut disk: Box<dyn Disk>,
        options: super::Options,
        inbox: Arc<Inbox>,
        health: signal::Sender<Health>,
    ) -> Result<Self, OpenError> {
        let loaded = disk.load()?;
        // After a kill the last revision is not known, only that it is not above the reservation.
        let revision = loaded.reserved + u64::from(!loaded.clean);
        let reserved = revision + RESERVE;
        let written = disk.write(&Batch {
            reserve: Some(reserved),
            ..Batch::default()
        });
        written.map_err(|source| OpenError::Sqlite {
            action: "write",
            file: disk.file().to_owned(),
            source,
        })?;
        let mut book = Book::new(revision, options.volatile);
        let mut state = State {
            revision,
            begin: loaded.begin,
            ..State::default()
        };
        for resource in loaded.resources {
            let volatile = book.load(&resource);
            let floor = if volatile { revision } else { resource.floor };
            let feed = Arc::new(Feed::new(floor.max(loaded.begin)));
            for event in resource.history {
                feed.push(event, 0);
            }
            let table = resource.table;
            state
                .resources
                .insert(resource.name, Resource { table, feed });
        }
        let now = Instant::now();
        let mut writer = Self {
            disk,
            shared: Arc::new(Shared::new(state)),
            inbox: Abandon(inbox),
            health,
            history: options.history,
            book,
            reserved,
            late: BTreeMap::new(),
            late_since: None,
            flushed: None,
            forgotten: VecDeque::new(),
            opened: now,
            ticked: now,
            wrote: now,
            looked: now,
            giving_back: false,
        };
        writer.trim_all();
        Ok(writer)
    }

    /// What readers see.
    pub(super) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Works on this thread until the inbox is closed and empty.
    pub(super) fn run(mut self) {
        let mut patience = self.patience();
        loop {
            let taken = self.inbox.0.take(patience);
            match self.turn(taken) {
                ControlFlow::Continue(next) => patience = next,
                ControlFlow::Break(()) => return self.end(),
            }
        }
    }

    /// The same as a task, before whose writes so much time passes as `latency` says.
    pub(super) async fn run_as_task(mut self, latency: impl Fn() -> Duration) {
        let mut patience = self.patience();
        loop {
            let taken = self.inbox.0.arrival(patience).await;
            let passes = latency();
            if !taken.jobs.is_empty() && !passes.is_zero() {
                sleep(passes).await;
            }
            match self.turn(taken) {
                ControlFlow::Continue(next) => patience = next,
                ControlFlow::Break(()) => return self.end(),
            }
        }
    }

    /// Writes and answers what was taken, then does a little of what nobody asks for. Says how long the next
    /// turn may wait, or that none is left and [`Writer::end`] comes.
    pub(super) fn turn(&mut self, taken: Taken) -> ControlFlow<(), Patience> {
        let paused = taken.jobs.is_empty() && self.pauses();
        if !taken.jobs.is_empty() {
            self.write(taken.jobs);
        }
        if taken.last {
            return ControlFlow::Break(());
        }
        self.flush_some();
        if paused || self.disk.log_pages() > CHECKPOINT_NOW {
            self.checkpoint(Checkpoint::Passive);
        }
        if self.ticked.elapsed() >= TICK {
            self.tick();
        }
        ControlFlow::Continue(self.patience())
    }

    pub(super) fn patience(&self) -> Patience {
        if self.flushed.is_some() {
            Some(Duration::ZERO)
        } else if self.pauses() {
            Some(PAUSE)
        } else {
            self.has_work().then_some(TICK)
        }
    }

    /// Whether a moment in which nobody writes is used to checkpoint.
    fn pauses(&self) -> bool {
        self.flushed.is_none() && !self.is_full() && self.disk.log_pages() > CHECKPOINT_SOON
    }

    /// Whether there is anything to do that nobody asks for.
    fn has_work(&self) -> bool {
        !self.late.is_empty()
            || !self.forgotten.is_empty()
            || self.disk.log_pages() > 0
            || self.giving_back
            || self.is_full()
            || self.feeds().iter().any(|(_, feed)| feed.has_history())
    }

    fn write(&mut self, jobs: Vec<Job>) {
        if self.needs_reserve(jobs.len()) && !self.commit(&[], Vec::new()) {
            // Not even a renewal may have a revision that is not reserved.
            return self.refuse(jobs);
        }
        let jobs = if self.is_full() {
            self.refuse_durable(jobs)
        } else {
            jobs
        };
        let decided = self.decide(&jobs);
        let durable: Vec<&Op> = decided.iter().flatten().filter(|op| op.durable).collect();
        if durable.is_empty() || self.commit(&durable, Vec::new()) {
            return self.publish(jobs, decided);
        }
        // What the disk refused never was.
        self.book.revert(&self.shared.read());
        let renewals = self.refuse_durable(jobs);
        let decided = self.decide(&renewals);
        self.publish(renewals, decided);
    }

    fn decide(&mut self, jobs: &[Job]) -> Vec<Result<Op, Error>> {
        jobs.iter().map(|job| self.book.decide(job)).collect()
    }

    /// Lets readers see what was decided, then answers.
    fn publish(&mut self, jobs: Vec<Job>, decided: Vec<Result<Op, Error>>) {
        let now = self.seconds();
        let mut touched: Vec<(Arc<str>, Arc<Feed>)> = Vec::new();
        self.shared.publish(|state| {
            for op in decided.iter().flatten() {
                state.revision = op.object.revision();
                let resource = state.resource(&op.name);
                resource.feed.push(op.event(), now);
                if !touched.iter().any(|(name, _)| *name == op.name) {
                    touched.push((op.name.clone(), resource.feed.clone()));
                }
            }
            for (name, _) in &touched {
                if let Some(page) = self.book.page(name) {
                    state.resource(name).table = page.table.clone();
                }
            }
        });
        for op in decided.iter().flatten() {
            let number = op.object.created();
            if op.durable {
                self.late.remove(&number);
            } else {
                self.late.insert(number, op.object.clone());
                self.late_since.get_or_insert_with(Instant::now);
            }
        }
        for (job, result) in jobs.into_iter().zip(decided) {
            // Who asked may be gone; the write is made all the same.
            let _ = job.answer.send(result.map(|op| op.object));
        }
        for (name, feed) in touched {
            feed.wake();
            self.trim(&name, &feed);
        }
    }

    /// Forgets the history of a resource that its limits do not cover.
    fn trim(&mut self, name: &str, feed: &Feed) {
        let Some(page) = self.book.page(name) else {
            return;
        };
        let (row, logged) = (page.row, !page.volatile);
        let limits = if logged {
            self.history
        } else {
            self.history.eighth()
        };
        let forgotten = feed.trim(&limits, self.seconds());
        if logged {
            self.forgotten
                .extend(forgotten.into_iter().map(|revision| (row, revision)));
        }
    }

    fn trim_all(&mut self) {
        for (name, feed) in self.feeds() {
            self.trim(&name, &feed);
        }
    }

    fn feeds(&self) -> Vec<(Arc<str>, Arc<Feed>)> {
        let state = self.shared.read();
        let feeds = state.resources.iter();
        feeds.map(|(n, r)| (n.clone(), r.feed.clone())).collect()
    }

    fn needs_reserve(&self, writes: usize) -> bool {
        self.reserved.saturating_sub(self.book.revision()) <= writes as u64
    }

    /// One transaction: these changes, these renewals, and what is left to clear away. Says whether
    /// it is on disk; if not, the store is full.
    fn commit(&mut self, ops: &[&Op], late: Vec<Arc<Stored>>) -> bool {
        let reserve = self.book.revision() + RESERVE;
        let resources = self.book.unknown(ops);
        let forgotten = self.forgotten.iter().take(PIECE);
        let mut floors = BTreeMap::new();
        for (row, revision) in forgotten.clone() {
            floors.insert(*row, *revision);
        }
        let batch = Batch {
            resources,
            ops,
            late,
            forget: forgotten.map(|(_, revision)| *revision).collect(),
            floors: floors.into_iter().collect(),
            reserve: (reserve > self.reserved + RESERVE / 2).then_some(reserve),
            clean: false,
        };
        self.wrote = Instant::now();
        match self.disk.write(&batch) {
            Ok(()) => {
                let took = self.wrote.elapsed().as_secs_f64();
                self.shared.commits.observe(took);
                self.reserved = batch.reserve.unwrap_or(self.reserved);
                self.book.learn(&batch.resources);
                self.forgotten.drain(..batch.forget.len());
                for object in batch.late {
                    self.late.remove(&object.created());
                }
                if self.late.is_empty() {
                    self.late_since = None;
                }
                true
            }
            Err(error) => {
                self.fill(&error);
                false
            }
        }
    }

    fn checkpoint(&mut self, mode: Checkpoint) {
        if let Err(error) = self.disk.checkpoint(mode) {
            self.fill(&error);
        }
    }

    fn tick(&mut self) {
        self.ticked = Instant::now();
        self.trim_all();
        if self.is_full() {
            return self.recover();
        }
        if self.late_since.is_some_and(|since| since.elapsed() >= LATE) {
            self.flushed = Some(0);
        } else if !self.forgotten.is_empty() {
            self.commit(&[], Vec::new());
        }
        // A hub with agents is never idle.
        let idle = self.disk.log_pages() > 0 && self.wrote.elapsed() >= IDLE;
        if idle || self.giving_back || self.looked.elapsed() >= IDLE {
            self.give_back();
        }
        if idle {
            self.checkpoint(Checkpoint::Truncate);
        }
    }

    fn give_back(&mut self) {
        self.looked = Instant::now();
        self.giving_back = self.disk.give_back().unwrap_or_else(|error| {
            tracing::warn!(%error, "the database was not made smaller");
            false
        });
    }

    /// Writes the next few of the late renewals. One that was written is late again when it comes
    /// again, but not before the next round.
    fn flush_some(&mut self) {
        let Some(last) = self.flushed else { return };
        let rest = self.late.range(last + 1..);
        let few: Vec<_> = rest.take(FEW).map(|(_, object)| object.clone()).collect();
        match few.last().map(|object| object.created()) {
            Some(newest) => self.flushed = self.commit(&[], few).then_some(newest),
            None => {
                self.flushed = None;
                self.late_since = (!self.late.is_empty()).then(Instant::now);
            }
        }
    }

    /// Looks whether a disk that took no writes takes them again.
    fn recover(&mut self) {
        let tried = self.disk.checkpoint(Checkpoint::Passive);
        match tried.and_then(|()| self.disk.probe()) {
            Ok(()) => {
                tracing::info!("the disk under the data directory takes writes again");
                self.health.send_replace(Health::Ready);
            }
            Err(error) => self.fill(&error),
        }
    }

    /// Notes that the disk takes no writes.
    fn fill(&self, error: &rusqlite::Error) {
        let why: Arc<str> = error.to_string().into();
        self.health.send_if_modified(|health| {
            let news = matches!(health, Health::Ready);
            if news {
                tracing::error!(%why, "the disk under the data directory takes no writes");
            }
            *health = Health::Full { why };
            news
        });
    }

    fn is_full(&self) -> bool {
        matches!(*self.health.borrow(), Health::Full { .. })
    }

    fn full(&self) -> Error {
        match &*self.health.borrow() {
            Health::Full { why } => Error::Full { why: why.clone() },
            Health::Ready | Health::Closed => Error::Closed,
        }
    }

    fn refuse(&self, jobs: Vec<Job>) {
        for job in jobs {
            let _ = job.answer.send(Err(self.full()));
        }
    }

    /// Refuses what has to be on disk and leaves the rest.
    fn refuse_durable(&self, jobs: Vec<Job>) -> Vec<Job> {
        let (durable, renewals) = jobs.into_iter().partition(|job| self.book.is_durable(job));
        self.refuse(durable);
        renewals
    }

    /// Seconds since the store was opened.
    fn seconds(&self) -> u32 {
        u32::try_from(self.opened.elapsed().as_secs()).unwrap_or(u32::MAX)
    }

    /// The last transaction tells that nothing was lost; then every watcher ends.
    pub(super) fn end(mut self) {
        let late: Vec<_> = self.late.values().cloned().collect();
        let last = Batch {
            late,
            reserve: Some(self.book.revision()),
            clean: true,
            ..Batch::default()
        };
        let written = self.disk.write(&last);
        let merged = written.and_then(|()| self.disk.checkpoint(Checkpoint::Truncate));
        self.shared.publish(|state| {
            state.closed = true;
            for resource in state.resources.values() {
                resource.feed.close();
            }
        });
        if let Err(error) = merged.and_then(|()| self.disk.close()) {
            tracing::error!(%error, "the data directory was not closed cleanly");
        }
        self.health.send_replace(Health::Closed);
    }
}
