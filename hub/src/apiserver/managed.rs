//! Who owns which field: server-side apply, and the managedFields of every write. Pure.
//!
//! Ownership follows the schema: objects are owned member by member unless they are atomic, lists as a
//! whole unless they are sets or have keys. `update` moves fields between managers, `apply` merges.

mod annotation;
mod apply;
mod beyond;
mod check;
mod combine;
mod compare;
mod conflict;
mod element;
mod entries;
mod fields;
mod owned;
mod set;
mod types;
mod update;
mod versions;

use crate::apiserver::error::ApiError;
use crate::apiserver::schema::Schema;
use crate::apiserver::scheme::{Resource, Versions};
use chrono::{DateTime, SecondsFormat, Utc};
use entries::{APPLY, Id, Managed, UPDATE};
use serde_json::{Map, Value};
use set::Set;
use std::sync::Arc;
use types::Type;
use update::Rules;
use versions::Others;

/// Who owns the fields of an object to which nobody applied anything before.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Who writes, through which door.
#[derive(Debug, Clone)]
pub struct Manager {
    /// The name it gave itself.
    pub name: String,
    /// `status`, `scale`, …; empty for the object itself.
    pub subresource: String,
    /// The version it speaks.
    pub api_version: String,
    kind: String,
    beyond: Set,
    custom: bool,
    group: String,
    versions: Versions,
    built_in: Vec<Arc<Resource>>,
}

impl Manager {
    /// The manager `name` that writes an object of `resource`, or its subresource.
    pub fn new(resource: &Resource, name: &str, subresource: &str) -> Self {
        Self {
            name: name.to_owned(),
            subresource: subresource.to_owned(),
            api_version: resource.api_version(),
            kind: resource.kind.to_string(),
            beyond: Set::of_fields(beyond::beyond(resource, subresource)),
            custom: resource.is_custom(),
            group: resource.group.to_string(),
            versions: resource.versions.clone(),
            built_in: Vec::new(),
        }
    }

    /// The same manager, who knows in which versions others may own fields of the object.
    pub fn among(mut self, versions: Vec<Arc<Resource>>) -> Self {
        self.built_in = versions;
        self
    }

    fn rules<'r>(&'r self, schema: &'r Schema) -> Rules<'r> {
        Rules {
            of: Type::of(schema),
            version: &self.api_version,
            beyond: &self.beyond,
            others: match self.custom {
                true => Others::Custom {
                    group: &self.group,
                    kind: &self.kind,
                    versions: &self.versions,
                },
                false => Others::BuiltIn(&self.built_in),
            },
        }
    }

    fn updater(&self, name: &str) -> Id {
        Id {
            manager: if name.is_empty() { "unknown" } else { name }.to_owned(),
            operation: UPDATE,
            api_version: self.api_version.clone(),
            subresource: self.subresource.clone(),
        }
    }

    fn applier(&self) -> Id {
        Id {
            operation: APPLY,
            api_version: String::new(),
            ..self.updater(&self.name)
        }
    }
}

