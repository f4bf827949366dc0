//! Which very objects a Work has applied: what makes them its own, whatever their labels say.
//!
//! A label can be taken off, or put on, by anybody who may edit the object. A UID cannot be chosen.
//! The claims lie in the stored set with their Work and survive a restart.

use super::{ObjectKey, State};
use crate::execution::decide::Owner;
use crate::execution::manifest::hash_bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What one claim costs in the stored set, packed, in bytes: two numbers of 64 bits, in decimal.
const STORED_SIZE: usize = 24;
/// How many claims of one Work are stored. Of a Work with more objects, those beyond it are known by their
/// marks after a restart.
const STORED_MOST: usize = 5_000;

/// The objects of one Work: a number for the object's kind, namespace and name, and one for its UID;
/// sorted by the first, which is there once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Claims(Vec<(u64, u64)>);

impl Claims {
    /// Takes note of an object; an earlier one by that name is forgotten. Says whether that is news.
    fn put(&mut self, object: u64, uid: u64) -> bool {
        match self.0.binary_search_by_key(&object, |(object, _)| *object) {
            Ok(at) => {
                let slot = &mut self.0[at].1;
                std::mem::replace(slot, uid) != uid
            }
            Err(at) => {
                self.0.insert(at, (object, uid));
                true
            }
        }
    }

    fn remove(&mut self, object: u64) -> bool {
        let found = self.0.binary_search_by_key(&object, |(object, _)| *object);
        found.is_ok_and(|at| {
            self.0.remove(at);
            true
        })
    }

    fn names(&self, object: u64) -> bool {
        let found = self.0.binary_search_by_key(&object, |(object, _)| *object);
        found.is_ok()
    }

    fn holds(&self, object: u64, uid: u64) -> bool {
        self.0.binary_search(&(object, uid)).is_ok()
    }

    /// What they cost in the stored set, at most, in bytes.
    pub fn stored_size(&self) -> usize {
        self.0.len() * STORED_SIZE
    }

