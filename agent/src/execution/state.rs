//! What the agent knows: the Works of the hub, the objects they name, and what is live of them.
//!
//! Pure. At rest a Work costs its name, its manifests as text and its conditions; a live object its
//! name, its UID and a few hashes.

mod apart;
mod claims;
mod live;
mod place;
#[cfg(test)]
mod properties;
mod work;

pub use apart::Orphaned;
pub use claims::{Claims, Marks};
pub use live::{Fields, LiveRecord};
pub use place::Named;
pub use work::{Failure, Item, Order, Stuck, WorkRecord};

use super::interpret::Scripts;
use super::manifest::targets;
use super::wire::WireWork;
use common::gvk::Gvk;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A kind by number; see [`State::kind`].
pub type KindId = u16;

/// An object of the member.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Its kind.
    pub kind: KindId,
    /// Its namespace, empty for cluster-scoped kinds.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

/// What is known of an object of the member.
#[derive(Debug, Default)]
pub struct ObjectRecord {
    /// Works that name it; the first has it.
    pub wanted: Vec<Arc<str>>,
    /// The live object, if it is there and labelled ours.
    pub live: Option<LiveRecord>,
}

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

/// What an autoscaler scales, in its own namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScaleTarget {
    /// API group.
    pub group: Box<str>,
    /// Kind.
    pub kind: Box<str>,
    /// Name.
    pub name: Box<str>,
}

impl State {
    /// The number of a kind.
    pub fn kind(&mut self, gvk: &Gvk) -> KindId {
        let name = (gvk.group.clone(), gvk.kind.clone());
        if let Some(id) = self.kind_ids.get(&name) {
            return *id;
        }
        // A member serves some hundreds of kinds; after 65,535 the last number is shared and such
        // objects are merely looked up more often.
        let id = KindId::try_from(self.kinds.len()).unwrap_or(KindId::MAX);
        self.kinds.push(Arc::new(gvk.clone()));
        self.kind_ids.insert(name, id);
        id
    }

    /// The number of a kind that the member serves in this very version.
    pub fn served(&mut self, gvk: &Gvk) -> KindId {
        let id = self.kind(gvk);
        if let Some(known) = self.kinds.get_mut(usize::from(id))
            && known.group == gvk.group
            && known.kind == gvk.kind
            && known.version != gvk.version
        {
            *known = Arc::new(gvk.clone());
        }
        id
    }

    /// The kind of a number, in the version in which the member served it last, or else it was named first.
    pub fn gvk(&self, id: KindId) -> Option<Arc<Gvk>> {
        self.kinds.get(usize::from(id)).cloned()
    }

    /// A kind in one version, kept once.
    pub fn version(&mut self, gvk: &Gvk) -> Arc<Gvk> {
        if let Some(known) = self.versions.get(gvk) {
            return known.clone();
        }
        let gvk = Arc::new(gvk.clone());
        self.versions.insert(gvk.clone());
        gvk
    }

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

    /// The key of an object, the one in use if there is one.
    pub fn key(&self, kind: KindId, namespace: &str, name: &str) -> Arc<ObjectKey> {
        let key = ObjectKey {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        };
        self.objects
            .get_key_value(&key)
            .map_or_else(|| Arc::new(key), |(known, _)| known.clone())
    }

    /// A Work that takes an object over when `work` gives it up, and whether our finalizer stands on it.
    pub fn heir(&self, key: &ObjectKey, work: &str) -> Option<(Arc<str>, bool)> {
        let wanted = &self.objects.get(key)?.wanted;
        let others = wanted.iter().filter(|name| &***name != work);
        let heirs = others.filter_map(|name| {
            let record = self.works.get(name)?;
            // Of a Work that the hub has not shown yet nobody knows that it is gone.
            let takes = !record.deleting && !record.suspended;
            takes.then(|| (name.clone(), record.has_finalizer()))
        });
        // The first, but of those that are held already if there is one.
        heirs.min_by_key(|(_, is_held)| !is_held)
    }

