//! Of which templates Works are made, and of which those are kept that were made before. Pure.

use super::Settling;
use crate::plan::state::{Change, State};
use crate::plan::templates::Held;
use crate::plan::{copies, looks};
use crate::world::{ObjectName, TemplateName};
use std::collections::BTreeSet;
use std::mem;

impl Settling<'_> {
    /// Whether the Works of a template are kept though it was edited, or may have been: it waits, and nothing had them made
    /// since.
    pub(in crate::plan) fn is_kept(&self, name: &TemplateName) -> bool {
        self.problems.contains_key(name) && self.unwritten.contains_key(name)
    }

    /// The template of which Works are that are kept, where that is known.
    pub(in crate::plan) fn kept(&self, name: &TemplateName) -> Option<&Held> {
        let kept = self.unwritten.get(name).filter(|_| self.is_kept(name));
        kept?.as_deref()
    }

    /// Whether a template waits that something was to come of.
    pub(in crate::plan) fn is_held_up(&self, name: &TemplateName) -> bool {
        self.problems.contains_key(name) && self.looked.contains(name)
    }

    /// Templates of which something could not be made for a cluster before this change of one, of those whose Works may be
    /// kept; none where overrides see the same cluster after it, which has no Works made.
    pub(super) fn stuck_before(&self, change: &Change) -> BTreeSet<TemplateName> {
        if !self.state.has_other_cluster(change) {
            return BTreeSet::new();
        }
        let is_stuck = |name: &TemplateName, was: Option<&Held>| {
            let copies = copies::of(&self.state, &State::binding_of_name(name), was);
            let mut copies = copies.values().inspect(|_| looks::one());
            copies.any(|it| matches!(it.manifest, Some(Err(_))))
        };
        let all = self.unwritten.iter();
        all.filter(|(name, was)| is_stuck(name, was.as_deref()))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// The Works of a binding are made of its template as it is.
    pub(super) fn make_works(&mut self, key: &ObjectName) {
        looks::one();
        let held = self.state.bindings.get(key);
        let name = held.and_then(|held| TemplateName::of_binding(&held.binding));
        if let Some(name) = name.filter(|it| self.unwritten.remove(it).is_some()) {
            self.looked
                .extend(self.problems.contains_key(&name).then_some(name));
        }
    }

    /// Has Works made whose bindings stay as they are.
    pub(super) fn wake_stirred(&mut self) {
        for (stirred, stuck) in mem::take(&mut self.stirred) {
            let woken = self.unwritten.keys().filter_map(|name| {
                looks::one();
                let key = State::binding_of_name(name);
                let held = self.state.bindings.get(&key)?;
                let spec = &held.binding.spec;
                let is_woken = stirred.wakes(name, spec, stuck.contains(name));
                is_woken.then_some(key)
            });
            self.works.extend(woken);
        }
    }
}
