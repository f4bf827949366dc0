//! `metadata.managedFields`: who owns what, since when.

use super::fields;
use super::set::Set;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

/// What tells one manager from another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) manager: String,
    /// `Apply` or `Update`.
    pub(super) operation: &'static str,
    /// Only of updates: who applies is one manager in all versions.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

/// As the texts compare that real servers know managers by: a subresource comes before none.
impl Ord for Id {
    fn cmp(&self, other: &Self) -> Ordering {
        fn key(id: &Id) -> (&str, &str, &str, bool, &str) {
            let none = id.subresource.is_empty();
            (
                &id.manager,
                id.operation,
                &id.api_version,
                none,
                &id.subresource,
            )
        }
        key(self).cmp(&key(other))
    }
}

impl PartialOrd for Id {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Applies a configuration.
pub(super) const APPLY: &str = "Apply";
/// Writes in any other way.
pub(super) const UPDATE: &str = "Update";

/// As conflicts name it.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::go::quote(&self.manager))?;
        if !self.subresource.is_empty() {
            let quoted = crate::go::quote(&self.subresource);
            write!(f, " with subresource {quoted}")?;
        }
        if self.operation == UPDATE {
            write!(f, " using {}", self.api_version)?;
        }
        Ok(())
    }
}

/// The fields of one manager, in the words of one version.
#[derive(Debug, Clone)]
pub(super) struct Owned {
    pub(super) version: String,
    pub(super) set: Set,
}

/// All managers of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct Managed {
    pub(super) owned: BTreeMap<Id, Owned>,
    /// When; a manager whose apply changed nothing has no time yet.
    pub(super) times: BTreeMap<Id, String>,
}

/// The entries of an object, as JSON.
pub(super) fn of(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

/// Removes the entries of an object.
pub(super) fn clear(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// Whether entries say that nobody is to own anything. The empty list of a custom resource is lost on
/// the way, in the real server as well.
pub(super) fn is_reset(entries: Option<&Value>, custom: bool) -> bool {
    match entries {
        Some(Value::Array(entries)) => match entries.as_slice() {
            [] => !custom,
            [Value::Object(one)] => one.is_empty(),
            _ => false,
        },
        _ => false,
    }
}

impl Managed {
    /// Reads entries; the text says what is wrong with them.
    pub(super) fn read(entries: Option<&Value>) -> Result<Self, String> {
        let mut managed = Self::default();
        let entries = entries.and_then(Value::as_array);
        for (at, entry) in entries.into_iter().flatten().enumerate() {
            let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                APPLY => APPLY,
                UPDATE => UPDATE,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            let version = text("apiVersion").to_owned();
            if version.is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
                other => {
                    return Err(format!(
                        "invalid fieldsType {other:?} in managed fields entry {at}"
                    ));
                }
            }
            let set = match entry.get("fieldsV1") {
                None | Some(Value::Null) => Set::default(),
                Some(set) => fields::read(set)
                    .ok_or_else(|| format!("error decoding set of managed fields entry {at}"))?,
            };
            let id = Id {
                manager: text("manager").to_owned(),
                operation,
                api_version: if operation == APPLY {
                    String::new()
                } else {
                    version.clone()
                },
                subresource: text("subresource").to_owned(),
            };
            if let Some(time) = entry.get("time").and_then(Value::as_str) {
                managed.times.insert(id.clone(), time.to_owned());
            }
            managed.owned.insert(id, Owned { version, set });
        }
        Ok(managed)
    }

    /// Puts `now` in place of every later time, unless the object had that entry with that time: a time is when
    /// this server wrote, and a writer that brings entries along does not say when that was. Events end by it.
    pub(super) fn no_later_than(&mut self, now: DateTime<Utc>, known: impl FnOnce() -> Self) {
        let times = self.times.iter();
        let late = times.filter(|&(_, time)| seconds(Some(time)) > now.timestamp());
        let late: Vec<Id> = late.map(|(id, _)| id.clone()).collect();
        if late.is_empty() {
            return;
        }
        let known = known().times;
        let now = now.to_rfc3339_opts(SecondsFormat::Secs, true);
        for id in late {
            if known.get(&id) != self.times.get(&id) {
                self.times.insert(id, now.clone());
            }
        }
    }

    /// Writes the entries into an object: appliers first, then by time, then by name.
    pub(super) fn write(self, object: &mut Value) {
        clear(object);
        if self.owned.is_empty() {
            return;
        }
        let times = &self.times;
        let mut all: Vec<(Id, Owned)> = self.owned.into_iter().collect();
        all.sort_by(|(a, of_a), (b, of_b)| {
            let of = |id: &Id| seconds(times.get(id));
            (
                a.operation,
                of(a),
                &a.manager,
                &of_a.version,
                &a.subresource,
            )
                .cmp(&(
                    b.operation,
                    of(b),
                    &b.manager,
                    &of_b.version,
                    &b.subresource,
                ))
        });
        let entries: Vec<Value> = all
            .into_iter()
            .map(|(id, owned)| entry(&id, &owned, times.get(&id)))
            .collect();
        if let Some(metadata) = object
            .as_object_mut()
            .map(|members| members.entry("metadata").or_insert_with(|| json!({})))
            .and_then(Value::as_object_mut)
        {
            metadata.insert("managedFields".to_owned(), Value::Array(entries));
        }
    }
}

/// A time in seconds; the beginning of time where there is none.
pub(super) fn seconds(time: Option<&String>) -> i64 {
    time.and_then(|time| DateTime::parse_from_rfc3339(time).ok())
        .map_or(0, |time| time.timestamp())
}

fn entry(id: &Id, owned: &Owned, time: Option<&String>) -> Value {
    let mut entry = Map::new();
    let mut put = |key: &str, value: Value| entry.insert(key.to_owned(), value);
    put("apiVersion", Value::from(owned.version.as_str()));
    put("fieldsType", Value::from("FieldsV1"));
    put("fieldsV1", fields::write(&owned.set));
    if !id.manager.is_empty() {
        put("manager", Value::from(id.manager.as_str()));
    }
    put("operation", Value::from(id.operation));
    if !id.subresource.is_empty() {
        put("subresource", Value::from(id.subresource.as_str()));
    }
    if let Some(time) = time {
        put("time", Value::from(time.as_str()));
    }
    Value::Object(entry)
}
