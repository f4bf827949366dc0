//! The policies that send applied objects to clusters: one for each namespace, and one for what has none. Pure.

use crate::controller::detector::skip::Skips;
use common::names::ClusterName;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const API_VERSION: &str = "policy.karmada.io/v1alpha1";

/// What is to be propagated.
#[derive(Debug, Default)]
pub(in crate::cli) struct Wanted {
    placement: Value,
    /// Selectors, by namespace; those of cluster-scoped objects have none.
    selectors: BTreeMap<Option<String>, Vec<Value>>,
}

impl Wanted {
    /// To these clusters, or to all when there are none.
    pub(in crate::cli) fn new(clusters: &[ClusterName], divide: bool) -> Self {
        let mut placement = match clusters {
            [] => json!({}),
            some => {
                let names: Vec<&str> = some.iter().map(ClusterName::as_str).collect();
                json!({"clusterAffinity": {"clusterNames": names}})
            }
        };
        let kind = if divide { "Divided" } else { "Duplicated" };
        placement["replicaScheduling"] = json!({"replicaSchedulingType": kind});
        if divide {
            let room = json!({"dynamicWeight": "AvailableReplicas"});
            placement["replicaScheduling"]["replicaDivisionPreference"] = json!("Weighted");
            placement["replicaScheduling"]["weightPreference"] = room;
        }
        Self {
            placement,
            selectors: BTreeMap::new(),
        }
    }

    /// Takes an object. Namespaces go where what is in them goes.
    pub(in crate::cli) fn take(&mut self, object: &Value, namespaced: bool) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let is_namespace = (api_version.as_str(), kind.as_str()) == ("v1", "Namespace");
        if is_namespace || Skips::default().kind(&api_version, &kind) {
            return;
        }
        let metadata = &object["metadata"];
        let namespace = namespaced.then(|| text(&metadata["namespace"]));
        let mut selector =
            json!({"apiVersion": api_version, "kind": kind, "name": metadata["name"]});
        if let Some(namespace) = &namespace {
            selector["namespace"] = json!(namespace);
        }
        let selectors = self.selectors.entry(namespace).or_default();
        if !selectors.contains(&selector) {
            selectors.push(selector);
        }
    }

    /// The policies, of this name or of that of the first object of each.
    pub(in crate::cli) fn policies(&self, name: Option<&str>) -> Vec<Value> {
        let policy = |(namespace, selectors): (&Option<String>, &Vec<Value>)| {
            let first = selectors.first().map(|it| it["name"].clone());
            let name = name.map(|it| json!(it)).or(first).unwrap_or_default();
            let mut metadata = json!({"name": name});
            let kind = match namespace {
                Some(namespace) => {
                    metadata["namespace"] = json!(namespace);
                    "PropagationPolicy"
                }
                None => "ClusterPropagationPolicy",
            };
            json!({
                "apiVersion": API_VERSION,
                "kind": kind,
                "metadata": metadata,
                "spec": {
                    "resourceSelectors": selectors,
                    "propagateDeps": true,
                    "placement": self.placement,
                },
            })
        };
        self.selectors.iter().map(policy).collect()
    }
}
