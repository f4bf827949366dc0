//! What is counted of eviction.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// The counters; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    evicted: Family<Kind, Counter>,
    waiting: Gauge,
    lost: Gauge,
    held: Gauge,
}

impl Metrics {
    /// Puts the counters into a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let r = &mut *registry;
        r.register(
            "towline_hub_evictions",
            "Clusters that bindings left because of NoExecute taints, by kind of binding",
            metrics.evicted.clone(),
        );
        r.register(
            "towline_hub_evictions_waiting",
            "Bindings that wait for their turn to leave a cluster",
            metrics.waiting.clone(),
        );
        r.register(
            "towline_hub_clusters_lost",
            "Clusters that were ready and are not",
            metrics.lost.clone(),
        );
        r.register(
            "towline_hub_eviction_held",
            "1 while so many clusters are lost that nothing leaves them",
            metrics.held.clone(),
        );
        metrics
    }

    /// Gives each a value.
    #[cfg(test)]
    pub(crate) fn sample(&self) {
        self.evicted("ResourceBinding", 1);
    }

    /// Tells nothing of a fleet any more: the hub no longer leads.
    pub fn clear(&self) {
        self.waiting(0);
        self.fleet(0, false);
    }

    pub(super) fn evicted(&self, kind: &'static str, clusters: usize) {
        let clusters = u64::try_from(clusters).unwrap_or(u64::MAX);
        self.evicted.get_or_create(&Kind { kind }).inc_by(clusters);
    }

    pub(super) fn waiting(&self, bindings: usize) {
        self.waiting
            .set(i64::try_from(bindings).unwrap_or(i64::MAX));
    }

    pub(super) fn fleet(&self, lost: usize, held: bool) {
        self.lost.set(i64::try_from(lost).unwrap_or(i64::MAX));
        self.held.set(i64::from(held));
    }
}
