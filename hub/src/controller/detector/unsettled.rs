//! Templates that the detector has yet to look at as they are now, and the bindings that wait for that.
//!
//! What a binding says of its template (replicas, where they go) is older than the template until then: a Work made
//! of both would be written again. It is waited for the detector's word, not for a certain binding: a detector that
//! refuses, or has nothing to say, holds nothing up.

use crate::world::{ObjectName, TemplateName};
use common::lock::lock;
use common::queue::Priority;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};

/// Which change of a template was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change(u64);

/// What is not settled; clones share it.
#[derive(Clone, Default)]
pub struct Unsettled(Arc<Shared>);

#[derive(Default)]
struct Shared {
    pending: Mutex<Pending>,
    waker: Mutex<Option<Waker>>,
}

type Waker = Box<dyn Fn(ObjectName, Priority) + Send>;

#[derive(Debug, Default)]
struct Pending {
    changes: u64,
    templates: HashMap<TemplateName, One>,
}

#[derive(Debug)]
struct One {
    /// The last change of it.
    change: u64,
    waiting: BTreeSet<ObjectName>,
}

impl fmt::Debug for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = lock(&self.0.pending);
        f.debug_tuple("Unsettled").field(&*pending).finish()
    }
}

impl Unsettled {
    /// Calls `waker` with every binding that need not wait any longer.
    pub fn on_settled(&self, waker: impl Fn(ObjectName, Priority) + Send + 'static) {
        *lock(&self.0.waker) = Some(Box::new(waker));
    }

    /// A template is to be looked at.
    pub fn changed(&self, template: &TemplateName) {
        let mut pending = lock(&self.0.pending);
        pending.changes += 1;
        let change = pending.changes;
        let new = || One {
            change,
            waiting: BTreeSet::new(),
        };
        let one = pending.templates.entry(template.clone());
        one.or_insert_with(new).change = change;
    }

    /// It is looked at from now on; none where nobody waits for that.
    pub fn begin(&self, template: &TemplateName) -> Option<Change> {
        let pending = lock(&self.0.pending);
        let one = pending.templates.get(template)?;
        Some(Change(one.change))
    }

    /// It was looked at, as it was at `change`; whoever waited goes on, unless it changed again meanwhile.
    pub fn settled(&self, template: &TemplateName, change: Change, urgency: Priority) {
        let mut pending = lock(&self.0.pending);
        let one = pending.templates.get(template);
        if one.is_none_or(|one| one.change != change.0) {
            return;
        }
        let one = pending.templates.remove(template);
        drop(pending);
        if let Some(waker) = &*lock(&self.0.waker) {
            let waiting = one.into_iter().flat_map(|one| one.waiting);
            waiting.for_each(|binding| waker(binding, urgency));
        }
    }

    /// Whether a binding has to wait; it is woken then.
    pub fn holds_up(&self, template: &TemplateName, binding: &ObjectName) -> bool {
        let mut pending = lock(&self.0.pending);
        let Some(one) = pending.templates.get_mut(template) else {
            return false;
        };
        one.waiting.insert(binding.clone());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::gvk::GroupKind;

    fn template(name: &str) -> TemplateName {
        TemplateName {
            kind: GroupKind {
                group: "apps".to_owned(),
                kind: "Deployment".to_owned(),
            },
            name: ObjectName::new(Some("n"), name),
        }
    }

    /// What is done, as one would write it down.
    #[derive(Clone, Copy)]
    enum Done {
        Changes,
        Begins,
        Settles,
        /// A binding asks, and is to wait or not.
        Asks(&'static str, bool),
    }
    use Done::{Asks, Begins, Changes, Settles};

    #[test]
    fn bindings_wait_until_their_template_was_looked_at_as_it_is() {
        // What is done, and who is woken by it in the end.
        let cases: [(&str, &[Done], &[&str]); 6] = [
            ("nothing happened", &[Asks("a", false)], &[]),
            ("changed", &[Changes, Asks("a", true)], &[]),
            (
                "looked at",
                &[Changes, Asks("a", true), Begins, Asks("b", true), Settles],
                &["a", "b"],
            ),
            (
                "looked at before anybody asked",
                &[Changes, Begins, Settles, Asks("a", false)],
                &[],
            ),
            (
                "changed again meanwhile",
                &[Changes, Begins, Changes, Settles, Asks("a", true)],
                &[],
            ),
            (
                "changed again, and looked at again",
                &[
                    Changes,
                    Asks("a", true),
                    Begins,
                    Changes,
                    Settles,
                    Begins,
                    Settles,
                ],
                &["a"],
            ),
        ];
        for (name, done, woken) in cases {
            let (unsettled, seen) = (Unsettled::default(), Arc::new(Mutex::new(Vec::new())));
            let told = Arc::clone(&seen);
            unsettled.on_settled(move |binding, urgency| {
                lock(&told).push((binding.name.to_string(), urgency));
            });
            let web = template("web");
            unsettled.changed(&template("another"));
            let mut begun = None;
            for step in done {
                match step {
                    Changes => unsettled.changed(&web),
                    Begins => begun = unsettled.begin(&web),
                    Settles => {
                        let change = begun.expect("it was looked at");
                        unsettled.settled(&web, change, Priority::Urgent);
                    }
                    Asks(binding, waits) => {
                        let binding = ObjectName::new(Some("n"), binding);
                        assert_eq!(unsettled.holds_up(&web, &binding), *waits, "{name}");
                    }
                }
            }
            let woken = woken.iter().map(|it| ((*it).to_owned(), Priority::Urgent));
            assert_eq!(*lock(&seen), woken.collect::<Vec<_>>(), "{name}");
        }
    }
}
