//! How what was decided of bindings is written, and what that wakes. Pure.

use super::Settling;
use crate::controller::dependencies::{parent, sought};
use crate::propagation::Binding;
use crate::world::{self, ObjectName, TemplateName};
use common::api::binding::{ResourceBindingStatus, TargetCluster};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Settling<'_> {
    /// Has a binding's status say something.
    pub(super) fn say(&mut self, key: &ObjectName, patch: &Value) {
        let Some(held) = self.state.bindings.get(key) else {
            return;
        };
        let mut status = serde_json::to_value(held.whole_status()).unwrap_or_default();
        for (field, value) in patch.as_object().into_iter().flatten() {
            status[field] = value.clone();
        }
        let status: ResourceBindingStatus = serde_json::from_value(status).unwrap_or_default();
        let mut next = world::Binding::new(held.binding.clone(), held.generation, status);
        next.applied.clone_from(&held.applied);
        self.state.bindings.restate(key, Arc::new(next));
    }

    /// Writes a binding, as an API server does it.
    pub(super) fn write(&mut self, key: &ObjectName, mut wanted: Binding) {
        let known = self.state.bindings.get(key).cloned();
        self.count(key, known.iter().map(|it| &it.binding).chain([&wanted]));
        self.version += 1;
        wanted.resource_version = format!("planned {}", self.version);
        if wanted.uid.is_empty() {
            wanted.uid = format!("uid of {key}");
        }
        let generation = known.as_ref().map_or(1, |known| {
            known.generation + i64::from(known.binding.spec != wanted.spec)
        });
        let moves = known
            .as_ref()
            .is_none_or(|known| known.binding.spec.clusters != wanted.spec.clusters);
        if moves && self.now > self.start {
            self.moved_at.insert(key.clone(), self.now);
        }
        let before = known
            .as_ref()
            .map_or(&[][..], |it| &it.binding.spec.clusters);
        self.note_moves(key, before, &wanted.spec.clusters);
        let status = known.as_ref().map(|known| known.whole_status());
        let mut next = world::Binding::new(wanted, generation, status.unwrap_or_default());
        if next.applied.is_none() {
            next.applied = known.as_ref().and_then(|known| known.applied.clone());
        }
        let next = Arc::new(next);
        self.state.bindings.insert(key.clone(), Arc::clone(&next));
        self.bindings.insert(key.clone());
        if known.as_ref().is_none_or(|known| is_other(known, &next)) {
            self.works.insert(key.clone());
        }
        self.wake_around(known.as_ref(), Some(&next));
    }

    /// Counts one more write, and how many took the binding along before or after it.
    fn count<'b>(&mut self, key: &ObjectName, forms: impl Iterator<Item = &'b Binding>) {
        let parents = forms.map(|it| it.spec.required_by.len()).max();
        let (written, most) = self.written.entry(key.clone()).or_default();
        *written += 1;
        *most = parents.unwrap_or_default().max(*most);
    }

    fn note_moves(&mut self, key: &ObjectName, before: &[TargetCluster], after: &[TargetCluster]) {
        let has = |all: &[TargetCluster], name: &str| all.iter().any(|it| it.name == name);
        for one in after.iter().filter(|it| !has(before, &it.name)) {
            let place = (key.clone(), one.name.clone());
            self.passed.remove(&place);
            self.came.insert(place, self.now);
        }
        for one in before.iter().filter(|it| !has(after, &it.name)) {
            let place = (key.clone(), one.name.clone());
            if self.came.remove(&place) == Some(self.now) {
                self.passed.insert(place);
            }
        }
    }

    /// A binding goes.
    pub(super) fn remove(&mut self, key: &ObjectName) {
        let known = self.state.bindings.remove(key);
        self.count(key, known.iter().map(|it| &it.binding));
        self.ahead.remove(key);
        self.timers.remove(key);
        self.bindings.remove(key);
        self.leaving.remove(key);
        self.wake_around(known.as_ref(), None);
        self.ended.extend(known.map(|known| (key.clone(), known)));
    }

    /// What a change of a binding wakes: its template, those that it takes along, and those whose end waits for it no
    /// longer.
    fn wake_around(
        &mut self,
        old: Option<&Arc<world::Binding>>,
        new: Option<&Arc<world::Binding>>,
    ) {
        let (old, new) = (old.map(|it| &it.binding), new.map(|it| &it.binding));
        let mut woken = BTreeSet::new();
        for parent in parent::let_go(old, new) {
            let held = self.state.bindings.get(&parent);
            woken.extend(held.and_then(|it| TemplateName::of_binding(&it.binding)));
            self.works.insert(parent);
        }
        for binding in old.into_iter().chain(new) {
            woken.extend(TemplateName::of_binding(binding));
            for key in sought::keys_of_binding(binding) {
                woken.extend(self.state.templates.sought(&key));
            }
        }
        self.templates.extend(woken);
    }
}

/// Whether a binding is another one to whoever makes its Works.
fn is_other(old: &world::Binding, new: &world::Binding) -> bool {
    old.generation != new.generation
        || old.binding.finalizers != new.binding.finalizers
        || old.binding.id() != new.binding.id()
}
