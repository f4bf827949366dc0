//! `towline cordon` and `towline uncordon`: whether policies place anything new in a cluster.

use super::output::Done;
use super::taint::change::Change;
use super::taint::{Edit, connect};
use super::{CliError, ConnectArgs, Format, Output};
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
    /// How what was done is shown.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
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
    let mut all = Vec::new();
    for name in args.clusters {
        let changed = edit.apply(&clusters, &name).await;
        let changed = output.or_done(changed, args.output, &all)?;
        let already = if changed { "" } else { "already " };
        all.push(Done {
            dry_run: args.dry_run,
            ..Done::cluster(name.as_str(), format!("{already}{done}"))
        });
    }
    output.print_done(args.output, &all)
}
