//! Reads the rows of a database at start: one thread has SQLite hand them out, and some make of them what lies in
//! memory.

use super::super::error::OpenError;
use super::super::key::Key;
use super::super::stored::Stored;
use super::lanes::in_order;
use super::load::{Entry, Loaded, LoadedResource, Loading, ResourceRows, bad};
use super::sealed;
use super::sqlite::{Sqlite, revision};
use crate::apiserver::sealing::{AssociatedData, Keyring};
use crate::pack::Packer;
use common::lock::lock;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Row, Rows};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

/// How many rows are worked on together.
const PIECE: usize = 256;

/// The names of resources by their rows.
type Names = BTreeMap<i64, Arc<str>>;

/// A version of an object, as its row has it.
struct Version {
    resource: i64,
    of: Arc<str>,
    id: u64,
    revision: u64,
    key: Key,
    content: Value,
}

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
        let names = self.resources(&mut loading).map_err(sqlite)?;
        let packers = Packers::default();
        self.objects(&names, &packers, &mut loading)?;
        self.history(&names, &packers, &mut loading)?;
        loading.pack_by(packers.0.into_inner().unwrap_or_default());
        let resources = self.put_together(loading)?;
        Ok(Loaded {
            reserved,
            clean,
            begin,
            resources,
        })
    }

    /// The resources, by several threads.
    fn put_together(&self, loading: Loading) -> Result<Vec<LoadedResource>, OpenError> {
        let mut rows: Vec<ResourceRows> = loading.resources().collect();
        // The largest come first: none is left to one thread when the others have nothing to do.
        rows.sort_by_key(ResourceRows::len);
        let mut resources = Vec::with_capacity(rows.len());
        let file = &*self.file;
        in_order(
            || Ok(rows.pop()),
            || |rows: ResourceRows| rows.finish().map_err(|why| damaged(file, why)),
            |resource| {
                resources.push(resource);
                Ok(())
            },
        )?;
        resources.sort_by_key(|resource: &LoadedResource| resource.id);
        Ok(resources)
    }

    fn resources(&self, loading: &mut Loading) -> Result<Names, rusqlite::Error> {
        let sql = "SELECT id, name, floor FROM resource";
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        let mut names = Names::new();
        while let Some(row) = rows.next()? {
            let (id, name): (i64, String) = (row.get(0)?, row.get(1)?);
            let name: Arc<str> = name.into();
            names.insert(id, Arc::clone(&name));
            loading.resource(id, name, revision(row.get(2)?));
        }
        Ok(names)
    }

    fn objects(
        &self,
        names: &Names,
        packers: &Packers,
        loading: &mut Loading,
    ) -> Result<(), OpenError> {
        let sqlite = |source| self.error("read the objects of", source);
        let sql = "SELECT resource, id, revision, namespace, name, json FROM object";
        let mut statement = self.connection.prepare(sql).map_err(sqlite)?;
        let mut rows = statement.query([]).map_err(sqlite)?;
        in_order(
            || {
                piece(&mut rows, &sqlite, |row| {
                    let read = Version::read(row, names).map_err(sqlite)?;
                    read.ok_or_else(|| {
                        self.damaged(format!("no resource {:?}", row.get::<_, i64>(0)))
                    })
                })
            },
            || {
                let mut reader = Reader::new(packers, &self.ring, &self.file);
                move |piece: Vec<Version>| {
                    let each = piece.into_iter().map(|version| {
                        let (resource, id) = (version.resource, version.id);
                        let stored = reader.stored(version)?;
                        let stored =
                            stored.ok_or_else(|| reader.damaged(format!("object {id}")))?;
                        Ok((resource, Arc::new(stored)))
                    });
                    each.collect::<Result<Vec<_>, OpenError>>()
                }
            },
            |objects| {
                for (resource, object) in objects {
                    let put = loading.object(resource, object);
                    put.map_err(|why| self.damaged(why))?;
                }
                Ok(())
            },
        )
    }

    /// The log, newest first.
    fn history(
        &self,
        names: &Names,
        packers: &Packers,
        loading: &mut Loading,
    ) -> Result<(), OpenError> {
        let sqlite = |source| self.error("read the log of", source);
        let sql = "SELECT resource, object, before_revision, namespace, name, before,
                          revision, deleted FROM log ORDER BY revision DESC";
        let mut statement = self.connection.prepare(sql).map_err(sqlite)?;
        let mut rows = statement.query([]).map_err(sqlite)?;
        in_order(
            || {
                piece(&mut rows, &sqlite, |row| {
                    let entry = Entry {
                        resource: row.get(0).map_err(sqlite)?,
                        revision: revision(row.get(6).map_err(sqlite)?),
                        object: revision(row.get(1).map_err(sqlite)?),
                        deleted: row.get(7).map_err(sqlite)?,
                        key: key(row).map_err(sqlite)?,
                        previous: None,
                    };
                    let before = match row.get_ref(5).map_err(sqlite)? {
                        ValueRef::Null => None,
                        _ => {
                            let read = Version::read(row, names).map_err(sqlite)?;
                            Some(read.ok_or_else(|| self.damaged(bad(entry.revision)))?)
                        }
                    };
                    Ok((entry, before))
                })
            },
            || {
                let mut reader = Reader::new(packers, &self.ring, &self.file);
                move |piece: Vec<(Entry, Option<Version>)>| {
                    let each = piece.into_iter().map(|(mut entry, before)| {
                        if let Some(version) = before {
                            let stored = reader.stored(version)?;
                            let stored =
                                stored.ok_or_else(|| reader.damaged(bad(entry.revision)))?;
                            entry.previous = Some(Arc::new(stored));
                        }
                        Ok(entry)
                    });
                    each.collect::<Result<Vec<_>, OpenError>>()
                }
            },
            |entries| {
                for entry in entries {
                    loading.entry(entry).map_err(|why| self.damaged(why))?;
                }
                Ok(())
            },
        )
    }

    fn error(&self, action: &'static str, source: rusqlite::Error) -> OpenError {
        super::schema::error(action, &self.file, source)
    }

    fn damaged(&self, what: String) -> OpenError {
        damaged(&self.file, what)
    }
}