    /// Those that are stored.
    pub fn to_store(&self) -> Self {
        Self(self.0.iter().take(STORED_MOST).copied().collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What a live object says of itself.
#[derive(Debug, Clone, Copy)]
pub struct Marks<'a> {
    /// Its UID.
    pub uid: &'a str,
    /// Whether it has our label.
    pub managed: bool,
    /// The Work of our namespace that it names.
    pub work: Option<&'a str>,
}

fn number(uid: &str) -> u64 {
    hash_bytes(uid.as_bytes())
}

impl State {
    /// A number for an object, the same in every life of the agent.
    fn object_number(&self, key: &ObjectKey) -> u64 {
        let kind = self.gvk(key.kind);
        let (group, kind) = kind
            .as_ref()
            .map_or(("", ""), |gvk| (gvk.group.as_str(), gvk.kind.as_str()));
        // None of the four can hold a line break.
        hash_bytes(format!("{group}\n{kind}\n{}\n{}", key.namespace, key.name).as_bytes())
    }

    /// A Work has applied this very object, which no other Work has from now on. Returns the Works of
    /// which something else is to be stored now.
    pub fn claim(&mut self, work: &str, key: &ObjectKey, uid: &str) -> Vec<Arc<str>> {
        let (object, uid) = (self.object_number(key), number(uid));
        let mut changed = Vec::new();
        let Some((name, _)) = self.works.get_key_value(work) else {
            return changed;
        };
        let name = name.clone();
        if let Some(record) = self.works.get_mut(&name)
            && record.claims.put(object, uid)
        {
            changed.push(name.clone());
        }
        let others = self.objects.get(key).map(|record| record.wanted.clone());
        for other in others.into_iter().flatten().filter(|other| *other != name) {
            if let Some(record) = self.works.get_mut(&other)
                && record.claims.remove(object)
            {
                changed.push(other);
            }
        }
        changed
    }

    /// Whether a Work has applied this very object.
    pub fn has_claim(&self, work: &str, key: &ObjectKey, uid: &str) -> bool {
        let Some(record) = self.works.get(work) else {
            return false;
        };
        !record.claims.is_empty() && record.claims.holds(self.object_number(key), number(uid))
    }

    /// Whether a Work has applied an object of this name.
    pub fn has_claimed(&self, work: &str, key: &ObjectKey) -> bool {
        let record = self.works.get(work);
        let record = record.filter(|record| !record.claims.is_empty());
        record.is_some_and(|record| record.claims.names(self.object_number(key)))
    }

    /// Whose an object is that `work` wants. What was applied is the Work's own, labelled or not; what
    /// has only marks is nobody's that must be asked, unless a Work of the hub wants it too.
    pub fn owner(&self, work: &str, key: &ObjectKey, marks: &Marks<'_>) -> Owner {
        if self.has_claim(work, key, marks.uid) {
            return Owner::ThisWork;
        }
        if !marks.managed {
            return Owner::Unmanaged;
        }
        match marks.work {
            Some(name) if name == work => Owner::ThisWork,
            Some(name) if self.works.contains_key(name) => {
                let wanted = self.objects.get(key).map(|record| &record.wanted);
                let wants = wanted.is_some_and(|wanted| wanted.iter().any(|w| **w == *name));
                let settled = self.works.get(name).is_some_and(|w| !w.items.is_empty());
                // A Work that was not worked on yet may still name it.
                if wants || !settled {
                    Owner::OtherWork
                } else {
                    Owner::Nobody
                }
            }
            // Before the hub has listed its Works, a Work that we do not know may well be there.
            Some(_) if !self.listed => Owner::OtherWork,
            _ => Owner::Nobody,
        }
    }

    /// A Work has let go of an object, or it is gone. Says whether that is news.
    pub fn disclaim(&mut self, work: &str, key: &ObjectKey) -> bool {
        let object = self.object_number(key);
        let record = self.works.get_mut(work);
        record.is_some_and(|record| record.claims.remove(object))
    }

    /// Forgets what a Work has claimed and neither names nor is still to take out of the member.
    pub fn settle_claims(&mut self, work: &str, keys: &BTreeSet<Arc<ObjectKey>>) -> bool {
        let keep: BTreeSet<u64> = keys.iter().map(|key| self.object_number(key)).collect();
        let Some(record) = self.works.get_mut(work) else {
            return false;
        };
        let before = record.claims.0.len();
        record.claims.0.retain(|(object, _)| keep.contains(object));
        record.claims.0.len() != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::wire::WireWork;
    use common::gvk::Gvk;
    use serde_json::json;

    fn work(name: &str) -> WireWork {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}});
        serde_json::from_value(
            json!({"metadata": {"name": name, "uid": name, "generation": 1,
            "resourceVersion": "1", "finalizers": [common::labels::WORK_FINALIZER]},
            "spec": {"workload": {"manifests": [map]}}}),
        )
        .expect("decodes")
    }

    fn key(state: &mut State, name: &str) -> Arc<ObjectKey> {
        let kind = state.kind(&Gvk::new("v1", "ConfigMap").expect("sound"));
        state.key(kind, "n", name)
    }

    #[test]
    fn a_claim_is_of_one_object_and_survives_a_life() {
        let mut state = State::default();
        state.upsert(&work("w"));
        let a = key(&mut state, "a");
        assert_eq!(state.claim("w", &a, "uid-1"), [Arc::from("w")]);
        assert!(state.claim("w", &a, "uid-1").is_empty(), "no news");
        assert!(state.has_claim("w", &a, "uid-1"));
        assert!(!state.has_claim("w", &a, "uid-2") && !state.has_claim("x", &a, "uid-1"));
        // Kinds are numbered anew in every life.
        let (entry, manifests) = state.to_store("w", true).expect("stored");
        let text = serde_json::to_string(&entry).expect("text and numbers");
        let entry = serde_json::from_str(&text).expect("the same");
        let mut next = State::default();
        next.kind(&Gvk::new("apps/v1", "Deployment").expect("sound"));
        next.recall(entry, manifests.clone());
        let a = key(&mut next, "a");
        assert!(next.has_claim("w", &a, "uid-1"));
        // Made anew: the old UID means nothing any more.
        next.claim("w", &a, "uid-2");
        assert!(next.has_claim("w", &a, "uid-2") && !next.has_claim("w", &a, "uid-1"));
        assert!(next.disclaim("w", &a) && !next.disclaim("w", &a));
    }

