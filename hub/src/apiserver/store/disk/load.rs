//! Reads a database at start: every object, and the history that the log still covers.

use super::super::error::OpenError;
use super::super::feed::{Event, Kind};
use super::super::key::Key;
use super::super::stored::Stored;
use super::super::table::Table;
use super::{Disk, revision};
use rusqlite::Row;
use std::collections::HashMap;
use std::sync::Arc;

/// What was on disk.
pub(in super::super) struct Loaded {
    /// No revision above this one was ever handed out.
    pub(in super::super) reserved: u64,
    /// Whether `reserved` is the last revision that was handed out.
    pub(in super::super) clean: bool,
    /// No watch begins before it.
    pub(in super::super) begin: u64,
    pub(in super::super) resources: Vec<LoadedResource>,
}

/// A resource as it was on disk.
pub(in super::super) struct LoadedResource {
    pub(in super::super) id: i64,
    pub(in super::super) name: Arc<str>,
    pub(in super::super) floor: u64,
    pub(in super::super) table: Table,
    /// Oldest first.
    pub(in super::super) history: Vec<Event>,
}

impl Disk {
    /// Reads everything.
    pub(in super::super) fn load(&self) -> Result<Loaded, OpenError> {
        let sqlite = |source| self.error("read", source);
        let meta = |name: &str| {
            let sql = "SELECT value FROM meta WHERE name = ?1";
            let found = self.connection.query_row(sql, [name], |row| row.get(0));
            found.map_err(sqlite)
        };
        let reserved = revision(meta("reserved")?);
        let clean = meta("clean")? == 1;
        let mut resources = self.resources().map_err(sqlite)?;
        self.objects(&mut resources)?;
        self.history(&mut resources)?;
        let mut resources: Vec<_> = resources.into_values().collect();
        resources.sort_by_key(|resource| resource.id);
        Ok(Loaded {
            reserved,
            clean,
            begin: revision(meta("begin")?),
            resources,
        })
    }

    fn resources(&self) -> Result<HashMap<i64, LoadedResource>, rusqlite::Error> {
        let sql = "SELECT id, name, floor FROM resource";
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map([], |row| {
            let id: i64 = row.get(0)?;
            let resource = LoadedResource {
                id,
                name: row.get::<_, String>(1)?.into(),
                floor: revision(row.get(2)?),
                table: Table::default(),
                history: Vec::new(),
            };
            Ok((id, resource))
        })?;
        rows.collect()
    }

    fn objects(&self, resources: &mut HashMap<i64, LoadedResource>) -> Result<(), OpenError> {
        let sqlite = |source| self.error("read the objects of", source);
        let sql = "SELECT resource, id, revision, namespace, name, json FROM object";
        let mut statement = self.connection.prepare(sql).map_err(sqlite)?;
        let mut rows = statement.query([]).map_err(sqlite)?;
        let mut read: HashMap<i64, Vec<Arc<Stored>>> = HashMap::new();
        while let Some(row) = rows.next().map_err(sqlite)? {
            let resource: i64 = row.get(0).map_err(sqlite)?;
            let stored = stored(row, 1)
                .map_err(sqlite)?
                .ok_or_else(|| self.damaged(format!("object {:?}", row.get::<_, i64>(1))))?;
            read.entry(resource).or_default().push(Arc::new(stored));
        }
        for (resource, mut objects) in read {
            let resource = resources
                .get_mut(&resource)
                .ok_or_else(|| self.damaged(format!("no resource {resource}")))?;
            objects.sort_by(|a, b| a.joined_bytes().cmp(b.joined_bytes()));
            let twice = |pair: &[Arc<Stored>]| match pair {
                [a, b] => a.joined_bytes() == b.joined_bytes(),
                _ => false,
            };
            if objects.windows(2).any(twice) {
                return Err(self.damaged("two objects of one name".to_owned()));
            }
            resource.table = Table::of_sorted(&objects);
        }
        Ok(())
    }

    /// Goes back through the log, newest first: each entry holds what was there before it, and what
    /// came after it is known by then.
    fn history(&self, resources: &mut HashMap<i64, LoadedResource>) -> Result<(), OpenError> {
        let sqlite = |source| self.error("read the log of", source);
        let sql = "SELECT resource, object, before_revision, namespace, name, before,
                          revision, deleted FROM log ORDER BY revision DESC";
        let mut statement = self.connection.prepare(sql).map_err(sqlite)?;
        let mut rows = statement.query([]).map_err(sqlite)?;
        // The version of an object just after the entry that comes next, of those that were met;
        // of the others it is the object as it is.
        let mut after: HashMap<u64, Arc<Stored>> = HashMap::new();
        while let Some(row) = rows.next().map_err(sqlite)? {
            let resource: i64 = row.get(0).map_err(sqlite)?;
            let at = revision(row.get(6).map_err(sqlite)?);
            let bad = || self.damaged(format!("log entry {at}"));
            let found = resources.get_mut(&resource).ok_or_else(bad)?;
            let id = revision(row.get(1).map_err(sqlite)?);
            let previous = match row.get_ref(5).map_err(sqlite)? {
                rusqlite::types::ValueRef::Null => None,
                _ => Some(Arc::new(stored(row, 1).map_err(sqlite)?.ok_or_else(bad)?)),
            };
            let deleted: bool = row.get(7).map_err(sqlite)?;
            let event = match (deleted, &previous) {
                (true, Some(previous)) => Event {
                    kind: Kind::Deleted,
                    object: Arc::new(previous.at_revision(at)),
                    previous: Some(previous.clone()),
                },
                (true, None) => return Err(bad()),
                (false, _) => Event {
                    kind: match previous {
                        Some(_) => Kind::Modified,
                        None => Kind::Added,
                    },
                    object: match after.remove(&id) {
                        Some(object) => object,
                        None => found
                            .table
                            .get(&key(row, 3).map_err(sqlite)?)
                            .ok_or_else(bad)?
                            .clone(),
                    },
                    previous: previous.clone(),
                },
            };
            if event.revision() != at || event.object.created() != id {
                return Err(bad());
            }
            if let Some(previous) = previous {
                after.insert(id, previous);
            }
            found.history.push(event);
        }
        for resource in resources.values_mut() {
            resource.history.reverse();
        }
        Ok(())
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

/// Reads five columns: number, revision, namespace, name, JSON.
fn stored(row: &Row<'_>, first: usize) -> Result<Option<Stored>, rusqlite::Error> {
    let id = revision(row.get(first)?);
    let at = revision(row.get(first + 1)?);
    let key = key(row, first + 2)?;
    let json = row.get_ref(first + 4)?.as_bytes()?;
    Ok(Stored::read(key.as_str(), id, at, json))
}
