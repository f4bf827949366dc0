//! Flags of `towline-agent run`.

use super::cluster::ClusterArgs;
use super::hub::HubArgs;
use super::member::MemberArgs;
use super::process::ProcessArgs;
use crate::config::{Config, Error};
use clap::Args;
use common::telemetry::TelemetryArgs;
use common::tunnel::Mode;

/// Flags of `towline-agent run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    member: MemberArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    /// What of this member users of the hub may reach through the agent's own connection, each as themselves:
    /// nothing, reading alone, or whatever the member lets them do
    #[arg(
        long,
        value_name = "MODE",
        default_value = "off",
        env = "TOWLINE_AGENT_PROXY",
        help_heading = "Member"
    )]
    proxy: Mode,
    #[command(flatten)]
    process: ProcessArgs,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

impl RunArgs {
    /// Validates the flags.
    pub fn into_config(self) -> Result<Config, Error> {
        let Self {
            hub,
            member,
            cluster,
            proxy,
            process,
            telemetry,
        } = self;
        let (health_address, metrics_address) = process.into_addresses()?;
        let (lease, status, works) = cluster.into_config()?;
        Ok(Config {
            hub: hub.into_config()?,
            member: member.into_config()?,
            lease,
            status,
            works,
            proxy,
            health_address,
            metrics_address,
            telemetry,
        })
    }
}
