//! Tables and partial objects: what `kubectl get` and metadata clients ask for.

pub(crate) mod age;
mod custom;
mod network;
mod other;
mod pods;
mod storage;
mod text;
mod workloads;

use super::scheme::{Resource, event_to_core};
use super::strategies::daemonsets::TEMPLATE;
use crate::apiserver::value::{is_set, put};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

/// Which part of each object a row carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncludeObject {
    /// Kind, version and metadata.
    #[default]
    Metadata,
    /// All of it.
    Object,
    /// The cells alone.
    None,
}

impl IncludeObject {
    /// The query parameter `includeObject`; empty is the default.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "Object" => Some(Self::Object),
            "None" => Some(Self::None),
            _ => None,
        }
    }
}

/// A table of objects. `list_metadata` becomes the table's metadata; `version` is that of the
/// group `meta.k8s.io`: `v1` or `v1beta1`. Without `headers` the column definitions are left out,
/// as in all but the first event of a watch.
pub fn table(
    resource: &Resource,
    version: &str,
    objects: &[Value],
    list_metadata: Value,
    include: IncludeObject,
    headers: bool,
    now: DateTime<Utc>,
) -> Value {
    let columns = headers.then(|| {
        let columns = resource.columns.iter().map(|column| {
            json!({
                "name": &*column.name,
                "type": &*column.r#type,
                "format": &*column.format,
                "description": &*column.description,
                "priority": column.priority,
            })
        });
        Value::Array(columns.collect())
    });
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| row(resource, version, object, include, now))
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": list_metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

fn row(
    resource: &Resource,
    version: &str,
    object: &Value,
    include: IncludeObject,
    now: DateTime<Utc>,
) -> Value {
    let mut row = json!({"cells": cells(resource, object, now)});
    if let Some(conditions) = pods::conditions(resource, object) {
        row["conditions"] = conditions;
    }
    row["object"] = match include {
        IncludeObject::Metadata => partial(resource, version, object),
        IncludeObject::Object => object.clone(),
        IncludeObject::None => Value::Null,
    };
    row
}

fn cells(resource: &Resource, object: &Value, now: DateTime<Utc>) -> Vec<Value> {
    if resource.is_custom() {
        return custom::cells(resource, object, now);
    }
    let row = Row { object, now };
    let found = match (&*resource.group, &*resource.kind) {
        ("" | "apps" | "batch" | "autoscaling" | "policy", kind) => {
            workloads::cells(&row, kind, &resource.version)
        }
        _ => None,
    };
    let found = found
        .or_else(|| pods::cells(&row, resource))
        .or_else(|| network::cells(&row, resource))
        .or_else(|| storage::cells(&row, resource))
        .or_else(|| {
            if &*resource.group == "events.k8s.io" {
                let mut core = object.clone();
                event_to_core(&mut core);
                let row = Row { object: &core, now };
                return other::cells(&row, "", "Event");
            }
            other::cells(&row, &resource.group, &resource.kind)
        });
    // Kinds without columns of their own show when they were made.
    found.unwrap_or_else(|| {
        vec![
            json!(row.name()),
            json!(row.text("metadata.creationTimestamp")),
        ]
    })
}

/// The metadata of an object, as `PartialObjectMetadata`.
pub fn partial(resource: &Resource, version: &str, object: &Value) -> Value {
    let mut metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    // The count of templates is a field that only whole objects show as an annotation.
    if (&*resource.group, &*resource.kind) == ("apps", "DaemonSet") {
        put(&mut metadata, &["annotations", TEMPLATE], None);
        if !is_set(&metadata, &["annotations"]) {
            put(&mut metadata, &["annotations"], None);
        }
    }
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": metadata,
    })
}

/// The metadata of many objects, as `PartialObjectMetadataList`; none at all are `null`.
pub fn partial_list(
    resource: &Resource,
    version: &str,
    objects: &[Value],
    list_metadata: Value,
) -> Value {
    let items: Vec<Value> = objects
        .iter()
        .map(|object| partial(resource, version, object))
        .collect();
    let items = (!items.is_empty()).then_some(items);
    json!({
        "kind": "PartialObjectMetadataList",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": list_metadata,
        "items": items,
    })
}

/// An object whose row is written.
struct Row<'a> {
    object: &'a Value,
    now: DateTime<Utc>,
}

impl<'a> Row<'a> {
    fn at(&self, path: &str) -> Option<&'a Value> {
        at(self.object, path)
    }

    fn text(&self, path: &str) -> &'a str {
        self.at(path).and_then(Value::as_str).unwrap_or("")
    }

    fn number(&self, path: &str) -> i64 {
        self.at(path).and_then(Value::as_i64).unwrap_or(0)
    }

    fn flag(&self, path: &str) -> Option<bool> {
        self.at(path).and_then(Value::as_bool)
    }

    fn list(&self, path: &str) -> &'a [Value] {
        list(self.at(path))
    }

    /// How many entries a list or a map has.
    fn count(&self, path: &str) -> usize {
        match self.at(path) {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        }
    }

    fn name(&self) -> &'a str {
        self.text("metadata.name")
    }

    fn age(&self) -> String {
        self.since("metadata.creationTimestamp")
    }

    /// How long ago a time was.
    fn since(&self, path: &str) -> String {
        age::since(self.text(path), self.now)
    }

    fn or(&self, path: &str, none: &'a str) -> &'a str {
        match self.text(path) {
            "" => none,
            text => text,
        }
    }

    fn is_deleting(&self) -> bool {
        self.at("metadata.deletionTimestamp")
            .is_some_and(|at| !at.is_null())
    }
}

fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(object, |value, key| value.get(key))
}

fn text_at<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or("")
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Cells of different types in one row.
macro_rules! row_of {
    ($($cell:expr),* $(,)?) => {
        Some(vec![$(serde_json::json!($cell)),*])
    };
}
use row_of;

#[cfg(test)]
#[path = "table/tests.rs"]
mod tests;
