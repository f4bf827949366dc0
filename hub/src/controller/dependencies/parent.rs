//! What the binding of a template shows whose dependencies follow it.
//!
//! Pure. A list of what it refers to, and a finalizer until nothing is attached to it any more.

use crate::propagation::{Binding, Notice};
use common::interpreter::dependencies::Dependency;
use common::labels::{BINDING_DEPENDENCIES, DEPENDENCIES_FINALIZER};

/// What was seen around one binding.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The binding, as it is or as it is about to be written.
    pub binding: Binding,
    /// What its template refers to by the rules of its kind; none when there is no rule, and the error says why
    /// nobody knows.
    pub dependencies: Option<Result<Vec<Dependency>, String>>,
    /// Whether another binding still lists it.
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

fn shown(dependencies: &[Dependency]) -> String {
    let one = |it: &Dependency| {
        let namespace = it.namespace.as_deref().unwrap_or_default();
        let name = it.name.as_deref().unwrap_or("*");
        format!("{{{} {} {namespace} {name}}}", it.api_version, it.kind)
    };
    let all: Vec<String> = dependencies.iter().map(one).collect();
    format!("Get dependencies([{}]) succeed.", all.join(" "))
}
