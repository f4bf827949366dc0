//! Lists in a strategic merge patch: merged by key, or as sets of scalars, and put in order.

use super::directives::MARKER;
use super::{Failed, Members, merge as merge_objects, print};
use crate::apiserver::schema::{Go, Schema};
use serde_json::Value;

/// How one list is merged.
pub(super) struct ListRule<'s> {
    /// Not replaced as a whole.
    pub(super) merges: bool,
    /// The member that tells its objects apart.
    pub(super) key: Option<&'s str>,
    items: &'s Schema,
}

impl<'s> ListRule<'s> {
    /// What the schema says of the list.
    pub(super) fn of(field: &'s Schema) -> Result<Self, Failed> {
        let Some(items) = field.items() else {
            let text = "expected slice or array type, but got: struct";
            return Err(Failed::Other(text.to_owned()));
        };
        Ok(Self {
            merges: field.patch_strategy().merge,
            key: field.patch_merge_key(),
            items,
        })
    }
}

/// Merges two lists; `deleted` holds scalars that are to go, whatever the rule says.
pub(super) fn merge(
    old: Vec<Value>,
    new: Vec<Value>,
    rule: &ListRule<'_>,
    deleted: bool,
) -> Result<Vec<Value>, Failed> {
    if !rule.merges && !deleted {
        return Ok(new);
    }
    if old.is_empty() && new.is_empty() {
        return Ok(old);
    }
    if !check_items(&[&old, &new])? {
        if deleted {
            return Ok(old.into_iter().filter(|item| !new.contains(item)).collect());
        }
        let mut merged: Vec<Value> = Vec::with_capacity(old.len() + new.len());
        for item in old.iter().chain(&new) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        return arrange(merged, &new, &old, None);
    }
    let Some(key) = rule.key else {
        let name = match rule.items.go() {
            Go::Struct(name) => name.rsplit('.').next().unwrap_or_default(),
            _ => "",
        };
        let text = format!("cannot merge lists without merge key for {name}");
        return Err(Failed::Other(text));
    };
    let (old, new) = directives(old, new, key)?;
    let mut merged = old.clone();
    for item in &new {
        let Value::Object(item) = item else { continue };
        let Some(wanted) = item.get(key) else {
            return Err(Failed::no_merge_key(item, key));
        };
        match find(&merged, key, wanted)? {
            Some(at) => {
                let Value::Object(live) = merged[at].take() else {
                    continue;
                };
                merged[at] = Value::Object(merge_objects(live, item.clone(), rule.items)?);
            }
            None => merged.push(Value::Object(item.clone())),
        }
    }
    arrange(merged, &new, &old, Some(key))
}

