//! What a watch tells of one write: whose it is, how large, and whether the agent made it. Pure.

use common::api::cluster::QUARANTINED;
use common::labels::QUARANTINED_SINCE;
use common::names::EXECUTION_PREFIX;
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;
use std::collections::{BTreeMap, HashMap};

/// One object, reduced to what is counted; nothing an agent wrote is decoded but the condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    namespace: Option<String>,
    name: String,
    generation: i64,
    /// Size of the whole object.
    pub(super) bytes: u64,
    /// The annotation that withholds the rights is there.
    pub(super) withheld: bool,
    /// The condition says that they are withheld.
    pub(super) shown: bool,
}

#[derive(Deserialize)]
struct Object<'a> {
    metadata: Metadata,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(default)]
    namespace: Option<String>,
    name: String,
    #[serde(default)]
    generation: i64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let Object { metadata, status } =
            serde_json::from_str(raw.get()).map_err(de::Error::custom)?;
        let status = status.and_then(|status| serde_json::from_str::<Status>(status.get()).ok());
        let shown = status.is_some_and(|status| {
            let quarantined = |c: &Condition| c.type_ == QUARANTINED && c.status == "True";
            status.conditions.iter().any(quarantined)
        });
        Ok(Self {
            namespace: metadata.namespace,
            name: metadata.name,
            generation: metadata.generation,
            bytes: u64::try_from(raw.get().len()).unwrap_or(u64::MAX),
            withheld: metadata.annotations.contains_key(QUARANTINED_SINCE),
            shown,
        })
    }
}

impl Written {
    /// The cluster whose object this is: itself, or by its execution namespace.
    pub(super) fn cluster(&self) -> Option<&str> {
        match &self.namespace {
            None => Some(&self.name),
            Some(namespace) => namespace.strip_prefix(EXECUTION_PREFIX),
        }
    }

    fn key(&self) -> String {
        format!(
            "{}/{}",
            self.namespace.as_deref().unwrap_or_default(),
            self.name
        )
    }
}

/// Tells writes of agents from those of others, by the generation of each object: an agent may not
/// change what moves it, and everybody else seldom changes anything else.
#[derive(Debug, Default)]
pub(super) struct Generations(HashMap<String, i64>);

impl Generations {
    /// Takes note of an object; true when it was there before with the same generation.
    pub(super) fn is_agents(&mut self, object: &Written) -> bool {
        self.0.insert(object.key(), object.generation) == Some(object.generation)
    }

    /// Forgets an object.
    pub(super) fn forget(&mut self, namespace: Option<&str>, name: &str) {
        self.0
            .remove(&format!("{}/{name}", namespace.unwrap_or_default()));
    }

    /// Forgets all, before a list.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Written {
        serde_json::from_str(json).expect("an object")
    }

    #[test]
    fn an_object_is_its_size_and_its_cluster() {
        let text = r#"{"metadata":{"namespace":"karmada-es-m1","name":"w","generation":3}}"#;
        let work = read(text);
        assert_eq!(work.cluster(), Some("m1"));
        assert_eq!(work.bytes, u64::try_from(text.len()).expect("small"));
        assert_eq!(read(r#"{"metadata":{"name":"m2"}}"#).cluster(), Some("m2"));
        let elsewhere = read(r#"{"metadata":{"namespace":"default","name":"e"}}"#);
        assert_eq!(elsewhere.cluster(), None);
    }

    #[test]
    fn what_an_agent_wrote_cannot_hide_its_size() {
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        let object = read(&format!(
            r#"{{"metadata":{{"name":"m1"}},"status":{{"x":{deep}}}}}"#
        ));
        assert!(object.bytes > 10_000);
        assert!(!object.shown);
        let odd = read(r#"{"metadata":{"name":"m1"},"status":{"conditions":7}}"#);
        assert!(!odd.shown);
        let shown = read(
            r#"{"metadata":{"name":"m1","annotations":{"towline.dev/quarantined-since":"x"}},
                "status":{"conditions":[{"type":"Quarantined","status":"True"}]}}"#,
        );
        assert!(shown.shown && shown.withheld);
    }

    #[test]
    fn only_writes_that_leave_the_generation_are_the_agents() {
        let work = |generation| {
            read(&format!(
                r#"{{"metadata":{{"namespace":"karmada-es-m1","name":"w","generation":{generation}}}}}"#
            ))
        };
        let mut seen = Generations::default();
        assert!(!seen.is_agents(&work(1)), "created by the hub");
        assert!(seen.is_agents(&work(1)), "a status");
        assert!(!seen.is_agents(&work(2)), "a spec");
        seen.forget(Some("karmada-es-m1"), "w");
        assert!(!seen.is_agents(&work(2)));
    }
}
