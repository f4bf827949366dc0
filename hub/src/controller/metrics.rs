//! What is counted of every controller.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;

/// How a reconcile ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Outcome {
    /// As it should.
    Done,
    /// A race was lost.
    Conflict,
    /// An error.
    Failed,
    /// A bug.
    Panicked,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ControllerLabel {
    controller: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    controller: &'static str,
    outcome: Outcome,
    reason: &'static str,
}

/// The counters of all controllers; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    outcomes: Family<OutcomeLabels, Counter>,
    durations: Family<ControllerLabel, Histogram>,
    queue: Family<ControllerLabel, Gauge>,
}

impl Metrics {
    /// Puts the counters into a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "towline_hub_reconciles",
            "Reconciles by controller, outcome and reason",
            metrics.outcomes.clone(),
        );
        registry.register(
            "towline_hub_reconcile_duration_seconds",
            "Time of one reconcile",
            metrics.durations.clone(),
        );
        registry.register(
            "towline_hub_queue_length",
            "Keys that wait for a worker",
            metrics.queue.clone(),
        );
        metrics
    }

    pub(super) fn reconciled(
        &self,
        controller: &'static str,
        outcome: Outcome,
        reason: &'static str,
        took: Duration,
    ) {
        let labels = OutcomeLabels {
            controller,
            outcome,
            reason,
        };
        self.outcomes.get_or_create(&labels).inc();
        self.durations
            .get_or_create(&ControllerLabel { controller })
            .observe(took.as_secs_f64());
    }

    pub(super) fn queue_length(&self, controller: &'static str, length: usize) {
        self.queue
            .get_or_create(&ControllerLabel { controller })
            .set(i64::try_from(length).unwrap_or(i64::MAX));
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            outcomes: Family::default(),
            // 1 ms to 16 s.
            durations: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 4.0, 8))
            }),
            queue: Family::default(),
        }
    }
}
