//! The flags of failover, which every hub has.

use super::Error;
use crate::controller::eviction;
use clap::Args;
use common::api::policy::ClusterPurgeMode;
use common::duration;
use std::time::Duration;

/// Flags about clusters that are lost or tainted.
#[derive(Debug, Args)]
#[command(next_help_heading = "Failover")]
pub struct FailoverArgs {
    /// Move what is placed on clusters with NoExecute taints that it does not tolerate
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set,
        env = "TOWLINE_HUB_ENABLE_NO_EXECUTE_TAINT_EVICTION")]
    enable_no_execute_taint_eviction: bool,
    /// How the copy that is left goes: Gracefully, when the others are healthy, or Directly
    #[arg(long, value_name = "MODE", default_value = "Gracefully", value_parser = purge_mode,
        env = "TOWLINE_HUB_NO_EXECUTE_TAINT_EVICTION_PURGE_MODE")]
    no_execute_taint_eviction_purge_mode: ClusterPurgeMode,
    /// Bindings that leave clusters in a second, on the whole hub; 0 lets none leave
    #[arg(
        long,
        value_name = "RATE",
        default_value_t = 3.0,
        env = "TOWLINE_HUB_RESOURCE_EVICTION_RATE"
    )]
    resource_eviction_rate: f64,
    /// How long a copy that was left stays at most, once another is placed
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse,
        env = "TOWLINE_HUB_GRACEFUL_EVICTION_TIMEOUT")]
    graceful_eviction_timeout: Duration,
    /// After so long without being Ready a cluster gets a NoExecute taint; 0 for never
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse,
        env = "TOWLINE_HUB_FAILOVER_EVICTION_TIMEOUT")]
    failover_eviction_timeout: Duration,
    /// Share of the fleet; when more clusters than that are lost at once, nothing leaves them
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.5,
        env = "TOWLINE_HUB_LOST_CLUSTERS_THRESHOLD"
    )]
    lost_clusters_threshold: f64,
}

fn purge_mode(text: &str) -> Result<ClusterPurgeMode, String> {
    match text {
        "Gracefully" => Ok(ClusterPurgeMode::Gracefully),
        "Directly" => Ok(ClusterPurgeMode::Directly),
        _ => Err("it is Gracefully or Directly".to_owned()),
    }
}

/// The flags, validated.
#[derive(Debug, Clone, Copy)]
pub struct Failover {
    /// What leaves clusters, and how.
    pub eviction: eviction::Options,
    /// When a cluster that is not Ready is left; never when there is none.
    pub after: Option<Duration>,
}

impl FailoverArgs {
    pub(super) fn into_config(self) -> Result<Failover, Error> {
        let Self {
            enable_no_execute_taint_eviction: enabled,
            no_execute_taint_eviction_purge_mode: purge_mode,
            resource_eviction_rate: rate,
            graceful_eviction_timeout: timeout,
            failover_eviction_timeout,
            lost_clusters_threshold: share,
        } = self;
        if !(rate.is_finite() && rate >= 0.0) {
            return Err(Error::Rate("--resource-eviction-rate"));
        }
        if !(0.0..=1.0).contains(&share) {
            return Err(Error::Share("--lost-clusters-threshold"));
        }
        let after = Some(failover_eviction_timeout);
        Ok(Failover {
            eviction: eviction::Options {
                enabled,
                purge_mode,
                rate,
                timeout,
                lost_share: share,
            },
            after: after.filter(|it| enabled && !it.is_zero()),
        })
    }
}
