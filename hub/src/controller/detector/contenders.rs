//! Templates whose binding's name another one's binding has, as those of kinds that share their name in two groups.

use crate::world::{ObjectName, TemplateName};
use common::lock::lock;
use common::names::binding_name;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// By the name of the binding.
#[derive(Debug, Default)]
pub(super) struct Contenders(Mutex<BTreeMap<ObjectName, BTreeSet<TemplateName>>>);

impl Contenders {
    pub(super) fn wait(&self, template: &TemplateName) {
        let mut all = lock(&self.0);
        let waiting = all.entry(binding_of(template)).or_default();
        waiting.insert(template.clone());
    }

    pub(super) fn done(&self, template: &TemplateName) {
        let (mut all, binding) = (lock(&self.0), binding_of(template));
        if let Some(waiting) = all.get_mut(&binding) {
            waiting.remove(template);
            if waiting.is_empty() {
                all.remove(&binding);
            }
        }
    }

    /// Those that wait for a name that is free now; whoever does not get it waits again.
    pub(super) fn woken(&self, binding: &ObjectName) -> BTreeSet<TemplateName> {
        lock(&self.0).remove(binding).unwrap_or_default()
    }
}

/// The name of a template's binding.
pub(super) fn binding_of(template: &TemplateName) -> ObjectName {
    let name = &template.name;
    let namespace = Some(&*name.namespace).filter(|it| !it.is_empty());
    ObjectName::new(namespace, &binding_name(&template.kind.kind, &name.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::gvk::GroupKind;

    #[test]
    fn a_name_that_is_free_wakes_those_that_wait_for_it_once() {
        let job = |group: &str| TemplateName {
            kind: GroupKind {
                group: group.to_owned(),
                kind: "Job".to_owned(),
            },
            name: ObjectName::new(Some("shop"), "nightly"),
        };
        let contenders = Contenders::default();
        for group in ["batch", "vol.io", "vol.io", "other.io"] {
            contenders.wait(&job(group));
        }
        contenders.done(&job("other.io"));
        let binding = ObjectName::new(Some("shop"), "nightly-job");
        let other = ObjectName::new(Some("shop"), "weekly-job");
        assert!(contenders.woken(&other).is_empty());
        let woken = contenders.woken(&binding);
        assert!(woken.iter().eq(&[job("batch"), job("vol.io")]), "{woken:?}");
        assert!(contenders.woken(&binding).is_empty());
        contenders.wait(&job("batch"));
        contenders.done(&job("batch"));
        assert!(lock(&contenders.0).is_empty());
    }
}
