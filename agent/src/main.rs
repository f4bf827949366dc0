//! `towline-agent`: the process.

use agent::config::RunArgs;
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
    /// Print the version.
    Version,
}

fn main() -> ExitCode {
    let args = match Cli::parse().command {
        Command::Version => {
            println!("towline-agent {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Command::Run(args) => *args,
    };
    match start(args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("towline-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: RunArgs) -> anyhow::Result<ExitCode> {
    let config = match args.into_config() {
        Ok(config) => config,
        Err(error) => {
            let error = agent::error::Error::Config(error);
            eprintln!("towline-agent: {}", chain(&error));
            return Ok(ExitCode::from(error.code().exit_status()));
        }
    };
    common::telemetry::init(&config.telemetry)?;
    common::tls::install_provider();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), ?config, "starting");
    // One thread: the agent mostly waits, and every further one costs memory.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let ended = runtime.block_on(async {
        let shutdown = CancellationToken::new();
        common::shutdown::on_signals(shutdown.clone()).context("failed to listen for signals")?;
        anyhow::Ok(run::run(config, Env::system(), shutdown).await)
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
