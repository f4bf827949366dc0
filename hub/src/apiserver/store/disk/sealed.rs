//! What lies in the database encrypted, and how all of it comes under the first of the keys.
//!
//! Objects of some resources are sealed, as they are and as the log remembers them; everything else is
//! text. Sealed content is a blob where other content is text. The table `encryption` names the keys that
//! something may be sealed by, and `none` where something may not be sealed yet.

use super::super::error::OpenError;
use super::super::stored::Stored;
use super::schema;
use super::sqlite::revision;
use crate::apiserver::sealing::{self, AssociatedData, KeyId, Keyring};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ToSql, params};
use std::borrow::Cow;
use std::path::Path;

/// Set while pages may hold what was there before it was sealed.
const UNCLEAN: &str = "unclean";

/// How many rows are sealed in one transaction.
const PIECE: usize = 512;

/// Whether the objects of a resource are sealed: Secrets, which hold tokens too, and Works, whose manifests
/// may be Secrets.
pub(super) fn is_sealed(resource: &str) -> bool {
    matches!(resource, "/secrets" | "work.karmada.io/works")
}

/// The same for SQL.
const SEALED: &str = "('/secrets', 'work.karmada.io/works')";

/// An object's content as it is written.
pub(super) enum Column<'a> {
    Text(Cow<'a, str>),
    Sealed(Vec<u8>),
}

impl ToSql for Column<'_> {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>, rusqlite::Error> {
        Ok(match self {
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Sealed(bytes) => ToSqlOutput::Borrowed(ValueRef::Blob(bytes)),
        })
    }
}

/// What SQLite is told of a failure that is not its own.
fn foreign(error: sealing::Error) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(Box::new(error))
}

/// The content of an object of a resource.
pub(super) fn column<'a>(
    ring: &Keyring,
    resource: &str,
    object: &'a Stored,
) -> Result<Column<'a>, rusqlite::Error> {
    if !is_sealed(resource) {
        return Ok(Column::Text(super::sqlite::text(object)));
    }
    let place = AssociatedData {
        what: resource,
        name: object.joined(),
        revision: object.revision(),
    };
    let sealed = ring.seal(place, &object.json());
    sealed.map(Column::Sealed).map_err(foreign)
}

/// What a column holds: text, or what was sealed for `place`.
pub(super) fn content(
    ring: &Keyring,
    place: AssociatedData<'_>,
    column: ValueRef<'_>,
) -> Result<Vec<u8>, sealing::Error> {
    match column {
        ValueRef::Blob(sealed) => ring.open(place, sealed),
        ValueRef::Text(text) => Ok(text.to_vec()),
        _ => Err(sealing::Error::Damaged {
            what: place.what.to_owned(),
            name: place.name.to_owned(),
        }),
    }
}

/// The keys that something may be sealed by, and `none`.
fn used(connection: &Connection) -> Result<Vec<String>, rusqlite::Error> {
    let mut statement = connection.prepare("SELECT key FROM encryption ORDER BY key")?;
    let rows = statement.query_map([], |row| row.get(0))?;
    rows.collect()
}

/// The keys in a file, which have to be those of a database; the file is made when nothing is sealed.
pub(super) fn keys(
    connection: &Connection,
    file: &Path,
    key_file: &Path,
) -> Result<Keyring, OpenError> {
    let used = used(connection).map_err(|source| schema::error("read", file, source))?;
    let ids: Vec<KeyId> = used.iter().filter_map(|key| KeyId::parse(key)).collect();
    let ring = match (Keyring::read(key_file)?, ids.first()) {
        (Some(ring), _) => ring,
        (None, None) => Keyring::create(key_file)?,
        (None, Some(id)) => {
            return Err(OpenError::Encryption(sealing::Error::Missing {
                file: key_file.to_owned(),
                of: file.to_owned(),
                id: *id,
            }));
        }
    };
    for id in ids {
        ring.has(id)?;
    }
    Ok(ring)
}

