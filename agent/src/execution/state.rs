//! What the agent knows: the Works of the hub, the objects they name, and what is live of them.
//!
//! Pure. At rest a Work costs its name, its manifests as text and its conditions; a live object its
//! name, its UID and a few hashes.
//!
//! Here is what news of the hub's Works change; `work` has one of them, `objects` who names what in the member, and
//! `apart` what is known without the hub's word.

mod apart;
mod autoscalers;
mod claims;
mod kinds;
mod live;
mod objects;
mod place;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;
mod work;

pub use apart::Orphaned;
pub use autoscalers::ScaleTarget;
pub use claims::{Claims, Marks};
pub use kinds::KindId;
pub use live::{Fields, LiveRecord};
pub use objects::{ObjectKey, ObjectRecord};
pub use place::Named;
pub use work::{Failure, Item, Order, Stuck, WorkRecord};

use super::interpret::Scripts;
use super::manifest::targets;
use super::wire::WireWork;
use common::gvk::Gvk;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Works that a complete list lacks.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// They were never said to be deleted.
    pub vanished: Vec<Arc<str>>,
    /// The hub had ordered their deletion before.
    pub deleting: Vec<Arc<str>>,
    /// Works that wanted an object of one that vanished, too.
    pub others: Vec<Arc<str>>,
    /// Works that are there, and of which something is to go: that waited for the end of the list.
    pub held: Vec<Arc<str>>,
}

/// What news of a Work ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Nothing to do: an echo of what we wrote.
    Nothing,
    /// Its status is not the one that was known: somebody else wrote it, or a restored hub has an older one.
    Restated,
    /// Work on it.
    Changed,
    /// The same, and the hub went back in time.
    Restored,
}

/// All of it.
#[derive(Debug, Default)]
pub struct State {
    /// Works by name.
    pub works: BTreeMap<Arc<str>, WorkRecord>,
    /// Works that vanished without having been deleted, while something of them may be left.
    pub orphaned: BTreeMap<Arc<str>, Orphaned>,
    /// Objects by key.
    pub objects: BTreeMap<Arc<ObjectKey>, ObjectRecord>,
    kinds: Vec<Arc<Gvk>>,
    /// By group and kind: another version names the same objects.
    kind_ids: BTreeMap<(String, String), KindId>,
    /// Kinds whose objects lie in no namespace, as far as the member has said so.
    cluster_scoped: BTreeSet<KindId>,
    versions: BTreeSet<Arc<Gvk>>,
    /// Names seen in the list that is being read; none outside of one.
    listing: Option<BTreeSet<Arc<str>>>,
    /// Whether the hub's Works were listed at least once.
    pub listed: bool,
    /// What autoscalers of the member scale, by the autoscaler's namespace and name.
    autoscalers: BTreeMap<(Box<str>, Box<str>), ScaleTarget>,
    /// What Works carry, each text once, by its hash.
    scripts: BTreeMap<u64, Weak<Scripts>>,
}

/// The state as the parts of the delivery share it; clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Shared(Arc<Mutex<State>>);

