//! What the binding of a template shows of what that refers to, written with the rest of it. Pure.

use super::decide::{Decision, Observed, Write};
use super::observe::gvk_of;
use crate::controller::dependencies::parent;
use crate::world::ObjectName;
use common::interpreter::layers::Interpreter;
use serde_json::Value;

/// Puts what a template, which is `object`, refers to into its binding. `is_required` says whether another binding
/// lists one.
pub fn add(
    seen: &Observed,
    object: Option<&Value>,
    interpreter: &Interpreter,
    is_required: impl Fn(&ObjectName) -> bool,
    decision: &mut Decision,
) -> Result<(), serde_json::Error> {
    let wanted = match &decision.binding {
        Some(Write::Create(wanted) | Write::Update(wanted)) => Some(&**wanted),
        Some(Write::Delete(_) | Write::Replace(_)) => None,
        None => seen.binding.as_ref(),
    };
    let Some(wanted) = wanted.filter(|it| it.namespace.is_some() && !it.deleting) else {
        return Ok(());
    };
    let follows = wanted.spec.propagate_deps == Some(true);
    let known = gvk_of(&seen.template)
        .zip(object.filter(|_| follows))
        .and_then(|(gvk, object)| interpreter.dependencies(&gvk, object))
        .map(|known| known.map_err(|why| why.to_string()));
    let name = ObjectName::new(wanted.namespace.as_deref(), &wanted.name);
    let parent = parent::Observed {
        binding: wanted.clone(),
        dependencies: known,
        is_required: is_required(&name),
    };
    let shown = parent::decide(&parent)?;
    decision.events.extend(shown.events);
    if let Some(shown) = shown.binding {
        let shown = Box::new(shown);
        decision.binding = Some(match decision.binding.take() {
            Some(Write::Create(_)) => Write::Create(shown),
            _ => Write::Update(shown),
        });
    }
    Ok(())
}
