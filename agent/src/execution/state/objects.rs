//! Objects of the member: which Works name each, and what is live of it.

use super::{KindId, LiveRecord, State};
use std::collections::BTreeSet;
use std::sync::Arc;

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

impl State {
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
    use super::super::testing::work;
    use super::*;
    use common::gvk::Gvk;

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
}
