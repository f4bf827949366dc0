//! Lists in a strategic merge patch: merged by key, or as sets of scalars, and put in order.

use super::directives::MARKER;
use super::{Failed, Members, merge as merge_objects};
use crate::apiserver::schema::{Go, Schema};
use crate::go::print;
use serde_json::Value;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

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
            let gone: HashSet<&Value> = new.iter().collect();
            return Ok(old
                .into_iter()
                .filter(|item| !gone.contains(item))
                .collect());
        }
        let mut known: HashSet<&Value> = HashSet::with_capacity(old.len() + new.len());
        let all = old.iter().chain(&new);
        let merged = all.filter(|item| known.insert(item)).cloned().collect();
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
    let mut known: HashMap<&Value, usize> = HashMap::with_capacity(old.len());
    for (at, item) in old.iter().enumerate() {
        if let Some(value) = item.get(key) {
            known.entry(value).or_insert(at);
        }
    }
    for item in &new {
        let Value::Object(item) = item else { continue };
        let Some(wanted) = item.get(key) else {
            return Err(Failed::no_merge_key(item, key));
        };
        match known.entry(wanted) {
            Entry::Occupied(at) => {
                let Some(slot) = merged.get_mut(*at.get()) else {
                    continue;
                };
                let Value::Object(live) = slot.take() else {
                    continue;
                };
                *slot = Value::Object(merge_objects(live, item.clone(), rule.items)?);
            }
            Entry::Vacant(new) => {
                new.insert(merged.len());
                merged.push(Value::Object(item.clone()));
            }
        }
    }
    arrange(merged, &new, &old, Some(key))
}

/// Follows `$patch` in items: the items that stay, and those of the patch that are no directives.
fn directives(
    old: Vec<Value>,
    new: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Failed> {
    let mut plain = Vec::with_capacity(new.len());
    let mut replace = false;
    let mut gone: HashSet<Value> = HashSet::new();
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
                gone.insert(wanted.clone());
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
    let stays = |item: &Value| item.get(key).is_none_or(|value| !gone.contains(value));
    Ok((old.into_iter().filter(stays).collect(), plain))
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

/// Where each item is, by what it is known by.
struct Places<'v> {
    key: Option<&'v str>,
    first: HashMap<Option<&'v Value>, usize>,
}

impl<'v> Places<'v> {
    fn of(list: &'v [Value], key: Option<&'v str>) -> Self {
        let mut first = HashMap::with_capacity(list.len());
        for (at, item) in list.iter().enumerate() {
            first.entry(identity(item, key)).or_insert(at);
        }
        Self { key, first }
    }

    fn place(&self, item: &Value) -> Option<usize> {
        self.first.get(&identity(item, self.key)).copied()
    }
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
    let (wanted, on_server) = (Places::of(order, key), Places::of(on_server, key));
    let (mut named, mut others): (Vec<Value>, Vec<Value>) = items
        .into_iter()
        .partition(|item| wanted.place(item).is_some());
    named.sort_by_key(|item| wanted.place(item));
    others.sort_by_key(|item| on_server.place(item).unwrap_or(usize::MAX));
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    loop {
        let take_other = match (others.peek(), named.peek()) {
            (None, None) => return Ok(arranged),
            (other, None) => other.is_some(),
            (None, Some(_)) => false,
            (Some(other), Some(named)) => {
                let other = on_server.place(other);
                let named = on_server.place(named);
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