fn damaged(file: &Path, what: String) -> OpenError {
    OpenError::Damaged {
        file: file.to_owned(),
        what,
    }
}

/// The next rows; none when there are no more.
fn piece<T>(
    rows: &mut Rows<'_>,
    sqlite: &impl Fn(rusqlite::Error) -> OpenError,
    mut read: impl FnMut(&Row<'_>) -> Result<T, OpenError>,
) -> Result<Option<Vec<T>>, OpenError> {
    let mut piece = Vec::with_capacity(PIECE);
    while piece.len() < PIECE
        && let Some(row) = rows.next().map_err(sqlite)?
    {
        piece.push(read(row)?);
    }
    Ok((!piece.is_empty()).then_some(piece))
}

impl Version {
    /// Reads six columns: resource, number, revision, namespace, name, content. None when the resource is unknown.
    fn read(row: &Row<'_>, names: &Names) -> Result<Option<Self>, rusqlite::Error> {
        let resource = row.get(0)?;
        let Some(of) = names.get(&resource) else {
            return Ok(None);
        };
        Ok(Some(Self {
            resource,
            of: Arc::clone(of),
            id: revision(row.get(1)?),
            revision: revision(row.get(2)?),
            key: key(row)?,
            content: row.get(5)?,
        }))
    }
}

/// Reads the fourth and the fifth column: namespace, name.
fn key(row: &Row<'_>) -> Result<Key, rusqlite::Error> {
    let namespace = row.get_ref(3)?.as_str()?;
    Ok(Key::new(namespace, row.get_ref(4)?.as_str()?))
}

/// What packs the objects of each resource: the same for all threads to begin with.
#[derive(Default)]
struct Packers(Mutex<BTreeMap<i64, Packer>>);

/// Makes of rows what lies in memory.
struct Reader<'a> {
    shared: &'a Packers,
    own: BTreeMap<i64, Packer>,
    ring: &'a Keyring,
    file: &'a Path,
}

impl<'a> Reader<'a> {
    fn new(shared: &'a Packers, ring: &'a Keyring, file: &'a Path) -> Self {
        Self {
            shared,
            own: BTreeMap::new(),
            ring,
            file,
        }
    }

    /// The version; none where the content is not one.
    fn stored(&mut self, version: Version) -> Result<Option<Stored>, OpenError> {
        let (of, key) = (&*version.of, version.key.as_str());
        let opened;
        let json = match &version.content {
            // By now all of it is sealed: what is not was put there by somebody else.
            Value::Text(_) if sealed::is_sealed(of) => return Ok(None),
            Value::Text(json) => json.as_bytes(),
            other => {
                let place = AssociatedData {
                    what: of,
                    name: key,
                    revision: version.revision,
                };
                opened = sealed::content(self.ring, place, other.into())?;
                &opened
            }
        };
        let read =
            |packer: &mut Packer| Stored::read(key, version.id, version.revision, json, packer);
        if let Some(packer) = self.own.get_mut(&version.resource) {
            return Ok(read(packer));
        }
        let mut shared = lock(&self.shared.0);
        let packer = shared.entry(version.resource).or_default();
        let stored = read(packer);
        self.own.insert(version.resource, packer.clone());
        Ok(stored)
    }

    fn damaged(&self, what: String) -> OpenError {
        damaged(self.file, what)
    }
}
