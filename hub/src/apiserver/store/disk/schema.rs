//! How the file is opened: its settings, its tables, its format and what becomes of older ones.

use super::super::error::OpenError;
use crate::apiserver::files::give_to_owner;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _};
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// From format 1 on, what makes the next one of each. A step is never changed once it was released.
const STEPS: &[&str] = &[
    "CREATE TABLE encryption (key TEXT PRIMARY KEY) WITHOUT ROWID; INSERT INTO encryption VALUES ('none')",
];

/// The format that this program writes.
#[expect(clippy::cast_possible_wrap, reason = "there are few")]
pub(super) const FORMAT: i64 = 1 + STEPS.len() as i64;

/// From this format on Secrets are sealed; no copy is kept of what was not.
const SEALED_SINCE: i64 = 2;

/// `TOWL`, in the file's header: a file of something else is never taken for ours.
const APPLICATION: i64 = 0x544f_574c;

const TABLES: &str = "
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE resource (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, floor INTEGER NOT NULL);
CREATE TABLE object (
    id INTEGER PRIMARY KEY, resource INTEGER NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    revision INTEGER NOT NULL, json TEXT NOT NULL
);
CREATE TABLE log (
    revision INTEGER PRIMARY KEY, resource INTEGER NOT NULL, object INTEGER NOT NULL,
    deleted INTEGER NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    before_revision INTEGER, before TEXT
);
CREATE TABLE probe (room BLOB NOT NULL);
INSERT INTO meta VALUES ('format', 1), ('reserved', 1), ('clean', 1), ('begin', 0);
";

pub(super) fn error(action: &'static str, file: &Path, source: rusqlite::Error) -> OpenError {
    let file = file.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::Foreign { file },
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Damaged {
            file,
            what: source.to_string(),
        },
        _ => OpenError::Sqlite {
            action,
            file,
            source,
        },
    }
}

fn io(action: &'static str, path: &Path) -> impl Fn(std::io::Error) -> OpenError {
    move |source| OpenError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Opens a database, made if need be, and brings it to the format that this program writes.
pub(super) fn open(file: &Path) -> Result<Connection, OpenError> {
    open_with(file, STEPS)
}

fn open_with(file: &Path, steps: &[&str]) -> Result<Connection, OpenError> {
    let sqlite = |source| error("open", file, source);
    let fresh = private_file(file)?;
    if fresh {
        give_to_owner_of_folder(file)?;
    }
    let mut connection = connect(file)?;
    if is_empty(&connection).map_err(sqlite)? {
        make(&mut connection).map_err(sqlite)?;
    }
    if fresh {
        sync_dir_of(file)?;
    }
    let found = format(&connection, file)?;
    let newest = newest(steps);
    if found > newest {
        return Err(OpenError::Newer {
            file: file.to_owned(),
            found,
            known: newest,
        });
    }
    if value(&connection, "backup").map_err(sqlite)?.is_some() {
        return Err(OpenError::Backup {
            file: file.to_owned(),
        });
    }
    if found < newest {
        if found >= SEALED_SINCE {
            keep_copy(&connection, file, found)?;
        }
        migrate(&mut connection, steps, found).map_err(|e| error("migrate", file, e))?;
    }
    Ok(connection)
}

/// The format that these steps lead to.
fn newest(steps: &[&str]) -> i64 {
    1 + i64::try_from(steps.len()).unwrap_or(i64::MAX - 1)
}

/// Connects to a file that is there.
pub(super) fn connect(file: &Path) -> Result<Connection, OpenError> {
    let sqlite = |source| error("open", file, source);
    // No mutex: one thread uses it. No URI: a path is a path.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).map_err(sqlite)?;
    configure(&connection).map_err(sqlite)?;
    Ok(connection)
}

/// Makes the tables of a database that has none.
pub(super) fn make(connection: &mut Connection) -> Result<(), rusqlite::Error> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    migrate_in(&transaction, STEPS, 1)?;
    // Nothing is in it that was not sealed.
    transaction.execute("DELETE FROM encryption", [])?;
    transaction.commit()
}

