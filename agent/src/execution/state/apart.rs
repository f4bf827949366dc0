//! What is known of Works without the hub's word: those of the stored set, those that vanished, and the
//! objects that they left behind.

use super::{Claims, KindId, ObjectKey, ObjectRecord, Order, State, WorkRecord};
use crate::execution::interpret::Scripts;
use crate::execution::manifest::{Target, hash_bytes, targets};
use crate::execution::pace::Pace;
use crate::execution::packed::Packed;
use crate::execution::stored::Entry;
use common::api::cluster::{ORPHANS_SHOWN, OrphanReport, OrphanedObject};
use common::labels::WORK_FINALIZER;
use std::sync::Arc;

/// A Work that vanished from the hub without having been deleted.
#[derive(Debug)]
pub struct Orphaned {
    /// Its UID.
    pub uid: Box<str>,
    /// What it wanted last.
    pub manifests: Packed,
    /// What else it may have left behind.
    pub left: Vec<Target>,
    /// The very objects that it has applied.
    pub claims: Claims,
    /// Whether its objects were to outlive it.
    pub preserve: bool,
}

impl Orphaned {
    /// Everything that it may have left behind.
    pub fn all_targets(&self) -> Vec<Target> {
        let mut all = targets(&self.manifests.text());
        all.extend(self.left.iter().cloned());
        all
    }
}

impl WorkRecord {
    /// A Work as the stored set knows it.
    fn stored(entry: Entry, manifests: Packed, scripts: Option<Arc<Scripts>>) -> Self {
        let hash = hash_bytes(manifests.text().as_bytes());
        Self {
            uid: entry.uid.into(),
            seen: entry.version.parse().unwrap_or(0),
            resource_version: entry.version.into(),
            generation: entry.generation,
            deleting: entry.deleting,
            gone: false,
            foreground: entry.foreground,
            finalizers: vec![WORK_FINALIZER.into()],
            suspended: entry.suspended,
            preserve: entry.preserve,
            manifests,
            hash,
            scripts,
            before: None,
            conditions: Vec::new(),
            reported: 0,
            pace: Pace::default(),
            verdicts: Vec::new(),
            diagnosis: None,
            items: Vec::new(),
            leaving: entry.leaving,
            leaves_at: 0,
            stuck: None,
            left: entry.left,
            claims: entry.claims,
            confirmed: false,
            order: Order::default(),
            deleting_since: None,
            kept_at: 0,
        }
    }
}

impl State {
    /// Takes in a Work of the stored set.
    pub fn recall(&mut self, entry: Entry, manifests: Packed) {
        let name: Arc<str> = entry.name.as_str().into();
        if entry.orphaned {
            let orphaned = Orphaned {
                uid: entry.uid.into(),
                manifests,
                left: entry.left,
                claims: entry.claims,
                preserve: entry.preserve,
            };
            self.orphaned.insert(name, orphaned);
        } else {
            let wanted = targets(&manifests.text());
            let scripts = self.scripts(Some(&entry.scripts).filter(|it| !it.is_empty()));
            let record = WorkRecord::stored(entry, manifests, scripts);
            self.works.insert(name.clone(), record);
            for target in wanted {
                let key = self.key_of(&target, &target.namespace);
                self.want(&key, &name);
            }
        }
    }

    /// What the stored set should hold of a name; nothing when it has no place there. `lies_there` says
    /// whether it holds something.
    pub fn to_store(&self, name: &str, lies_there: bool) -> Option<(Entry, &Packed)> {
        if let Some(orphaned) = self.orphaned.get(name) {
            let mut entry = Entry {
                name: name.to_owned(),
                uid: orphaned.uid.to_string(),
                orphaned: true,
                left: orphaned.left.clone(),
                claims: orphaned.claims.to_store(),
                preserve: orphaned.preserve,
                ..Entry::default()
            };
            entry.print = print(&entry, hash_bytes(orphaned.manifests.bytes()));
            return Some((entry, &orphaned.manifests));
        }
        let record = self.works.get(name)?;
        // Before our finalizer stands on it nothing was applied; of a deletion that is under way only
        // that matters which would else be believed to be wanted.
        if !lies_there && (record.deleting || !record.has_finalizer()) {
            return None;
        }
        let mut entry = Entry {
            name: name.to_owned(),
            uid: record.uid.to_string(),
            generation: record.generation,
            version: record.seen.to_string(),
            suspended: record.suspended,
            preserve: record.preserve,
            deleting: record.deleting,
            foreground: record.foreground,
            leaving: record.leaving.clone(),
            left: record.left.clone(),
            claims: record.claims.to_store(),
            scripts: (record.scripts.as_ref()).map_or_else(String::new, |it| it.text().to_owned()),
            ..Entry::default()
        };
        entry.print = print(&entry, record.hash);
        Some((entry, &record.manifests))
    }

