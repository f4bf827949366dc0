//! Flags of `towline-agent push`.

use super::cluster::ClusterArgs;
use super::leader::LeaderArgs;
use super::process::ProcessArgs;
use super::registration::RegistrationArgs;
use crate::config::{BootstrapFlags, Config, Error, HubConfig, MemberConfig, PushConfig};
use clap::Args;
use common::names;
use common::reserved::Reserved;
use common::telemetry::TelemetryArgs;
use common::tunnel::Mode;
use std::path::PathBuf;

/// Flags of `towline-agent push`.
#[derive(Debug, Clone, Args)]
pub struct PushArgs {
    /// Kubeconfig of the hub; default: $KUBECONFIG or ~/.kube/config, else the Pod's ServiceAccount
    #[arg(
        long,
        value_name = "FILE",
        env = "TOWLINE_AGENT_HUB_KUBECONFIG",
        help_heading = "Hub"
    )]
    hub_kubeconfig: Option<PathBuf>,
    /// Context in --hub-kubeconfig; default: its current one
    #[arg(
        long,
        value_name = "NAME",
        env = "TOWLINE_AGENT_HUB_CONTEXT",
        help_heading = "Hub"
    )]
    hub_context: Option<String>,
    /// Address of the hub as HOST:PORT for the agents of all clusters, several times for several; default: those
    /// that the hub advertises
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        env = "TOWLINE_AGENT_HUB",
        help_heading = "Hub"
    )]
    hub: Vec<String>,
    /// End when standard input does: whoever started this holds it open
    #[arg(long, hide = true)]
    end_with_stdin: bool,
    #[command(flatten)]
    registration: RegistrationArgs,
    #[command(flatten)]
    leader: LeaderArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    process: ProcessArgs,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

impl PushArgs {
    /// Validates the flags.
    pub fn into_config(self) -> Result<PushConfig, Error> {
        let Self {
            hub_kubeconfig,
            hub_context,
            hub,
            end_with_stdin,
            registration,
            leader,
            cluster,
            process,
            telemetry,
        } = self;
        let (lease, status, works) = cluster.into_config()?;
        let bootstrap = BootstrapFlags {
            hub,
            ..BootstrapFlags::default()
        };
        let agent = Config {
            hub: HubConfig {
                bootstrap,
                ..registration.into_config()?
            },
            member: MemberConfig {
                kubeconfig: None,
                context: None,
                namespace: names::AGENT_NAMESPACE.to_owned(),
                state_dir: None,
                installation: None,
                reserved: Reserved::default(),
                leader: leader.into_config()?,
            },
            lease,
            status,
            works,
            proxy: Mode::Off,
            // The process has them, not each agent.
            health_address: None,
            metrics_address: None,
            telemetry: telemetry.clone(),
        };
        let (health_address, metrics_address) = process.into_addresses()?;
        Ok(PushConfig {
            kubeconfig: hub_kubeconfig,
            context: hub_context,
            end_with_stdin,
            agent,
            health_address,
            metrics_address,
            telemetry,
        })
    }
}
