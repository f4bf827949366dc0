//! `propagation`: from policies to Works, on the built-in hub and on kube-apiserver, in one run on one machine: how long
//! a template, a change, another policy and a lost cluster take, what is written for it, and what a large fleet keeps.
//!
//! Nobody plays the clusters: Works are what is waited for.

mod board;
mod large;
mod rounds;

use anyhow::Result;
use clap::Args;
use std::time::Duration;
use tokio::time::sleep;

use super::Output;
use super::figures::compare;
use super::figures::fill::Fill;
use super::figures::report::{Report, Unit};
use super::figures::server::{self, Ends, Server};
use super::figures::writers;
use super::up::Foundation;
use crate::env::Scratch;
use large::Large;
use rounds::{Cost, Rounds};

/// Clusters stay as they were reported, and what leaves one leaves at once: no figure is one of a limit's.
const FLAGS: [&str; 4] = [
    "--cluster-monitor-grace-period=12h",
    "--cluster-startup-grace-period=12h",
    "--resource-eviction-rate=100000",
    "--lost-clusters-threshold=1",
];
/// How long a hub is left alone before its memory counts.
const REST: Duration = Duration::from_secs(15);
/// Clients that write as fast as the server lets them, for the limit.
const WRITERS: usize = 64;
const LIMIT_FOR: Duration = Duration::from_secs(5);

/// What is measured, and how much of it.
#[derive(Debug, Clone, Args)]
pub(crate) struct PropagationArgs {
    /// Only this server
    #[arg(long, value_enum, value_name = "KIND")]
    only: Option<Foundation>,
    /// How often each round is run; its median counts
    #[arg(long, default_value_t = 3, value_name = "N")]
    repeat: usize,
    /// Clusters of the hub
    #[arg(long, default_value_t = 1000, value_name = "N")]
    clusters: usize,
    /// Templates, each on three clusters, that a large fleet has; 0 to leave that out
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    templates: usize,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Measure binaries as they are shipped, the profile `dist` (read by the script before this program runs)
    #[arg(long)]
    release: bool,
}

/// Measures and prints.
pub(crate) async fn propagation(args: &PropagationArgs) -> Result<()> {
    compare(
        "propagation",
        args.only,
        args.output,
        async |kind, scratch, report| measure(args, kind, scratch, report).await,
    )
    .await
}

async fn measure(
    args: &PropagationArgs,
    kind: Foundation,
    scratch: &Scratch,
    report: &mut Report,
) -> Result<()> {
    let mut server = Server::start(kind, scratch, &FLAGS).await?;
    let mut add = |what: &str, value: f64, unit: Unit| {
        eprintln!("{}: {what}: {}", server::name(kind), unit.show(value));
        report.add(kind, what, value, unit);
    };
    Fill::new(&server).await?.clusters(args.clusters, 0).await?;
    let limit = writers::creates_works(&server, WRITERS, LIMIT_FOR).await?;
    add(
        &format!("limit: Works created by {WRITERS} clients, nothing else going on"),
        limit.rate(),
        Unit::PerSecond,
    );
    writers::clear(&server, WRITERS).await?;

    let mut rounds = Rounds::begin(&server, "round").await?;
    for (templates, clusters) in [(10, 100), (100, 3), (1, args.clusters)] {
        let costs = repeat(args.repeat, &mut server, async |server| {
            rounds.place(server, templates, clusters).await
        });
        let cost = costs.await?;
        let what = format!("{templates} × {clusters}");
        tell(&mut add, &what, &cost);
        let rate = (templates * clusters) as f64 / cost.took.as_secs_f64();
        add(&format!("{what}, Works"), rate, Unit::PerSecond);
    }
    let image = repeat(args.repeat, &mut server, async |server| {
        rounds.image(server, args.clusters.min(100)).await
    });
    tell(&mut add, "an image changed on 100 clusters", &image.await?);
    let edit = repeat(args.repeat, &mut server, async |server| {
        rounds.edit(server, 1000).await
    });
    tell(
        &mut add,
        "a policy edit that moves 1,000 bindings",
        &edit.await?,
    );
    drop(rounds);

    if args.templates > 0 {
        let large = Large::fill(&server, args.templates, args.clusters).await?;
        sleep(REST).await;
        let what = format!(
            "with {} clusters, {} templates on 3 each",
            args.clusters, args.templates
        );
        for (name, mib) in server.memory()? {
            add(&format!("memory {what}, {name}"), mib, Unit::MiB);
        }
        let lost = large.lose(&mut server).await?;
        tell(
            &mut add,
            &format!("a cluster lost {what}, {} there", large.there()),
            &lost,
        );
        let mut ends = vec![("kill", Ends::Killed)];
        if kind == Foundation::Real {
            // Another one need not wait for the Lease of one that ends in order.
            ends.insert(0, ("orderly end", Ends::InOrder));
        }
        for (end, how) in ends {
            let took = large.restart(&mut server, how).await?;
            for (until, took) in [("decision", took.decided), ("Works", took.written)] {
                let what = format!("{end} to first {until} {what}");
                add(&what, took.as_secs_f64(), Unit::Seconds);
            }
        }
        sleep(REST).await;
        for (name, mib) in server.memory()? {
            let what = format!("memory {what}, started again, {name}");
            add(&what, mib, Unit::MiB);
        }
    }
    server.stop().await;
    Ok(())
}

/// The median by time of so many rounds.
async fn repeat(
    count: usize,
    server: &mut Server,
    mut round: impl AsyncFnMut(&mut Server) -> Result<Cost>,
) -> Result<Cost> {
    let mut costs = Vec::new();
    for _ in 0..count.max(1) {
        costs.push(round(server).await?);
    }
    costs.sort_by_key(|cost| cost.took);
    Ok(costs.swap_remove(costs.len() / 2))
}

fn tell(add: &mut impl FnMut(&str, f64, Unit), what: &str, cost: &Cost) {
    add(what, cost.took.as_secs_f64(), Unit::Seconds);
    if let Some(sent) = cost.sent {
        let what = format!("{what}, of which until all were sent");
        add(&what, sent.as_secs_f64(), Unit::Seconds);
    }
    add(
        &format!("{what}, writes of the store"),
        cost.writes as f64,
        Unit::Count,
    );
    for (name, used) in &cost.processor {
        let what = format!("{what}, processor time, {name}");
        add(&what, used.as_secs_f64(), Unit::Seconds);
    }
}
