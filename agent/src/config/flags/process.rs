//! What the process serves.

use crate::config::Error;
use clap::Args;
use std::net::SocketAddr;

/// What the process serves.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Process")]
pub(super) struct ProcessArgs {
    /// Where /livez and /readyz are served; 0 for nowhere
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = ":10357",
        env = "TOWLINE_AGENT_HEALTH_PROBE_BIND_ADDRESS"
    )]
    health_probe_bind_address: String,
    /// Where /metrics is served; 0 for nowhere
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = ":8080",
        env = "TOWLINE_AGENT_METRICS_BIND_ADDRESS"
    )]
    metrics_bind_address: String,
}

impl ProcessArgs {
    /// Where health and metrics are served.
    pub(super) fn into_addresses(self) -> Result<(Option<SocketAddr>, Option<SocketAddr>), Error> {
        let Self {
            health_probe_bind_address: health,
            metrics_bind_address: metrics,
        } = self;
        Ok((
            address("--health-probe-bind-address", &health)?,
            address("--metrics-bind-address", &metrics)?,
        ))
    }
}

fn address(flag: &'static str, value: &str) -> Result<Option<SocketAddr>, Error> {
    common::admin::parse_address(value).map_err(|_| Error::Address {
        flag,
        value: value.to_owned(),
    })
}
