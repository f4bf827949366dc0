//! Metrics of the process itself: its version and the certificate's time left.

use chrono::{DateTime, Utc};
use common::time::SharedClock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::fmt;
use tokio::sync::watch;

/// Registers them.
pub(super) fn register(
    registry: &mut Registry,
    clock: SharedClock,
    ends: watch::Receiver<Option<DateTime<Utc>>>,
) {
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("towline_agent_build", "Version of the agent", version);
    registry.register_collector(Box::new(CertificateLife { clock, ends }));
    let started = Gauge::<i64>::default();
    started.set(1);
    registry.register(
        "towline_agent_leads",
        "1 on the replica that works",
        started,
    );
}

/// Counts down by itself at every scrape.
struct CertificateLife {
    clock: SharedClock,
    ends: watch::Receiver<Option<DateTime<Utc>>>,
}

impl fmt::Debug for CertificateLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateLife")
    }
}

impl Collector for CertificateLife {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(ends) = *self.ends.borrow() else {
            return Ok(());
        };
        let left = ConstGauge::new((ends - self.clock.now()).num_seconds());
        let encoder = encoder.encode_descriptor(
            "towline_agent_certificate_seconds_left",
            "Seconds until the agent's certificate ends",
            None,
            left.metric_type(),
        )?;
        left.encode(encoder)
    }
}