    /// Works of the hub that name an object or that it names.
    pub fn interested(&self, key: &ObjectKey) -> Vec<Arc<str>> {
        let Some(record) = self.objects.get(key) else {
            return Vec::new();
        };
        let mut works = record.wanted.clone();
        let named = record.live.as_ref().and_then(|live| live.work.as_deref());
        if let Some((name, _)) = named.and_then(|work| self.works.get_key_value(work))
            && !works.contains(name)
        {
            works.push(name.clone());
        }
        works
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
        for (name, record) in &self.works {
            if !seen.contains(name) {
                let list = if record.deleting {
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

    /// Notes that `work` names `key`. Returns the Work that named it first, if that is another.
    pub fn want(&mut self, key: &Arc<ObjectKey>, work: &Arc<str>) -> Option<Arc<str>> {
        let record = self.objects.entry(key.clone()).or_default();
        if !record.wanted.contains(work) {
            record.wanted.push(work.clone());
        }
        record
            .wanted
            .first()
            .filter(|first| *first != work)
            .cloned()
    }

    /// Makes `work` the first of those that name `key`.
    pub fn want_first(&mut self, key: &Arc<ObjectKey>, work: &Arc<str>) {
        let record = self.objects.entry(key.clone()).or_default();
        record.wanted.retain(|name| name != work);
        record.wanted.insert(0, work.clone());
    }

    /// Notes that `work` does not name `key` any more; returns those that still do.
    pub fn unwant(&mut self, key: &Arc<ObjectKey>, work: &str) -> Vec<Arc<str>> {
        let Some(record) = self.objects.get_mut(key) else {
            return Vec::new();
        };
        record.wanted.retain(|name| &**name != work);
        let others = record.wanted.clone();
        if record.wanted.is_empty() && record.live.is_none() {
            self.objects.remove(key);
        }
        others
    }

    /// Takes in an autoscaler, or its end. Returns the Works whose object it scaled or scales now.
    pub fn autoscaler(
        &mut self,
        namespace: &str,
        name: &str,
        target: Option<ScaleTarget>,
    ) -> Vec<Arc<str>> {
        let id = (namespace.into(), name.into());
        let before = match target.clone() {
            Some(target) => self.autoscalers.insert(id, target),
            None => self.autoscalers.remove(&id),
        };
        if before == target {
            return Vec::new();
        }
        let mut works = Vec::new();
        for target in [before, target].into_iter().flatten() {
            let kind = self
                .kind_ids
                .get(&(target.group.to_string(), target.kind.to_string()));
            let wanted = kind.and_then(|kind| {
                let key = ObjectKey {
                    kind: *kind,
                    namespace: namespace.into(),
                    name: target.name,
                };
                self.objects.get(&key)
            });
            works.extend(wanted.into_iter().flat_map(|r| r.wanted.iter().cloned()));
        }
        works
    }

    /// Whether an autoscaler of the member decides the replicas of an object.
    pub fn is_scaled(&self, namespace: &str, group: &str, kind: &str, name: &str) -> bool {
        self.autoscalers.iter().any(|((ns, _), target)| {
            **ns == *namespace
                && *target.group == *group
                && *target.kind == *kind
                && *target.name == *name
        })
    }

    /// The autoscalers that are known.
    pub fn autoscaler_names(&self) -> Vec<(Box<str>, Box<str>)> {
        self.autoscalers.keys().cloned().collect()
    }

    /// Whether any Work names an object.
    pub fn is_wanted(&self, key: &ObjectKey) -> bool {
        self.objects.get(key).is_some_and(|r| !r.wanted.is_empty())
    }

    /// Whether a Work names an object.
    pub fn wants(&self, key: &ObjectKey, work: &str) -> bool {
        let record = self.objects.get(key);
        record.is_some_and(|record| record.wanted.iter().any(|name| **name == *work))
    }

    /// The live record of an object.
    pub fn live(&self, key: &ObjectKey) -> Option<&LiveRecord> {
        self.objects.get(key)?.live.as_ref()
    }

    /// Replaces what is known to be live.
    pub fn set_live(&mut self, key: &Arc<ObjectKey>, live: Option<LiveRecord>) {
        match live {
            Some(live) => self.objects.entry(key.clone()).or_default().live = Some(live),
            None => {
                if let Some(record) = self.objects.get_mut(key) {
                    record.live = None;
                    if record.wanted.is_empty() {
                        self.objects.remove(key);
                    }
                }
            }
        }
    }

    /// Live objects that `work` has applied and that are not in `keep`. Marks alone make none: whoever may
    /// edit an object can put them on it, and a finalizer, and would so hold up the Work's deletion.
    pub fn strays(&self, work: &str, keep: &BTreeSet<Arc<ObjectKey>>) -> Vec<Arc<ObjectKey>> {
        self.objects
            .iter()
            .filter(|(key, record)| {
                !keep.contains(*key)
                    && record.live.as_ref().is_some_and(|live| {
                        live.work.as_deref() == Some(work) && self.has_claim(work, key, &live.uid)
                    })
            })
            .map(|(key, _)| key.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn work(name: &str, uid: &str, generation: i64, version: u64, manifests: &str) -> WireWork {
        serde_json::from_str(&format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{uid}","generation":{generation},"resourceVersion":"{version}"}},
                "spec":{{"workload":{{"manifests":{manifests}}}}}}}"#
        ))
        .expect("decodes")
    }

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
    fn a_kind_is_asked_for_in_a_version_that_is_served() {
        let mut state = State::default();
        let gvk = |version: &str| Gvk::new(version, "HorizontalPodAutoscaler").expect("sound");
        let id = state.kind(&gvk("autoscaling/v2beta2"));
        assert_eq!(state.served(&gvk("autoscaling/v2")), id);
        assert_eq!(state.kind(&gvk("autoscaling/v2beta2")), id);
        assert_eq!(*state.gvk(id).expect("known"), gvk("autoscaling/v2"));
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

    #[test]
    fn the_first_to_name_an_object_has_it() {
        let mut state = State::default();
        let key = Arc::new(ObjectKey {
            kind: 0,
            namespace: "n".into(),
            name: "a".into(),
        });
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        assert_eq!(state.want(&key, &a), None);
        assert_eq!(state.want(&key, &b), Some(a.clone()));
        assert_eq!(state.unwant(&key, "a"), std::slice::from_ref(&b));
        assert_eq!(state.want(&key, &b), None);
        assert!(state.unwant(&key, "b").is_empty());
        assert!(state.objects.is_empty());
    }

    #[test]
    fn what_a_work_names_no_more_becomes_its_own_no_more() {
        let manifest = |name: &str| {
            format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"namespace":"n","name":"{name}"}}}}"#
            )
        };
        let both = format!("[{},{}]", manifest("x"), manifest("y"));
        let mut state = State::default();
        state.upsert(&work("a", "u", 1, 5, &both));
        state.upsert(&work("b", "v", 1, 6, &both));
        let kind = state.kind(&Gvk::new("v1", "ConfigMap").expect("sound"));
        let heir = |state: &State, name: &str| {
            let heir = state.heir(&state.key(kind, "n", name), "a");
            heir.map(|(work, _)| work.to_string())
        };
        assert_eq!(heir(&state, "x").as_deref(), Some("b"));
        // Its round is yet to come.
        state.upsert(&work("b", "v", 2, 7, &format!("[{}]", manifest("y"))));
        assert_eq!(heir(&state, "x"), None);
        assert_eq!(heir(&state, "y").as_deref(), Some("b"));
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
