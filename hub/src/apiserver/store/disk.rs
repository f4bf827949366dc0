//! The database file: what is written there, in which transactions, and how it is read at start.

mod copy;
mod load;
mod schema;

pub(super) use copy::{Content, copy, read_copy};
pub(super) use load::{Loaded, LoadedResource};

use super::error::OpenError;
use super::feed::{Event, Kind};
use super::stored::Stored;
use rusqlite::hooks::Wal;
use rusqlite::{CachedStatement, Connection, Transaction, params};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The one connection. Nobody else opens the file while it lives.
pub(super) struct Disk {
    connection: Connection,
    /// Whether a transaction waits until it is on disk.
    syncs: bool,
    file: PathBuf,
    /// How many pages SQLite's log holds.
    log: Arc<AtomicUsize>,
    /// Held as long as the connection: who waits for the end may then open the directory.
    _lock: File,
}

/// How much room there has to be before a full disk counts as one that takes writes.
const PROBE: i64 = 256 << 10;

/// Pages that nothing uses are given back when they are more than this, and more than half.
const MANY_PAGES: i64 = 1024;

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

/// A revision as SQLite stores it.
pub(super) fn number(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// A revision as it was stored.
fn revision(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

impl Disk {
    /// The database of a directory; made if it is not there.
    pub(super) fn open(file: &Path, lock: File) -> Result<Self, OpenError> {
        let mut connection = schema::open(file)?;
        let log = Arc::new(AtomicUsize::new(0));
        let pages = log.clone();
        let count = move |_: &mut Wal, held: std::ffi::c_int| {
            pages.store(usize::try_from(held).unwrap_or_default(), Ordering::Relaxed);
            Ok(())
        };
        let hooked = connection.wal_hook(Some(count));
        hooked.map_err(|source| schema::error("open", file, source))?;
        Ok(Self {
            connection,
            syncs: true,
            log,
            file: file.to_owned(),
            _lock: lock,
        })
    }

    /// Writes one transaction; it is durable unless all of it may as well be lost. The next that is
    /// durable takes it along: SQLite's log is synced from its beginning.
    pub(super) fn write(&mut self, batch: &Batch<'_>) -> Result<(), rusqlite::Error> {
        let syncs = batch.must_last();
        if syncs != self.syncs {
            let level = if syncs { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.syncs = syncs;
        }
        let transaction = self.connection.transaction()?;
        fill(&transaction, batch)?;
        transaction.commit()
    }

    /// Copies the log of SQLite into its file, so that the log can begin anew.
    pub(super) fn checkpoint(&self, mode: Checkpoint) -> Result<(), rusqlite::Error> {
        let pragma = match mode {
            Checkpoint::Passive => "PRAGMA wal_checkpoint(PASSIVE)",
            Checkpoint::Truncate => "PRAGMA wal_checkpoint(TRUNCATE)",
        };
        self.connection.query_row(pragma, [], |_| Ok(()))?;
        self.log.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// How many pages there are to copy.
    pub(super) fn log_pages(&self) -> usize {
        self.log.load(Ordering::Relaxed)
    }

    /// Lets go of the memory that reading took.
    pub(super) fn shrink_memory(&self) -> Result<(), rusqlite::Error> {
        self.connection.execute_batch("PRAGMA shrink_memory")
    }

    /// Gives some of the pages back to the file system that nothing uses, if they are many; says whether
    /// they still are.
    pub(super) fn give_back(&self) -> Result<bool, rusqlite::Error> {
        if !self.has_many_unused()? {
            return Ok(false);
        }
        let some = format!("PRAGMA incremental_vacuum({MANY_PAGES})");
        let mut statement = self.connection.prepare(&some)?;
        // Each page is a row: one step gives one page back.
        let mut pages = statement.query([])?;
        while pages.next()?.is_some() {}
        drop(pages);
        drop(statement);
        // The file is cut when the log is copied into it.
        self.checkpoint(Checkpoint::Passive)?;
        self.has_many_unused()
    }

    fn has_many_unused(&self) -> Result<bool, rusqlite::Error> {
        let count = |pragma| {
            let read = self
                .connection
                .pragma_query_value(None, pragma, |row| row.get(0));
            read.map(|pages: i64| pages)
        };
        let unused = count("freelist_count")?;
        Ok(unused > MANY_PAGES && unused > count("page_count")? / 2)
    }

    /// Tries whether the disk has room for more than a small write.
    pub(super) fn probe(&mut self) -> Result<(), rusqlite::Error> {
        let insert = "INSERT INTO probe (room) VALUES (zeroblob(?1))";
        self.connection.execute(insert, [PROBE])?;
        self.connection.execute("DELETE FROM probe", [])?;
        self.checkpoint(Checkpoint::Passive)
    }

    /// Closes the file; everything is in it.
    pub(super) fn close(self) -> Result<(), rusqlite::Error> {
        self.connection.close().map_err(|(_, error)| error)
    }

    fn error(&self, action: &'static str, source: rusqlite::Error) -> OpenError {
        schema::error(action, &self.file, source)
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

fn text(stored: &Stored) -> &str {
    std::str::from_utf8(stored.json()).expect("invariant: what is stored is UTF-8")
}

fn fill(transaction: &Transaction<'_>, batch: &Batch<'_>) -> Result<(), rusqlite::Error> {
    for (id, name) in &batch.resources {
        prepared(
            transaction,
            "INSERT INTO resource (id, name, floor) VALUES (?1, ?2, 0)",
        )?
        .execute(params![id, name])?;
    }
    for op in batch.ops {
        write_object(transaction, op)?;
        if op.logged {
            write_log(transaction, op)?;
        }
    }
    for object in &batch.late {
        update(transaction, object)?;
    }
    for revision in &batch.forget {
        prepared(transaction, "DELETE FROM log WHERE revision = ?1")?
            .execute([number(*revision)])?;
    }
    for (id, floor) in &batch.floors {
        prepared(transaction, "UPDATE resource SET floor = ?2 WHERE id = ?1")?
            .execute(params![id, number(*floor)])?;
    }
    if let Some(reserve) = batch.reserve {
        let mut set = prepared(transaction, "UPDATE meta SET value = ?2 WHERE name = ?1")?;
        set.execute(params!["reserved", number(reserve)])?;
        set.execute(params!["clean", batch.clean])?;
    }
    Ok(())
}

fn write_object(transaction: &Transaction<'_>, op: &Op) -> Result<(), rusqlite::Error> {
    let object = &*op.object;
    match op.kind {
        Kind::Added => prepared(
            transaction,
            "INSERT INTO object (id, resource, namespace, name, revision, json)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            number(object.created()),
            op.resource,
            object.namespace(),
            object.name(),
            number(object.revision()),
            text(object)
        ])
        .map(drop),
        Kind::Modified => update(transaction, object),
        Kind::Deleted => prepared(transaction, "DELETE FROM object WHERE id = ?1")?
            .execute([number(object.created())])
            .map(drop),
    }
}

fn update(transaction: &Transaction<'_>, object: &Stored) -> Result<(), rusqlite::Error> {
    prepared(
        transaction,
        "UPDATE object SET revision = ?2, json = ?3 WHERE id = ?1",
    )?
    .execute(params![
        number(object.created()),
        number(object.revision()),
        text(object)
    ])
    .map(drop)
}

/// The log holds what was there before: what came after is the object itself, or the `before` of
/// the next entry.
fn write_log(transaction: &Transaction<'_>, op: &Op) -> Result<(), rusqlite::Error> {
    let before = op.previous.as_deref();
    prepared(
        transaction,
        "INSERT INTO log (revision, resource, object, deleted, namespace, name,
                          before_revision, before)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        number(op.object.revision()),
        op.resource,
        number(op.object.created()),
        op.kind == Kind::Deleted,
        op.object.namespace(),
        op.object.name(),
        before.map(|b| number(b.revision())),
        before.map(text),
    ])
    .map(drop)
}

fn prepared<'a>(
    transaction: &'a Transaction<'_>,
    sql: &str,
) -> Result<CachedStatement<'a>, rusqlite::Error> {
    transaction.prepare_cached(sql)
}
