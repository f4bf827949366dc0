//! Which templates a policy may concern, and which policies a template, without looking at all of either.
//!
//! Pure. Both have keys (see [`Selected`]); where they share one, the selector has to be asked, and elsewhere it
//! cannot match.

use super::claim;
use crate::propagation::{Policy, PolicyName, Template, Texts, group};
use common::labels::SKIP_NAMESPACE;
use common::queue::Priority;
use std::collections::BTreeSet;

/// What a selector is about, as far as it can be looked up; labels are not in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selected {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// The namespace; empty for none, absent for any or none.
    pub namespace: Option<String>,
    /// The name; absent for any.
    pub name: Option<String>,
}

/// The keys under which policies that may select a template are found.
pub fn keys_of_template(template: &Template) -> BTreeSet<Selected> {
    let namespace = template.namespace.clone().unwrap_or_default();
    let names = [None, Some(template.name.clone())];
    let namespaces = [None, Some(namespace)];
    let key = |namespace: &Option<String>, name: &Option<String>| Selected {
        group: template.group().to_owned(),
        kind: template.kind.clone(),
        namespace: namespace.clone(),
        name: name.clone(),
    };
    let each = namespaces.iter();
    each.flat_map(|namespace| names.iter().map(move |name| (namespace, name)))
        .map(|(namespace, name)| key(namespace, name))
        .collect()
}

/// The keys under which templates that a policy may select are found, one a selector.
pub fn keys_of_policy(policy: &Policy) -> BTreeSet<Selected> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let selectors = policy.spec.resource_selectors.iter();
    let key = |selector: &common::api::policy::ResourceSelector| Selected {
        group: group(&selector.api_version).to_owned(),
        kind: selector.kind.clone(),
        namespace: policy
            .name
            .namespace
            .clone()
            .or_else(|| given(&selector.namespace)),
        name: given(&selector.name),
    };
    selectors.map(key).collect()
}

/// The override policies that a policy waits for.
pub fn overrides_of(policy: &Policy) -> BTreeSet<PolicyName> {
    let names = policy.spec.dependent_overrides.iter();
    let named = |name: &String| PolicyName {
        namespace: policy.name.namespace.clone(),
        name: name.clone(),
    };
    names.map(named).collect()
}

/// The templates that a change of a policy wakes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Woken {
    /// Those found under one of these keys.
    pub selected: BTreeSet<Selected>,
    /// Those that show this policy.
    pub held_by: Option<PolicyName>,
}

/// What a change of a policy wakes: those that it selected, selects, and holds. Nothing when only what no decision
/// looks at has changed.
pub fn woken(old: Option<&Policy>, new: Option<&Policy>) -> Woken {
    if old == new {
        return Woken::default();
    }
    let both = || old.into_iter().chain(new);
    Woken {
        selected: both().flat_map(keys_of_policy).collect(),
        held_by: both().next().map(|policy| policy.name.clone()),
    }
}

/// The policy under whose name a template is to be found. A claim is what anybody may write on an object of theirs:
/// no policy of another namespace ever holds it.
pub fn holder(template: &Template) -> Option<PolicyName> {
    let holder = claim::holder(&template.labels, &template.annotations)?;
    let here = holder.namespace.is_none() || holder.namespace == template.namespace;
    here.then_some(holder)
}

/// What the author of a template changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edit {
    /// Labels and annotations by which people say what is to become of it.
    Marks,
    /// Anything else; that activates Lazy policies.
    Content,
}

/// What the author of a template changed; none where the hub wrote itself (claims, statuses). An object that was not
/// there before, other than in a first list, is an edit.
pub fn edit(old: Option<&Template>, new: &Template) -> Option<Edit> {
    let Some(old) = old else {
        return Some(Edit::Content);
    };
    let differs = |is_meant: fn(&str) -> bool| {
        let of = |texts: &'_ Texts| -> Texts {
            let meant = texts.iter().filter(|(key, _)| is_meant(key));
            meant
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        of(&old.labels) != of(&new.labels) || of(&old.annotations) != of(&new.annotations)
    };
    if old.uid != new.uid || old.digest != new.digest || differs(is_content) {
        Some(Edit::Content)
    } else if differs(|key| !claim::is_part(key)) {
        Some(Edit::Marks)
    } else {
        None
    }
}

/// How soon a template is looked at that came, or changed; none where nothing is to be done. What nobody holds yet goes
/// before what is merely found at a start.
pub fn urgency(old: Option<&Template>, new: &Template, listed: bool) -> Option<Priority> {
    let other = |old: &Template| old.labels != new.labels || old.annotations != new.annotations;
    match old {
        None if !listed => Some(Priority::Urgent),
        None if holder(new).is_none() => Some(Priority::Normal),
        None => Some(Priority::Backlog),
        Some(old) if edit(Some(old), new).is_some() => Some(Priority::Urgent),
        Some(old) => other(old).then_some(Priority::Backlog),
    }
}

/// How soon the templates are looked at that another object is about. What a list names at a start was seen to by the
/// hub before, but for what happened in between.
pub fn haste(listed: bool) -> Priority {
    if listed {
        Priority::Backlog
    } else {
        Priority::Normal
    }
}

fn is_content(key: &str) -> bool {
    !key.contains(".karmada.io") || key == SKIP_NAMESPACE
}
