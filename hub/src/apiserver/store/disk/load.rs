//! What was on disk, put together from its rows: every object, and the history that the log still covers.

use super::super::feed::{Event, Kind};
use super::super::key::Key;
use super::super::stored::Stored;
use super::super::table::Table;
use crate::pack::Packer;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What was on disk.
pub(in super::super) struct Loaded {
    /// No revision above this one was ever handed out.
    pub(in super::super) reserved: u64,
    /// Whether `reserved` is the last revision that was handed out.
    pub(in super::super) clean: bool,
    /// No watch begins before it.
    pub(in super::super) begin: u64,
    /// In the order of their rows.
    pub(in super::super) resources: Vec<LoadedResource>,
}

/// A resource as it was on disk.
pub(in super::super) struct LoadedResource {
    pub(in super::super) id: i64,
    pub(in super::super) name: Arc<str>,
    pub(in super::super) floor: u64,
    pub(in super::super) table: Table,
    /// By which its objects are packed.
    pub(in super::super) packer: Packer,
    /// Oldest first.
    pub(in super::super) history: Vec<Event>,
}

/// An entry of the log: what was there before a change.
pub(super) struct Entry {
    pub(super) resource: i64,
    pub(super) revision: u64,
    /// Number of the object.
    pub(super) object: u64,
    pub(super) deleted: bool,
    pub(super) key: Key,
    pub(super) previous: Option<Arc<Stored>>,
}

/// The rows of a database, of which `finish` makes what lies in memory. Its errors say what contradicts the rest.
#[derive(Default)]
pub(super) struct Loading(BTreeMap<i64, ResourceRows>);

impl Loading {
    pub(super) fn resource(&mut self, id: i64, name: Arc<str>, floor: u64) {
        let rows = ResourceRows {
            id,
            name,
            floor,
            packer: Packer::default(),
            objects: Vec::new(),
            log: Vec::new(),
        };
        self.0.insert(id, rows);
    }

    /// What the objects of each resource were packed by.
    pub(super) fn pack_by(&mut self, packers: BTreeMap<i64, Packer>) {
        for (id, packer) in packers {
            if let Some(rows) = self.0.get_mut(&id) {
                rows.packer = packer;
            }
        }
    }

    /// An object, in no order.
    pub(super) fn object(&mut self, resource: i64, object: Arc<Stored>) -> Result<(), String> {
        let found = self.0.get_mut(&resource);
        let rows = found.ok_or_else(|| format!("no resource {resource}"))?;
        rows.objects.push(object);
        Ok(())
    }

    /// The next entry of the log, which is read backwards.
    pub(super) fn entry(&mut self, entry: Entry) -> Result<(), String> {
        let found = self.0.get_mut(&entry.resource);
        let rows = found.ok_or_else(|| bad(entry.revision))?;
        rows.log.push(entry);
        Ok(())
    }

    /// The rows of each resource, in the order of the resources.
    pub(super) fn resources(self) -> impl Iterator<Item = ResourceRows> {
        self.0.into_values()
    }
}

/// Of an entry that contradicts the rest.
pub(super) fn bad(revision: u64) -> String {
    format!("log entry {revision}")
}

/// What was read of one resource.
pub(super) struct ResourceRows {
    id: i64,
    name: Arc<str>,
    floor: u64,
    packer: Packer,
    /// In no order.
    objects: Vec<Arc<Stored>>,
    /// Newest first.
    log: Vec<Entry>,
}

impl ResourceRows {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.objects.len() + self.log.len()
    }

    pub(super) fn finish(self) -> Result<LoadedResource, String> {
        let table = table(self.objects)?;
        let history = history(&table, self.log)?;
        Ok(LoadedResource {
            id: self.id,
            name: self.name,
            floor: self.floor,
            table,
            packer: self.packer,
            history,
        })
    }
}

fn table(mut objects: Vec<Arc<Stored>>) -> Result<Table, String> {
    objects.sort_by(|a, b| a.joined_bytes().cmp(b.joined_bytes()));
    let twice = |pair: &[Arc<Stored>]| match pair {
        [a, b] => a.joined_bytes() == b.joined_bytes(),
        _ => false,
    };
    if objects.windows(2).any(twice) {
        return Err("two objects of one name".to_owned());
    }
    Ok(Table::of_sorted(&objects))
}

/// What a log says, which is given newest first: each entry holds what was there before it, and what came after it is
/// known by then.
fn history(table: &Table, log: Vec<Entry>) -> Result<Vec<Event>, String> {
    // The version of an object just after the entry that comes next, of those that were met; of the others it is the
    // object as it is.
    let mut after: HashMap<u64, Arc<Stored>> = HashMap::new();
    let mut history = Vec::with_capacity(log.len());
    for entry in log {
        let bad = || bad(entry.revision);
        let event = match (entry.deleted, &entry.previous) {
            (true, Some(previous)) => Event {
                kind: Kind::Deleted,
                object: Arc::new(previous.at_revision(entry.revision)),
                previous: Some(previous.clone()),
            },
            (true, None) => return Err(bad()),
            (false, previous) => Event {
                kind: match previous {
                    Some(_) => Kind::Modified,
                    None => Kind::Added,
                },
                object: match after.remove(&entry.object) {
                    Some(object) => object,
                    None => table.get(&entry.key).ok_or_else(bad)?.clone(),
                },
                previous: previous.clone(),
            },
        };
        if event.revision() != entry.revision || event.object.created() != entry.object {
            return Err(bad());
        }
        if let Some(previous) = entry.previous {
            after.insert(entry.object, previous);
        }
        history.push(event);
    }
    history.reverse();
    Ok(history)
}
