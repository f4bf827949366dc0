//! Numbers about Works, counted when they are scraped.

use super::engine::{Census, Engine};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::sync::{Arc, Weak};

/// Registers them.
pub fn register(registry: &mut Registry, engine: &Arc<Engine>) {
    registry.register_collector(Box::new(Works(Arc::downgrade(engine))));
}

/// Holds the engine weakly: the registry outlives a term.
struct Works(Weak<Engine>);

impl fmt::Debug for Works {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Works")
    }
}

impl Collector for Works {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        match self.0.upgrade() {
            Some(engine) => encode(&mut encoder, engine.census()),
            None => Ok(()),
        }
    }
}

fn encode(encoder: &mut DescriptorEncoder<'_>, census: Census) -> Result<(), fmt::Error> {
    let Census {
        applied,
        failed,
        pending,
        orphans,
    } = census;
    let mut gauge = |name: &str, help: &str, value: usize| {
        let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
        gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
    };
    gauge(
        "towline_works_applied",
        "Works whose condition Applied is True",
        applied,
    )?;
    gauge(
        "towline_works_failed",
        "Works whose condition Applied is False",
        failed,
    )?;
    gauge(
        "towline_works_pending",
        "Works without the condition Applied",
        pending,
    )?;
    gauge(
        "towline_orphaned_objects",
        "Objects of the member whose Work the hub does not have",
        orphans,
    )
}

/// The numbers of no Works.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Empty;

#[cfg(test)]
impl Collector for Empty {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        encode(&mut encoder, Census::default())
    }
}
