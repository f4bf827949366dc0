//! How a write moves fields from manager to manager.

use super::compare::{Changes, compare};
use super::conflict::{Conflict, Refused};
use super::entries::{Id, Managed, Owned, UPDATE, seconds};
use super::owned;
use super::set::Set;
use super::types::Type;
use super::versions::Others;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

/// Updates beyond this number lose their names.
const MAX_UPDATES: usize = 10;

/// Who owns what updates beyond the limit owned.
const ANCIENT: &str = "ancient-changes";

/// Fields that nobody owns: the server sets them, or they say which object it is.
static NEVER_OWNED: LazyLock<Set> = LazyLock::new(|| {
    Set::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

/// What a write is led by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules<'r> {
    pub(super) of: Type<'r>,
    pub(super) version: &'r str,
    /// Fields that this write does not reach.
    pub(super) beyond: &'r Set,
    /// The kind in its other versions.
    pub(super) others: Others<'r>,
}

/// Takes from all managers but `writer` what changed. Without `force` that is refused.
pub(super) fn take(
    rules: &Rules<'_>,
    old: &Value,
    new: &Value,
    managers: &mut BTreeMap<Id, Owned>,
    writer: Option<&Id>,
    force: bool,
) -> Result<Changes, Refused> {
    let all = compare(old, new, rules.of);
    let reached = all.without(rules.beyond);
    let mut known: BTreeMap<String, (Changes, Set)> = BTreeMap::new();
    known.insert(rules.version.to_owned(), with_changed(reached));
    let mut conflicts: Vec<Conflict> = Vec::new();
    let mut left: BTreeMap<Id, Set> = BTreeMap::new();
    for (id, owned) in managers.iter() {
        if Some(id) == writer {
            continue;
        }
        let version = rules.named(&owned.version);
        if !known.contains_key(version) {
            let changes = rules.compare_in(version, old, new);
            known.insert(
                version.to_owned(),
                with_changed(changes.map_err(Refused::Unread)?),
            );
        }
        let Some((changes, changed)) = known.get(version) else {
            continue;
        };
        if changed.is_empty() && changes.removed.is_empty() {
            continue;
        }
        let taken = owned.set.intersection(changed);
        let kept = owned.set.difference(&taken).difference(&changes.removed);
        if !taken.is_empty() {
            let (of, fields) = (id.clone(), taken);
            conflicts.push(Conflict { of, fields });
        }
        left.insert(id.clone(), kept);
    }
    if !force && !conflicts.is_empty() {
        return Err(Refused::Conflicts(conflicts));
    }
    for (id, set) in left {
        if let Some(owned) = managers.get_mut(&id) {
            owned.set = set;
        }
    }
    managers.retain(|_, owned| !owned.set.is_empty());
    let reached = known.remove(rules.version).unwrap_or_default();
    Ok(reached.0)
}

fn with_changed(changes: Changes) -> (Changes, Set) {
    let changed = changes.changed();
    (changes, changed)
}

/// Brings what was owned in line with the schema of today, which must read the object as it is.
pub(super) fn reconcile(
    rules: &Rules<'_>,
    live: &Value,
    managers: &mut BTreeMap<Id, Owned>,
) -> Result<(), String> {
    for owned in managers.values_mut() {
        let version = rules.named(&owned.version);
        let (_, of) = rules.convert(live, rules.version, version)?;
        if let Some(set) = owned::reconciled(&owned.set, of) {
            owned.set = set;
        }
    }
    Ok(())
}

/// Takes out what nobody owns.
pub(super) fn strip(set: &Set) -> Set {
    set.difference(&NEVER_OWNED)
}

/// A create, an update or a patch: `writer` owns what it changed and added.
pub(super) fn update(
    rules: &Rules<'_>,
    old: &Value,
    new: &Value,
    managed: &mut Managed,
    writer: Id,
    now: &str,
) -> Result<(), String> {
    reconcile(rules, old, &mut managed.owned)?;
    let changes = match take(rules, old, new, &mut managed.owned, None, true) {
        Ok(changes) => changes,
        Err(Refused::Unread(why)) => return Err(why),
        Err(Refused::Conflicts(_)) => return Ok(()),
    };
    let written = strip(&changes.changed().recursive_difference(rules.beyond));
    if !written.is_empty() {
        let set = match managed.owned.get(&writer) {
            Some(known) => written.union(&known.set),
            None => written,
        };
        let version = rules.version.to_owned();
        managed.times.insert(writer.clone(), now.to_owned());
        managed.owned.insert(writer, Owned { version, set });
    }
    cap(managed);
    Ok(())
}

/// Merges the oldest updates into one for each version, until there are few enough.
fn cap(managed: &mut Managed) {
    let mut updates: Vec<Id> = managed
        .owned
        .keys()
        .filter(|id| id.operation == UPDATE)
        .cloned()
        .collect();
    let mut count = updates.len();
    if count <= MAX_UPDATES {
        return;
    }
    updates.sort_by_cached_key(|id| (seconds(managed.times.get(id)), id.clone()));
    let mut first: BTreeMap<String, Id> = BTreeMap::new();
    for id in updates {
        if count <= MAX_UPDATES {
            return;
        }
        let Some(owned) = managed.owned.get(&id).cloned() else {
            continue;
        };
        let Some(first) = first.get(&owned.version) else {
            first.insert(owned.version, id);
            continue;
        };
        let bucket = Id {
            manager: ANCIENT.to_owned(),
            operation: UPDATE,
            api_version: owned.version.clone(),
            subresource: String::new(),
        };
        if !managed.owned.contains_key(&bucket)
            && let Some(moved) = managed.owned.remove(first)
        {
            managed.owned.insert(bucket.clone(), moved);
        }
        if id != bucket {
            managed.owned.remove(&id);
        }
        let into = managed
            .owned
            .entry(bucket.clone())
            .or_insert_with(|| Owned {
                version: owned.version.clone(),
                set: Set::default(),
            });
        into.set.extend(&owned.set);
        count -= 1;
        if let Some(time) = managed.times.get(&id).cloned() {
            managed.times.insert(bucket, time);
        }
    }
}
