//! Where objects lie: a manifest may write a namespace of a kind whose objects lie in none.

use super::{KindId, ObjectKey, State, WorkRecord};
use crate::execution::manifest::{Target, targets};
use common::gvk::Gvk;
use std::collections::HashSet;
use std::sync::Arc;

impl State {
    /// The key of the object that a target means, by the namespace that it names; of a kind that is known to have no
    /// namespaces by its name alone.
    pub fn key_of(&mut self, target: &Target, namespace: &str) -> Arc<ObjectKey> {
        let kind = self.kind(&target.gvk);
        let key = self.key(kind, namespace, &target.name);
        self.placed(&key)
    }

    /// The key of an object as the member has it: a manifest may write a namespace that means nothing.
    pub fn placed(&self, key: &Arc<ObjectKey>) -> Arc<ObjectKey> {
        if key.namespace.is_empty() || !self.cluster_scoped.contains(&key.kind) {
            return key.clone();
        }
        self.key(key.kind, "", &key.name)
    }

    /// Takes note whether objects of a kind lie in namespaces, as the member says. Works were taken in before that was
    /// known: what they want by a namespace that means nothing they want by its name from now on, so that nothing is
    /// deleted for another Work's sake.
    pub fn scoped(&mut self, gvk: &Gvk, namespaced: bool) {
        let kind = self.kind(gvk);
        if namespaced {
            self.cluster_scoped.remove(&kind);
            return;
        }
        // The last number is shared.
        if kind == KindId::MAX || !self.cluster_scoped.insert(kind) {
            return;
        }
        let keys = self.objects.keys();
        let misplaced: Vec<Arc<ObjectKey>> = keys
            .filter(|key| key.kind == kind && !key.namespace.is_empty())
            .cloned()
            .collect();
        for key in misplaced {
            let wanted = self.objects.remove(&key).map(|record| record.wanted);
            let key = self.placed(&key);
            for work in wanted.into_iter().flatten() {
                self.want(&key, &work);
            }
        }
    }

    fn is_cluster_scoped(&self, gvk: &Gvk) -> bool {
        let group_kind = (gvk.group.clone(), gvk.kind.clone());
        let kind = self.kind_ids.get(&group_kind);
        kind.is_some_and(|kind| self.cluster_scoped.contains(kind))
    }

    /// Whether what left a Work is still to go: it may name it again by now, or may name that very object under another
    /// namespace that means nothing.
    pub fn leaves(&self, work: &str, target: &Target, named: &mut Named) -> bool {
        let Some(record) = self.works.get(work) else {
            return false;
        };
        record.leaving.contains(target)
            && !(self.is_cluster_scoped(&target.gvk) && named.by(record).contains(&name(target)))
    }
}

/// An object of a kind without namespaces: group, kind and name.
type Name = (String, String, String);

fn name(target: &Target) -> Name {
    let gvk = &target.gvk;
    (gvk.group.clone(), gvk.kind.clone(), target.name.clone())
}

/// What a Work names, whatever namespaces it writes. Its manifests are read once however many objects it is asked for,
/// for the state is locked meanwhile.
#[derive(Debug, Default)]
pub struct Named {
    /// Of the manifests that were read.
    hash: Option<u64>,
    names: HashSet<Name>,
    #[cfg(test)]
    reads: usize,
}

