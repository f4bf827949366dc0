//! A database as one file that is carried away, and what becomes of it elsewhere.

use super::super::error::OpenError;
use super::super::table::Table;
use super::sqlite::{number, revision};
use super::{schema, sealed};
use crate::apiserver::sealing::Keyring;
use rusqlite::{Connection, OpenFlags, Transaction, params};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

/// What a backup holds: everything that is served, encrypted as it is here, and files that belong to it.
pub(in super::super) struct Content {
    /// What seals.
    pub(in super::super) ring: Keyring,
    /// The newest revision in it.
    pub(in super::super) revision: u64,
    pub(in super::super) resources: Vec<(Arc<str>, Table)>,
    /// Name and content of further files.
    pub(in super::super) files: Vec<(String, Vec<u8>)>,
}

/// Writes a backup to a file that is not there. Until it is whole it has another name.
pub(in super::super) fn copy(content: &Content, target: &Path) -> Result<(), OpenError> {
    if target.exists() {
        return Err(OpenError::Occupied {
            path: target.to_owned(),
        });
    }
    let partial = partial(target);
    remove(&partial);
    let written = write(content, &partial).and_then(|()| settle(&partial, target));
    if written.is_err() {
        remove(&partial);
    }
    written
}

fn partial(target: &Path) -> std::path::PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    target.with_file_name(name)
}

/// Removes what is not whole, with its log: SQLite would carry the log of one that was killed out on the next.
fn remove(partial: &Path) {
    for suffix in ["", "-wal", "-journal"] {
        let mut name = partial.as_os_str().to_owned();
        name.push(suffix);
        let _ = fs::remove_file(name);
    }
}

/// Makes a whole file durable under its own name.
fn settle(partial: &Path, target: &Path) -> Result<(), OpenError> {
    let io = |source| OpenError::Io {
        action: "write",
        path: target.to_owned(),
        source,
    };
    File::open(partial)
        .and_then(|file| file.sync_all())
        .map_err(io)?;
    fs::rename(partial, target).map_err(io)?;
    schema::sync_dir_of(target)
}

fn write(content: &Content, file: &Path) -> Result<(), OpenError> {
    let sqlite = |source| schema::error("write", file, source);
    schema::private_file(file)?;
    let mut connection = schema::connect(file)?;
    // It is made durable once, when it is whole.
    connection
        .execute_batch("PRAGMA synchronous = OFF")
        .map_err(sqlite)?;
    schema::make(&mut connection).map_err(sqlite)?;
    fill(&mut connection, content).map_err(sqlite)?;
    // One file, without a log beside it.
    let single = connection.execute_batch("PRAGMA journal_mode = DELETE");
    single.map_err(sqlite)?;
    connection.close().map_err(|(_, e)| sqlite(e))
}

fn fill(connection: &mut Connection, content: &Content) -> Result<(), rusqlite::Error> {
    let transaction = connection.transaction()?;
    {
        let mut set =
            transaction.prepare("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?;
        set.execute(params!["reserved", number(content.revision)])?;
        set.execute(params!["backup", 1])?;
        transaction.execute(
            "INSERT INTO encryption VALUES (?1)",
            [content.ring.first().to_string()],
        )?;
        transaction.execute_batch(
            "CREATE TABLE file (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID",
        )?;
        let mut file = transaction.prepare("INSERT INTO file (name, content) VALUES (?1, ?2)")?;
        for (name, bytes) in &content.files {
            file.execute(params![name, bytes])?;
        }
        let mut resource =
            transaction.prepare("INSERT INTO resource (id, name, floor) VALUES (?1, ?2, 0)")?;
        let mut object = transaction.prepare(
            "INSERT INTO object (id, resource, namespace, name, revision, json)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        for (row, (name, table)) in (1_i64..).zip(&content.resources) {
            resource.execute(params![row, name])?;
            for stored in table.iter() {
                object.execute(params![
                    number(stored.created()),
                    row,
                    stored.namespace(),
                    stored.name(),
                    number(stored.revision()),
                    sealed::column(&content.ring, name, stored)?
                ])?;
            }
        }
    }
    transaction.commit()
}

/// What a backup becomes.
pub(in super::super) struct Restoring<'a> {
    /// The backup.
    pub(in super::super) backup: &'a Path,
    /// The database that is made.
    pub(in super::super) target: &'a Path,
    /// Its keys.
    pub(in super::super) key_file: &'a Path,
    /// Its revisions go on from here at least.
    pub(in super::super) begin: u64,
}

