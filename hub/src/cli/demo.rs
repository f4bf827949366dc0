//! `towline demo`: a whole fleet on this machine, told in plain words; every step is checked.
//!
//! The hub and the members are API servers of this process. Each agent is this program once more, in
//! a process of its own, so that killing one means here what it means elsewhere.

mod fleet;
mod shop;
mod story;
mod workloads;

use super::{CliError, ConnectArgs, Kind, Output};
use agent::config::RunArgs;
use anyhow::Context as _;
use common::env::Env;
use common::shutdown::on_signals;
use common::time::SystemClock;
use fleet::Fleet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use story::Story;
use tokio_util::sync::CancellationToken;

/// Flags of `towline demo`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// End after the last step; the exit code is 0 only if every step held
    #[arg(long)]
    once: bool,
    /// Where everything is kept; default: a folder among the temporary files, removed at the end
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Flags of an agent of the demo: those of `towline-agent run`.
#[derive(Debug, clap::Args)]
pub(super) struct AgentArgs {
    #[command(flatten)]
    run: RunArgs,
}

/// Tells the story, and stays until it is interrupted.
pub(super) async fn run(args: Args, output: &Output) -> Result<(), CliError> {
    let failed = |error: anyhow::Error| CliError::new(Kind::Unmet, error);
    let name = format!("towline-demo-{}", std::process::id());
    let own = args.dir.is_none();
    let dir = args.dir.unwrap_or_else(|| std::env::temp_dir().join(name));
    let ends = CancellationToken::new();
    let listens = on_signals(ends.clone()).context("failed to listen for signals");
    listens.map_err(failed)?;
    let told = tell(&dir, args.once, &ends, output).await;
    match told {
        Ok(()) => {
            if own {
                // Nobody asked for the folder; what is left of it is in nobody's way.
                let _ = std::fs::remove_dir_all(&dir);
            }
            Ok(())
        }
        Err(error) => Err(failed(error).hint(format!("Logs are in {}.", dir.display()))),
    }
}

/// Tells it until a signal, and ends the fleet in any case.
async fn tell(
    dir: &Path,
    once: bool,
    ends: &CancellationToken,
    output: &Output,
) -> anyhow::Result<()> {
    let story = Story::begin(output);
    let started = Fleet::start(dir, Env::system(), &story);
    let Some(fleet) = ends.run_until_cancelled(started).await else {
        return Ok(());
    };
    let mut fleet = fleet?;
    let telling = async {
        story.tell(&mut fleet).await?;
        if !once {
            story.stay(&fleet)?;
            ends.cancelled().await;
        }
        anyhow::Ok(())
    };
    let told = ends.run_until_cancelled(telling).await;
    fleet.end().await;
    match told {
        Some(told) => told.and_then(|()| story.end()),
        None => Ok(()),
    }
}

/// Makes Deployments ready on an API server without nodes, for as long as it runs.
pub(super) async fn workloads(connect: &ConnectArgs) -> Result<(), CliError> {
    let (client, _) = connect.connect("demo").await?;
    workloads::run(client, Arc::new(SystemClock)).await;
    Ok(())
}

/// An agent of the demo. It ends with the demo, however that ends: the pipe to it closes.
pub(super) async fn agent(args: AgentArgs) -> Result<(), CliError> {
    let config = args.run.into_config();
    let config = config.map_err(|error| CliError::new(Kind::Config, error))?;
    common::telemetry::init(&config.telemetry)
        .map_err(|error| CliError::new(Kind::Internal, error))?;
    let shutdown = CancellationToken::new();
    let orphaned = shutdown.clone();
    std::thread::spawn(move || {
        // Nothing is ever written to it: its end is the news, and so is an error.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        orphaned.cancel();
    });
    agent::run::run(config, Env::system(), shutdown)
        .await
        .map_err(|error| CliError::new(Kind::Internal, error))
}