/// Brings a database that was carried here to the format that this program writes.
pub(super) fn upgrade(connection: &mut Connection, file: &Path) -> Result<(), OpenError> {
    let found = format(connection, file)?;
    migrate(connection, STEPS, found).map_err(|e| error("migrate", file, e))
}

/// Makes a file before SQLite does, for nobody else may read it; SQLite gives the files beside it
/// the same mode. Says whether it is new.
pub(super) fn private_file(file: &Path) -> Result<bool, OpenError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    match options.open(file) {
        Ok(_) => Ok(true),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            let private = fs::set_permissions(file, Permissions::from_mode(0o600));
            private.map_err(io("make private", file))?;
            Ok(false)
        }
        Err(e) => Err(io("create", file)(e)),
    }
}

/// Gives a file of the data directory to the owner of that; SQLite gives the files beside it to the same.
pub(super) fn give_to_owner_of_folder(file: &Path) -> Result<(), OpenError> {
    let made = File::open(file).and_then(|made| give_to_owner(&made, file));
    made.map_err(io("give away", file))
}

/// Makes durable that a file is there.
pub(in super::super) fn sync_dir_of(file: &Path) -> Result<(), OpenError> {
    let dir = match file.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    };
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(io("write", dir))
}

fn configure(connection: &Connection) -> Result<(), rusqlite::Error> {
    // Exclusive before the log is first used: then no shared memory is needed, and a second
    // connection, which could end the log under us, is refused.
    connection.execute_batch(
        "PRAGMA locking_mode = EXCLUSIVE;
         PRAGMA auto_vacuum = INCREMENTAL;
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA wal_autocheckpoint = 0;
         PRAGMA journal_size_limit = 33554432;
         PRAGMA cache_size = -2048;
         PRAGMA temp_store = MEMORY;
         PRAGMA mmap_size = 0;
         PRAGMA secure_delete = FAST;
         PRAGMA trusted_schema = OFF;",
    )?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(())
}

fn is_empty(connection: &Connection) -> Result<bool, rusqlite::Error> {
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(tables == 0)
}

/// A number of the table `meta`.
pub(super) fn value(connection: &Connection, name: &str) -> Result<Option<i64>, rusqlite::Error> {
    let sql = "SELECT value FROM meta WHERE name = ?1";
    let found = connection.query_row(sql, [name], |row| row.get(0));
    found.optional()
}

/// The format of a database, which has to be one of ours.
pub(super) fn format(connection: &Connection, file: &Path) -> Result<i64, OpenError> {
    let sqlite = |source| error("read the format of", file, source);
    let id: i64 = connection
        .pragma_query_value(None, "application_id", |row| row.get(0))
        .map_err(sqlite)?;
    let foreign = || OpenError::Foreign {
        file: file.to_owned(),
    };
    if id != APPLICATION {
        return Err(foreign());
    }
    value(connection, "format")
        .map_err(sqlite)?
        .ok_or_else(foreign)
}

/// Keeps the database as it was before a migration, under the name of its format.
fn keep_copy(connection: &Connection, file: &Path, found: i64) -> Result<PathBuf, OpenError> {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".format-{found}"));
    let copy = file.with_file_name(name);
    // One that is there is of a migration that did not end; SQLite writes only into an empty file.
    if let Err(e) = fs::remove_file(&copy)
        && e.kind() != std::io::ErrorKind::NotFound
    {
        return Err(io("replace", &copy)(e));
    }
    private_file(&copy)?;
    give_to_owner_of_folder(&copy)?;
    let sqlite = |source| error("copy", file, source);
    let target = copy.to_string_lossy();
    connection
        .execute("VACUUM INTO ?1", [&target])
        .map_err(sqlite)?;
    let synced = File::open(&copy).and_then(|copy| copy.sync_all());
    synced.map_err(io("write", &copy))?;
    sync_dir_of(&copy)?;
    tracing::info!(copy = %copy.display(), format = found, "kept the database before its migration");
    Ok(copy)
}

