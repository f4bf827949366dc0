//! What changed between two objects, field by field.

use super::check::wrong_scalar;
use super::element::{Element, same};
use super::set::Set;
use super::types::{Form, List, Map, Type};
use serde_json::Value;
use std::collections::BTreeMap;

/// The fields in which two objects differ, each in one of the sets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Changes {
    pub(super) removed: Set,
    pub(super) modified: Set,
    pub(super) added: Set,
}

impl Changes {
    /// Without the fields of a set and all below them.
    pub(super) fn without(&self, beyond: &Set) -> Self {
        Self {
            removed: self.removed.recursive_difference(beyond),
            modified: self.modified.recursive_difference(beyond),
            added: self.added.recursive_difference(beyond),
        }
    }

    /// What is other than it was, or new.
    pub(super) fn changed(&self) -> Set {
        self.modified.union(&self.added)
    }
}

/// Compares two objects of a type.
pub(super) fn compare(old: &Value, new: &Value, of: Type<'_>) -> Changes {
    let mut walk = Walk::default();
    walk.values(Some(old), Some(new), Some(of));
    walk.changes
}

#[derive(Default)]
struct Walk {
    path: Vec<Element>,
    changes: Changes,
}

impl Walk {
    fn values(&mut self, old: Option<&Value>, new: Option<&Value>, of: Option<Type<'_>>) {
        let Some(of) = of else { return };
        // Most of an object stays as it is, and is not looked at field by field.
        if old.is_some() && old == new {
            return;
        }
        let forms = of.forms();
        let (of_old, of_new) = (forms.deduced(old), forms.deduced(new));
        let mut leaf = false;
        if new.is_none() {
            leaf = self.form(of_old.first(), old, new, of);
        } else if old.is_none() || of_old == of_new {
            leaf = self.form(of_new.first(), old, new, of);
        } else {
            // Of two forms, both are looked at: what was is removed and what is is added.
            self.form(of_old.first(), old, new, of);
            leaf |= self.form(of_new.first(), old, new, of);
        }
        if !leaf {
            match (old, new) {
                (None, _) => self.changes.added.insert(&self.path),
                (_, None) => self.changes.removed.insert(&self.path),
                _ => {}
            }
        }
    }

    /// Compares as one form; whether that is a leaf.
    fn form(&mut self, form: Form, old: Option<&Value>, new: Option<&Value>, of: Type<'_>) -> bool {
        match form {
            Form::Scalar(scalar) => {
                let wrong = |value: Option<&Value>| {
                    value
                        .and_then(|value| wrong_scalar(scalar, value))
                        .is_some()
                };
                if wrong(old) && wrong(new) {
                    return false;
                }
                self.leaf(old, new);
                true
            }
            Form::Map => {
                let Some(map) = of.map() else { return false };
                self.maps(&map, old, new)
            }
            Form::List => {
                let Some(list) = of.list() else { return false };
                self.lists(&list, old, new)
            }
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (None, _) => self.changes.added.insert(&self.path),
            (_, None) => self.changes.removed.insert(&self.path),
            (Some(old), Some(new)) if !same(old, new) => self.changes.modified.insert(&self.path),
            _ => {}
        }
    }

    fn maps(&mut self, map: &Map<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
        let before = old.and_then(Value::as_object);
        let after = new.and_then(Value::as_object);
        let empty = before.is_none_or(|m| m.is_empty()) && after.is_none_or(|m| m.is_empty());
        if map.atomic || empty {
            self.leaf(old, new);
            return true;
        }
        for (key, old) in before.into_iter().flatten() {
            if self.is_ownership(key) {
                continue;
            }
            let new = after.and_then(|after| after.get(key));
            self.under(Element::field(key), Some(old), new, map.child(key));
        }
        for (key, new) in after.into_iter().flatten() {
            if before.is_none_or(|before| !before.contains_key(key)) && !self.is_ownership(key) {
                self.under(Element::field(key), None, Some(new), map.child(key));
            }
        }
        false
    }

    /// Whether a key is that of `metadata.managedFields`, which nobody owns.
    fn is_ownership(&self, key: &str) -> bool {
        let metadata = |step: &Element| matches!(step, Element::Field(name) if name == "metadata");
        key == "managedFields" && matches!(self.path.as_slice(), [only] if metadata(only))
    }

    fn under(
        &mut self,
        step: Element,
        old: Option<&Value>,
        new: Option<&Value>,
        of: Option<Type<'_>>,
    ) {
        self.path.push(step);
        self.values(old, new, of);
        self.path.pop();
    }

    fn lists(&mut self, list: &List<'_>, old: Option<&Value>, new: Option<&Value>) -> bool {
        let before = old.and_then(Value::as_array);
        let after = new.and_then(Value::as_array);
        let empty = before.is_none_or(Vec::is_empty) && after.is_none_or(Vec::is_empty);
        if list.atomic || empty {
            self.leaf(old, new);
            return true;
        }
        let before = by_step(list, before);
        let after = by_step(list, after);
        for (step, old) in &before {
            let new = after.get(step).map_or(&[][..], Vec::as_slice);
            self.items(list, step, old, new);
        }
        for (step, new) in &after {
            if !before.contains_key(step) {
                self.items(list, step, &[], new);
            }
        }
        false
    }

    /// Items that have one key; several only where duplicates were let in.
    fn items(&mut self, list: &List<'_>, step: &Element, old: &[&Value], new: &[&Value]) {
        let items = Some(list.items);
        let mut path = self.path.clone();
        path.push(step.clone());
        match (old, new) {
            ([] | [_], [] | [_]) => {
                let (old, new) = (old.first().copied(), new.first().copied());
                self.under(step.clone(), old, new, items);
            }
            ([_, _, ..], [_, _, ..]) => {
                let equal = old.len() == new.len();
                if !equal || old.iter().zip(new).any(|(old, new)| !same(old, new)) {
                    self.changes.modified.insert(&path);
                }
            }
            ([_, _, ..], _) => {
                if let Some(new) = new.first() {
                    self.under(step.clone(), None, Some(new), items);
                }
                self.changes.removed.insert(&path);
            }
            _ => {
                if let Some(old) = old.first() {
                    self.under(step.clone(), Some(old), None, items);
                }
                self.changes.added.insert(&path);
            }
        }
    }
}

fn by_step<'v>(
    list: &List<'_>,
    items: Option<&'v Vec<Value>>,
) -> BTreeMap<Element, Vec<&'v Value>> {
    let mut found: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
    for item in items.into_iter().flatten() {
        if let Ok(step) = list.step(item) {
            found.entry(step).or_default().push(item);
        }
    }
    found
}
