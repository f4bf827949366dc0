//! `towline-hub`: the process.

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use common::chance::Chance;
use common::env::Env;
use common::errors::chain;
use common::time::SharedClock;
use common::time::SystemClock;
use hub::config::RunArgs;
use hub::serve::account_key::{self, ServiceAccountKey};
use hub::serve::authority::{self, Ca};
use hub::serve::backup::{self, BackupArgs};
use hub::serve::encryption::{self, Encryption};
use hub::serve::restore::{self, RestoreArgs};
use hub::serve::revoke::{self, RevokeArgs};
use hub::serve::{KubeconfigArgs, ServeArgs};
use rand::Rng as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Long-lived records lie between short-lived pages and answers: it packs them closer, and gives back what is free.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Runs a fleet of Kubernetes clusters whose agents dial in.
#[derive(Debug, Parser)]
#[command(name = "towline-hub", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controllers against an API server that `towline init` prepared.
    Run(Box<RunArgs>),
    /// Run a whole hub: its own API server, certificates and controllers, in this process.
    Serve(Box<ServeArgs>),
    /// Print a kubeconfig for a user of the hub that `serve` runs.
    Kubeconfig(KubeconfigArgs),
    /// Write everything of a hub that `serve` runs into one file, its keys too.
    Backup(BackupArgs),
    /// Make a data directory for `serve` of a backup.
    Restore(RestoreArgs),
    /// Manage the key by which a hub that `serve` runs encrypts what it keeps.
    #[command(subcommand)]
    Encryption(Encryption),
    /// Manage the certificate authority of a hub that `serve` runs.
    #[command(subcommand)]
    Ca(Ca),
    /// Shut out certificates of a hub that `serve` runs, a lost kubeconfig's for one.
    Revoke(RevokeArgs),
    /// Manage the key that signs tokens of ServiceAccounts of a hub that `serve` runs.
    #[command(subcommand)]
    ServiceAccountKey(ServiceAccountKey),
    /// Print the version.
    Version,
}

fn main() -> ExitCode {
    let started = match Cli::parse().command {
        Command::Version => {
            println!("towline-hub {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Command::Run(args) => start(*args),
        Command::Serve(args) => serve(*args),
        Command::Kubeconfig(args) => {
            hub::serve::print_kubeconfig(&args, &clock()).map(|text| print!("{text}"))
        }
        Command::Backup(args) => {
            let is_to_output = args.is_to_output();
            let said = blocking(async move { backup::backup(&args).await });
            said.map(|said| match is_to_output {
                true => eprintln!("{said}"),
                false => println!("{said}"),
            })
        }
        Command::Restore(args) => blocking(async move { restore::restore(args, &clock()).await })
            .map(|said| println!("{said}")),
        Command::Encryption(Encryption::Rotate(args)) => {
            blocking(async move { encryption::rotate(&args).await }).map(|said| println!("{said}"))
        }
        Command::Encryption(Encryption::Status(args)) => {
            encryption::status(&args).map(|said| println!("{said}"))
        }
        Command::Encryption(Encryption::Export(args)) => {
            encryption::export(&args).map(|text| print!("{text}"))
        }
        Command::Revoke(args) => revoke::revoke(&args, &clock()).map(|said| println!("{said}")),
        Command::Ca(Ca::Rotate(args)) => {
            blocking(async move { authority::rotate(&args, &clock()).await })
                .map(|said| println!("{said}"))
        }
        Command::Ca(Ca::Status(args)) => {
            blocking(async move { authority::status(&args).await }).map(|said| println!("{said}"))
        }
        Command::ServiceAccountKey(ServiceAccountKey::Rotate(args)) => {
            blocking(async move { account_key::rotate(&args, &clock()).await })
                .map(|said| println!("{said}"))
        }
    };
    match started {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("towline-hub: {}", chain(error.as_ref()));
            for hint in hub::serve::hints(error.as_ref()) {
                eprintln!("hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

fn clock() -> SharedClock {
    Arc::new(SystemClock)
}

fn start(args: RunArgs) -> anyhow::Result<()> {
    let config = args.into_config()?;
    common::telemetry::init(&config.telemetry)?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), ?config, "starting");
    blocking(async move {
        let shutdown = CancellationToken::new();
        common::shutdown::on_signals(shutdown.clone()).context("failed to listen for signals")?;
        let env = Env::system();
        let identity = identity(&env.chance);
        anyhow::Ok(hub::run::run(config, &identity, env, shutdown).await?)
    })
}

fn serve(args: ServeArgs) -> anyhow::Result<()> {
    common::telemetry::init(args.telemetry())?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), ?args, "starting");
    blocking(async move {
        let shutdown = CancellationToken::new();
        common::shutdown::on_signals(shutdown.clone()).context("failed to listen for signals")?;
        let tell = |text: String| {
            // Whoever reads it may have gone; the hub serves all the same.
            let _ = std::io::stdout().write_all(text.as_bytes());
            let _ = std::io::stdout().flush();
        };
        anyhow::Ok(hub::serve::serve(args, Env::system(), shutdown, tell).await?)
    })
}

/// Tasks that have their turn before the runtime looks whether anything came in, and lets those have theirs who gave it
/// away. A request may take milliseconds: at the usual 61 each would wait a quarter of a second for the next look.
const EVENTS_EVERY: u32 = 16;

/// Runs something on a runtime of its own, and on its threads: one more that allocates costs memory.
fn blocking<T: Send + 'static>(
    task: impl Future<Output = anyhow::Result<T>> + Send + 'static,
) -> anyhow::Result<T> {
    common::tls::install_provider();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .event_interval(EVENTS_EVERY)
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    let ended = runtime.block_on(runtime.spawn(task));
    // A lookup of names may still block a thread; nothing waits for it.
    runtime.shutdown_background();
    ended.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()))
}

/// Different for every process, and telling where it runs.
fn identity(chance: &Chance) -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "towline-hub".to_owned());
    let number: u64 = chance.stream("identity").random();
    format!("{host}_{number:016x}")
}