impl Named {
    fn by(&mut self, record: &WorkRecord) -> &HashSet<Name> {
        if self.hash != Some(record.hash) {
            self.hash = Some(record.hash);
            self.names = targets(&record.manifests.text()).iter().map(name).collect();
            #[cfg(test)]
            {
                self.reads += 1;
            }
        }
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::work;
    use super::*;

    /// A namespace that a manifest writes of a kind without namespaces makes no other object.
    #[test]
    fn what_leaves_is_told_by_what_the_object_is_in_the_member() {
        let target = |namespace: &str| Target {
            gvk: Gvk::new("example.com/v1", "Issuer").expect("sound"),
            namespace: namespace.to_owned(),
            name: "x".to_owned(),
        };
        let manifest = |namespace: &str| {
            format!(
                r#"[{{"apiVersion":"example.com/v1","kind":"Issuer","metadata":{{"name":"x","namespace":"{namespace}"}}}}]"#
            )
        };
        for (before, after, namespaced, leaves) in [
            ("a", "b", Some(false), false),
            ("a", "", Some(false), false),
            ("", "a", Some(false), false),
            ("a", "b", Some(true), true),
            // As long as nobody knows, as the manifests say.
            ("a", "b", None, true),
        ] {
            let mut state = State::default();
            state.upsert(&work("w", "u", 1, 5, &manifest(before)));
            state.upsert(&work("w", "u", 2, 6, &manifest(after)));
            if let Some(namespaced) = namespaced {
                state.scoped(&target("").gvk, namespaced);
            }
            assert_eq!(state.works["w"].leaving, [target(before)]);
            let told = (before, after, namespaced);
            let stays = !state.leaves("w", &target(before), &mut Named::default());
            assert_eq!(stays, !leaves, "{told:?}");
        }
    }

    #[test]
    fn manifests_are_read_once_for_all_that_leaves() {
        let all = |names: std::ops::Range<usize>| {
            let manifest = |name| {
                format!(
                    r#"{{"apiVersion":"example.com/v1","kind":"Issuer","metadata":{{"name":"x{name}"}}}}"#
                )
            };
            format!("[{}]", names.map(manifest).collect::<Vec<_>>().join(","))
        };
        let mut state = State::default();
        state.upsert(&work("w", "u", 1, 5, &all(0..100)));
        state.upsert(&work("w", "u", 2, 6, &all(50..100)));
        state.scoped(&Gvk::new("example.com/v1", "Issuer").expect("sound"), false);
        let leaving = state.works["w"].leaving.clone();
        let mut named = Named::default();
        let goes = |state: &State, named: &mut Named| {
            let gone = leaving.iter();
            gone.filter(|target| state.leaves("w", target, named))
                .count()
        };
        assert_eq!((goes(&state, &mut named), named.reads), (50, 1));
        // What it names by now counts.
        state.upsert(&work("w", "u", 3, 7, &all(40..100)));
        assert_eq!((goes(&state, &mut named), named.reads), (40, 2));
    }

    #[test]
    fn a_work_wants_an_object_without_namespace_by_its_name() {
        let manifests = r#"[{"apiVersion":"example.com/v1","kind":"Issuer","metadata":{"name":"x","namespace":"a"}}]"#;
        let mut state = State::default();
        state.upsert(&work("one", "u", 1, 5, manifests));
        state.upsert(&work(
            "two",
            "v",
            1,
            6,
            &manifests.replace("\"a\"", "\"b\""),
        ));
        let gvk = Gvk::new("example.com/v1", "Issuer").expect("sound");
        let kind = state.kind(&gvk);
        let wants = |state: &State, namespace: &str, work: &str| {
            state.wants(&state.key(kind, namespace, "x"), work)
        };
        assert!(wants(&state, "a", "one") && !wants(&state, "", "one"));
        state.scoped(&gvk, false);
        assert!(wants(&state, "", "one") && wants(&state, "", "two"));
        assert_eq!(state.objects.len(), 1);
        // What comes later is known by it at once, and what goes is forgotten by it.
        state.upsert(&work("three", "t", 1, 7, manifests));
        assert!(wants(&state, "", "three"));
        for work in ["one", "two", "three"] {
            state.forget(work);
        }
        assert!(state.objects.is_empty());
        // A definition that was made anew may say otherwise.
        state.scoped(&gvk, true);
        state.upsert(&work("one", "u", 1, 8, manifests));
        assert!(wants(&state, "a", "one"));
    }
}
