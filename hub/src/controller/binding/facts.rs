//! What overrides see of a cluster, out of what placement sees of it. Pure.

use super::overrides::cluster::ClusterFacts;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What overrides see of a cluster.
#[derive(Debug, PartialEq, Eq)]
pub struct Facts {
    name: Arc<str>,
    labels: BTreeMap<String, String>,
    provider: Option<Arc<str>>,
    region: Option<Arc<str>>,
    zones: Vec<String>,
}

impl Facts {
    /// Of a cluster as placement sees it.
    pub fn of(cluster: &crate::scheduler::Cluster) -> Self {
        let shape = &cluster.shape;
        let labels = shape.labels.iter();
        Self {
            name: Arc::clone(&cluster.name),
            labels: labels
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
            provider: shape.provider.clone(),
            region: shape.region.clone(),
            zones: shape.zones.iter().map(ToString::to_string).collect(),
        }
    }

    /// As policies are asked.
    pub fn borrowed(&self) -> ClusterFacts<'_> {
        ClusterFacts {
            name: &self.name,
            labels: Some(&self.labels),
            provider: self.provider.as_deref(),
            region: self.region.as_deref(),
            zones: &self.zones,
        }
    }
}
