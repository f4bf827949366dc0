//! Rows of custom resources: their columns say where the values stand.

use super::{age, text_at};
use crate::apiserver::scheme::Resource;
use crate::go::JsonPath;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

const READY: &str = ".status.conditions[?(@.type==\"Ready\")].status";
const ZONES: &str = ".spec.zones";

pub(super) fn cells(resource: &Resource, object: &Value, now: DateTime<Utc>) -> Vec<Value> {
    let columns = resource.columns.iter();
    columns
        .map(|column| match &column.json_path {
            None => json!(text_at(object, "metadata.name")),
            Some(path) => {
                let found = JsonPath::parse(path).and_then(|path| path.first(object));
                if is_cluster(resource)
                    && let Some(shown) = of_cluster(path, found)
                {
                    return shown;
                }
                found.map_or(Value::Null, |value| cell(&column.r#type, value, now))
            }
        })
        .collect()
}

fn is_cluster(resource: &Resource) -> bool {
    (&*resource.group, &*resource.kind) == ("cluster.karmada.io", "Cluster")
}

/// What a Cluster shows in words of its own, as where its kind is not that of a CRD: a cluster of
/// which nothing was heard yet, zones side by side, and what is not said.
fn of_cluster(path: &str, found: Option<&Value>) -> Option<Value> {
    let is_said = |value: &&Value| !value.is_null() && **value != json!("") && **value != json!([]);
    let found = found.filter(is_said);
    match (path, found) {
        (READY, None) => Some(json!("Unknown")),
        (ZONES, Some(Value::Array(zones))) => {
            let zones: Vec<&str> = zones.iter().filter_map(Value::as_str).collect();
            Some(json!(zones.join(",")))
        }
        (ZONES | ".spec.region" | ".spec.provider" | ".spec.proxyURL", None) => {
            Some(json!("<none>"))
        }
        _ => None,
    }
}

/// A value as a column of a type shows it; nothing if it is of another type.
fn cell(kind: &str, value: &Value, now: DateTime<Utc>) -> Value {
    match (kind, value) {
        ("string", value) => Value::from(printed(value)),
        ("integer", Value::Number(number)) => {
            #[allow(clippy::cast_possible_truncation, reason = "as Go cuts it")]
            let whole = number.as_f64().map(|number| number as i64);
            number.as_i64().or(whole).map_or(Value::Null, Value::from)
        }
        ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => match DateTime::parse_from_rfc3339(text) {
            Ok(_) => Value::from(age::since(text, now)),
            Err(_) => Value::from("<invalid>"),
        },
        _ => Value::Null,
    }
}

/// Texts as they are, everything else as JSON.
fn printed(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
