//! `towline-agent`: the process.

use agent::config::{PushArgs, RunArgs};
use agent::run;
use anyhow::Context as _;
use clap::{Parser, Subcommand};
use common::env::Env;
use common::errors::chain;
use std::process::ExitCode;
use tokio_util::sync::CancellationToken;

/// Makes a cluster a member of a Towline hub: dials the hub, and carries out what it wants here.
#[derive(Debug, Parser)]
#[command(name = "towline-agent", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Register with the hub if need be, and work.
    Run(Box<RunArgs>),
    /// Beside a hub: work for every cluster that the hub reaches itself, as `towline join` made them known.
    Push(Box<PushArgs>),
    /// Print the version.
    Version,
}

fn main() -> ExitCode {
    let started = match Cli::parse().command {
        Command::Version => {
            println!("towline-agent {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Command::Run(args) => alone(*args),
        Command::Push(args) => push(*args),
    };
    match started {
        Ok(code) => code,
        Err(error) => {
            eprintln!("towline-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn alone(args: RunArgs) -> anyhow::Result<ExitCode> {
    let config = match args.into_config() {
        Ok(config) => config,
        Err(error) => return Ok(refused(error)),
    };
    common::telemetry::init(&config.telemetry)?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), ?config, "starting");
    work(|shutdown| run::run(config, Env::system(), shutdown))
}

fn push(args: PushArgs) -> anyhow::Result<ExitCode> {
    let config = match args.into_config() {
        Ok(config) => config,
        Err(error) => return Ok(refused(error)),
    };
    common::telemetry::init(&config.telemetry)?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), ?config, "starting");
    work(|shutdown| {
        if config.end_with_stdin {
            let over = shutdown.clone();
            // A thread waits there for as long as the process runs.
            tokio::task::spawn_blocking(move || {
                let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
                over.cancel();
            });
        }
        agent::push::run(config, Env::system(), shutdown)
    })
}

fn refused(error: agent::config::Error) -> ExitCode {
    let error = agent::error::Error::Config(error);
    eprintln!("towline-agent: {}", chain(&error));
    ExitCode::from(error.code().exit_status())
}

fn work<F>(run: impl FnOnce(CancellationToken) -> F) -> anyhow::Result<ExitCode>
where
    F: Future<Output = Result<(), agent::error::Error>>,
{
    common::tls::install_provider();
    // One thread: agents mostly wait, and every further one costs memory.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let ended = runtime.block_on(async {
        let shutdown = CancellationToken::new();
        common::shutdown::on_signals(shutdown.clone()).context("failed to listen for signals")?;
        anyhow::Ok(run(shutdown).await)
    })?;
    // A lookup of names may still block a thread; nothing waits for it.
    runtime.shutdown_background();
    Ok(match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = error.code();
            let message = chain(&error).to_string();
            tracing::error!(reason = code.as_str(), "{message}");
            ExitCode::from(code.exit_status())
        }
    })
}
