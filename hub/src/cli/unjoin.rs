//! `towline unjoin`: takes a cluster of mode Push off the hub, and everything of its agent out of the member.
//!
//! It ends as one does whose agent runs in the member, and that agent cleans up; what it cannot remove any more is
//! removed here, where the cluster's kubeconfig is given.

use super::unregister::{self, Leaving};
use super::{CliError, ConnectArgs, Output};
use std::path::PathBuf;

/// Arguments of `towline unjoin`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    leaving: Leaving,
    /// Kubeconfig of the cluster, to remove what its agent cannot remove itself.
    #[arg(long, value_name = "FILE")]
    cluster_kubeconfig: Option<PathBuf>,
    /// Context of --cluster-kubeconfig.
    #[arg(long, value_name = "NAME", requires = "cluster_kubeconfig")]
    cluster_context: Option<String>,
}

/// Runs the verb.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let mut leaving = args.leaving;
    leaving.joined = true;
    leaving.member = args.cluster_kubeconfig.map(|file| ConnectArgs {
        kubeconfig: Some(file),
        context: args.cluster_context,
        before: "cluster-",
    });
    unregister::leave(leaving, output).await
}
