//! A disk in memory, for simulations and tests: it holds what SQLite would hold, loses what SQLite could lose,
//! and is full, slow or broken when it is told to be. Nothing that ships opens one.

use super::super::error::OpenError;
use super::super::feed::Kind;
use super::super::stored::Stored;
use super::load::{Entry, Loaded, Loading, ResourceRows};
use super::{Batch, Checkpoint, Disk};
use rusqlite::ffi;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The disk of a host, which outlives the stores that are opened on it. Clones are the same disk.
///
/// A store that is dropped was killed: all that was written is there for the next one. After
/// [`MemoryDisk::lose_power`] some of it is gone.
#[derive(Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// What is there whatever happens.
    durable: Content,
    /// Transactions that may be lost, oldest first.
    loose: VecDeque<Loose>,
    /// Who has it: the last that opened it.
    holder: u64,
    fault: Option<Fault>,
    latency: Duration,
    pages: usize,
    transactions: u64,
    /// Who says at which transaction the process that writes is killed.
    killer: Option<Killer>,
}

/// Asked at each transaction whether the process that writes it is no more.
type Killer = Box<dyn FnMut(Moment) -> bool + Send>;

/// When, beside a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// It is not written if the process is no more.
    Before,
    /// It is written, and nobody was told.
    After,
}

/// What a disk does instead of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It has no room: nothing is written.
    Full,
    /// It fails whatever is asked of it.
    Broken,
}

/// The tables of the database.
#[derive(Clone)]
struct Content {
    reserved: u64,
    clean: bool,
    /// Name and floor, by row.
    resources: BTreeMap<i64, (Arc<str>, u64)>,
    /// Row of the resource and content, by number.
    objects: BTreeMap<u64, (i64, Arc<Stored>)>,
    /// By revision.
    log: BTreeMap<u64, Logged>,
}

#[derive(Clone)]
struct Logged {
    resource: i64,
    /// As it was after the change, or at last.
    object: Arc<Stored>,
    deleted: bool,
    previous: Option<Arc<Stored>>,
}

/// A transaction that is not durable by itself.
struct Loose {
    late: Vec<Arc<Stored>>,
    forget: Vec<u64>,
    floors: Vec<(i64, u64)>,
}

