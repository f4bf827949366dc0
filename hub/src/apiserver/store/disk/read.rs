//! Reads the rows of a database at start.

use super::super::error::OpenError;
use super::super::key::Key;
use super::super::stored::Stored;
use super::load::{Entry, Loaded, Loading};
use super::sealed;
use super::sqlite::{Sqlite, revision};
use crate::apiserver::sealing::AssociatedData;
use crate::pack::Packer;
use rusqlite::Row;
use rusqlite::types::ValueRef;
use std::sync::Arc;

impl Sqlite {
    /// Reads everything.
    pub(super) fn read(&self) -> Result<Loaded, OpenError> {
        let sqlite = |source| self.error("read", source);
        let meta = |name: &str| {
            let sql = "SELECT value FROM meta WHERE name = ?1";
            let found = self.connection.query_row(sql, [name], |row| row.get(0));
            found.map_err(sqlite)
        };
        let (reserved, begin) = (revision(meta("reserved")?), revision(meta("begin")?));
        let clean = meta("clean")? == 1;
        let mut loading = Loading::default();
        self.resources(&mut loading).map_err(sqlite)?;
        self.objects(&mut loading)?;
        self.history(&mut loading)?;
        Ok(loading.finish(reserved, clean, begin))
    }

    fn resources(&self, loading: &mut Loading) -> Result<(), rusqlite::Error> {
        let sql = "SELECT id, name, floor FROM resource";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let name: String = row.get(1)?;
            loading.resource(row.get(0)?, name.into(), revision(row.get(2)?));
        }
        Ok(())
    }

    fn objects(&self, loading: &mut Loading) -> Result<(), OpenError> {
        let sqlite = |source| self.error("read the objects of", source);
        let sql = "SELECT resource, id, revision, namespace, name, json FROM object";
        let mut statement = self.connection.prepare(sql).map_err(sqlite)?;
        let mut rows = statement.query([]).map_err(sqlite)?;
        while let Some(row) = rows.next().map_err(sqlite)? {
            let resource: i64 = row.get(0).map_err(sqlite)?;
            let name = loading.name(resource).map_err(|why| self.damaged(why))?;
            let packer = loading.packer(resource);
            let packer = packer.map_err(|why| self.damaged(why))?;
            let stored = self
                .stored(row, &name, packer)?
                .ok_or_else(|| self.damaged(format!("object {:?}", row.get::<_, i64>(1))))?;
            let put = loading.object(resource, Arc::new(stored));
            put.map_err(|why| self.damaged(why))?;
        }
        loading.sort().map_err(|why| self.damaged(why))
    }

    /// The log, newest first.
    fn history(&self, loading: &mut Loading) -> Result<(), OpenError> {
        let sqlite = |source| self.error("read the log of", source);
        let sql = "SELECT resource, object, before_revision, namespace, name, before,
                          revision, deleted FROM log ORDER BY revision DESC";
        let mut statement = self.connection.prepare(sql).map_err(sqlite)?;
        let mut rows = statement.query([]).map_err(sqlite)?;
        while let Some(row) = rows.next().map_err(sqlite)? {
            let resource: i64 = row.get(0).map_err(sqlite)?;
            let at = revision(row.get(6).map_err(sqlite)?);
            let bad = || self.damaged(format!("log entry {at}"));
            let name = loading.name(resource).map_err(|_| bad())?;
            let previous = match row.get_ref(5).map_err(sqlite)? {
                ValueRef::Null => None,
                _ => {
                    let packer = loading.packer(resource).map_err(|_| bad())?;
                    Some(Arc::new(self.stored(row, &name, packer)?.ok_or_else(bad)?))
                }
            };
            let entry = Entry {
                resource,
                revision: at,
                object: revision(row.get(1).map_err(sqlite)?),
                deleted: row.get(7).map_err(sqlite)?,
                key: key(row, 3).map_err(sqlite)?,
                previous,
            };
            loading.entry(entry).map_err(|why| self.damaged(why))?;
        }
        Ok(())
    }

    /// Reads five columns from the second on: number, revision, namespace, name, content.
    fn stored(
        &self,
        row: &Row<'_>,
        resource: &str,
        packer: &mut Packer,
    ) -> Result<Option<Stored>, OpenError> {
        let sqlite = |source| self.error("read", source);
        let id = revision(row.get(1).map_err(sqlite)?);
        let at = revision(row.get(2).map_err(sqlite)?);
        let key = key(row, 3).map_err(sqlite)?;
        let column = row.get_ref(5).map_err(sqlite)?;
        match column {
            // By now all of it is sealed: what is not was put there by somebody else.
            ValueRef::Text(_) if sealed::is_sealed(resource) => return Ok(None),
            ValueRef::Text(json) => return Ok(Stored::read(key.as_str(), id, at, json, packer)),
            _ => {}
        }
        let place = AssociatedData {
            what: resource,
            name: key.as_str(),
            revision: at,
        };
        let json = sealed::content(&self.ring, place, column)?;
        Ok(Stored::read(key.as_str(), id, at, &json, packer))
    }

    fn error(&self, action: &'static str, source: rusqlite::Error) -> OpenError {
        super::schema::error(action, &self.file, source)
    }

    fn damaged(&self, what: String) -> OpenError {
        OpenError::Damaged {
            file: self.file.clone(),
            what,
        }
    }
}

/// Reads two columns: namespace, name.
fn key(row: &Row<'_>, first: usize) -> Result<Key, rusqlite::Error> {
    let namespace = row.get_ref(first)?.as_str()?;
    Ok(Key::new(namespace, row.get_ref(first + 1)?.as_str()?))
}