    /// A Work is gone although nobody ordered its deletion: its objects stay. Returns the Works that
    /// wanted one of them too.
    pub fn vanish(&mut self, name: &Arc<str>) -> Vec<Arc<str>> {
        if let Some(record) = self.works.get_mut(name) {
            record.left.append(&mut record.leaving);
            let manifests = record.manifests.clone();
            let mut left = std::mem::take(&mut record.left);
            let (uid, preserve) = (record.uid.clone(), record.preserve);
            let claims = std::mem::take(&mut record.claims);
            match self.orphaned.get_mut(name) {
                // A Work that was made to ask for its orphans has none of its own.
                Some(orphaned) => orphaned.left.append(&mut left),
                None if left.is_empty() && targets(&manifests.text()).is_empty() => {}
                None => {
                    let orphaned = Orphaned {
                        uid,
                        manifests,
                        left,
                        claims,
                        preserve,
                    };
                    self.orphaned.insert(name.clone(), orphaned);
                }
            }
        }
        self.forget(name)
    }

    /// A Work of a name that had vanished is there: what it does not name are its orphans from now on.
    pub(super) fn take_back(&mut self, name: &str) {
        let Some(record) = self.works.get_mut(name).filter(|r| !r.order.tell) else {
            return;
        };
        if let Some(orphaned) = self.orphaned.remove(name) {
            record.left.extend(orphaned.all_targets());
            if record.claims.is_empty() {
                record.claims = orphaned.claims;
            }
            let named = targets(&record.manifests.text());
            record.named(&named);
        }
    }

    /// Live objects that name a Work which the hub does not have, or which does not name them.
    fn orphans(&self) -> impl Iterator<Item = (&Arc<ObjectKey>, &ObjectRecord, &str)> {
        self.objects.iter().filter_map(|(key, record)| {
            let work = record.live.as_ref()?.work.as_deref()?;
            self.is_orphan(key, record, work)
                .then_some((key, record, work))
        })
    }

    fn is_orphan(&self, key: &ObjectKey, record: &ObjectRecord, work: &str) -> bool {
        let Some(named) = self.works.get(work) else {
            return true;
        };
        if record.wanted.iter().any(|name| &**name == work) {
            return false;
        }
        // A Work that was not worked on yet may still name it.
        let settled = !named.items.is_empty() || self.orphaned.contains_key(work);
        let settled = settled || named.confirmed && targets(&named.manifests.text()).is_empty();
        settled && !named.deleting && !named.leaving.iter().any(|t| self.is_of(key, t))
    }

    /// Whether `key` is the object that `target` means.
    fn is_of(&self, key: &ObjectKey, target: &Target) -> bool {
        let group_kind = (target.gvk.group.clone(), target.gvk.kind.clone());
        let kind: Option<KindId> = self.kind_ids.get(&group_kind).copied();
        kind == Some(key.kind)
            && *key.name == *target.name
            && (key.namespace.is_empty() || *key.namespace == *target.namespace)
    }

    /// How many objects are orphaned; none are before the hub's Works are known.
    pub fn count_orphans(&self) -> usize {
        if self.listed {
            self.orphans().count()
        } else {
            0
        }
    }

    /// Keys of the orphans that name `work`, with their UIDs.
    pub fn orphans_of(&self, work: &str) -> Vec<(Arc<ObjectKey>, Box<str>)> {
        self.orphans()
            .filter(|(_, _, named)| *named == work)
            .filter_map(|(key, record, _)| Some((key.clone(), record.live.as_ref()?.uid.clone())))
            .collect()
    }

    /// What the hub is told about orphans; nothing before its Works are known.
    pub fn orphan_report(&self) -> Option<OrphanReport> {
        if !self.listed {
            return None;
        }
        let mut all: Vec<_> = self.orphans().collect();
        all.sort_unstable_by_key(|(key, _, work)| (*work, (*key).clone()));
        let count = i64::try_from(all.len()).unwrap_or(i64::MAX);
        let objects = all
            .into_iter()
            .take(ORPHANS_SHOWN)
            .filter_map(|(key, record, work)| {
                let gvk = self.gvk(key.kind)?;
                Some(OrphanedObject {
                    work: work.to_owned(),
                    group: gvk.group.clone(),
                    version: gvk.version.clone(),
                    kind: gvk.kind.clone(),
                    namespace: key.namespace.to_string(),
                    name: key.name.to_string(),
                    uid: record.live.as_ref()?.uid.to_string(),
                })
            });
        Some(OrphanReport {
            count,
            objects: objects.collect(),
        })
    }
}

