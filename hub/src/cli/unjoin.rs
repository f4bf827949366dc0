//! `towline unjoin`: takes a cluster of mode Push off the hub, and everything of its agent out of the member.
//!
//! It ends as one does whose agent runs in the member, and that agent cleans up; what it cannot remove any more is
//! removed here, where the cluster's kubeconfig is given.

use super::unregister::{self, Leaving};
use super::{CliError, ConnectArgs, Format, Output};
use common::duration;
use common::names::ClusterName;
use std::path::PathBuf;
use std::time::Duration;

/// Arguments of `towline unjoin`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The cluster's name on the hub.
    #[arg(value_name = "CLUSTER")]
    cluster: ClusterName,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Leave everything running in the cluster; only Towline's labels are taken off.
    #[arg(long, conflicts_with = "force")]
    keep_workloads: bool,
    /// The cluster is gone, or never comes back: do not wait for its agent.
    #[arg(long)]
    force: bool,
    /// How what was done is shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// Go ahead without asking.
    #[arg(long)]
    yes: bool,
    /// How long to wait until the Cluster is gone; 0 not to wait.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration::parse)]
    wait: Duration,
    /// Kubeconfig of the cluster, to remove what its agent cannot remove itself.
    #[arg(long, value_name = "FILE")]
    cluster_kubeconfig: Option<PathBuf>,
    /// Context of --cluster-kubeconfig.
    #[arg(long, value_name = "NAME", requires = "cluster_kubeconfig")]
    cluster_context: Option<String>,
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let leaving = Leaving {
        cluster: args.cluster,
        connect: args.connect,
        keep_workloads: args.keep_workloads,
        force: args.force,
        output: args.output,
        yes: args.yes,
        wait: args.wait,
        member: args.cluster_kubeconfig.map(|file| ConnectArgs {
            kubeconfig: Some(file),
            context: args.cluster_context,
        }),
        joined: true,
    };
    unregister::leave(leaving, output).await
}