/// Applies `config` for `manager`: the merged object with its managedFields, not yet in the form it is
/// kept in and without defaults. `live` is `None` when it is to be created.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    schema: &Schema,
    manager: &Manager,
    force: bool,
    now: DateTime<Utc>,
) -> Result<Value, ApiError> {
    let wanted = (manager.api_version.as_str(), manager.kind.as_str());
    let text = |key: &str| config.get(key).and_then(Value::as_str).unwrap_or_default();
    if (text("apiVersion"), text("kind")) != wanted {
        let found = group_version_kind(config);
        return Err(ApiError::bad_request(format!(
            "invalid object type: {found}"
        )));
    }
    if entries::of(config).is_some_and(|entries| !entries.is_null()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    let mut managed = Managed::read(live.and_then(entries::of))
        .map_err(|why| apply::failure(format!("failed to decode managed fields: {why}")))?;
    let now = now.to_rfc3339_opts(SecondsFormat::Secs, true);
    let rules = manager.rules(schema);
    let empty = schema.zero();
    let mut live = live.unwrap_or(&empty).clone();
    entries::clear(&mut live);
    if managed.owned.is_empty() {
        let before = manager.updater(BEFORE_FIRST_APPLY);
        update::update(&rules, &empty, &live, &mut managed, before, &now)
            .map_err(apply::failure)?;
    }
    let id = manager.applier();
    let mut object = match apply::apply(&rules, &live, config, &mut managed, &id, force)? {
        Some(object) => {
            managed.times.insert(id, now);
            object
        }
        None => live,
    };
    annotation::keep_in_step(&mut object, config, &manager.name);
    managed.write(&mut object);
    Ok(object)
}

/// Sets the managedFields of `new`, which a create, an update or a patch made of `old`. `new` has the
/// managedFields of the request, if it had any: an empty list there means that nobody owns anything
/// any more, which is why [`Schema::coerce`] keeps it.
pub fn track(
    old: Option<&Value>,
    new: &mut Value,
    schema: &Schema,
    manager: &Manager,
    now: DateTime<Utc>,
) {
    let known = || Managed::read(old.and_then(entries::of)).unwrap_or_default();
    let given = entries::of(new);
    let mut managed = if !manager.subresource.is_empty() {
        known()
    } else if entries::is_reset(given, manager.custom) {
        Managed::default()
    } else {
        match Managed::read(given) {
            Ok(mut managed) if !managed.owned.is_empty() => {
                managed.no_later_than(now, known);
                managed
            }
            _ => known(),
        }
    };
    entries::clear(new);
    // Who never had entries, or gave them up, gets none by an update.
    if managed.owned.is_empty() && old.is_some() {
        return;
    }
    let rules = manager.rules(schema);
    let empty = if old.is_none() {
        schema.zero()
    } else {
        Default::default()
    };
    let before = old.unwrap_or(&empty);
    let readable = |object: &Value| check::check(object, rules.of, true).is_ok();
    if !readable(new) || !readable(before) {
        return;
    }
    let now = now.to_rfc3339_opts(SecondsFormat::Secs, true);
    let writer = manager.updater(&manager.name);
    // What cannot be put into the words of every manager is nobody's.
    if let Err(why) = update::update(&rules, before, new, &mut managed, writer, &now) {
        tracing::debug!(why, "an object lost its managers");
        return;
    }
    managed.write(new);
}

/// Takes a field from all managers of an object.
pub fn disown(object: &mut Value, path: &[&str]) {
    let Ok(mut managed) = Managed::read(entries::of(object)) else {
        return;
    };
    let gone = Set::of_fields(&[path]);
    managed.owned.retain(|_, owned| {
        owned.set = owned.set.difference(&gone);
        !owned.set.is_empty()
    });
    managed.write(object);
}

/// Puts the managedFields of an object into the order in which they are kept, which is that of their times.
pub fn sort(object: &mut Value) {
    if let Ok(managed) = Managed::read(entries::of(object)) {
        managed.write(object);
    }
}

/// Whether `new` differs from `old` in nothing but the times in its managedFields; then `old` stays.
pub fn differ_in_times_only(old: &Value, new: &Value) -> bool {
    same_but(old, new, "metadata", |old, new| {
        same_but(old, new, "managedFields", |old, new| match (old, new) {
            (Value::Array(old), Value::Array(new)) => {
                old.len() == new.len() && old.iter().zip(new).all(|(a, b)| is_timeless_same(a, b))
            }
            (old, new) => old == new,
        })
    })
}

/// Whether two entries differ in their times at most; one may have none.
fn is_timeless_same(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
        return a == b;
    };
    let rest = |entry: &Map<String, Value>| entry.keys().filter(|key| *key != "time").count();
    let stays = |(key, value)| key == "time" || b.get(key) == Some(value);
    rest(a) == rest(b) && a.iter().all(stays)
}

/// Whether two objects are the same where what is under one key is compared in another way. Compared
/// where they stand: this is asked of every write.
fn same_but(a: &Value, b: &Value, key: &str, same: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
        return a == b;
    };
    a.len() == b.len()
        && a.iter().all(|(name, a)| match b.get(name) {
            Some(b) if name == key => same(a, b),
            b => b == Some(a),
        })
}

/// `apps/v1, Kind=Deployment`.
fn group_version_kind(object: &Value) -> String {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let version = text("apiVersion");
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={}", text("kind"))
}

#[cfg(test)]
mod tests;
