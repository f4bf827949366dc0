//! How the hub is found.

use super::registration::RegistrationArgs;
use crate::config::{BootstrapFlags, Error, HubConfig};
use clap::Args;
use common::names::ClusterName;
use common::secret::Secret;
use std::path::PathBuf;

/// How the hub is found and who is asked for there.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Hub")]
pub(super) struct HubArgs {
    /// Address of the hub as HOST:PORT, several times for several; default: key `hub` of the Secret
    /// towline-agent-bootstrap
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_delimiter = ',',
        env = "TOWLINE_AGENT_HUB"
    )]
    hub: Vec<String>,
    /// Name of this cluster on the hub; default: key `cluster-name` of that Secret
    #[arg(long, value_name = "NAME", env = "TOWLINE_AGENT_CLUSTER_NAME")]
    cluster_name: Option<String>,
    /// File with the bootstrap token; default: key `token` of that Secret
    #[arg(long, value_name = "FILE", env = "TOWLINE_AGENT_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Pin of the hub's CA as sha256:HEX, several times for several; default: key `ca-cert-hashes`
    /// of that Secret
    #[arg(
        long,
        value_name = "PIN",
        value_delimiter = ',',
        env = "TOWLINE_AGENT_DISCOVERY_TOKEN_CA_CERT_HASH"
    )]
    discovery_token_ca_cert_hash: Vec<String>,
    /// Proxy towards the hub as http://[USER:PASSWORD@]HOST:PORT; default: key `hub-proxy` of that
    /// Secret, then HTTPS_PROXY and NO_PROXY. The member is never reached through it
    #[arg(
        long,
        value_name = "URL",
        env = "TOWLINE_AGENT_HUB_PROXY",
        hide_env_values = true
    )]
    hub_proxy: Option<String>,
    /// Kubeconfig with hand-made credentials for the hub, in place of registration
    #[arg(
        long,
        value_name = "FILE",
        env = "TOWLINE_AGENT_HUB_KUBECONFIG",
        conflicts_with_all = ["hub", "token_file", "discovery_token_ca_cert_hash", "state_dir"]
    )]
    hub_kubeconfig: Option<PathBuf>,
    /// Context in --hub-kubeconfig; default: its current one
    #[arg(
        long,
        value_name = "NAME",
        env = "TOWLINE_AGENT_HUB_CONTEXT",
        requires = "hub_kubeconfig"
    )]
    hub_context: Option<String>,
    /// Make the Cluster, in Pull mode, when the hub of --hub-kubeconfig has none of that name
    #[arg(
        long,
        requires = "hub_kubeconfig",
        env = "TOWLINE_AGENT_REGISTER_CLUSTER"
    )]
    register_cluster: bool,
    #[command(flatten)]
    registration: RegistrationArgs,
}

impl HubArgs {
    pub(super) fn into_config(self) -> Result<HubConfig, Error> {
        let Self {
            hub,
            cluster_name,
            token_file,
            discovery_token_ca_cert_hash,
            hub_proxy,
            hub_kubeconfig,
            hub_context,
            register_cluster,
            registration,
        } = self;
        let cluster = cluster_name.as_deref().map(ClusterName::parse).transpose();
        Ok(HubConfig {
            kubeconfig: hub_kubeconfig,
            context: hub_context,
            register_cluster,
            bootstrap: BootstrapFlags {
                hub,
                cluster: cluster.map_err(Error::ClusterName)?,
                token_file,
                pins: discovery_token_ca_cert_hash,
                proxy: hub_proxy.map(Secret::new),
            },
            ..registration.into_config()?
        })
    }
}
