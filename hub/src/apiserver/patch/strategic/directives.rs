//! What a strategic merge patch says beside values: `$patch`, `$retainKeys` and its parallel lists.

use super::{Failed, Members};
use serde_json::Value;

/// Replace or delete the object it stands in.
pub(super) const MARKER: &str = "$patch";
/// Before the name of a list: the order of its items.
pub(super) const ORDER: &str = "$setElementOrder";
/// Before the name of a list of scalars: what to remove from it.
pub(super) const DELETE_FROM: &str = "$deleteFromPrimitiveList";
/// Members that stay; all others go.
const RETAIN: &str = "$retainKeys";

/// The name of the list that `key` is about.
pub(super) fn target<'k>(key: &'k str, prefix: &str) -> Result<&'k str, Failed> {
    let rest = key.strip_prefix(prefix).and_then(|k| k.strip_prefix('/'));
    rest.ok_or(Failed::Format(if prefix == ORDER {
        "setElementOrder list"
    } else {
        "primitive list"
    }))
}

/// Removes from `live` what `$retainKeys` does not name.
pub(super) fn retain_keys(live: &mut Members, patch: &mut Members) -> Result<(), Failed> {
    let wrong = Failed::Format("retainKeys");
    let kept = match patch.remove(RETAIN) {
        None => return Ok(()),
        Some(Value::Array(kept)) => kept,
        Some(_) => return Err(wrong),
    };
    let kept: Vec<&str> = kept.iter().filter_map(Value::as_str).collect();
    for (key, value) in patch.iter() {
        let parallel = key.starts_with(DELETE_FROM) || key.starts_with(ORDER);
        if !value.is_null() && !parallel && !kept.contains(&key.as_str()) {
            return Err(wrong);
        }
    }
    live.retain(|key, _| kept.contains(&key.as_str()));
    Ok(())
}

/// What stays of a value when everything that is only a directive is left out.
pub(super) fn removed(value: Value) -> Option<Value> {
    match value {
        Value::Object(members) if members.contains_key(MARKER) => None,
        Value::Object(members) => {
            let kept = members
                .into_iter()
                .filter_map(|(key, member)| removed(member).map(|member| (key, member)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(items.into_iter().filter_map(removed).collect()),
        other => Some(other),
    }
}

/// Null has nothing to remove where nothing was.
pub(super) fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}