impl Shared {
    /// The state, which is never held over an await.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds it; a poisoned lock still holds a sound value.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What a Work carries, read once however many carry it.
    pub fn scripts(&mut self, text: Option<&String>) -> Option<Arc<Scripts>> {
        let new = Scripts::new(text?);
        let known = self.scripts.get(&new.hash).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| known.text() == new.text()) {
            return Some(known);
        }
        let new = Arc::new(new);
        self.scripts.retain(|_, known| known.strong_count() > 0);
        self.scripts.insert(new.hash, Arc::downgrade(&new));
        Some(new)
    }

    /// What the Work of this name carries.
    pub fn scripts_of(&self, work: Option<&str>) -> Option<Arc<Scripts>> {
        self.works.get(work?)?.scripts.clone()
    }

    /// A list of the hub's Works begins.
    pub fn list_begins(&mut self) {
        self.listing = Some(BTreeSet::new());
    }

    /// The list is complete: returns the Works that were known and are not in it. The objects of those
    /// that vanished stay; a deletion that was ordered stands.
    pub fn list_ends(&mut self) -> Missing {
        self.listed = true;
        let mut missing = Missing::default();
        let Some(seen) = self.listing.take() else {
            return missing;
        };
        for (name, record) in &mut self.works {
            if !seen.contains(name) {
                let list = if record.deleting {
                    record.ended();
                    &mut missing.deleting
                } else {
                    &mut missing.vanished
                };
                list.push(name.clone());
            } else if record.deleting || !record.leaving.is_empty() {
                missing.held.push(name.clone());
            }
        }
        for name in &missing.vanished {
            missing.others.extend(self.vanish(name));
        }
        missing
    }

    /// A Work is there, whatever it says.
    pub fn seen(&mut self, name: &str) {
        if let Some(seen) = &mut self.listing {
            seen.insert(Arc::from(name));
        }
    }

    /// Whether a list is being read: nobody knows yet who else wants what is to go.
    pub fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    /// Takes in what the hub says of a Work.
    pub fn upsert(&mut self, wire: &WireWork) -> (Arc<str>, News) {
        let name = self
            .works
            .get_key_value(wire.metadata.name.as_str())
            .map_or_else(
                || Arc::from(wire.metadata.name.as_str()),
                |(k, _)| k.clone(),
            );
        if let Some(seen) = &mut self.listing {
            seen.insert(name.clone());
        }
        let scripts = self.scripts(wire.scripts());
        let news = match self.works.get_mut(&name) {
            Some(record) if *record.uid == *wire.metadata.uid => {
                let from_list = self.listing.is_some();
                record.update(wire, scripts, from_list)
            }
            Some(record) => {
                // Another Work of the same name: what the old one had and this one has not is nobody's.
                let mut new = WorkRecord::new(wire, scripts);
                new.items = std::mem::take(&mut record.items);
                new.left = record.all_targets();
                new.claims = std::mem::take(&mut record.claims);
                new.named(&targets(wire.manifests()));
                *record = new;
                News::Changed
            }
            None => {
                let record = WorkRecord::new(wire, scripts);
                if record.deleting && !record.has_finalizer() {
                    // The last words of a Work that we have let go.
                    return (name, News::Nothing);
                }
                self.works.insert(name.clone(), record);
                News::Changed
            }
        };
        self.take_back(&name);
        if matches!(news, News::Changed | News::Restored) {
            // Known before it is worked on: what it wants must not be deleted for another Work's sake, and what it names
            // no more must not become its own.
            let wanted = targets(wire.manifests()).into_iter();
            let wanted: BTreeSet<Arc<ObjectKey>> = wanted
                .map(|target| self.key_of(&target, &target.namespace))
                .collect();
            let leaving = self.works.get(&name).map(|it| it.leaving.clone());
            for target in leaving.into_iter().flatten() {
                let key = self.key_of(&target, &target.namespace);
                if !wanted.contains(&key) {
                    self.unwant(&key, &name);
                }
            }
            for key in wanted {
                self.want(&key, &name);
            }
        }
        (name, news)
    }

    /// A Work is gone from the hub; its objects stay as they are. Returns the Works that wanted one of
    /// them too.
    pub fn forget(&mut self, name: &str) -> Vec<Arc<str>> {
        let Some(record) = self.works.remove(name) else {
            return Vec::new();
        };
        let mut keys: Vec<_> = record.items.iter().filter_map(|i| i.key.clone()).collect();
        let all = record.all_targets();
        keys.extend(all.iter().map(|t| self.key_of(t, &t.namespace)));
        let others = keys.iter().flat_map(|key| self.unwant(key, name));
        // Each once, whatever they shared.
        others.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::testing::work;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn echoes_change_nothing() {
        let mut state = State::default();
        assert_eq!(state.upsert(&work("w", "u", 1, 5, "[1]")).1, News::Changed);
        assert_eq!(state.upsert(&work("w", "u", 1, 6, "[1]")).1, News::Nothing);
        assert_eq!(state.upsert(&work("w", "u", 2, 7, "[2]")).1, News::Changed);
        // Late news of what was already seen.
        assert_eq!(state.upsert(&work("w", "u", 1, 6, "[1]")).1, News::Nothing);
        assert_eq!(state.works["w"].generation, 2);
    }

    #[test]
    fn a_restored_hub_is_believed_when_it_lists() {
        let mut state = State::default();
        state.upsert(&work("w", "u", 5, 50, "[5]"));
        state.upsert(&work("gone", "v", 1, 51, "[5]"));
        state.list_begins();
        assert_eq!(
            state.upsert(&work("w", "u", 3, 30, "[3]")).1,
            News::Restored
        );
        assert_eq!(state.list_ends().vanished, [Arc::from("gone")]);
        assert_eq!(state.works["w"].generation, 3);
        assert_eq!(state.upsert(&work("w", "u", 4, 31, "[4]")).1, News::Changed);
    }

    /// Our own write while a list is read makes the version newer than the list's, not what else is known.
    #[test]
    fn a_list_that_is_older_than_a_write_of_ours_brings_news() {
        let map = |name| {
            format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"n"}}}}"#
            )
        };
        let (both, one) = (
            format!("[{},{}]", map("a"), map("b")),
            format!("[{}]", map("a")),
        );
        for restarts in [false, true] {
            let mut state = State::default();
            state.upsert(&work("w", "u", 4, 90, &both));
            state.list_begins();
            let record = state.works.get_mut("w").expect("there");
            record.resource_version = "101".into();
            if restarts {
                let (entry, manifests) = state.to_store("w", true).expect("stored");
                let mut next = State::default();
                next.recall(entry, manifests.clone());
                next.list_begins();
                state = next;
            }
            let news = state.upsert(&work("w", "u", 5, 100, &one)).1;
            assert_eq!(news, News::Changed, "{restarts}");
            let record = &state.works["w"];
            assert_eq!((record.leaving.len(), record.left.len()), (1, 0));
            state.list_ends();
            // Its echo, and what a hub says that was restored to a time before all that.
            let echo = state.upsert(&work("w", "u", 5, 101, &one)).1;
            assert_eq!(echo, News::Nothing);
            state.list_begins();
            let news = state.upsert(&work("w", "u", 5, 99, "[]")).1;
            assert_eq!(news, News::Restored);
        }
    }

    proptest! {
        /// Whatever order the events of a watch arrive in, the highest generation stands.
        #[test]
        fn never_back_a_generation(mut generations in prop::collection::vec(1i64..20, 1..20)) {
            let mut state = State::default();
            for g in &generations {
                let version = u64::try_from(*g).expect("positive");
                state.upsert(&work("w", "u", *g, version, &format!("[{g}]")));
            }
            generations.sort_unstable();
            let record = &state.works["w"];
            prop_assert_eq!(Some(&record.generation), generations.last());
            prop_assert_eq!(record.manifests.text(), format!("[{}]", record.generation));
        }
    }
}
