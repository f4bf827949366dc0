//! The disk below the store: what is written there, in which transactions, and how it is read at start.
//! SQLite in what ships; in simulations a model in memory.

mod copy;
mod edit;
mod lanes;
mod load;
mod memory;
mod read;
mod schema;
mod sealed;
mod sqlite;
#[cfg(test)]
mod tests;

pub(super) use copy::{Content, Restoring, check, copy, read_copy};
pub use edit::Edit;
pub(super) use load::{Loaded, LoadedResource};
pub use memory::{Fault, MemoryDisk, Moment};
pub(super) use schema::sync_dir_of;
pub(super) use sqlite::Sqlite;

use super::error::OpenError;
use super::feed::{Event, Kind};
use super::stored::Stored;
use std::path::Path;
use std::sync::Arc;

/// A disk that one writer has. When it is dropped without [`Disk::close`], that is a kill: nothing of what was
/// written is lost, but that it was closed is not known.
pub(super) trait Disk: Send {
    /// Reads everything.
    fn load(&mut self) -> Result<Loaded, OpenError>;

    /// Writes one transaction, all of it or nothing. It is durable when this returns, unless all of it may as
    /// well be lost; the next that is durable takes it along.
    fn write(&mut self, batch: &Batch<'_>) -> Result<(), rusqlite::Error>;

    /// Puts what the log holds where it belongs, so that the log can begin anew; all of it is durable then.
    fn checkpoint(&mut self, mode: Checkpoint) -> Result<(), rusqlite::Error>;

    /// How many pages there are to put where they belong.
    fn log_pages(&self) -> usize;

    /// Gives some of what nothing uses back to the file system, if it is much; says whether it still is.
    fn give_back(&mut self) -> Result<bool, rusqlite::Error>;

    /// Tries whether there is room for more than a small write.
    fn probe(&mut self) -> Result<(), rusqlite::Error>;

    /// Closes it; everything is there.
    fn close(self: Box<Self>) -> Result<(), rusqlite::Error>;

    /// What errors name.
    fn file(&self) -> &Path;
}

/// One change to an object.
pub(super) struct Op {
    /// Row of the resource.
    pub(super) resource: i64,
    pub(super) name: Arc<str>,
    /// Whether it has to be on disk before its answer.
    pub(super) durable: bool,
    /// Whether the change is kept in the log, so that watches outlive a restart.
    pub(super) logged: bool,
    pub(super) kind: Kind,
    pub(super) object: Arc<Stored>,
    pub(super) previous: Option<Arc<Stored>>,
}

/// One transaction.
#[derive(Default)]
pub(super) struct Batch<'a> {
    /// Resources that are new: row and name.
    pub(super) resources: Vec<(i64, Arc<str>)>,
    pub(super) ops: &'a [&'a Op],
    /// Objects whose newest version is only in memory yet.
    pub(super) late: Vec<Arc<Stored>>,
    /// Revisions whose log entries are forgotten.
    pub(super) forget: Vec<u64>,
    /// Resources whose history begins later now: row and revision.
    pub(super) floors: Vec<(i64, u64)>,
    /// Up to which revision they may be handed out, if that changes.
    pub(super) reserve: Option<u64>,
    /// Whether `reserve` is the last revision that was handed out.
    pub(super) clean: bool,
}

impl Batch<'_> {
    /// Renewals and what history forgot are only written again when they are lost.
    fn must_last(&self) -> bool {
        !self.ops.is_empty() || !self.resources.is_empty() || self.reserve.is_some()
    }
}

impl Op {
    /// What watchers are told.
    pub(super) fn event(&self) -> Event {
        Event {
            kind: self.kind,
            object: self.object.clone(),
            previous: self.previous.clone(),
        }
    }
}

/// How thorough a checkpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checkpoint {
    /// The log is used again from its beginning.
    Passive,
    /// The log's file is made empty as well.
    Truncate,
}
