//! The disk of what ships: one SQLite database in a data directory, and its transactions.

use super::super::error::OpenError;
use super::super::feed::Kind;
use super::super::stored::Stored;
use super::super::{DATABASE, Make, absent, directory};
use super::load::Loaded;
use super::sealed::{self, Column};
use super::{Batch, Checkpoint, Disk, Op, schema};
use crate::apiserver::sealing::Keyring;
use rusqlite::hooks::Wal;
use rusqlite::{CachedStatement, Connection, Transaction, params};
use std::borrow::Cow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The one connection. Nobody else opens the file while it lives.
pub(in super::super) struct Sqlite {
    pub(super) connection: Connection,
    /// What seals the content of some objects.
    pub(super) ring: Keyring,
    /// Whether a transaction waits until it is on disk.
    syncs: bool,
    pub(super) file: PathBuf,
    /// How many pages SQLite's log holds.
    log: Arc<AtomicUsize>,
    /// Held as long as the connection: who waits for the end may then open the directory.
    _lock: File,
}

/// How much room there has to be before a full disk counts as one that takes writes.
const PROBE: i64 = 256 << 10;

/// Pages that nothing uses are given back when they are more than this, and more than half.
const MANY_PAGES: i64 = 1024;

/// A revision as SQLite stores it.
pub(super) fn number(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// A revision as it was stored.
pub(super) fn revision(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

impl Sqlite {
    /// The database of a data directory, which is made if need be and `make` allows it, and is nobody else's
    /// from then on. What encrypts it is in a file of its own, in the directory unless `key_file` names one.
    pub(in super::super) fn open(
        dir: &Path,
        key_file: Option<&Path>,
        make: Make,
    ) -> Result<Self, OpenError> {
        directory::open(dir)?;
        let lock = directory::lock(dir)?;
        absent::check_file(dir, make)?;
        let file = dir.join(DATABASE);
        let key_file = Keyring::prepare(dir, key_file)?;
        let mut connection = schema::open(&file)?;
        let ring = sealed::keys(&connection, &file, &key_file)?;
        Keyring::link(dir, &key_file)?;
        sealed::converge(&mut connection, &file, &ring)?;
        let log = Arc::new(AtomicUsize::new(0));
        let pages = log.clone();
        let count = move |_: &mut Wal, held: std::ffi::c_int| {
            pages.store(usize::try_from(held).unwrap_or_default(), Ordering::Relaxed);
            Ok(())
        };
        let hooked = connection.wal_hook(Some(count));
        hooked.map_err(|source| schema::error("open", &file, source))?;
        Ok(Self {
            connection,
            ring,
            syncs: true,
            log,
            file,
            _lock: lock,
        })
    }

    /// What seals.
    pub(in super::super) fn ring(&self) -> &Keyring {
        &self.ring
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
}

impl Disk for Sqlite {
    fn load(&mut self) -> Result<Loaded, OpenError> {
        let loaded = self.read()?;
        // Lets go of the memory that reading took.
        let shrunk = self.connection.execute_batch("PRAGMA shrink_memory");
        shrunk.map_err(|source| schema::error("read", &self.file, source))?;
        Ok(loaded)
    }

    fn write(&mut self, batch: &Batch<'_>) -> Result<(), rusqlite::Error> {
        let syncs = batch.must_last();
        if syncs != self.syncs {
            // SQLite's log is synced from its beginning.
            let level = if syncs { "FULL" } else { "NORMAL" };
            self.connection.pragma_update(None, "synchronous", level)?;
            self.syncs = syncs;
        }
        let transaction = self.connection.transaction()?;
        fill(&transaction, &self.ring, batch)?;
        transaction.commit()
    }

    fn checkpoint(&mut self, mode: Checkpoint) -> Result<(), rusqlite::Error> {
        let pragma = match mode {
            Checkpoint::Passive => "PRAGMA wal_checkpoint(PASSIVE)",
            Checkpoint::Truncate => "PRAGMA wal_checkpoint(TRUNCATE)",
        };
        self.connection.query_row(pragma, [], |_| Ok(()))?;
        self.log.store(0, Ordering::Relaxed);
        Ok(())
    }

    fn log_pages(&self) -> usize {
        self.log.load(Ordering::Relaxed)
    }

    fn give_back(&mut self) -> Result<bool, rusqlite::Error> {
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

    fn probe(&mut self) -> Result<(), rusqlite::Error> {
        let insert = "INSERT INTO probe (room) VALUES (zeroblob(?1))";
        self.connection.execute(insert, [PROBE])?;
        self.connection.execute("DELETE FROM probe", [])?;
        self.checkpoint(Checkpoint::Passive)
    }

    fn close(self: Box<Self>) -> Result<(), rusqlite::Error> {
        self.connection.close().map_err(|(_, error)| error)
    }

    fn file(&self) -> &Path {
        &self.file
    }
}

pub(super) fn text(stored: &Stored) -> Cow<'_, str> {
    let invariant = "invariant: what is stored is UTF-8";
    match stored.json() {
        Cow::Borrowed(json) => Cow::Borrowed(std::str::from_utf8(json).expect(invariant)),
        Cow::Owned(json) => Cow::Owned(String::from_utf8(json).expect(invariant)),
    }
}

fn fill(
    transaction: &Transaction<'_>,
    ring: &Keyring,
    batch: &Batch<'_>,
) -> Result<(), rusqlite::Error> {
    for (id, name) in &batch.resources {
        prepared(
            transaction,
            "INSERT INTO resource (id, name, floor) VALUES (?1, ?2, 0)",
        )?
        .execute(params![id, name])?;
    }
    for op in batch.ops {
        write_object(transaction, ring, op)?;
        if op.logged {
            write_log(transaction, ring, op)?;
        }
    }
    for object in &batch.late {
        // Only Leases are late.
        update(transaction, object, &Column::Text(text(object)))?;
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

fn write_object(
    transaction: &Transaction<'_>,
    ring: &Keyring,
    op: &Op,
) -> Result<(), rusqlite::Error> {
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
            sealed::column(ring, &op.name, object)?
        ])
        .map(drop),
        Kind::Modified => {
            let content = sealed::column(ring, &op.name, object)?;
            update(transaction, object, &content)
        }
        Kind::Deleted => prepared(transaction, "DELETE FROM object WHERE id = ?1")?
            .execute([number(object.created())])
            .map(drop),
    }
}

fn update(
    transaction: &Transaction<'_>,
    object: &Stored,
    content: &Column<'_>,
) -> Result<(), rusqlite::Error> {
    prepared(
        transaction,
        "UPDATE object SET revision = ?2, json = ?3 WHERE id = ?1",
    )?
    .execute(params![
        number(object.created()),
        number(object.revision()),
        content
    ])
    .map(drop)
}

/// The log holds what was there before: what came after is the object itself, or the `before` of
/// the next entry.
fn write_log(
    transaction: &Transaction<'_>,
    ring: &Keyring,
    op: &Op,
) -> Result<(), rusqlite::Error> {
    let before = op.previous.as_deref();
    let content = before.map(|before| sealed::column(ring, &op.name, before));
    let content = content.transpose()?;
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
        content,
    ])
    .map(drop)
}

fn prepared<'a>(
    transaction: &'a Transaction<'_>,
    sql: &str,
) -> Result<CachedStatement<'a>, rusqlite::Error> {
    transaction.prepare_cached(sql)
}
