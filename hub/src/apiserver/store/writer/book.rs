//! What the writer knows: every object, with what is decided and not yet durable. Decides each write
//! against it, without a clock and without the disk.

use super::super::disk::{LoadedResource, Op};
use super::super::error::Error;
use super::super::feed::Kind;
use super::super::inbox::Job;
use super::super::state::State;
use super::super::table::Table;
use super::super::{Class, Expect};
use crate::pack::Packer;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The state after everything that was decided.
pub(super) struct Book {
    revision: u64,
    pages: BTreeMap<Arc<str>, Page>,
    volatile: BTreeSet<String>,
    last_row: i64,
}

/// One resource.
pub(super) struct Page {
    pub(super) row: i64,
    pub(super) table: Table,
    /// By which its objects are packed.
    packer: Packer,
    /// Its renewals may be lost, so its watches end with the process and its log is not kept.
    pub(super) volatile: bool,
    /// Whether its row is on disk.
    known: bool,
}

impl Book {
    pub(super) fn new(revision: u64, volatile: BTreeSet<String>) -> Self {
        Self {
            revision,
            pages: BTreeMap::new(),
            volatile,
            last_row: 0,
        }
    }

    /// The last revision that was given to a write.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn page(&self, resource: &str) -> Option<&Page> {
        self.pages.get(resource)
    }

    /// Takes over what was on disk; says whether the resource is volatile.
    pub(super) fn load(&mut self, resource: &LoadedResource) -> bool {
        self.last_row = self.last_row.max(resource.id);
        let volatile = self.volatile.contains(&*resource.name);
        let page = Page {
            row: resource.id,
            table: resource.table.clone(),
            packer: resource.packer.clone(),
            volatile,
            known: true,
        };
        self.pages.insert(resource.name.clone(), page);
        volatile
    }

    /// Whether this write has to be on disk before its answer: all but the change of a volatile
    /// object that is there.
    pub(super) fn is_durable(&self, job: &Job) -> bool {
        job.class == Class::Durable
            || job.draft.is_none()
            || job.expect == Expect::Absent
            || !self.volatile.contains(&*job.resource)
    }

    /// Decides one write; if it can be made it has been made here.
    pub(super) fn decide(&mut self, job: &Job) -> Result<Op, Error> {
        let durable = self.is_durable(job);
        let page = match self.pages.get_mut(&job.resource) {
            Some(page) => page,
            None => {
                self.last_row += 1;
                self.pages.entry(job.resource.clone()).or_insert(Page {
                    row: self.last_row,
                    table: Table::default(),
                    packer: Packer::default(),
                    volatile: self.volatile.contains(&*job.resource),
                    known: false,
                })
            }
        };
        let previous = page.table.get(&job.key).cloned();
        let (resource, key) = (job.resource.clone(), job.key.clone());
        match (job.expect, &previous) {
            (Expect::Absent, Some(_)) => return Err(Error::Exists { resource, key }),
            (Expect::Revision(_), None) => return Err(Error::Missing { resource, key }),
            (Expect::Revision(expected), Some(now)) if now.revision() != expected => {
                let current = now.revision();
                return Err(Error::Conflict {
                    resource,
                    key,
                    expected,
                    current,
                });
            }
            (Expect::Absent, None) if job.draft.is_none() => {
                return Err(Error::Missing { resource, key });
            }
            _ => {}
        }
        self.revision += 1;
        let revision = self.revision;
        let (kind, object) = match (&job.draft, &previous) {
            (Some(draft), None) => {
                let object = draft.finish(&key, revision, revision, &mut page.packer);
                (Kind::Added, object)
            }
            (Some(draft), Some(now)) => {
                let object = draft.finish(&key, now.created(), revision, &mut page.packer);
                (Kind::Modified, object)
            }
            (None, Some(now)) => (Kind::Deleted, now.at_revision(revision)),
            (None, None) => return Err(Error::Missing { resource, key }),
        };
        let object = Arc::new(object);
        match kind {
            Kind::Deleted => page.table.remove(key.as_str()),
            Kind::Added | Kind::Modified => page.table.insert(object.clone()),
        };
        Ok(Op {
            resource: page.row,
            name: resource,
            durable,
            logged: durable && !page.volatile,
            kind,
            object,
            previous,
        })
    }

    /// The rows that these changes need and that are not on disk.
    pub(super) fn unknown(&self, ops: &[&Op]) -> Vec<(i64, Arc<str>)> {
        let names: BTreeSet<&Arc<str>> = ops.iter().map(|op| &op.name).collect();
        let pages = names
            .into_iter()
            .filter_map(|n| self.pages.get_key_value(n));
        pages
            .filter(|(_, page)| !page.known)
            .map(|(name, page)| (page.row, name.clone()))
            .collect()
    }

    /// These rows are on disk now.
    pub(super) fn learn(&mut self, rows: &[(i64, Arc<str>)]) {
        for (_, name) in rows {
            if let Some(page) = self.pages.get_mut(name) {
                page.known = true;
            }
        }
    }

    /// Takes back what was decided and not published. Its revisions stay used: who saw a later one
    /// must never see another change under it.
    pub(super) fn revert(&mut self, state: &State) {
        for (name, page) in &mut self.pages {
            let published = state.resources.get(name);
            page.table = published.map(|r| r.table.clone()).unwrap_or_default();
        }
    }
}
