//! What is counted of the views.

use super::World;
use super::view::{Record, View};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How much the views hold of the world that is looked at now; clones share it.
#[derive(Clone, Default)]
pub struct Sizes(Arc<Mutex<Vec<Box<dyn Viewed>>>>);

/// What is asked of a view.
trait Viewed: Send + Sync {
    fn name(&self) -> &'static str;
    fn objects(&self) -> usize;
    fn bytes(&self) -> u64;
    fn silent_for(&self) -> Option<Duration>;
}

impl<R: Record> Viewed for View<R> {
    fn name(&self) -> &'static str {
        Self::name(self)
    }

    fn objects(&self) -> usize {
        self.len()
    }

    fn bytes(&self) -> u64 {
        Self::bytes(self)
    }

    fn silent_for(&self) -> Option<Duration> {
        Self::silent_for(self)
    }
}

impl Sizes {
    /// Puts the numbers into a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register_collector(Box::new(metrics.clone()));
        metrics
    }

    /// Looks at this world from now on.
    pub fn look_at(&self, world: &World) {
        let mut views: Vec<Box<dyn Viewed>> = vec![
            Box::new(world.clusters.clone()),
            Box::new(world.leases.clone()),
            Box::new(world.works.clone()),
            Box::new(world.events.clone()),
            Box::new(world.namespaces.clone()),
            Box::new(world.requests.clone()),
        ];
        let propagation = &world.propagation;
        views.extend([
            Box::new(propagation.policies.clone()) as Box<dyn Viewed>,
            Box::new(propagation.cluster_policies.clone()),
            Box::new(propagation.overrides.clone()),
            Box::new(propagation.cluster_overrides.clone()),
            Box::new(propagation.bindings.clone()),
            Box::new(propagation.cluster_bindings.clone()),
            Box::new(propagation.rebalancers.clone()),
        ]);
        for rights in &world.rights {
            views.push(Box::new(rights.clone()));
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = views;
    }

    /// Forgets what it looked at.
    pub fn clear(&self) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

impl fmt::Debug for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sizes")
    }
}

impl Collector for Sizes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let views = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut family = encoder.encode_descriptor(
            "towline_hub_view_objects",
            "Objects that the controllers see, by resource",
            None,
            MetricType::Gauge,
        )?;
        for view in views.iter() {
            let objects = ConstGauge::new(view.objects());
            objects.encode(family.encode_family(&[("resource", view.name())])?)?;
        }
        let mut family = encoder.encode_descriptor(
            "towline_hub_view_bytes",
            "Size of those objects as the API server sent them",
            None,
            MetricType::Gauge,
        )?;
        for view in views.iter() {
            let bytes = ConstGauge::new(view.bytes());
            bytes.encode(family.encode_family(&[("resource", view.name())])?)?;
        }
        let mut family = encoder.encode_descriptor(
            "towline_hub_view_last_event_seconds",
            "Time since the last event of the watch of a resource",
            None,
            MetricType::Gauge,
        )?;
        for view in views.iter() {
            if let Some(silent) = view.silent_for() {
                let silent = ConstGauge::new(silent.as_secs_f64());
                silent.encode(family.encode_family(&[("resource", view.name())])?)?;
            }
        }
        Ok(())
    }
}
