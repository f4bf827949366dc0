//! Where the agent runs.

use super::leader::LeaderArgs;
use crate::config::{Error, MemberConfig};
use clap::Args;
use common::names;
use common::reserved::Reserved;
use std::path::PathBuf;

/// Where the agent runs.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Member")]
pub(super) struct MemberArgs {
    /// Kubeconfig of the member; default: the Pod's ServiceAccount, else $KUBECONFIG, else
    /// ~/.kube/config
    #[arg(long, value_name = "FILE", env = "TOWLINE_AGENT_KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Context in --kubeconfig; default: its current one
    #[arg(long, value_name = "NAME", env = "TOWLINE_AGENT_CONTEXT")]
    context: Option<String>,
    /// Namespace of the agent's own objects in the member
    #[arg(
        long,
        value_name = "NAME",
        default_value = names::AGENT_NAMESPACE,
        env = "TOWLINE_AGENT_NAMESPACE"
    )]
    namespace: String,
    /// Reserved namespace (kube-*, towline-*) that Works may reach all the same, several times for several:
    /// whoever owns the hub then owns what runs there
    #[arg(
        long,
        value_name = "NAMESPACE",
        value_delimiter = ',',
        env = "TOWLINE_AGENT_ALLOW_NAMESPACE"
    )]
    allow_namespace: Vec<String>,
    /// Directory for key, certificate and status, in place of objects in the member
    #[arg(long, value_name = "DIR", env = "TOWLINE_AGENT_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// What `towline register` calls this installation; comes with its pods, and is repeated in the
    /// status report
    #[arg(
        long,
        value_name = "ID",
        hide = true,
        env = "TOWLINE_AGENT_INSTALLATION"
    )]
    installation: Option<String>,
    #[command(flatten)]
    leader: LeaderArgs,
}

impl MemberArgs {
    pub(super) fn into_config(self) -> Result<MemberConfig, Error> {
        let Self {
            kubeconfig,
            context,
            namespace,
            allow_namespace,
            state_dir,
            installation,
            leader,
        } = self;
        let leader = leader.into_config()?.filter(|_| state_dir.is_none());
        let allowed = allow_namespace.iter().filter(|name| !name.is_empty());
        Ok(MemberConfig {
            kubeconfig,
            context,
            reserved: Reserved::new(&namespace, allowed)?,
            namespace,
            state_dir,
            // An installation without a name shows as an empty variable.
            installation: installation.filter(|id| !id.is_empty()),
            leader,
        })
    }
}