    /// Who has an object: what was applied decides, then the marks.
    #[test]
    fn a_label_neither_gives_nor_takes_what_was_applied() {
        let mut state = State::default();
        state.upsert(&work("w"));
        state.upsert(&work("x"));
        state.list_begins();
        state.seen("w");
        state.seen("x");
        state.list_ends();
        let a = key(&mut state, "a");
        state.claim("w", &a, "applied");
        let cases = [
            // What was applied: with its label, without it, and with marks that name others.
            (("applied", true, Some("w")), Owner::ThisWork),
            (("applied", false, Some("w")), Owner::ThisWork),
            (("applied", false, None), Owner::ThisWork),
            (("applied", true, Some("x")), Owner::ThisWork),
            (("applied", true, None), Owner::ThisWork),
            // Another object by that name: an annotation alone gives nothing.
            (("other", false, Some("w")), Owner::Unmanaged),
            (("other", false, None), Owner::Unmanaged),
            // Marked, so given away by who made it; but not to the harm of another Work.
            (("other", true, Some("w")), Owner::ThisWork),
            (("other", true, Some("x")), Owner::OtherWork),
            (("other", true, Some("unknown")), Owner::Nobody),
            (("other", true, None), Owner::Nobody),
        ];
        for ((uid, managed, work), want) in cases {
            let marks = Marks { uid, managed, work };
            assert_eq!(state.owner("w", &a, &marks), want, "{marks:?}");
        }
    }

    /// What only carries marks of a Work is not deleted with it, nor waited for.
    #[test]
    fn marks_make_no_strays() {
        let mut state = State::default();
        state.upsert(&work("w"));
        let mut live = |name: &str| {
            let object = json!({"metadata": {"uid": name, "labels": {"karmada.io/managed": "true"},
                "annotations": {"work.karmada.io/namespace": "es", "work.karmada.io/name": "w"}}});
            let gvk = Gvk::new("v1", "ConfigMap").expect("sound");
            let key = key(&mut state, name);
            let meta = crate::execution::wire::LiveMeta::read(&object);
            let live = super::super::LiveRecord::new(
                crate::execution::interpret::Shown::built_in(&gvk, &object),
                meta,
                "es",
                true,
            );
            state.set_live(&key, Some(live));
            key
        };
        let (forged, applied) = (live("forged"), live("applied"));
        state.claim("w", &applied, "applied");
        assert_eq!(state.strays("w", &BTreeSet::new()), [applied]);
        assert!(
            state.live(&forged).is_some(),
            "it is told as an orphan once the Work is gone"
        );
    }

    #[test]
    fn one_work_has_an_object_at_a_time() {
        let mut state = State::default();
        state.upsert(&work("w"));
        state.upsert(&work("x"));
        let a = key(&mut state, "a");
        state.claim("w", &a, "uid-1");
        let changed = state.claim("x", &a, "uid-1");
        assert_eq!(changed, [Arc::from("x"), Arc::from("w")]);
        assert!(!state.has_claim("w", &a, "uid-1") && state.has_claim("x", &a, "uid-1"));
        assert!(state.settle_claims("x", &BTreeSet::new()));
        assert!(!state.has_claim("x", &a, "uid-1"));
    }

    #[test]
    fn what_is_claimed_changes_what_is_stored() {
        let mut state = State::default();
        state.upsert(&work("w"));
        let print = |state: &State| state.to_store("w", true).expect("stored").0.print;
        let before = print(&state);
        let a = key(&mut state, "a");
        state.claim("w", &a, "uid-1");
        assert_ne!(print(&state), before);
    }
}
