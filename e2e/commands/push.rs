//! `push`: what the process beside a hub takes for each cluster that was joined, on built-in servers.

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use std::time::Duration;
use tokio::time::sleep;

use super::vitals::{mib, processor_time, resident};
use crate::env::{Fleet, Lab, LabOptions, Parts, Process, ProcessSpec, Scratch, binary};

/// What was begun is done after so long.
const SETTLED: Duration = Duration::from_secs(20);
/// How long it is looked at when nothing happens.
const REST: Duration = Duration::from_secs(60);

/// How many clusters.
#[derive(Debug, Clone, Args)]
pub(crate) struct PushArgs {
    /// How many clusters are joined, each an API server of its own
    #[arg(long, default_value_t = 16, value_name = "N")]
    clusters: usize,
    /// Measure binaries as they are shipped, the profile `dist` (read by the script before this program runs)
    #[arg(long)]
    release: bool,
}

/// Measures, and prints as it goes.
pub(crate) async fn push(args: &PushArgs) -> Result<()> {
    ensure!(args.clusters > 0, "--clusters must be 1 or more");
    let scratch = Scratch::new("push-memory")?;
    let mut options = LabOptions::new(args.clusters);
    options.hub.builtin = true;
    for member in &mut options.members {
        (member.builtin, member.nodes, member.scheduler) = (true, 0, false);
    }
    let mut lab = Lab::start(&Parts::from_env()?, &scratch.join("lab"), &options).await?;
    let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
    let own = scratch.join("push.kubeconfig");
    lab.hub.kubeconfig_for(&own, "towline:push", &[])?;
    let spec = ProcessSpec::new("push", &binary("towline-agent")?, scratch.path())
        .arg("push")
        .arg("--hub-kubeconfig")
        .arg(&own)
        .args(["--health-probe-bind-address=0", "--metrics-bind-address=0"])
        .args(["--cluster-success-threshold=1s"]);
    let mut push = Process::start(spec)?;
    let pid = push.pid().context("it does not run")?;
    sleep(SETTLED).await;
    let empty = resident(pid)?;
    println!("no cluster: {:.1} MiB", mib(empty));
    for (number, member) in lab.members.iter().enumerate() {
        let name = format!("m{number}");
        let file = member.kubeconfig.display().to_string();
        let args = ["join", &name, "--cluster-kubeconfig", &file];
        fleet.cli(&args).await?.ok()?;
        push.check()?;
        if number == 0 {
            sleep(SETTLED).await;
            println!("1 cluster: {:.1} MiB", mib(resident(pid)?));
        }
    }
    sleep(SETTLED).await;
    let (full, used) = (resident(pid)?, processor_time(pid)?);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let clusters = args.clusters as f64;
    println!("{clusters} clusters: {:.1} MiB", mib(full));
    println!(
        "each: {:.2} MiB",
        mib(full.saturating_sub(empty)) / clusters
    );
    sleep(REST).await;
    let used = processor_time(pid)?.saturating_sub(used);
    println!(
        "at rest, in {REST:?}: {used:?} of processor time, {:.1} MiB",
        mib(resident(pid)?)
    );
    push.kill();
    lab.stop().await;
    scratch.passed();
    Ok(())
}
