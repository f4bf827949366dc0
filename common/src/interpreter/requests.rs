//! What a pod asks of its node, from the few fields of a pod that decide it.
//!
//! Pure. Kubernetes' rule: containers and sidecars run together; an ordinary init container runs
//! alone beside the sidecars started before it, so only its excess over the rest counts, per pod.

use crate::quantity::Quantity;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;

/// The fields of a pod that count; everything else is skipped while decoding.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Pod {
    /// Identity.
    #[serde(default)]
    pub metadata: Name,
    /// What it runs and where.
    #[serde(default)]
    pub spec: PodSpec,
    /// Whether it still runs.
    #[serde(default)]
    pub status: PodStatus,
}

/// The identifying part of an object's metadata.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Name {
    /// Name.
    #[serde(default)]
    pub name: String,
    /// Namespace; empty for nodes.
    #[serde(default)]
    pub namespace: String,
}

/// The fields of a pod's spec that count.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodSpec {
    /// Empty until scheduled.
    #[serde(default)]
    pub node_name: String,
    #[serde(default)]
    containers: Vec<Container>,
    #[serde(default)]
    init_containers: Vec<Container>,
    #[serde(default)]
    overhead: Option<List>,
    #[serde(default)]
    resources: Option<Resources>,
}

/// The fields of a pod's status that count.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct PodStatus {
    /// `Succeeded` and `Failed` free what was asked.
    #[serde(default)]
    pub phase: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    #[serde(default)]
    resources: Option<Resources>,
    #[serde(default)]
    restart_policy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Resources {
    #[serde(default)]
    requests: Option<List>,
    #[serde(default)]
    limits: Option<List>,
}

/// Resource name to quantity.
pub type List = BTreeMap<String, Amount>;

/// A quantity as it is written: a text, or in custom resources a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Amount {
    text: String,
    quantity: Quantity,
}

/// Resource name to thousandths; sums cannot overflow.
pub type Amounts = BTreeMap<String, i128>;

impl Pod {
    /// Whether the pod has ended, so that it asks for nothing any more.
    pub fn ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }

    /// What the pod asks for, in thousandths; without the pod itself.
    pub fn requests(&self) -> Amounts {
        self.spec.total(Container::requests)
    }
}

impl PodSpec {
    /// What a pod of this template will ask for, in thousandths: where a container has a limit and no
    /// request, the API server makes the limit its request once the pod is made.
    pub fn template_requests(&self) -> Amounts {
        self.total(Container::requests_or_limits)
    }

    fn total(&self, of: impl Fn(&Container) -> Amounts) -> Amounts {
        let mut running = Amounts::new();
        for container in &self.containers {
            add(&mut running, &of(container));
        }
        let mut sidecars = Amounts::new();
        let mut starting = Amounts::new();
        for container in &self.init_containers {
            let own = of(container);
            if container.restart_policy.as_deref() == Some("Always") {
                add(&mut running, &own);
                add(&mut sidecars, &own);
                raise(&mut starting, &sidecars);
            } else {
                let mut alone = sidecars.clone();
                add(&mut alone, &own);
                raise(&mut starting, &alone);
            }
        }
        raise(&mut running, &starting);
        if let Some(list) = self.resources.as_ref().and_then(|r| r.requests.as_ref()) {
            // Requests of the pod as a whole replace what its containers add up to.
            running.extend(amounts(list));
        }
        if let Some(overhead) = &self.overhead {
            add(&mut running, &amounts(overhead));
        }
        running
    }
}

impl Container {
    fn requests(&self) -> Amounts {
        self.resources
            .as_ref()
            .and_then(|r| r.requests.as_ref())
            .map(amounts)
            .unwrap_or_default()
    }

    fn requests_or_limits(&self) -> Amounts {
        let limits = self.resources.as_ref().and_then(|r| r.limits.as_ref());
        let mut all = limits.map(amounts).unwrap_or_default();
        all.extend(self.requests());
        all
    }
}

/// A list as numbers.
pub fn amounts(list: &List) -> Amounts {
    list.iter()
        .map(|(name, amount)| (name.clone(), amount.quantity.milli_ceil()))
        .collect()
}

impl Amount {
    /// As a text.
    pub fn into_text(self) -> String {
        self.text
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Written)
    }
}

struct Written;

impl Visitor<'_> for Written {
    type Value = Amount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Amount, E> {
        let quantity = Quantity::parse(text).map_err(E::custom)?;
        let text = text.to_owned();
        Ok(Amount { text, quantity })
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Amount, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Amount, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Amount, E> {
        self.visit_str(&number.to_string())
    }
}

fn add(to: &mut Amounts, more: &Amounts) {
    for (name, value) in more {
        *to.entry(name.clone()).or_default() += value;
    }
}