/// Seals by the first key what is not; nothing that was there before is left in the file or its log.
pub(super) fn converge(
    connection: &mut Connection,
    file: &Path,
    ring: &Keyring,
) -> Result<(), OpenError> {
    let sqlite = |source| schema::error("encrypt", file, source);
    let first = ring.first().to_string();
    let used = used(connection).map_err(sqlite)?;
    let unclean = schema::value(connection, UNCLEAN).map_err(sqlite)?;
    if used == [first.as_str()] && unclean.is_none() {
        return Ok(());
    }
    let insert = "INSERT OR IGNORE INTO encryption VALUES (?1)";
    if used.is_empty() {
        return connection
            .execute(insert, [first])
            .map(drop)
            .map_err(sqlite);
    }
    let transaction = connection.transaction().map_err(sqlite)?;
    transaction.execute(insert, [&first]).map_err(sqlite)?;
    dirty(&transaction).map_err(sqlite)?;
    transaction.commit().map_err(sqlite)?;
    let mut rows = 0;
    for table in [&OBJECTS, &LOG] {
        let mut after = -1;
        while let Some(last) = seal_some(connection, file, ring, table, after, &mut rows)? {
            after = last;
        }
    }
    let others = "DELETE FROM encryption WHERE key != ?1";
    connection.execute(others, [&first]).map_err(sqlite)?;
    clean(connection).map_err(sqlite)?;
    tracing::info!(rows, key = %first, "Secrets and Works in the database are encrypted by this key");
    Ok(())
}

/// Notes that pages may hold what must not stay.
pub(super) fn dirty(connection: &Connection) -> Result<(), rusqlite::Error> {
    let note = "INSERT OR REPLACE INTO meta (name, value) VALUES (?1, 1)";
    connection.execute(note, [UNCLEAN]).map(drop)
}

/// Writes the file anew, without what nothing uses, and makes the log empty.
fn clean(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.execute_batch("VACUUM")?;
    connection.execute("DELETE FROM meta WHERE name = ?1", [UNCLEAN])?;
    let truncate = "PRAGMA wal_checkpoint(TRUNCATE)";
    connection.query_row(truncate, [], |_| Ok(()))
}

/// Where content lies.
struct Holder {
    /// Number, resource, namespace, name, revision of the content, content; after a number, in order.
    select: &'static str,
    update: &'static str,
}

const OBJECTS: Holder = Holder {
    select: "SELECT o.id, r.name, o.namespace, o.name, o.revision, o.json
             FROM object o JOIN resource r ON r.id = o.resource WHERE o.id > ?1",
    update: "UPDATE object SET json = ?2 WHERE id = ?1",
};

const LOG: Holder = Holder {
    select: "SELECT o.revision, r.name, o.namespace, o.name, o.before_revision, o.before
             FROM log o JOIN resource r ON r.id = o.resource
             WHERE o.revision > ?1 AND o.before IS NOT NULL",
    update: "UPDATE log SET before = ?2 WHERE revision = ?1",
};

/// Seals the next rows after a number; the number of the last one that was looked at, if there was any.
fn seal_some(
    connection: &mut Connection,
    file: &Path,
    ring: &Keyring,
    of: &Holder,
    after: i64,
    rows: &mut usize,
) -> Result<Option<i64>, OpenError> {
    let sqlite = |source| schema::error("encrypt", file, source);
    let transaction = connection.transaction().map_err(sqlite)?;
    let mut last = None;
    {
        let select = format!(
            "{} AND r.name IN {SEALED} ORDER BY 1 LIMIT {PIECE}",
            of.select
        );
        let mut select = transaction.prepare(&select).map_err(sqlite)?;
        let mut update = transaction.prepare(of.update).map_err(sqlite)?;
        let mut found = select.query([after]).map_err(sqlite)?;
        let mut resealed: Vec<(i64, Value)> = Vec::new();
        while let Some(row) = found.next().map_err(sqlite)? {
            let id: i64 = row.get(0).map_err(sqlite)?;
            last = Some(id);
            let column = row.get_ref(5).map_err(sqlite)?;
            if column.as_blob().is_ok_and(|blob| ring.is_current(blob)) {
                continue;
            }
            let text = |column| row.get::<_, String>(column).map_err(sqlite);
            let name = format!("{}/{}", text(2)?, text(3)?);
            let resource = text(1)?;
            let place = AssociatedData {
                what: &resource,
                name: &name,
                revision: revision(row.get(4).map_err(sqlite)?),
            };
            let plain = content(ring, place, column)?;
            resealed.push((id, Value::Blob(ring.seal(place, &plain)?)));
        }
        *rows += resealed.len();
        for (id, sealed) in resealed {
            update.execute(params![id, sealed]).map_err(sqlite)?;
        }
    }
    transaction.commit().map_err(sqlite)?;
    Ok(last)
}
