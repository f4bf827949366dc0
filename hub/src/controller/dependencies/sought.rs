//! Which templates a binding takes along, without looking at all of either.
//!
//! Pure. What a binding recorded on itself is enough, so that nothing has to be read again after a start.

use crate::propagation::{Binding, Template, group};
use common::interpreter::dependencies::Dependency;
use common::labels::BINDING_DEPENDENCIES;
use common::selector;
use std::collections::BTreeSet;

/// What a reference is about, as far as it can be looked up; labels are not in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sought {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name; absent when labels select.
    pub name: Option<String>,
}

/// What a binding says that its template refers to. What cannot be read is nothing.
pub fn recorded(binding: &Binding) -> Vec<Dependency> {
    let text = binding.annotations.get(BINDING_DEPENDENCIES);
    let read = |text: &String| serde_json::from_str(text).ok().flatten();
    text.and_then(read).unwrap_or_default()
}

/// The keys under which a binding that takes others along is found, or those under which they are. What would lie
/// in another namespace than the binding has none.
pub fn keys_of_binding(binding: &Binding) -> BTreeSet<Sought> {
    let (Some(namespace), Some(true)) = (&binding.namespace, binding.spec.propagate_deps) else {
        return BTreeSet::new();
    };
    let here = |it: &Dependency| it.namespace.as_ref() == Some(namespace);
    let key = |it: Dependency| Sought {
        group: group(&it.api_version).to_owned(),
        kind: it.kind,
        namespace: namespace.clone(),
        name: it.name,
    };
    let recorded = recorded(binding).into_iter();
    recorded.filter(here).map(key).collect()
}

/// The keys under which bindings that may take a template along are found.
pub fn keys_of_template(template: &Template) -> BTreeSet<Sought> {
    let Some(namespace) = &template.namespace else {
        return BTreeSet::new();
    };
    let names = [None, Some(template.name.clone())];
    let key = |name| Sought {
        group: template.group().to_owned(),
        kind: template.kind.clone(),
        namespace: namespace.clone(),
        name,
    };
    names.into_iter().map(key).collect()
}

/// Whether a binding's template refers to this one.
pub fn refers(binding: &Binding, template: &Template) -> bool {
    recorded(binding).iter().any(|it| meant(it, template))
}

fn meant(dependency: &Dependency, template: &Template) -> bool {
    let kind = dependency.kind == template.kind
        && group(&dependency.api_version) == template.group()
        && dependency.namespace == template.namespace;
    let label = |key: &str| template.labels.get(key).map(String::as_str);
    let by_labels = |labels| selector::matches(labels, label);
    kind && match &dependency.name {
        Some(name) => *name == template.name,
        None => dependency.label_selector.as_ref().is_some_and(by_labels),
    }
}
