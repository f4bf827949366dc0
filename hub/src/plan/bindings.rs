//! The bindings of a hub in memory, with what finds those that are asked for: where each decision looked at all of them,
//! a plan would take the square of how many there are. Pure.

use super::looks;
use crate::controller::dependencies::parent;
use crate::controller::dependencies::sought::{self, Sought};
use crate::propagation::{Binding, Template};
use crate::world::{self, ObjectName};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bindings, by their names.
#[derive(Debug, Clone, Default)]
pub(super) struct Bindings {
    all: BTreeMap<ObjectName, Arc<world::Binding>>,
    /// How many times bindings list one whose end waits for them.
    required: BTreeMap<ObjectName, usize>,
    /// Those that may take others along, by what these are found under.
    seekers: BTreeMap<Sought, BTreeSet<ObjectName>>,
}

impl Bindings {
    pub(super) fn of(all: &BTreeMap<ObjectName, Arc<world::Binding>>) -> Self {
        let mut bindings = Self::default();
        for (key, held) in all {
            bindings.insert(key.clone(), Arc::clone(held));
        }
        bindings
    }

    pub(super) fn into_all(self) -> BTreeMap<ObjectName, Arc<world::Binding>> {
        self.all
    }

    pub(super) fn get(&self, key: &ObjectName) -> Option<&Arc<world::Binding>> {
        self.all.get(key)
    }

    /// All of them; only for what happens a few times in a plan.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectName, &Arc<world::Binding>)> {
        self.all.iter().inspect(|_| looks::one())
    }

    pub(super) fn insert(&mut self, key: ObjectName, held: Arc<world::Binding>) {
        self.remove(&key);
        for parent in parent::holds_up(&held.binding) {
            *self.required.entry(parent).or_default() += 1;
        }
        for sought in sought::keys_of_binding(&held.binding) {
            self.seekers.entry(sought).or_default().insert(key.clone());
        }
        self.all.insert(key, held);
    }

    /// The same binding, with another status.
    pub(super) fn restate(&mut self, key: &ObjectName, held: Arc<world::Binding>) {
        if let Some(known) = self.all.get_mut(key) {
            *known = held;
        }
    }

    pub(super) fn remove(&mut self, key: &ObjectName) -> Option<Arc<world::Binding>> {
        let held = self.all.remove(key)?;
        for parent in parent::holds_up(&held.binding) {
            if let Some(times) = self.required.get_mut(&parent) {
                *times -= 1;
                if *times == 0 {
                    self.required.remove(&parent);
                }
            }
        }
        for sought in sought::keys_of_binding(&held.binding) {
            if let Some(seekers) = self.seekers.get_mut(&sought) {
                seekers.remove(key);
                if seekers.is_empty() {
                    self.seekers.remove(&sought);
                }
            }
        }
        Some(held)
    }

    /// Whether the end of a binding waits for another one.
    pub(super) fn is_required(&self, name: &ObjectName) -> bool {
        self.required.contains_key(name)
    }

    /// Those that may take a template along.
    pub(super) fn seekers(&self, template: &Template) -> impl Iterator<Item = &Binding> {
        let keys = sought::keys_of_template(template);
        let names = keys.iter().filter_map(|key| self.seekers.get(key));
        let names: BTreeSet<&ObjectName> = names.flatten().collect();
        let held = names.into_iter().filter_map(|name| self.all.get(name));
        held.inspect(|_| looks::one()).map(|held| &held.binding)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::api::binding::{BindingSnapshot, ResourceBindingStatus};
    use common::labels::{BINDING_DEPENDENCIES, BINDING_FINALIZER};
    use serde_json::json;

    fn name(name: &str) -> ObjectName {
        ObjectName::new(Some("shop"), name)
    }

    /// A binding that takes these ConfigMaps along, and is taken along by these bindings.
    fn held(name: &str, refers: &[&str], parents: &[&str]) -> Arc<world::Binding> {
        let dependency = |it: &&str| json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": it});
        let refers: Vec<_> = refers.iter().map(dependency).collect();
        let mut binding = Binding {
            namespace: Some("shop".to_owned()),
            name: name.to_owned(),
            ..Binding::default()
        };
        binding.spec.propagate_deps = Some(true);
        let parent = |it: &&str| BindingSnapshot {
            namespace: Some("shop".to_owned()),
            name: (*it).to_owned(),
            clusters: Vec::new(),
        };
        binding.spec.required_by = parents.iter().map(parent).collect();
        let refers = json!(refers).to_string();
        let annotations = &mut binding.annotations;
        annotations.insert(BINDING_DEPENDENCIES.to_owned(), refers);
        Arc::new(world::Binding::new(
            binding,
            1,
            ResourceBindingStatus::default(),
        ))
    }

    fn seekers(bindings: &Bindings, of: &str) -> Vec<String> {
        let template = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "shop", "name": of}});
        let template = Template::of(&template).expect("a template");
        let found = bindings.seekers(&template);
        found.map(|it| it.name.clone()).collect()
    }

    #[test]
    fn what_is_written_over_and_what_goes_is_found_no_more() {
        let all = BTreeMap::from([
            (name("a"), held("a", &["c"], &["p", "q"])),
            (name("b"), held("b", &["c", "d"], &["p"])),
        ]);
        let mut bindings = Bindings::of(&all);
        assert_eq!(seekers(&bindings, "c"), ["a", "b"]);
        assert_eq!(seekers(&bindings, "d"), ["b"]);
        let required =
            |bindings: &Bindings| ["p", "q"].map(|parent| bindings.is_required(&name(parent)));
        assert_eq!(required(&bindings), [true, true]);

        bindings.insert(name("a"), held("a", &["d"], &["p"]));
        assert_eq!(seekers(&bindings, "c"), ["b"]);
        assert_eq!(seekers(&bindings, "d"), ["a", "b"]);
        assert_eq!(required(&bindings), [true, false]);

        assert!(bindings.remove(&name("b")).is_some());
        assert!(bindings.remove(&name("b")).is_none());
        assert_eq!(seekers(&bindings, "d"), ["a"]);
        assert_eq!(required(&bindings), [true, false]);
        assert!(bindings.remove(&name("a")).is_some());
        assert_eq!(required(&bindings), [false, false]);

        // What goes is waited for until its Works were deleted, and by itself never.
        let going = |finalizers: &[&str]| {
            let mut held = world::Binding::clone(&held("a", &[], &["p", "a"]));
            held.binding.deleting = true;
            held.binding.finalizers = finalizers.iter().map(|it| (*it).to_owned()).collect();
            Arc::new(held)
        };
        bindings.insert(name("a"), going(&[BINDING_FINALIZER]));
        let required = |bindings: &Bindings| ["a", "p"].map(|it| bindings.is_required(&name(it)));
        assert_eq!(required(&bindings), [false, true]);
        bindings.insert(name("a"), going(&[]));
        assert_eq!(required(&bindings), [false, false]);
        assert!(bindings.remove(&name("a")).is_some());
        let Bindings {
            all,
            required,
            seekers,
        } = bindings;
        assert!(all.is_empty() && required.is_empty() && seekers.is_empty());
    }
}
