//! How replicas agree who works.

use super::positive;
use crate::config::{Error, LeaderConfig};
use clap::{ArgAction, Args};
use common::duration;
use std::time::Duration;

/// How replicas agree who works.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Member")]
pub(super) struct LeaderArgs {
    /// Let one of several replicas work at a time; a --state-dir admits one agent anyway
    #[arg(
        long,
        value_name = "BOOL",
        action = ArgAction::Set,
        default_value_t = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "TOWLINE_AGENT_LEADER_ELECT"
    )]
    leader_elect: bool,
    /// How long a leader that falls silent keeps others waiting
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration::parse, env = "TOWLINE_AGENT_LEADER_ELECT_LEASE_DURATION")]
    leader_elect_lease_duration: Duration,
    /// How long a leader tries to renew before it stands back
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse, env = "TOWLINE_AGENT_LEADER_ELECT_RENEW_DEADLINE")]
    leader_elect_renew_deadline: Duration,
    /// How often leadership is tried for or renewed
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::parse, env = "TOWLINE_AGENT_LEADER_ELECT_RETRY_PERIOD")]
    leader_elect_retry_period: Duration,
}

impl LeaderArgs {
    pub(super) fn into_config(self) -> Result<Option<LeaderConfig>, Error> {
        let Self {
            leader_elect,
            leader_elect_lease_duration: lease_duration,
            leader_elect_renew_deadline: renew_deadline,
            leader_elect_retry_period: retry_period,
        } = self;
        positive("--leader-elect-retry-period", retry_period)?;
        if lease_duration <= renew_deadline || renew_deadline <= retry_period {
            return Err(Error::LeaderElection);
        }
        Ok(leader_elect.then_some(LeaderConfig {
            lease_duration,
            renew_deadline,
            retry_period,
        }))
    }
}
