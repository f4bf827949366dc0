//! Decoding that lets no single bad value hide an object.
//!
//! Statuses come from agents. The schemas refuse what cannot be read here, but an object may be
//! older than the schema, so the fields every controller needs are read value by value.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// Reads conditions one by one: a time that cannot be read is the epoch, text that is missing is
/// empty, and an entry without a type is left out.
pub(super) fn conditions<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Condition>, D::Error> {
    let entries = match Value::deserialize(deserializer)? {
        Value::Array(entries) => entries,
        _ => Vec::new(),
    };
    Ok(entries.iter().filter_map(condition).collect())
}

fn condition(entry: &Value) -> Option<Condition> {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
    let type_ = text("type");
    if type_.is_empty() {
        return None;
    }
    Some(Condition {
        type_: type_.to_owned(),
        status: text("status").to_owned(),
        reason: text("reason").to_owned(),
        message: text("message").to_owned(),
        observed_generation: entry.get("observedGeneration").and_then(Value::as_i64),
        last_transition_time: Time(
            text("lastTransitionTime")
                .parse()
                .unwrap_or(Timestamp::UNIX_EPOCH),
        ),
    })
}

/// Reads an optional time; one that cannot be read is none.
pub(super) fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Time>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_str().and_then(|text| text.parse().ok()).map(Time))
}

/// Reads quantities written as strings or numbers; anything else is left out.
pub(super) fn quantities<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Quantity>, D::Error> {
    let values = Option::<BTreeMap<String, Value>>::deserialize(deserializer)?;
    Ok(values
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| match value {
            Value::String(text) => Some((name, Quantity(text))),
            Value::Number(number) => Some((name, Quantity(number.to_string()))),
            _ => None,
        })
        .collect())
}

/// Reads a list where `null` stands for nothing.
pub(super) fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use crate::api::cluster::Cluster;
    use serde_json::json;

    #[test]
    fn hostile_values_hide_nothing() {
        for time in [
            "9999-12-31T23:59:59.999999-12:00",
            "2024-01-01T00:00:00+99:99",
            "2024-01-01T00:00:00.1234567890123456789Z",
            "",
        ] {
            let cluster: Cluster = serde_json::from_value(json!({
                "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": "m1"},
                "spec": {"syncMode": "Pull"},
                "status": {
                    "conditions": [
                        7, {"status": "True"},
                        {"type": "Ready", "status": "True", "lastTransitionTime": time},
                    ],
                    "nodeSummary": {"totalNum": 4611686018427387904_i64},
                    "resourceSummary": {"allocatable": {"cpu": 4, "memory": "1Gi", "x": [1]}},
                },
            }))
            .expect("decodes");
            let status = cluster.status.expect("present");
            assert_eq!(status.conditions.len(), 1, "{time}");
            assert_eq!(status.conditions[0].status, "True");
            let summary = status.resource_summary.expect("present");
            assert_eq!(summary.allocatable["cpu"].0, "4");
            assert_eq!(summary.allocatable.len(), 2);
        }
    }
}
