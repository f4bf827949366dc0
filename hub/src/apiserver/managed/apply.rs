//! Server-side apply: a configuration merged into what is there, less what its manager no longer says.

use super::check::check;
use super::combine::combine;
use super::conflict::{self, Conflict};
use super::element::same;
use super::entries::{Id, Managed, Owned};
use super::owned::{fields_of, without};
use super::set::Set;
use super::types::Type;
use super::update::{Rules, reconcile, strip, take};
use super::{annotation, entries};
use crate::apiserver::error::ApiError;
use serde_json::Value;

/// Applies `config` to `live` for `id`. Nothing is the answer when the object stays as it is.
pub(super) fn apply(
    rules: &Rules<'_>,
    live: &Value,
    config: &Value,
    managed: &mut Managed,
    id: &Id,
    force: bool,
) -> Result<Option<Value>, ApiError> {
    check(config, rules.of, false).map_err(|wrong| {
        let subject = subject(config);
        failure(format!(
            "failed to create typed patch object ({subject}): {wrong}"
        ))
    })?;
    check(live, rules.of, true).map_err(|wrong| {
        let subject = subject(live);
        failure(format!(
            "failed to create typed live object ({subject}): {wrong}"
        ))
    })?;
    let before = managed.clone();
    let conflicts = match attempt(rules, live, config, managed, id, force) {
        Ok(done) => return Ok(done),
        Err(conflicts) => conflicts,
    };
    let conflicts = match annotation::left_by_client_side_apply(live, rules, id) {
        Some(left) => conflicts
            .into_iter()
            .filter(|conflict| !left.has(&conflict.path))
            .collect(),
        None => conflicts,
    };
    if !conflicts.is_empty() {
        return Err(conflict::refused(&conflicts));
    }
    *managed = before;
    attempt(rules, live, config, managed, id, true).map_err(|left| conflict::refused(&left))
}

/// A failure that servers call their own.
pub(super) fn failure(text: String) -> ApiError {
    ApiError::plain(500, "", text)
}

/// `namespace/name; group/version, Kind=Kind`.
fn subject(object: &Value) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = object.get("metadata");
    let of = |key: &str| text(metadata.and_then(|metadata| metadata.get(key)));
    format!(
        "{}/{}; {}",
        of("namespace"),
        of("name"),
        super::group_version_kind(object)
    )
}

fn attempt(
    rules: &Rules<'_>,
    live: &Value,
    config: &Value,
    managed: &mut Managed,
    id: &Id,
    force: bool,
) -> Result<Option<Value>, Vec<Conflict>> {
    reconcile(&mut managed.owned, rules.of);
    let merged = combine(live, config, rules.of);
    let set = fields_of(config, rules.of).recursive_difference(rules.beyond);
    let version = rules.version.to_owned();
    let last = managed.owned.insert(id.clone(), Owned { version, set });
    let mut new = match last {
        Some(last) if !last.set.is_empty() => pruned(rules.of, merged, &last.set, managed),
        _ => merged,
    };
    take(rules, live, &new, &mut managed.owned, Some(id), force)?;
    if let Some(owned) = managed.owned.get_mut(id) {
        owned.set = strip(&owned.set);
        if owned.set.is_empty() {
            managed.owned.remove(id);
        }
    }
    if same(live, &new) {
        return Ok(None);
    }
    entries::clear(&mut new);
    Ok(Some(new))
}

/// Takes out what the manager applied last time, not this time, and nobody else owns.
fn pruned(of: Type<'_>, merged: Value, last: &Set, managed: &Managed) -> Value {
    let named = |set: &Set| set.with_named_fields(Some(of));
    let last = named(last);
    let all = named(&fields_of(&merged, of));
    // What anybody owns is put back, with all that leads to it.
    let mut owned = Set::default();
    for one in managed.owned.values() {
        owned.extend(&one.set);
    }
    let first = without(&merged, &last, Some(of));
    let kept = named(&fields_of(&first, of)).union(&named(&owned));
    let second = without(&merged, &all.difference(&kept), Some(of));
    // What the manager did not own before is not its to remove.
    let gone = all.difference(&named(&fields_of(&second, of)));
    without(&merged, &gone.intersection(&last), Some(of))
}
