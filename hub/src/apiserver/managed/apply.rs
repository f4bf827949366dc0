//! Server-side apply: a configuration merged into what is there, less what its manager no longer says.

use super::check::check;
use super::combine::combine;
use super::conflict::{self, Conflict, Refused};
use super::element::same;
use super::entries::{Id, Managed, Owned};
use super::owned::{fields_of, without};
use super::set::Set;
use super::update::{Rules, reconcile, strip, take};
use super::{annotation, entries};
use crate::apiserver::error::ApiError;
use serde_json::Value;
use std::collections::BTreeMap;

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
        Err(Refused::Conflicts(conflicts)) => conflicts,
        Err(Refused::Unread(why)) => return Err(failure(why)),
    };
    let conflicts = match annotation::left_by_client_side_apply(live, rules, id) {
        Some(left) => conflicts
            .into_iter()
            .map(|Conflict { of, fields }| Conflict {
                of,
                fields: fields.difference(&left),
            })
            .filter(|conflict| !conflict.fields.is_empty())
            .collect(),
        None => conflicts,
    };
    if !conflicts.is_empty() {
        return Err(conflict::refused(&conflicts));
    }
    *managed = before;
    attempt(rules, live, config, managed, id, true).map_err(|left| match left {
        Refused::Conflicts(left) => conflict::refused(&left),
        Refused::Unread(why) => failure(why),
    })
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
) -> Result<Option<Value>, Refused> {
    reconcile(rules, live, &mut managed.owned).map_err(Refused::Unread)?;
    let merged = combine(live, config, rules.of);
    let set = fields_of(config, rules.of).recursive_difference(rules.beyond);
    let version = rules.version.to_owned();
    let last = managed.owned.insert(id.clone(), Owned { version, set });
    let mut new = match last {
        Some(last) if !last.set.is_empty() => pruned(rules, merged, &last, managed)
            .map_err(|why| Refused::Unread(format!("failed to prune fields: {why}")))?,
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
fn pruned(
    rules: &Rules<'_>,
    merged: Value,
    last: &Owned,
    managed: &Managed,
) -> Result<Value, String> {
    let own = rules.version;
    let version = rules.named(&last.version);
    let (then, of) = rules
        .convert(&merged, own, version)
        .map_err(|why| format!("failed to convert merged object to last applied version: {why}"))?;
    let named = |set: &Set, of| set.with_named_fields(Some(of));
    // What anybody owns is put back, with all that leads to it.
    let mut owned: BTreeMap<&str, Set> = BTreeMap::new();
    for one in managed.owned.values() {
        let set = owned.entry(rules.named(&one.version)).or_default();
        set.extend(&one.set);
    }
    let mut kept = without(&then, &named(&last.set, of), Some(of));
    let mut at = version;
    let first = owned.remove(version).map(|set| (version, set));
    for (version, set) in first.into_iter().chain(owned) {
        let read = |what: &str, object, from| {
            rules.convert(object, from, version).map_err(|why| {
                format!(
                    "failed add back owned items: failed to convert {what} object at version \
                     {version}: {why}"
                )
            })
        };
        let ((all, of), (some, _)) = (read("merged", &merged, own)?, read("pruned", &kept, at)?);
        let stays = named(&fields_of(&some, of), of).union(&named(&set, of));
        let fields = named(&fields_of(&all, of), of);
        kept = without(&all, &fields.difference(&stays), Some(of));
        at = version;
    }
    // What the manager did not own before is not its to remove.
    let (kept, _) = rules.convert(&kept, at, version)?;
    let all = named(&fields_of(&then, of), of);
    let gone = all.difference(&named(&fields_of(&kept, of), of));
    let left = without(&then, &gone.intersection(&named(&last.set, of)), Some(of));
    let (left, _) = rules.convert(&left, version, own)?;
    Ok(left.into_owned())
}
