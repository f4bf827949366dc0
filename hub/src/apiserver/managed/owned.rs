//! Sets of fields and values: the fields that a value has, a value without some of its fields, and sets
//! brought in line with a schema that changed.

use super::element::Element;
use super::set::Set;
use super::types::{Form, Type};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// All fields that an object has.
pub(super) fn fields_of(value: &Value, of: Type<'_>) -> Set {
    let mut set = Set::default();
    collect(value, Some(of), &mut Vec::new(), &mut set);
    set
}

fn collect(value: &Value, of: Option<Type<'_>>, path: &mut Vec<Element>, set: &mut Set) {
    let Some(of) = of else { return };
    match of.forms().deduced(Some(value)).first() {
        Form::Scalar(_) => set.insert(path),
        Form::Map => {
            let Some(map) = of.map() else { return };
            if map.atomic {
                set.insert(path);
                return;
            }
            for (key, member) in value.as_object().into_iter().flatten() {
                path.push(Element::field(key));
                collect(member, map.child(key), path, set);
                let empty = member.as_object().is_some_and(Map::is_empty);
                if member.is_null() || empty || map.field(key).is_none() {
                    set.insert(path);
                }
                path.pop();
            }
        }
        Form::List => {
            let Some(list) = of.list() else { return };
            if list.atomic {
                set.insert(path);
                return;
            }
            let mut items: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
            for item in value.as_array().into_iter().flatten() {
                if let Ok(step) = list.step(item) {
                    items.entry(step).or_default().push(item);
                }
            }
            for (step, items) in items {
                path.push(step);
                if let [item] = items.as_slice() {
                    collect(item, Some(list.items), path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
    }
}

/// An object without the fields of a set. What is left empty is null.
pub(super) fn without(value: &Value, gone: &Set, of: Option<Type<'_>>) -> Value {
    let Some(of) = of else { return value.clone() };
    match of.forms().deduced(Some(value)).first() {
        Form::Scalar(_) => value.clone(),
        Form::Map => {
            let (Some(members), Some(map)) = (value.as_object(), of.map()) else {
                return Value::Null;
            };
            if map.atomic {
                return Value::Null;
            }
            let mut kept = Map::new();
            for (key, member) in members {
                let step = Element::field(key);
                if gone.members.contains(&step) {
                    continue;
                }
                let member = match gone.children.get(&step) {
                    Some(below) if !below.is_empty() => without(member, below, map.child(key)),
                    _ => member.clone(),
                };
                kept.insert(key.clone(), member);
            }
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Object(kept)
            }
        }
        Form::List => {
            let (Some(items), Some(list)) = (value.as_array(), of.list()) else {
                return Value::Null;
            };
            if list.atomic {
                return Value::Null;
            }
            let mut kept = Vec::with_capacity(items.len());
            for item in items {
                let Ok(step) = list.step(item) else { continue };
                if gone.members.contains(&step) {
                    continue;
                }
                kept.push(match gone.children.get(&step) {
                    Some(below) if !below.is_empty() => without(item, below, Some(list.items)),
                    _ => item.clone(),
                });
            }
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Array(kept)
            }
        }
    }
}

/// A set in which what the schema has as a whole is owned as a whole, though it was owned item by item
/// when the schema was another; `None` if it is so already.
pub(super) fn reconciled(set: &Set, of: Type<'_>) -> Option<Set> {
    let mut whole = Set::default();
    find_whole(Some(set), of, false, &mut Vec::new(), &mut whole);
    (!whole.is_empty()).then(|| set.recursive_difference(&whole).union(&whole))
}

fn find_whole(
    set: Option<&Set>,
    of: Type<'_>,
    is_whole: bool,
    path: &mut Vec<Element>,
    whole: &mut Set,
) {
    let (list, map) = match of.forms().first() {
        Form::Scalar(_) => return,
        Form::List => (of.list(), None),
        Form::Map => (None, of.map()),
    };
    if map.is_some_and(|map| map.is_deduced()) {
        return;
    }
    let atomic = list.is_some_and(|list| list.atomic) || map.is_some_and(|map| map.atomic);
    if atomic && !is_whole {
        if list.is_some() || set.is_some_and(|set| !set.is_empty()) {
            whole.insert(path);
        }
        return;
    }
    let child = |step: &Element| match (list, map, step) {
        (Some(list), _, _) => Some(list.items),
        (_, Some(map), Element::Field(name)) => map.child(name),
        (_, Some(map), _) => map.element(),
        _ => None,
    };
    let Some(set) = set else { return };
    let inner = set
        .children
        .keys()
        .filter(|step| !set.members.contains(*step));
    for (step, member) in inner
        .map(|step| (step, false))
        .chain(set.members.iter().map(|step| (step, true)))
    {
        if let Some(child) = child(step) {
            let below = set.children.get(step);
            path.push(step.clone());
            find_whole(below, child, member && below.is_none(), path, whole);
            path.pop();
        }
    }
}
