//! An applied configuration merged into what is there.

use super::element::Element;
use super::types::{Form, List, Map, Type};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Merges two objects of a type; what `new` says stands.
pub(super) fn combine(old: &Value, new: &Value, of: Type<'_>) -> Value {
    values(Some(old), Some(new), Some(of)).unwrap_or(Value::Null)
}

fn values(old: Option<&Value>, new: Option<&Value>, of: Option<Type<'_>>) -> Option<Value> {
    let of = of?;
    let forms = of.forms();
    // Where forms differ, that of the new value is what counts.
    let form = forms.deduced(new.or(old)).first();
    match form {
        Form::Scalar(_) => leaf(old, new),
        Form::Map => maps(&of.map()?, old, new),
        Form::List => lists(&of.list()?, old, new),
    }
}

fn leaf(old: Option<&Value>, new: Option<&Value>) -> Option<Value> {
    new.or(old).cloned()
}

fn maps(map: &Map<'_>, old: Option<&Value>, new: Option<&Value>) -> Option<Value> {
    let before = old.and_then(Value::as_object);
    let after = new.and_then(Value::as_object);
    let empty = before.is_none_or(|m| m.is_empty()) && after.is_none_or(|m| m.is_empty());
    if map.atomic || empty {
        return leaf(old, new);
    }
    let mut merged = serde_json::Map::new();
    for (key, old) in before.into_iter().flatten() {
        let new = after.and_then(|after| after.get(key));
        if let Some(value) = values(Some(old), new, map.child(key)) {
            merged.insert(key.clone(), value);
        }
    }
    for (key, new) in after.into_iter().flatten() {
        if before.is_none_or(|before| !before.contains_key(key))
            && let Some(value) = values(None, Some(new), map.child(key))
        {
            merged.insert(key.clone(), value);
        }
    }
    (!merged.is_empty()).then_some(Value::Object(merged))
}

/// Items with their steps; an item whose step occurs twice has no value to merge with.
fn indexed<'v>(
    list: &List<'_>,
    items: Option<&'v Vec<Value>>,
) -> (Vec<(Element, &'v Value)>, BTreeMap<Element, &'v Value>) {
    let mut order = Vec::new();
    let mut by_step = BTreeMap::new();
    for item in items.into_iter().flatten() {
        let Ok(step) = list.step(item) else { continue };
        order.push((step.clone(), item));
        by_step
            .entry(step)
            .and_modify(|known| *known = &Value::Null)
            .or_insert(item);
    }
    (order, by_step)
}

fn lists(list: &List<'_>, old: Option<&Value>, new: Option<&Value>) -> Option<Value> {
    let before = old.and_then(Value::as_array);
    let after = new.and_then(Value::as_array);
    let empty = before.is_none_or(Vec::is_empty) && after.is_none_or(Vec::is_empty);
    if list.atomic || empty {
        return leaf(old, new);
    }
    let (old_order, old_items) = indexed(list, before);
    let (new_order, new_items) = indexed(list, after);
    let merged = interleave(&old_order, &new_order, &old_items, &new_items);
    let merged: Vec<Value> = merged
        .into_iter()
        .filter_map(|(old, new)| values(old, new, Some(list.items)))
        .collect();
    (!merged.is_empty()).then_some(Value::Array(merged))
}

type Pair<'v> = (Option<&'v Value>, Option<&'v Value>);

/// The pairs to merge, in order: shared items as the new list has them, and what only one list has
/// near the shared item that it stood beside.
fn interleave<'v>(
    old: &[(Element, &'v Value)],
    new: &[(Element, &'v Value)],
    old_items: &BTreeMap<Element, &'v Value>,
    new_items: &BTreeMap<Element, &'v Value>,
) -> Vec<Pair<'v>> {
    let mut shared = new
        .iter()
        .map(|(step, _)| step)
        .filter(|step| old_items.contains_key(*step));
    let mut next_shared = shared.next();
    let mut merged: BTreeSet<&Element> = BTreeSet::new();
    let mut pairs = Vec::with_capacity(old.len().max(new.len()));
    let (mut left, mut right) = (0, 0);
    while left < old.len() || right < new.len() {
        if let (Some((step, _)), Some((other, _))) = (old.get(left), new.get(right)) {
            if step == other {
                merged.insert(step);
                pairs.push((old_items.get(step).copied(), new_items.get(step).copied()));
                left += 1;
                right += 1;
                next_shared = shared.next();
                continue;
            }
            if new_items.contains_key(step) && next_shared.is_some_and(|next| next != step) {
                // Shared, but its turn has not come.
                left += 1;
                continue;
            }
        }
        if let Some((step, item)) = old.get(left) {
            if !new_items.contains_key(step) {
                pairs.push((Some(item), None));
                left += 1;
                continue;
            } else if merged.contains(step) {
                left += 1;
            }
        }
        if let Some((step, _)) = new.get(right) {
            merged.insert(step);
            pairs.push((old_items.get(step).copied(), new_items.get(step).copied()));
            right += 1;
            if next_shared == Some(step) {
                next_shared = shared.next();
            }
        }
    }
    pairs
}
