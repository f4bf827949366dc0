//! What is counted of the monitor.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// The monitor's counters; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    clusters: Gauge,
    away: Gauge,
    marked: Family<Reason, Counter>,
    lag: Histogram,
    undecodable: Family<Kind, Counter>,
}

impl Metrics {
    /// Puts the counters into a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let r = &mut *registry;
        r.register(
            "towline_hub_clusters",
            "Clusters the monitor knows",
            metrics.clusters.clone(),
        );
        r.register(
            "towline_hub_monitor_away",
            "1 while the hub does not reach its API server and marks nobody",
            metrics.away.clone(),
        );
        r.register(
            "towline_hub_clusters_marked_unknown",
            "Clusters that were marked Unknown, by reason",
            metrics.marked.clone(),
        );
        r.register(
            "towline_hub_mark_lag_seconds",
            "Time from a cluster's deadline to the write that marks it",
            metrics.lag.clone(),
        );
        r.register(
            "towline_hub_undecodable_objects",
            "Objects the monitor could not decode, by kind",
            metrics.undecodable.clone(),
        );
        metrics
    }

    /// Gives each a value.
    #[cfg(test)]
    pub(crate) fn sample(&self) {
        self.marked("ClusterStatusUnknown", Duration::ZERO);
        self.undecodable("Cluster");
    }

    /// Tells nothing of a fleet any more: the hub no longer leads.
    pub fn clear(&self) {
        self.fleet(0, false);
    }

    pub(super) fn fleet(&self, clusters: usize, away: bool) {
        self.clusters
            .set(i64::try_from(clusters).unwrap_or(i64::MAX));
        self.away.set(i64::from(away));
    }

    pub(super) fn marked(&self, reason: &'static str, lag: Duration) {
        self.marked.get_or_create(&Reason { reason }).inc();
        self.lag.observe(lag.as_secs_f64());
    }

    pub(super) fn undecodable(&self, kind: &'static str) {
        self.undecodable.get_or_create(&Kind { kind }).inc();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            clusters: Gauge::default(),
            away: Gauge::default(),
            marked: Family::default(),
            // 1 ms to 16 s.
            lag: Histogram::new(exponential_buckets(0.001, 2.0, 15)),
            undecodable: Family::default(),
        }
    }
}
