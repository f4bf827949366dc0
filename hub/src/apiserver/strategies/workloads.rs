//! Fields of workloads that lists can select by.

use crate::apiserver::value::{at, list, text};
use serde_json::Value;

/// The value of a field of a selector, as the real server writes it.
pub(super) fn field(object: &Value, field: &str) -> String {
    let path: Vec<&str> = field.split('.').collect();
    match field {
        "status.successful" => shown(at(object, &["status", "succeeded"]), "0"),
        "status.podIPs" => {
            let all = list(object, &["status", "podIPs"]).iter();
            let all: Vec<&str> = all.map(|one| text(one, &["ip"])).collect();
            all.join(",")
        }
        "status.replicas" => shown(at(object, &path), "0"),
        "spec.hostNetwork" | "spec.unschedulable" => shown(at(object, &path), "false"),
        _ => shown(at(object, &path), ""),
    }
}

fn shown(value: Option<&Value>, none: &str) -> String {
    match value {
        None | Some(Value::Null) => none.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