impl MemoryDisk {
    /// What goes wrong from now on; nothing any more without one.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.lock().fault = fault;
    }

    /// From now on the process that writes can be killed at a transaction: when this says so, it has the disk no more.
    pub fn set_killer(&self, killer: impl FnMut(Moment) -> bool + Send + 'static) {
        self.lock().killer = Some(Box::new(killer));
    }

    /// How long each transaction takes from now on.
    pub fn set_latency(&self, latency: Duration) {
        self.lock().latency = latency;
    }

    /// How long a transaction takes.
    pub fn latency(&self) -> Duration {
        self.lock().latency
    }

    /// How many transactions were written.
    pub fn transactions(&self) -> u64 {
        self.lock().transactions
    }

    /// How many of them would be lost by a loss of power.
    pub fn loose(&self) -> usize {
        self.lock().loose.len()
    }

    /// Another disk with everything that is on this one.
    pub fn copied(&self) -> Self {
        let inner = self.lock();
        let mut durable = inner.durable.clone();
        inner.loose.iter().for_each(|loose| durable.put(loose));
        Self(Arc::new(Mutex::new(Inner {
            durable,
            ..Inner::default()
        })))
    }

    /// The host loses its power: of what was not durable the first `kept` transactions are there after it, and
    /// who had the disk has it no more.
    pub fn lose_power(&self, kept: usize) {
        let mut inner = self.lock();
        inner.loose.truncate(kept);
        inner.settle();
        inner.holder += 1;
    }

    /// For one writer; who had it before has it no more.
    pub(in super::super) fn open(&self) -> impl Disk + use<> {
        let mut inner = self.lock();
        inner.holder += 1;
        inner.pages = 0;
        Opened {
            disk: self.clone(),
            holder: inner.holder,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Takes the disk from a process that is killed now.
    fn may_kill(&mut self, moment: Moment) {
        if self.killer.as_mut().is_some_and(|killer| killer(moment)) {
            self.holder += 1;
        }
    }

    /// Makes everything durable.
    fn settle(&mut self) {
        for loose in self.loose.drain(..) {
            self.durable.put(&loose);
        }
    }
}

impl Default for Content {
    /// A database that was just made.
    fn default() -> Self {
        Self {
            reserved: 1,
            clean: true,
            resources: BTreeMap::new(),
            objects: BTreeMap::new(),
            log: BTreeMap::new(),
        }
    }
}

impl Content {
    fn put(&mut self, loose: &Loose) {
        for late in &loose.late {
            if let Some((_, object)) = self.objects.get_mut(&late.created()) {
                *object = late.clone();
            }
        }
        for revision in &loose.forget {
            self.log.remove(revision);
        }
        for (row, revision) in &loose.floors {
            if let Some((_, floor)) = self.resources.get_mut(row) {
                *floor = *revision;
            }
        }
    }

    fn put_durable(&mut self, batch: &Batch<'_>) {
        for (row, name) in &batch.resources {
            self.resources.insert(*row, (name.clone(), 0));
        }
        for op in batch.ops {
            let number = op.object.created();
            match op.kind {
                Kind::Deleted => self.objects.remove(&number),
                Kind::Added | Kind::Modified => {
                    let row = (op.resource, op.object.clone());
                    self.objects.insert(number, row)
                }
            };
            if op.logged {
                let logged = Logged {
                    resource: op.resource,
                    object: op.object.clone(),
                    deleted: op.kind == Kind::Deleted,
                    previous: op.previous.clone(),
                };
                self.log.insert(op.object.revision(), logged);
            }
        }
        self.put(&Loose::of(batch));
        if let Some(reserve) = batch.reserve {
            (self.reserved, self.clean) = (reserve, batch.clean);
        }
    }

    fn load(&self) -> Result<Loaded, String> {
        let mut loading = Loading::default();
        for (row, (name, floor)) in &self.resources {
            loading.resource(*row, name.clone(), *floor);
        }
        for (row, object) in self.objects.values() {
            loading.object(*row, object.clone())?;
        }
        for (revision, logged) in self.log.iter().rev() {
            loading.entry(Entry {
                resource: logged.resource,
                revision: *revision,
                object: logged.object.created(),
                deleted: logged.deleted,
                key: logged.object.key(),
                previous: logged.previous.clone(),
            })?;
        }
        let resources = loading.resources().map(ResourceRows::finish);
        Ok(Loaded {
            reserved: self.reserved,
            clean: self.clean,
            begin: 0,
            resources: resources.collect::<Result<_, _>>()?,
        })
    }
}

impl Loose {
    fn of(batch: &Batch<'_>) -> Self {
        Self {
            late: batch.late.clone(),
            forget: batch.forget.clone(),
            floors: batch.floors.clone(),
        }
    }
}

/// The disk in the hands of a writer.
struct Opened {
    disk: MemoryDisk,
    holder: u64,
}

impl Opened {
    /// The disk, unless it refuses; in the words of SQLite.
    fn disk(&self, writes: bool) -> Result<MutexGuard<'_, Inner>, rusqlite::Error> {
        let inner = self.disk.lock();
        let refused = match inner.fault {
            _ if inner.holder != self.holder => Some((ffi::SQLITE_IOERR, "disk I/O error")),
            Some(Fault::Broken) => Some((ffi::SQLITE_IOERR, "disk I/O error")),
            Some(Fault::Full) if writes => Some((ffi::SQLITE_FULL, "database or disk is full")),
            _ => None,
        };
        match refused {
            None => Ok(inner),
            Some((code, said)) => Err(rusqlite::Error::SqliteFailure(
                ffi::Error::new(code),
                Some(said.to_owned()),
            )),
        }
    }
}

impl Disk for Opened {
    fn load(&mut self) -> Result<Loaded, OpenError> {
        let inner = self.disk(false).map_err(|source| OpenError::Sqlite {
            action: "read",
            file: self.file().to_owned(),
            source,
        })?;
        let mut content = inner.durable.clone();
        inner.loose.iter().for_each(|loose| content.put(loose));
        content.load().map_err(|what| OpenError::Damaged {
            file: self.file().to_owned(),
            what,
        })
    }

    fn write(&mut self, batch: &Batch<'_>) -> Result<(), rusqlite::Error> {
        self.disk.lock().may_kill(Moment::Before);
        let mut inner = self.disk(true)?;
        inner.transactions += 1;
        inner.pages += 1 + batch.ops.len() + batch.late.len();
        if batch.must_last() {
            inner.settle();
            inner.durable.put_durable(batch);
        } else {
            inner.loose.push_back(Loose::of(batch));
        }
        inner.may_kill(Moment::After);
        Ok(())
    }

    fn checkpoint(&mut self, _: Checkpoint) -> Result<(), rusqlite::Error> {
        let mut inner = self.disk(false)?;
        inner.settle();
        inner.pages = 0;
        Ok(())
    }

    fn log_pages(&self) -> usize {
        self.disk.lock().pages
    }

    fn give_back(&mut self) -> Result<bool, rusqlite::Error> {
        self.disk(false).map(|_| false)
    }

    fn probe(&mut self) -> Result<(), rusqlite::Error> {
        drop(self.disk(true)?);
        self.checkpoint(Checkpoint::Passive)
    }

    fn close(self: Box<Self>) -> Result<(), rusqlite::Error> {
        self.disk(false).map(|mut inner| inner.settle())
    }

    fn file(&self) -> &Path {
        Path::new("memory")
    }
}
