//! Bindings whose policy let them go while others still take their templates along: they say that objects stay until
//! each Work that they leave says so too.

use super::Detector;
use super::contenders::binding_of;
use super::decide::{Decision, Observed, Write};
use super::keep;
use crate::propagation::Binding;
use crate::world::{Change, ObjectName, TemplateName, Work};
use common::lock::lock;
use common::names::EXECUTION_PREFIX;
use common::queue::{Priority, Queue};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Mutex;
use std::time::Duration;

/// How long to wait for the Works to be listed.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Those that wait for a Work, with their templates.
#[derive(Debug, Default)]
pub(super) struct Leaving(Mutex<BTreeMap<ObjectName, TemplateName>>);

impl Leaving {
    fn wait(&self, binding: &ObjectName, template: &TemplateName) {
        lock(&self.0).insert(binding.clone(), template.clone());
    }

    /// The binding of a template does not wait, or no longer. A kind of the same name in another group has bindings of the
    /// same names: what waits for one of its templates goes on doing so.
    pub(super) fn done(&self, template: &TemplateName) {
        if let Entry::Occupied(known) = lock(&self.0).entry(binding_of(template))
            && known.get() == template
        {
            known.remove();
        }
    }

    fn template_of(&self, binding: &ObjectName) -> Option<TemplateName> {
        lock(&self.0).get(binding).cloned()
    }
}

impl Detector {
    /// Has a binding say that objects stay for as long as it has to, whatever else is decided of it; tells how long to wait
    /// where nothing wakes its template for that.
    pub(super) fn say_until_told(
        &self,
        key: &TemplateName,
        seen: &Observed,
        decision: &mut Decision,
    ) -> Option<Duration> {
        self.leaving.done(key);
        let (Some(known), Some(Write::Update(wanted))) = (&seen.binding, &decision.binding) else {
            return None;
        };
        if !keep::takes_back(known, wanted) {
            return None;
        }
        let name = binding_of(key);
        // Before the Works are looked at: one that changes from now on wakes it.
        self.leaving.wait(&name, key);
        let are_known = self.world.works.is_synced();
        if are_known && !self.leaves_untold(&name, wanted) {
            self.leaving.done(key);
            return None;
        }
        let saying = keep::saying_so(wanted);
        decision.binding = (saying != *known).then(|| Write::Update(Box::new(saying)));
        (!are_known).then_some(LOOK_AGAIN)
    }

    fn leaves_untold(&self, binding: &ObjectName, wanted: &Binding) -> bool {
        let names = self.world.works_of.names(binding).into_iter();
        let works = names.filter_map(|name| {
            let work = self.world.works.get(&name)?.record?;
            Some((name, work.preserve || work.deleting))
        });
        let works: Vec<(ObjectName, bool)> = works.collect();
        let by_member = works.iter().filter_map(|(name, is_told)| {
            let member = name.namespace.strip_prefix(EXECUTION_PREFIX)?;
            Some((member, *is_told))
        });
        keep::is_untold(wanted, by_member)
    }

    /// A Work that was told, or goes, may be the last that a binding waits for.
    pub(super) fn work_changed(&self, change: &Change<Work>, queue: &Queue<TemplateName>) {
        let binding = change.before().and_then(|it| it.binding.as_ref());
        if let Some(template) = binding.and_then(|it| self.leaving.template_of(it)) {
            queue.add_with(template, Priority::Normal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::gvk::GroupKind;

    #[test]
    fn only_the_template_that_a_binding_waits_for_ends_its_waiting() {
        let of = |group: &str| TemplateName {
            kind: GroupKind {
                group: group.to_owned(),
                kind: "Service".to_owned(),
            },
            name: ObjectName::new(Some("n"), "web"),
        };
        let (ours, other) = (of(""), of("serving.knative.dev"));
        let binding = binding_of(&ours);
        assert_eq!(binding, binding_of(&other));
        let leaving = Leaving::default();
        leaving.wait(&binding, &ours);
        leaving.done(&other);
        assert_eq!(leaving.template_of(&binding), Some(ours.clone()));
        leaving.done(&ours);
        assert_eq!(leaving.template_of(&binding), None);
    }
}