/// Follows `$patch` in items: the items that stay, and those of the patch that are no directives.
fn directives(
    mut old: Vec<Value>,
    new: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Failed> {
    let mut plain = Vec::with_capacity(new.len());
    let mut replace = false;
    for item in new {
        let Some(directive) = item.get(MARKER) else {
            plain.push(item);
            continue;
        };
        let members = item.as_object().cloned().unwrap_or_default();
        match directive.as_str() {
            Some("delete") => {
                let wanted = members
                    .get(key)
                    .ok_or_else(|| Failed::no_merge_key(&members, key))?;
                while let Some(at) = find(&old, key, wanted)? {
                    old.remove(at);
                }
            }
            Some("replace") => replace = true,
            Some("merge") => {
                let text = "merging lists cannot yet be specified in the patch";
                return Err(Failed::Other(text.to_owned()));
            }
            _ => return Err(Failed::unknown_directive(directive, &members)),
        }
    }
    if replace {
        return Ok((plain, Vec::new()));
    }
    Ok((old, plain))
}

/// Where the item is that has this value under its key.
fn find(items: &[Value], key: &str, wanted: &Value) -> Result<Option<usize>, Failed> {
    for (at, item) in items.iter().enumerate() {
        let Some(members) = item.as_object() else {
            return Err(Failed::Other(format!("value for key {at} is not a map")));
        };
        if members.get(key) == Some(wanted) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Whether the items are objects; all have to be of one type.
pub(super) fn check_items(lists: &[&[Value]]) -> Result<bool, Failed> {
    let mut first: Option<&Value> = None;
    for item in lists.iter().flat_map(|list| list.iter()) {
        match first {
            None if item.is_array() => return Err(Failed::ListOfLists),
            None => first = Some(item),
            Some(first) if print::type_of(first) == print::type_of(item) => {}
            Some(_) => {
                let shown: Vec<String> = lists.iter().map(|list| print::list(list)).collect();
                return Err(Failed::Other(format!(
                    "list element types are not identical: [{}]",
                    shown.join(" ")
                )));
            }
        }
    }
    let none = || Failed::Other("no elements in any of the given slices".to_owned());
    Ok(first.ok_or_else(none)?.is_object())
}

/// What an item is known by.
fn identity<'v>(item: &'v Value, key: Option<&str>) -> Option<&'v Value> {
    key.map_or(Some(item), |key| item.get(key))
}

fn position(order: &[Value], item: &Value, key: Option<&str>) -> Option<usize> {
    let wanted = identity(item, key);
    order
        .iter()
        .position(|other| identity(other, key) == wanted)
}

/// Puts items into the order of the patch; those it does not know keep the order they have on the
/// server, as near as may be to where they were.
pub(super) fn arrange(
    items: Vec<Value>,
    order: &[Value],
    on_server: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, Failed> {
    if let Some(key) = key {
        for item in &items {
            let members = item
                .as_object()
                .ok_or_else(|| Failed::wrong_type("map[string]interface {}", item))?;
            if !members.contains_key(key) {
                return Err(Failed::no_merge_key(members, key));
            }
        }
        if order.iter().any(|item| !item.is_object()) && !items.is_empty() {
            let at = order.iter().position(|item| !item.is_object()).unwrap_or(0);
            return Err(Failed::Other(format!("value for key {at} is not a map")));
        }
    }
    let (mut named, mut others): (Vec<Value>, Vec<Value>) = items
        .into_iter()
        .partition(|item| position(order, item, key).is_some());
    named.sort_by_key(|item| position(order, item, key));
    others.sort_by_key(|item| position(on_server, item, key).unwrap_or(usize::MAX));
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    loop {
        let take_other = match (others.peek(), named.peek()) {
            (None, None) => return Ok(arranged),
            (other, None) => other.is_some(),
            (None, Some(_)) => false,
            (Some(other), Some(named)) => {
                let other = position(on_server, other, key);
                let named = position(on_server, named, key);
                matches!((other, named), (Some(other), Some(named)) if other < named)
            }
        };
        arranged.extend(if take_other {
            others.next()
        } else {
            named.next()
        });
    }
}

/// Whether the items of the patch are in the order that it asks for, and all in it.
pub(super) fn check_order(
    items: &[Value],
    order: &[Value],
    key: Option<&str>,
) -> Result<(), Failed> {
    if items.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut wanted = order.iter();
    for item in items {
        if item.get(MARKER).is_some() {
            continue;
        }
        let known = keyed(item, key)?;
        loop {
            let Some(next) = wanted.next() else {
                return Err(Failed::Other(format!(
                    "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                    print::list(items),
                    print::list(order)
                )));
            };
            if keyed(next, key)? == known {
                break;
            }
        }
    }
    Ok(())
}

/// What an item is known by, which it has to have.
fn keyed<'v>(item: &'v Value, key: Option<&str>) -> Result<&'v Value, Failed> {
    let Some(key) = key else { return Ok(item) };
    let members: &Members = item
        .as_object()
        .ok_or_else(|| Failed::wrong_type("map[string]interface {}", item))?;
    members
        .get(key)
        .ok_or_else(|| Failed::no_merge_key(members, key))
}
