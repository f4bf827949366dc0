//! Whether agents that show between renewals of their Leases that they live are missed sooner than by these.

use super::Error;
use clap::Args;
use common::duration;
use common::liveness::LEAST;
use std::time::Duration;

/// Flags of `towline-hub serve`: only a server of ours hears what is not stored.
#[derive(Debug, Args)]
#[command(next_help_heading = "Clusters")]
pub struct LivenessArgs {
    /// Least time between two signs of life of agents that give them between renewals of their Leases (their flag of
    /// the same name); who gives none for three times as long is Unknown. 0: Leases alone count
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration::parse,
        env = "TOWLINE_HUB_LIVENESS_INTERVAL")]
    liveness_interval: Duration,
}

impl LivenessArgs {
    /// The least time between two signs; none where they do not count.
    pub fn into_config(self) -> Result<Option<Duration>, Error> {
        match self.liveness_interval {
            Duration::ZERO => Ok(None),
            interval if interval < LEAST => Err(Error::Liveness),
            interval => Ok(Some(interval)),
        }
    }
}
