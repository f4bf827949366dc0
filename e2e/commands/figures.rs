//! `figures`: the built-in hub beside kube-apiserver and etcd, in one run on one machine: memory,
//! time to be ready, writes, renewals, and events to many watchers.

mod fanout;
pub(super) mod fill;
pub(super) mod report;
pub(super) mod server;
pub(super) mod writers;

use anyhow::{Context as _, Result};
use clap::Args;
use std::time::Duration;
use tokio::time::sleep;

use super::Output;
use super::up::Foundation;
use crate::env::{Scratch, target_dir};
use fill::Fill;
use report::{Report, Unit};
use server::Server;

/// How long a server is left alone before its memory counts.
const REST: Duration = Duration::from_secs(15);

/// What is measured, and how much of it.
#[derive(Debug, Clone, Args)]
pub(crate) struct FiguresArgs {
    /// Only this server
    #[arg(long, value_enum, value_name = "KIND")]
    only: Option<Foundation>,
    /// How many clients write at the same time, one round each
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,64",
        value_name = "N,..."
    )]
    writers: Vec<usize>,
    /// For how long each round of writes goes on
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    seconds: u64,
    /// How many clients watch one namespace; 0 to leave that out
    #[arg(long, default_value_t = 1000, value_name = "N")]
    watchers: usize,
    /// Clusters that the server is filled with; 0 to leave that out
    #[arg(long, default_value_t = 1000, value_name = "N")]
    clusters: usize,
    /// Works in their namespaces
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    works: usize,
    /// Objects in all with which the server is started again; 0 to leave that out
    #[arg(long, default_value_t = 60_000, value_name = "N")]
    objects: usize,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Measure binaries as they are shipped, the profile `dist` (read by the script before this program runs)
    #[arg(long)]
    release: bool,
}

/// Measures and prints.
pub(crate) async fn figures(args: &FiguresArgs) -> Result<()> {
    compare(
        "figures",
        args.only,
        args.output,
        async |kind, scratch, report| measure(args, kind, scratch, report).await,
    )
    .await
}

/// Measures one server after the other, or the one that is asked for, and prints all of it side by side.
pub(super) async fn compare(
    name: &str,
    only: Option<Foundation>,
    output: Output,
    measure: impl AsyncFn(Foundation, &Scratch, &mut Report) -> Result<()>,
) -> Result<()> {
    let scratch = Scratch::new(name)?;
    let built = target_dir()?;
    let built = built.file_name().unwrap_or_default().to_string_lossy();
    let mut report = Report::new(&built);
    for kind in [Foundation::Builtin, Foundation::Real] {
        if only.is_none_or(|only| only == kind) {
            let measured = measure(kind, &scratch, &mut report).await;
            measured.with_context(|| format!("failed to measure {}", server::name(kind)))?;
        }
    }
    match output {
        Output::Table => print!("{report}"),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    scratch.passed();
    Ok(())
}

async fn measure(
    args: &FiguresArgs,
    kind: Foundation,
    scratch: &Scratch,
    report: &mut Report,
) -> Result<()> {
    let mut server = Server::start(kind, scratch, &[]).await?;
    let mut add = |what: &str, value: f64, unit: Unit| {
        eprintln!("{}: {what}: {}", server::name(kind), unit.show(value));
        report.add(kind, what, value, unit);
    };
    let started = server.start_empty().await?;
    add(
        "start to ready, empty",
        started.as_secs_f64(),
        Unit::Seconds,
    );
    sleep(REST).await;
    for (name, mib) in server.memory()? {
        add(&format!("memory at rest, {name}"), mib, Unit::MiB);
    }
    let within = Duration::from_secs(args.seconds);
    for count in &args.writers {
        let round = writers::creates(&server, *count, within).await?;
        let what = format!("creates by {count}");
        add(&what, round.rate(), Unit::PerSecond);
        add(&format!("{what}, p50"), round.latency().p50, Unit::Millis);
        add(&format!("{what}, p99"), round.latency().p99, Unit::Millis);
    }
    for count in &args.writers {
        let round = writers::renewals(&server, *count, within).await?;
        let what = format!("lease renewals by {count}");
        add(&what, round.rate(), Unit::PerSecond);
        add(&format!("{what}, p99"), round.latency().p99, Unit::Millis);
    }
    if args.watchers > 0 {
        let seen = fanout::measure(&server, args.watchers, within).await?;
        let what = format!("an event to {} watchers", args.watchers);
        add(&format!("{what}, p50"), seen.latency.p50, Unit::Millis);
        add(&format!("{what}, p99"), seen.latency.p99, Unit::Millis);
        add(&format!("{what}, all at once"), seen.rate, Unit::PerSecond);
    }
    // What is measured next is about what lies there then, and not about the rounds.
    eprintln!("deleting what was written …");
    for count in &args.writers {
        writers::clear(&server, *count).await?;
    }
    sleep(REST).await;
    for (name, mib) in server.memory()? {
        let what = format!("memory after the writes, all of it deleted, {name}");
        add(&what, mib, Unit::MiB);
    }
    if args.clusters > 0 {
        let fill = Fill::new(&server).await?;
        fill.clusters(args.clusters, args.works).await?;
        sleep(REST).await;
        for (name, mib) in server.memory()? {
            let what = format!(
                "memory with {} clusters, {} Works",
                args.clusters, args.works
            );
            add(&format!("{what}, {name}"), mib, Unit::MiB);
        }
        if args.objects > 0 {
            fill.up_to(args.objects).await?;
            let started = server.start_again().await?;
            let what = format!("with {} objects", args.objects);
            let seconds = started.as_secs_f64();
            add(&format!("start to ready, {what}"), seconds, Unit::Seconds);
            sleep(REST).await;
            for (name, mib) in server.memory()? {
                add(
                    &format!("memory {what}, started again, {name}"),
                    mib,
                    Unit::MiB,
                );
            }
        }
    }
    server.stop().await;
    Ok(())
}
