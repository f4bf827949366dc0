//! What other Works have in a namespace, or of a kind, that one Work brought.

use super::{KindId, ObjectKey, State};
use common::gvk::Gvk;
use std::ops::Bound;
use std::sync::Arc;

impl State {
    /// Another Work that has something in a namespace.
    pub fn holder_in(&self, namespace: &str, work: &str) -> Option<Arc<str>> {
        (0..self.kinds.len()).find_map(|kind| {
            let kind = KindId::try_from(kind).unwrap_or(KindId::MAX);
            self.holder_of(kind, Some(namespace), work)
        })
    }

    /// Another Work that has an object of a kind, in whatever version.
    pub fn holder_of_kind(&self, gvk: &Gvk, work: &str) -> Option<Arc<str>> {
        let kind = (gvk.group.clone(), gvk.kind.clone());
        self.holder_of(*self.kind_ids.get(&kind)?, None, work)
    }

    /// Another Work that has an object of a kind, in a namespace if one is given.
    fn holder_of(&self, kind: KindId, namespace: Option<&str>, work: &str) -> Option<Arc<str>> {
        let first = ObjectKey {
            kind,
            namespace: namespace.unwrap_or_default().into(),
            name: "".into(),
        };
        let from = (Bound::Included(&first), Bound::Unbounded);
        self.objects
            .range::<ObjectKey, _>(from)
            .take_while(|(key, _)| {
                key.kind == kind && namespace.is_none_or(|within| *key.namespace == *within)
            })
            .find_map(|(key, record)| {
                let others = record.wanted.iter().filter(|name| ***name != *work);
                let mut has =
                    others.filter(|name| record.live.is_some() || self.has_claimed(name, key));
                has.next().cloned()
            })
    }

    /// Works that are being deleted and brought a namespace.
    pub(super) fn leaving_with(&self, namespace: &str) -> Vec<Arc<str>> {
        let kind = self.kind_ids.get(&(String::new(), "Namespace".to_owned()));
        let wanted = kind.and_then(|kind| {
            let key = ObjectKey {
                kind: *kind,
                namespace: "".into(),
                name: namespace.into(),
            };
            Some(&self.objects.get(&key)?.wanted)
        });
        let leaving = |name: &&Arc<str>| self.works.get(*name).is_some_and(|it| it.deleting);
        wanted
            .into_iter()
            .flatten()
            .filter(leaving)
            .cloned()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::wire::WireWork;
    use serde_json::{Value, json};

    fn work(name: &str, manifest: &Value) -> WireWork {
        serde_json::from_value(
            json!({"metadata": {"name": name, "uid": name, "generation": 1,
            "resourceVersion": "1", "finalizers": [common::labels::WORK_FINALIZER]},
            "spec": {"workload": {"manifests": [manifest]}}}),
        )
        .expect("decodes")
    }

    #[test]
    fn what_was_applied_in_a_namespace_or_of_a_kind_holds_it() {
        let widget = Gvk::new("a.example/v1", "Widget").expect("sound");
        let mut state = State::default();
        let metadata = json!({"name": "a", "namespace": "n"});
        state.upsert(&work(
            "space",
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}),
        ));
        state.upsert(&work(
            "w",
            &json!({"apiVersion": "a.example/v1", "kind": "Widget", "metadata": metadata}),
        ));
        let kind = state.kind(&widget);
        let key = state.key(kind, "n", "a");
        // What is wanted and was never applied is not lost with it.
        assert_eq!(state.holder_in("n", "space"), None);
        state.claim("w", &key, "uid");
        let w: Arc<str> = "w".into();
        assert_eq!(state.holder_in("n", "space"), Some(w.clone()));
        assert_eq!(state.holder_in("nn", "space"), None);
        assert_eq!(state.holder_in("n", "w"), None, "its own holds nothing up");
        let later = Gvk::new("a.example/v2", "Widget").expect("sound");
        assert_eq!(state.holder_of_kind(&later, "definition"), Some(w));
        let other = Gvk::new("b.example/v1", "Widget").expect("sound");
        assert_eq!(state.holder_of_kind(&other, "definition"), None);
    }

    /// Whoever waits for the last object in it is woken by its end.
    #[test]
    fn who_leaves_with_a_namespace_hears_of_what_was_in_it() {
        let mut state = State::default();
        let mut space = work(
            "space",
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}),
        );
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}});
        state.upsert(&space);
        state.upsert(&work("w", &map));
        state.upsert(&work("x", &map));
        assert_eq!(state.forget("x"), [Arc::from("w")]);
        space.metadata.resource_version = "2".into();
        space.metadata.deletion_timestamp = Some("2030-01-01T00:00:00Z".into());
        state.upsert(&space);
        assert_eq!(state.forget("w"), [Arc::from("space")]);
    }
}