fn migrate(connection: &mut Connection, steps: &[&str], from: i64) -> Result<(), rusqlite::Error> {
    let transaction = connection.transaction()?;
    migrate_in(&transaction, steps, from)?;
    transaction.commit()
}

fn migrate_in(connection: &Connection, steps: &[&str], from: i64) -> Result<(), rusqlite::Error> {
    let done = usize::try_from(from - 1).unwrap_or_default();
    for step in steps.iter().skip(done) {
        connection.execute_batch(step)?;
    }
    let sql = "UPDATE meta SET value = ?1 WHERE name = 'format'";
    connection.execute(sql, [newest(steps)]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn what_is_not_ours_or_newer_is_refused() {
        let dir = TempDir::new().expect("directory");
        let text = dir.path().join("text");
        fs::write(
            &text,
            "no database, but long enough to be looked at ".repeat(40),
        )
        .expect("writes");
        assert!(matches!(open(&text), Err(OpenError::Foreign { .. })));
        let other = dir.path().join("other");
        Connection::open(&other)
            .and_then(|c| c.execute_batch("CREATE TABLE meta (name, value)"))
            .expect("writes");
        assert!(matches!(open(&other), Err(OpenError::Foreign { .. })));
        let newer = dir.path().join("newer");
        let connection = open(&newer).expect("makes");
        let sql = "UPDATE meta SET value = 99 WHERE name = 'format'";
        connection.execute(sql, []).expect("writes");
        drop(connection);
        let refused = open(&newer).expect_err("refused").to_string();
        assert!(refused.contains("has format 99"), "{refused}");
    }

    #[test]
    fn a_migration_keeps_a_copy() {
        let dir = TempDir::new().expect("directory");
        let file = dir.path().join("hub.db");
        let connection = open(&file).expect("makes");
        connection
            .execute("INSERT INTO resource VALUES (1, 'before', 0)", [])
            .expect("writes");
        drop(connection);
        let next = "UPDATE resource SET name = 'after'";
        let bad = open_with(&file, &[STEPS, &[next, "no SQL"]].concat());
        assert!(matches!(bad, Err(OpenError::Sqlite { .. })), "{bad:?}");
        let steps = [STEPS, &[next, "CREATE TABLE more (x)"]].concat();
        let name = |connection: &Connection| {
            let sql = "SELECT name FROM resource";
            connection
                .query_row(sql, [], |row| row.get::<_, String>(0))
                .expect("reads")
        };
        let connection = open_with(&file, &steps).expect("migrates");
        assert_eq!(name(&connection), "after");
        assert_eq!(format(&connection, &file).expect("reads"), FORMAT + 2);
        drop(connection);
        let refused = open(&file).expect_err("refused");
        assert!(
            matches!(refused, OpenError::Newer { found, .. } if found == FORMAT + 2),
            "{refused}"
        );
        let copy = dir.path().join(format!("hub.db.format-{FORMAT}"));
        let mode = fs::metadata(&copy).expect("kept").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        assert_eq!(name(&open(&copy).expect("opens")), "before");
    }

    #[test]
    fn every_commit_is_synced() {
        let dir = TempDir::new().expect("directory");
        let connection = open(&dir.path().join("hub.db")).expect("makes");
        let read = |name: &str| {
            let read = connection.pragma_query_value(None, name, |row| row.get::<_, String>(0));
            let number = |_| {
                let read = connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
                read.map(|n| n.to_string())
            };
            read.or_else(number).expect("reads")
        };
        assert_eq!(read("journal_mode"), "wal");
        assert_eq!(read("synchronous"), "2");
        assert_eq!(read("locking_mode"), "exclusive");
        assert_eq!(read("auto_vacuum"), "2");
    }
}
