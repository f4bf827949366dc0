//! What is counted of every controller.

use crate::lock::lock;
use crate::queue::{Key, Queue};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, EncodeMetric as _,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
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
    queues: Queues,
}

/// What is asked of a queue, whatever its keys are.
trait Waiting: Send + Sync {
    fn length(&self) -> usize;
    fn oldest(&self) -> Duration;
}

impl<K: Key> Waiting for Queue<K> {
    fn length(&self) -> usize {
        self.len()
    }

    fn oldest(&self) -> Duration {
        Queue::oldest(self)
    }
}

type Waits = Arc<Mutex<BTreeMap<&'static str, Box<dyn Waiting>>>>;

/// The queue of each controller, looked at when somebody asks.
#[derive(Clone)]
struct Queues {
    /// Of the names of the metrics.
    prefix: &'static str,
    all: Waits,
}

/// That a queue is told of.
pub(super) struct Told {
    controller: &'static str,
    all: Waits,
}

impl Drop for Told {
    fn drop(&mut self) {
        lock(&self.all).remove(self.controller);
    }
}

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queues").finish_non_exhaustive()
    }
}

impl Collector for Queues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let queues = lock(&self.all);
        let name = format!("{}_queue_length", self.prefix);
        let mut family = encoder.encode_descriptor(
            &name,
            "Keys that wait for a worker",
            None,
            MetricType::Gauge,
        )?;
        for (controller, queue) in queues.iter() {
            let length = ConstGauge::new(queue.length());
            length.encode(family.encode_family(&ControllerLabel { controller })?)?;
        }
        let name = format!("{}_queue_oldest_seconds", self.prefix);
        let mut family = encoder.encode_descriptor(
            &name,
            "How long the first of them has waited",
            None,
            MetricType::Gauge,
        )?;
        for (controller, queue) in queues.iter() {
            let age = ConstGauge::new(queue.oldest().as_secs_f64());
            age.encode(family.encode_family(&ControllerLabel { controller })?)?;
        }
        Ok(())
    }
}

impl Metrics {
    /// Counters that nobody reads.
    pub fn unread() -> Self {
        Self::new("")
    }

    fn new(prefix: &'static str) -> Self {
        Self {
            outcomes: Family::default(),
            // 1 ms to 16 s.
            durations: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 4.0, 8))
            }),
            queues: Queues {
                prefix,
                all: Arc::default(),
            },
        }
    }

    /// Puts the counters into a registry, with names that begin with `prefix`, as `towline_hub`.
    pub fn register(registry: &mut Registry, prefix: &'static str) -> Self {
        let metrics = Self::new(prefix);
        registry.register(
            format!("{prefix}_reconciles"),
            "Reconciles by controller, outcome and reason",
            metrics.outcomes.clone(),
        );
        registry.register(
            format!("{prefix}_reconcile_duration_seconds"),
            "Time of one reconcile",
            metrics.durations.clone(),
        );
        registry.register_collector(Box::new(metrics.queues.clone()));
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

    /// Gives each a value, for a reference of them.
    pub fn sample(&self) {
        self.reconciled("cluster", Outcome::Done, "", Duration::ZERO);
        // Told of for good.
        std::mem::forget(self.queue("cluster", &Queue::<u8>::new()));
    }

    /// The controller works off this queue from now on, until what is returned is dropped.
    pub(super) fn queue<K: Key>(&self, controller: &'static str, queue: &Queue<K>) -> Told {
        let all = Arc::clone(&self.queues.all);
        lock(&all).insert(controller, Box::new(queue.clone()));
        Told { controller, all }
    }
}
