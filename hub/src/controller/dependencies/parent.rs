//! What the binding of a template shows whose dependencies follow it.
//!
//! Pure. A list of what it refers to, and a finalizer until nothing is attached to it any more.

use crate::controller::bindings::{name_of, required_by};
use crate::propagation::{Binding, Notice};
use crate::world::ObjectName;
use common::interpreter::dependencies::Dependency;
use common::labels::{BINDING_DEPENDENCIES, BINDING_FINALIZER, DEPENDENCIES_FINALIZER};
use std::collections::BTreeSet;

/// What was seen around one binding.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The binding, as it is or as it is about to be written.
    pub binding: Binding,
    /// What its template refers to by the rules of its kind; none when there is no rule, and the error says why
    /// nobody knows.
    pub dependencies: Option<Result<Vec<Dependency>, String>>,
    /// Whether the end of another binding that lists it is waited for (see [`holds_up`]).
    pub is_required: bool,
}

/// What is to be done about it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// The binding as it is to be; none when it is so.
    pub binding: Option<Binding>,
    /// Events on the template.
    pub events: Vec<Notice>,
}

/// What a binding shows about its dependencies.
pub fn decide(seen: &Observed) -> Result<Decision, serde_json::Error> {
    let mut wanted = seen.binding.clone();
    let follows =
        wanted.spec.propagate_deps == Some(true) && wanted.namespace.is_some() && !wanted.deleting;
    let mut events = Vec::new();
    let known = match &seen.dependencies {
        Some(Ok(known)) if follows => Some(known),
        Some(Err(error)) if follows => {
            events.push(Notice::warning("GetDependenciesFailed", error.as_str()));
            None
        }
        _ => None,
    };
    if let Some(known) = known {
        // As Go writes a list that nothing was added to.
        let text = match known.is_empty() {
            true => "null".to_owned(),
            false => serde_json::to_string(known)?,
        };
        let before = wanted
            .annotations
            .insert(BINDING_DEPENDENCIES.to_owned(), text.clone());
        if before.as_ref() != Some(&text) {
            events.push(Notice::normal("GetDependenciesSucceed", shown(known)));
        }
        if !wanted
            .finalizers
            .iter()
            .any(|it| it == DEPENDENCIES_FINALIZER)
        {
            wanted.finalizers.push(DEPENDENCIES_FINALIZER.to_owned());
        }
    } else if !follows && !seen.is_required {
        wanted.finalizers.retain(|it| it != DEPENDENCIES_FINALIZER);
    }
    Ok(Decision {
        binding: (wanted != seen.binding).then_some(wanted),
        events,
    })
}

/// The bindings whose end waits for this one: those that take it along. One that is going itself is waited for until its
/// Works were deleted, for they may be told by these whether their objects stay, and no longer: of two that list each
/// other neither would end. Nor does one wait for itself.
pub fn holds_up(binding: &Binding) -> Vec<ObjectName> {
    let has_works = |it: &Binding| it.finalizers.iter().any(|it| it == BINDING_FINALIZER);
    if binding.deleting && !has_works(binding) {
        return Vec::new();
    }
    let own = name_of(binding);
    let mut parents = required_by(binding);
    parents.retain(|it| *it != own);
    parents
}

/// The bindings whose end waits for this one no longer since it changed.
pub fn let_go(old: Option<&Binding>, new: Option<&Binding>) -> Vec<ObjectName> {
    let wait: BTreeSet<ObjectName> = new.into_iter().flat_map(holds_up).collect();
    let waited = old.into_iter().flat_map(holds_up);
    waited.filter(|it| !wait.contains(it)).collect()
}

fn shown(dependencies: &[Dependency]) -> String {
    let one = |it: &Dependency| {
        let namespace = it.namespace.as_deref().unwrap_or_default();
        let name = it.name.as_deref().unwrap_or("*");
        format!("{{{} {} {namespace} {name}}}", it.api_version, it.kind)
    };
    let all: Vec<String> = dependencies.iter().map(one).collect();
    format!("Get dependencies([{}]) succeed.", all.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::api::binding::BindingSnapshot;

    /// One that these bindings take along.
    fn listing(parents: &[&str]) -> Binding {
        let mut binding = Binding {
            namespace: Some("n".into()),
            name: "c".into(),
            finalizers: vec![BINDING_FINALIZER.into(), DEPENDENCIES_FINALIZER.into()],
            ..Binding::default()
        };
        let parent = |name: &&str| BindingSnapshot {
            namespace: Some("n".into()),
            name: (*name).into(),
            ..BindingSnapshot::default()
        };
        binding.spec.required_by = parents.iter().map(parent).collect();
        binding
    }

    fn going(mut binding: Binding, has_works: bool) -> Binding {
        binding.deleting = true;
        if !has_works {
            binding.finalizers.retain(|it| it != BINDING_FINALIZER);
        }
        binding
    }

    fn names(names: &[&str]) -> Vec<ObjectName> {
        let name = |it: &&str| ObjectName::new(Some("n"), it);
        names.iter().map(name).collect()
    }

    #[test]
    fn who_goes_waits_for_others_until_their_works_are_gone() {
        let unfinalized = Binding {
            finalizers: Vec::new(),
            ..listing(&["a"])
        };
        let cases: [(Binding, &[&str]); 6] = [
            (listing(&["a", "b"]), &["a", "b"]),
            (listing(&["a", "c"]), &["a"]),
            (unfinalized, &["a"]),
            (going(listing(&["a", "c"]), true), &["a"]),
            (going(listing(&["a", "c"]), false), &[]),
            (listing(&[]), &[]),
        ];
        for (binding, wait) in cases {
            assert_eq!(holds_up(&binding), names(wait), "{binding:?}");
        }
    }

    #[test]
    fn only_those_are_let_go_that_waited() {
        let all = listing(&["a", "b", "c"]);
        // What it was, what it is, and whose end waits for it no longer.
        let cases: [(Option<Binding>, Option<Binding>, &[&str]); 7] = [
            (Some(all.clone()), Some(all.clone()), &[]),
            (Some(all.clone()), Some(listing(&["b", "d"])), &["a"]),
            (Some(all.clone()), Some(going(all.clone(), true)), &[]),
            (
                Some(going(all.clone(), true)),
                Some(going(all.clone(), false)),
                &["a", "b"],
            ),
            (Some(going(all.clone(), false)), None, &[]),
            (Some(all.clone()), None, &["a", "b"]),
            (None, Some(all), &[]),
        ];
        for (old, new, wanted) in cases {
            let found = let_go(old.as_ref(), new.as_ref());
            assert_eq!(found, names(wanted), "{old:?} {new:?}");
        }
    }
}
