//! A Work as it is worked on, apart from the state.
//!
//! Pure.

use crate::execution::interpret::Scripts;
use crate::execution::manifest::{BadManifest, Manifest, namesakes, read_all};
use crate::execution::state::{Item, State};
use common::gvk::{GroupKind, Gvk};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A Work as one round works on it.
pub struct Job {
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: String,
    /// Of its manifests.
    pub hash: u64,
    /// What it wants, by ordinal.
    pub manifests: Vec<Result<Manifest, BadManifest>>,
    /// What became of them last time.
    pub items: Vec<Item>,
    /// What was applied before them, until they all are.
    pub before: Vec<Manifest>,
    /// The scripts that it carries.
    pub scripts: Option<Arc<Scripts>>,
    /// Whether this process has not worked on it yet.
    pub first: bool,
    /// Whether the hub has named it in this life.
    pub confirmed: bool,
}

impl Job {
    /// A Work that is known.
    pub fn read(state: &State, name: &Arc<str>) -> Option<Self> {
        let record = state.works.get(name)?;
        let before = record.before.as_ref();
        let before = before.map(|packed| parse(&packed.text()));
        Some(Self {
            name: name.clone(),
            uid: record.uid.to_string(),
            hash: record.hash,
            manifests: parse(&record.manifests.text()),
            items: record.items.clone(),
            before: before.into_iter().flatten().flatten().collect(),
            scripts: record.scripts.clone(),
            first: record.items.is_empty(),
            confirmed: record.confirmed,
        })
    }

    /// Kinds of which several manifests have one name in different namespaces, each in one version.
    pub fn kinds_of_namesakes(&self) -> Vec<Gvk> {
        let later = namesakes(&self.manifests).into_iter();
        let kinds = later.filter_map(|(ordinal, _)| {
            let manifest = self.manifests.get(ordinal)?.as_ref().ok()?;
            Some((
                manifest.target.gvk.group_kind(),
                manifest.target.gvk.clone(),
            ))
        });
        kinds.collect::<BTreeMap<_, _>>().into_values().collect()
    }

    /// Refuses later manifests of one object: objects of these kinds lie in no namespace.
    pub fn refuse_doubles(&mut self, cluster_scoped: &BTreeSet<GroupKind>) {
        for (ordinal, first) in namesakes(&self.manifests) {
            let Some(slot) = self.manifests.get_mut(ordinal) else {
                continue;
            };
            if let Ok(manifest) = slot
                && cluster_scoped.contains(&manifest.target.gvk.group_kind())
            {
                let double = manifest.target.to_string();
                *slot = Err(BadManifest::Duplicate(ordinal, first, double));
            }
        }
    }

    /// Whether this very manifest is what was applied last.
    pub fn was_applied(&self, ordinal: usize) -> bool {
        let item = self.items.get(ordinal);
        self.before.is_empty()
            && item.is_some_and(|item| item.key.is_some() && item.failure.is_none())
    }
}

fn parse(text: &str) -> Vec<Result<Manifest, BadManifest>> {
    // The schema says it is a list; a Work with anything else has nothing that could be applied.
    let raw: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    let texts: Vec<&str> = raw.iter().map(|r| r.get()).collect();
    read_all(&texts)
}