/// Files of a backup: names and contents.
pub(in super::super) type Files = Vec<(String, Vec<u8>)>;

/// Makes a database of a backup. `edit` may change what is in it, from a revision on, and tells how far it
/// came; the files that belong to it are handed to `keep`, with what `edit` told, before it can be opened.
pub(in super::super) fn read_copy<T, E: From<OpenError>>(
    what: &Restoring<'_>,
    edit: impl FnOnce(&Transaction<'_>, &Keyring, u64) -> Result<(u64, T), OpenError>,
    keep: impl FnOnce(&Keyring, Files, &T) -> Result<(), E>,
) -> Result<(u64, T), E> {
    let Restoring { backup, target, .. } = *what;
    if target.exists() {
        let path = target.to_owned();
        return Err(OpenError::Occupied { path }.into());
    }
    let io = |source| OpenError::Io {
        action: "copy",
        path: backup.to_owned(),
        source,
    };
    let partial = partial(target);
    remove(&partial);
    schema::private_file(&partial)?;
    let made = (|| -> Result<_, E> {
        schema::give_to_owner_of_folder(&partial)?;
        let mut from = File::open(backup).map_err(io)?;
        let mut into = fs::OpenOptions::new()
            .write(true)
            .open(&partial)
            .map_err(io)?;
        std::io::copy(&mut from, &mut into).map_err(io)?;
        drop(into);
        let (done, ring, files) = begin_anew(&partial, what, edit)?;
        keep(&ring, files, &done.1)?;
        settle(&partial, target)?;
        Ok(done)
    })();
    if made.is_err() {
        // It may be of a time when nothing was encrypted.
        remove(&partial);
    }
    made
}

/// Refuses what is no backup, is damaged, or is of a later version.
pub(in super::super) fn check(backup: &Path) -> Result<(), OpenError> {
    let sqlite = |source| schema::error("read", backup, source);
    let connection =
        Connection::open_with_flags(backup, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(sqlite)?;
    let found = schema::format(&connection, backup)?;
    if found > schema::FORMAT {
        return Err(OpenError::Newer {
            file: backup.to_owned(),
            found,
            known: schema::FORMAT,
        });
    }
    if schema::value(&connection, "backup")
        .map_err(sqlite)?
        .is_none()
    {
        return Err(OpenError::NoBackup {
            file: backup.to_owned(),
        });
    }
    let said: String = connection
        .query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        .map_err(sqlite)?;
    if said != "ok" {
        return Err(OpenError::Damaged {
            file: backup.to_owned(),
            what: said,
        });
    }
    Ok(())
}

fn begin_anew<T>(
    file: &Path,
    what: &Restoring<'_>,
    edit: impl FnOnce(&Transaction<'_>, &Keyring, u64) -> Result<(u64, T), OpenError>,
) -> Result<((u64, T), Keyring, Files), OpenError> {
    let sqlite = |source| schema::error("write", file, source);
    let mut connection = schema::connect(file)?;
    schema::upgrade(&mut connection, file)?;
    let ring = sealed::keys(&connection, what.backup, what.key_file)?;
    let transaction = connection.transaction().map_err(sqlite)?;
    let reserved = schema::value(&transaction, "reserved").map_err(sqlite)?;
    let begin = what.begin.max(revision(reserved.unwrap_or_default()) + 1);
    let (begin, told) = edit(&transaction, &ring, begin)?;
    let files = finish(&transaction, begin).map_err(sqlite)?;
    transaction.commit().map_err(sqlite)?;
    sealed::converge(&mut connection, file, &ring)?;
    let merged = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
    merged.map_err(sqlite)?;
    connection.close().map_err(|(_, e)| sqlite(e))?;
    Ok(((begin, told), ring, files))
}

fn finish(transaction: &Transaction<'_>, begin: u64) -> Result<Files, rusqlite::Error> {
    let mut set =
        transaction.prepare("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?;
    set.execute(params!["reserved", number(begin)])?;
    set.execute(params!["begin", number(begin)])?;
    set.execute(params!["clean", 1])?;
    let files: Files = transaction
        .prepare("SELECT name, content FROM file ORDER BY name")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    transaction.execute_batch(
        "DELETE FROM meta WHERE name = 'backup'; DROP TABLE file; DELETE FROM log;",
    )?;
    // What is dropped here stays in no page.
    sealed::dirty(transaction)?;
    Ok(files)
}
