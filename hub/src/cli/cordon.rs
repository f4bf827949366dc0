//! `towline cordon` and `towline uncordon`: whether policies place anything new in a cluster.

use super::taint::change::Change;
use super::taint::{Edit, connect, say};
use super::{CliError, ConnectArgs, Output};
use common::api::cluster::{Taint, TaintEffect};
use common::labels::TAINT_UNSCHEDULABLE;
use common::names::ClusterName;

/// Arguments of both.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Names of Clusters.
    #[arg(value_name = "CLUSTER", required = true)]
    clusters: Vec<ClusterName>,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Runs `towline cordon`: nothing new comes, and what is there stays.
pub(super) async fn cordon(args: Args, output: &Output) -> Result<(), CliError> {
    let taint = Taint {
        key: TAINT_UNSCHEDULABLE.to_owned(),
        effect: TaintEffect::NoSchedule,
        ..Taint::default()
    };
    run(args, output, Change::put(taint), "cordoned").await
}

/// Runs `towline uncordon`.
pub(super) async fn uncordon(args: Args, output: &Output) -> Result<(), CliError> {
    let change = Change::remove_any(TAINT_UNSCHEDULABLE, TaintEffect::NoSchedule);
    run(args, output, change, "uncordoned").await
}

async fn run(args: Args, output: &Output, change: Change, done: &str) -> Result<(), CliError> {
    let edit = Edit {
        change,
        overwrite: true,
        dry_run: args.dry_run,
    };
    let clusters = connect(&args.connect, "cli cordon").await?;
    for name in args.clusters {
        let changed = edit.apply(&clusters, &name).await?;
        let already = format!("already {done}");
        say(
            output,
            &name,
            if changed { done } else { &already },
            args.dry_run,
        )?;
    }
    Ok(())
}
