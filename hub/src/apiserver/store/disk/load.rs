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

/// Takes the resources first, then all objects, then the log. Its errors say what contradicts the rest.
#[derive(Default)]
pub(super) struct Loading {
    /// With their objects, in no order.
    resources: BTreeMap<i64, (LoadedResource, Vec<Arc<Stored>>)>,
    /// The version of an object just after the entry that comes next, of those that were met; of the others
    /// it is the object as it is.
    after: HashMap<u64, Arc<Stored>>,
}

impl Loading {
    pub(super) fn resource(&mut self, id: i64, name: Arc<str>, floor: u64) {
        let resource = LoadedResource {
            id,
            name,
            floor,
            table: Table::default(),
            packer: Packer::default(),
            history: Vec::new(),
        };
        self.resources.insert(id, (resource, Vec::new()));
    }

    /// What the objects of each resource were packed by.
    pub(super) fn pack_by(&mut self, packers: BTreeMap<i64, Packer>) {
        for (id, packer) in packers {
            if let Some((resource, _)) = self.resources.get_mut(&id) {
                resource.packer = packer;
            }
        }
    }

    pub(super) fn object(&mut self, resource: i64, object: Arc<Stored>) -> Result<(), String> {
        let found = self.resources.get_mut(&resource);
        let (_, objects) = found.ok_or_else(|| format!("no resource {resource}"))?;
        objects.push(object);
        Ok(())
    }

    /// No more objects will come.
    pub(super) fn sort(&mut self) -> Result<(), String> {
        for (resource, objects) in self.resources.values_mut() {
            let mut objects = std::mem::take(objects);
            objects.sort_by(|a, b| a.joined_bytes().cmp(b.joined_bytes()));
            let twice = |pair: &[Arc<Stored>]| match pair {
                [a, b] => a.joined_bytes() == b.joined_bytes(),
                _ => false,
            };
            if objects.windows(2).any(twice) {
                return Err("two objects of one name".to_owned());
            }
            resource.table = Table::of_sorted(&objects);
        }
        Ok(())
    }

    /// The next entry of the log, which is read backwards: each entry holds what was there before it, and
    /// what came after it is known by then.
    pub(super) fn entry(&mut self, entry: Entry) -> Result<(), String> {
        let bad = || format!("log entry {}", entry.revision);
        let (resource, _) = self.resources.get_mut(&entry.resource).ok_or_else(bad)?;
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
                object: match self.after.remove(&entry.object) {
                    Some(object) => object,
                    None => resource.table.get(&entry.key).ok_or_else(bad)?.clone(),
                },
                previous: previous.clone(),
            },
        };
        if event.revision() != entry.revision || event.object.created() != entry.object {
            return Err(bad());
        }
        if let Some(previous) = entry.previous {
            self.after.insert(entry.object, previous);
        }
        resource.history.push(event);
        Ok(())
    }

    pub(super) fn finish(self, reserved: u64, clean: bool, begin: u64) -> Loaded {
        let resources = self.resources.into_values().map(|(mut resource, _)| {
            resource.history.reverse();
            resource
        });
        Loaded {
            reserved,
            clean,
            begin,
            resources: resources.collect(),
        }
    }
}
