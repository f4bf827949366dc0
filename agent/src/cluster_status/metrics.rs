//! What the status tick measures, under the reference's names.

use super::resources::Sums;
use crate::context::AgentContext;
use common::interpreter::requests::Amounts;
use common::quantity::Quantity;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use std::borrow::Cow;
use std::sync::atomic::AtomicU64;

type Amount = Gauge<f64, AtomicU64>;

/// The gauges of this member.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    ready: Gauge,
    nodes: Gauge,
    ready_nodes: Gauge,
    resources: [(&'static str, Amount, Amount); 3],
    /// Length of a tick.
    pub(super) seconds: Histogram,
}

impl Metrics {
    /// Registers them.
    pub(super) fn register(context: &AgentContext) -> Self {
        let pair = |name| (name, Amount::default(), Amount::default());
        let metrics = Self {
            ready: Gauge::default(),
            nodes: Gauge::default(),
            ready_nodes: Gauge::default(),
            resources: [pair("memory"), pair("cpu"), pair("pods")],
            seconds: Histogram::new([0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0]),
        };
        context.register_metrics(|registry| {
            let member = Cow::Owned(context.cluster.as_str().to_owned());
            let registry =
                registry.sub_registry_with_label((Cow::Borrowed("member_cluster"), member));
            registry.register(
                "cluster_ready_state",
                "1 when the member is ready, else 0",
                metrics.ready.clone(),
            );
            registry.register(
                "cluster_node_number",
                "Nodes there are",
                metrics.nodes.clone(),
            );
            registry.register(
                "cluster_ready_node_number",
                "Nodes that are ready",
                metrics.ready_nodes.clone(),
            );
            registry.register(
                "cluster_sync_status_duration_seconds",
                "Time it took to observe the member and report it",
                metrics.seconds.clone(),
            );
            for (name, allocatable, allocated) in &metrics.resources {
                let (stem, unit) = match *name {
                    "memory" => ("memory", "_bytes"),
                    "cpu" => ("cpu", "_number"),
                    _ => ("pod", "_number"),
                };
                registry.register(
                    format!("cluster_{stem}_allocatable{unit}"),
                    "What all nodes offer",
                    allocatable.clone(),
                );
                registry.register(
                    format!("cluster_{stem}_allocated{unit}"),
                    "What running pods ask for",
                    allocated.clone(),
                );
            }
        });
        metrics
    }

    /// Shows whether the member is ready.
    pub(super) fn ready(&self, ready: bool) {
        self.ready.set(i64::from(ready));
    }

    /// Shows the sums.
    pub(super) fn sums(&self, sums: &Sums) {
        self.nodes.set(i64::from(sums.nodes));
        self.ready_nodes.set(i64::from(sums.ready_nodes));
        for (name, allocatable, allocated) in &self.resources {
            allocatable.set(amount(&sums.allocatable, name));
            allocated.set(amount(&sums.allocated, name));
        }
    }
}

fn amount(amounts: &Amounts, name: &str) -> f64 {
    amounts
        .get(name)
        .map_or(0.0, |milli| Quantity::from_milli(*milli).approximate())
}