/// A number for everything that is stored but the version, which changes at every echo.
fn print(entry: &Entry, hash: u64) -> u64 {
    let timeless = Entry {
        version: String::new(),
        ..entry.clone()
    };
    // An entry is text and numbers and always serialises.
    let mut text = serde_json::to_vec(&timeless).unwrap_or_default();
    text.extend_from_slice(&hash.to_be_bytes());
    hash_bytes(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::interpret::Shown;
    use crate::execution::state::{LiveRecord, News};
    use crate::execution::wire::{LiveMeta, WireWork};
    use common::gvk::Gvk;
    use common::labels::INTERPRETATION;
    use serde_json::{Value, json};

    fn map(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "n"}})
    }

    fn wire(name: &str, uid: &str, generation: i64, version: u64, maps: &[&str]) -> WireWork {
        let manifests: Vec<Value> = maps.iter().map(|m| map(m)).collect();
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": uid, "generation": generation,
                "resourceVersion": version.to_string(), "finalizers": [WORK_FINALIZER]},
            "spec": {"workload": {"manifests": manifests}}}))
        .expect("decodes")
    }

    fn live(state: &mut State, name: &str, work: &str) {
        let gvk = Gvk::new("v1", "ConfigMap").expect("sound");
        let kind = state.kind(&gvk);
        let key = state.key(kind, "n", name);
        let object = json!({"metadata": {"uid": format!("live-{name}"), "labels": {"karmada.io/managed": "true"},
            "annotations": {"work.karmada.io/namespace": "es", "work.karmada.io/name": work}}});
        let live = LiveRecord::new(
            Shown::built_in(&gvk, &object),
            LiveMeta::read(&object),
            "es",
            true,
        );
        state.set_live(&key, Some(live));
    }

    /// A state as the next life of the agent reads it.
    fn next_life(state: &State, names: &[&str]) -> State {
        let mut next = State::default();
        for name in names {
            if let Some((entry, manifests)) = state.to_store(name, true) {
                next.recall(entry, manifests.clone());
            }
        }
        next
    }

    /// A Work of one ConfigMap that carries a text.
    fn carrying(name: &str, version: u64, text: &str) -> WireWork {
        serde_json::from_value(json!({
            "metadata": {"name": name, "uid": "u", "generation": 1, "resourceVersion": version.to_string(),
                "finalizers": [WORK_FINALIZER], "annotations": {INTERPRETATION: text}},
            "spec": {"workload": {"manifests": [map(name)]}}}))
        .expect("decodes")
    }

    #[test]
    fn what_a_work_carries_is_known_without_the_hub_and_once() {
        let mut state = State::default();
        assert_eq!(state.upsert(&carrying("a", 5, "one")).1, News::Changed);
        state.upsert(&carrying("b", 5, "one"));
        // The annotation alone makes no new generation.
        assert_eq!(state.upsert(&carrying("a", 6, "one")).1, News::Nothing);
        let mut next = next_life(&state, &["a", "b"]);
        let of = |state: &State, name: &str| state.scripts_of(Some(name)).expect("carried");
        assert_eq!(of(&next, "a").text(), "one");
        assert!(Arc::ptr_eq(&of(&next, "a"), &of(&next, "b")));
        assert_eq!(next.upsert(&carrying("a", 7, "two")).1, News::Changed);
        assert_eq!(of(&next, "a").text(), "two");
        next.upsert(&wire("a", "u", 1, 8, &["a"]));
        assert!(next.scripts_of(Some("a")).is_none());
        // What is stored of it differs by what it carries.
        let print = |state: &State| state.to_store("b", true).map(|(entry, _)| entry.print);
        let before = print(&next);
        next.upsert(&carrying("b", 8, "two"));
        assert_ne!(print(&next), before);
    }

    fn names(targets: &[Target]) -> Vec<&str> {
        targets.iter().map(|t| t.name.as_str()).collect()
    }

    #[test]
    fn what_left_while_we_were_away_is_pruned_by_the_same_work_only() {
        let mut state = State::default();
        state.upsert(&wire("same", "u", 1, 5, &["a", "b"]));
        state.upsert(&wire("other", "v", 1, 6, &["c"]));
        state.upsert(&wire("gone", "w", 1, 7, &["d"]));
        let mut next = next_life(&state, &["same", "other", "gone"]);
        next.list_begins();
        assert_eq!(
            next.upsert(&wire("same", "u", 2, 9, &["a"])).1,
            News::Changed
        );
        assert_eq!(
            next.upsert(&wire("other", "x", 1, 9, &["e"])).1,
            News::Changed
        );
        assert_eq!(next.list_ends().vanished, [Arc::from("gone")]);
        assert_eq!(names(&next.works["same"].leaving), ["b"]);
        assert!(next.works["other"].leaving.is_empty());
        assert_eq!(names(&next.works["other"].left), ["c"]);
        assert_eq!(names(&next.orphaned["gone"].all_targets()), ["d"]);
        // And it is not forgotten by yet another life.
        let last = next_life(&next, &["same", "other", "gone"]);
        assert_eq!(names(&last.works["same"].leaving), ["b"]);
        assert!(last.orphaned.contains_key("gone"));
    }

    /// What the hub says first of a stored Work confirms it, also when it changed meanwhile or is to go.
    #[test]
    fn news_of_a_stored_work_confirm_it() {
        let same = wire("w", "u", 1, 5, &["a"]);
        let mut deleted = wire("w", "u", 1, 9, &["a"]);
        deleted.metadata.deletion_timestamp = Some("2030-01-01T00:00:00Z".into());
        for news in [same, wire("w", "u", 2, 9, &["a", "b"]), deleted] {
            let mut state = State::default();
            state.upsert(&wire("w", "u", 1, 5, &["a"]));
            let mut next = next_life(&state, &["w"]);
            assert!(!next.works["w"].confirmed);
            next.list_begins();
            assert_eq!(next.upsert(&news).1, News::Changed);
            assert!(next.works["w"].confirmed, "{news:?}");
        }
    }

    #[test]
    fn a_restored_hub_prunes_nothing_also_when_its_versions_have_moved_on() {
        for version in [3, 50] {
            let mut state = State::default();
            state.upsert(&wire("w", "u", 5, 40, &["a", "b"]));
            let mut next = next_life(&state, &["w"]);
            next.list_begins();
            let news = next.upsert(&wire("w", "u", 4, version, &["a"])).1;
            assert_eq!(news, News::Restored, "{version}");
            assert!(next.works["w"].leaving.is_empty());
            assert_eq!(names(&next.works["w"].left), ["b"]);
        }
    }

    #[test]
    fn an_ordered_deletion_stands_whatever_the_list_says() {
        let mut state = State::default();
        state.upsert(&wire("w", "u", 1, 5, &["a"]));
        let mut deleted = wire("w", "u", 1, 6, &["a"]);
        deleted.metadata.deletion_timestamp = Some("2030-01-01T00:00:00Z".into());
        state.upsert(&deleted);
        let mut next = next_life(&state, &["w"]);
        assert!(next.works["w"].deleting);
        next.list_begins();
        let missing = next.list_ends();
        assert_eq!(missing.deleting, [Arc::from("w")]);
        assert!(missing.vanished.is_empty() && next.orphaned.is_empty());
    }

    #[test]
    fn orphans_are_told_until_their_work_is_back() {
        let mut state = State::default();
        live(&mut state, "a", "w");
        assert_eq!(state.orphan_report(), None);
        state.upsert(&wire("w", "u", 1, 5, &["a"]));
        state.list_begins();
        state.list_ends();
        let report = state.orphan_report().expect("listed");
        assert_eq!(report.count, 1);
        let told = &report.objects[0];
        assert_eq!(
            (&*told.work, &*told.kind, &*told.name),
            ("w", "ConfigMap", "a")
        );
        assert_eq!(told.uid, "live-a");
        state.upsert(&wire("w", "new", 1, 9, &["a"]));
        assert!(state.orphaned.is_empty());
        assert_eq!(state.count_orphans(), 0);
        assert_eq!(state.works["w"].left, []);
    }

    #[test]
    fn prints_follow_what_matters() {
        let mut state = State::default();
        state.upsert(&wire("w", "u", 1, 5, &["a"]));
        let before = state.to_store("w", false).expect("stored").0.print;
        state.upsert(&wire("w", "u", 1, 6, &["a"]));
        assert_eq!(state.to_store("w", true).expect("stored").0.print, before);
        state.upsert(&wire("w", "u", 2, 7, &["a", "b"]));
        assert_ne!(state.to_store("w", true).expect("stored").0.print, before);
    }
}