fn raise(to: &mut Amounts, floor: &Amounts) {
    for (name, value) in floor {
        let entry = to.entry(name.clone()).or_default();
        *entry = (*entry).max(*value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn requests(spec: Value) -> Vec<(String, i128)> {
        let pod: Pod = serde_json::from_value(json!({ "spec": spec })).expect("a pod");
        pod.requests().into_iter().collect()
    }

    fn cpu(milli: u32) -> Value {
        json!({ "resources": { "requests": { "cpu": format!("{milli}m") } } })
    }

    fn sidecar(milli: u32) -> Value {
        let mut value = cpu(milli);
        value["restartPolicy"] = json!("Always");
        value
    }

    #[test]
    fn requests_follow_the_scheduler() {
        let cases: [(&str, Value, i128); 7] = [
            (
                "containers add up",
                json!({"containers": [cpu(100), cpu(200)]}),
                300,
            ),
            (
                "the largest init container, when larger",
                json!({"containers": [cpu(100)], "initContainers": [cpu(50), cpu(400), cpu(20)]}),
                400,
            ),
            (
                "a small init container costs nothing",
                json!({"containers": [cpu(100), cpu(100)], "initContainers": [cpu(150)]}),
                200,
            ),
            (
                "a sidecar runs beside everything",
                json!({"containers": [cpu(100)], "initContainers": [sidecar(30)]}),
                130,
            ),
            (
                "an init container after a sidecar carries it",
                json!({"containers": [cpu(10)], "initContainers": [sidecar(30), cpu(200), sidecar(5)]}),
                230,
            ),
            (
                "an init container before a sidecar does not",
                json!({"containers": [cpu(10)], "initContainers": [cpu(200), sidecar(30)]}),
                200,
            ),
            (
                "pod level requests replace the sum, overhead is added",
                json!({"containers": [cpu(10)], "resources": {"requests": {"cpu": "1"}}, "overhead": {"cpu": "5m"}}),
                1005,
            ),
        ];
        for (name, spec, want) in cases {
            assert_eq!(requests(spec), vec![("cpu".to_owned(), want)], "{name}");
        }
        assert_eq!(
            requests(json!({"containers": [{}], "overhead": null})),
            vec![]
        );
    }

    #[test]
    fn a_template_asks_for_its_limits_where_it_requests_nothing() {
        let spec: PodSpec = serde_json::from_value(json!({"containers": [
            {"resources": {"limits": {"cpu": "1", "memory": "2"}, "requests": {"cpu": "100m"}}},
            {"resources": {"limits": {"cpu": "200m"}}},
        ]}))
        .expect("a pod's spec");
        let asked: Vec<(String, i128)> = spec.template_requests().into_iter().collect();
        assert_eq!(
            asked,
            vec![("cpu".to_owned(), 300), ("memory".to_owned(), 2000)]
        );
    }

    #[test]
    fn quantities_are_texts_or_numbers() {
        let spec = |cpu: Value| {
            let requests = json!({"cpu": cpu, "memory": "1Gi"});
            let spec = json!({"containers": [{"resources": {"requests": requests}}]});
            PodSpec::deserialize(spec).map(|spec| spec.template_requests()["cpu"])
        };
        for (written, want) in [
            (json!(1), 1000),
            (json!(0.25), 250),
            (json!(1.0), 1000),
            (json!(-1), -1000),
            (json!("1"), 1000),
        ] {
            assert_eq!(spec(written.clone()).ok(), Some(want), "{written}");
        }
        for written in [json!("much"), json!({}), json!(true)] {
            assert!(spec(written.clone()).is_err(), "{written}");
        }
    }

    #[test]
    fn nulls_and_unknown_fields_are_skipped() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "d", "uid": "x", "labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}], "nodeName": "n"},
            "status": {"phase": "Failed", "conditions": []},
        }))
        .expect("a pod");
        assert!(pod.ended());
        assert!(pod.requests().is_empty());
    }

    proptest! {
        /// Order of containers never matters, and a pod never asks for less than its containers.
        #[test]
        fn containers_commute(mut milli in proptest::collection::vec(0u32..5000, 0..6)) {
            let spec = |list: &[u32]| {
                json!({ "containers": list.iter().map(|m| cpu(*m)).collect::<Vec<_>>() })
            };
            let forward = requests(spec(&milli));
            milli.reverse();
            prop_assert_eq!(&forward, &requests(spec(&milli)));
            let sum: u64 = milli.iter().map(|m| u64::from(*m)).sum();
            prop_assert_eq!(forward.iter().map(|(_, v)| *v).sum::<i128>(), i128::from(sum));
        }
    }
}
