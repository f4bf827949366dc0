//! Metrics of the process itself: its version and the certificate's time left.

use crate::context::Certified;
use common::signal;
use common::time::SharedClock;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::fmt;

/// Registers them.
pub(super) fn register(
    registry: &mut Registry,
    clock: SharedClock,
    certified: signal::Receiver<Certified>,
) {
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("towline_agent_build", "Version of the agent", version);
    registry.register_collector(Box::new(CertificateLife { clock, certified }));
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
    certified: signal::Receiver<Certified>,
}

impl fmt::Debug for CertificateLife {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateLife")
    }
}

impl Collector for CertificateLife {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(ends) = self.certified.borrow().ends else {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use common::exposition;

    /// Regenerate with `UPDATE_DOCS=1 cargo test -p hub -p agent reference_of_metrics`.
    #[tokio::test]
    async fn the_reference_of_metrics_is_what_there_is() {
        let nobody = || testing::service(|_| async { testing::json(404, &serde_json::json!({})) });
        let context = testing::context(nobody(), nobody()).await;
        let certified = signal::channel(Certified {
            ends: Some(context.clock.now()),
            ..Certified::default()
        });
        context.register_metrics(|registry| {
            register(registry, context.clock.clone(), certified.1);
            registry.register_collector(Box::new(crate::execution::metrics::Empty));
            common::controller::Metrics::register(registry, "towline_agent").sample();
        });
        crate::heartbeat::register_metrics(&context);
        crate::cluster_status::register_metrics(&context);
        let all = context
            .register_metrics(|registry| exposition::describe(registry))
            .expect("describes");
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
        let found = std::fs::read_to_string(path).expect("docs/metrics.md");
        let now = exposition::with_section(&found, "agent", &exposition::table(&all));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &now).expect("written");
        } else {
            assert!(
                found == now,
                "docs/metrics.md is not what the agent has; run UPDATE_DOCS=1 cargo test -p hub -p agent reference_of_metrics"
            );
        }
    }
}
