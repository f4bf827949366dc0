//! `fleet`: what many agents cost a hub. Each has an identity of its own, by a real registration,
//! and is the agent's own code (Lease, status, watch of its Works) over a member that is played.

mod board;
mod crew;
mod hub;
mod member;
mod ready;
mod report;

use anyhow::{Result, ensure};
use clap::Args;
use futures::future::try_join;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

use super::Output;
use super::latency::Latency;
use super::up::Foundation;
use super::vitals::{mib, of_all, processor_time, resident};
use crate::env::{Scratch, wait_for};
use board::Board;
pub(super) use crew::{Crew, room_for};
pub(super) use hub::Hub;
use ready::Ready;
use report::{Report, Restart};

/// For the slowest part on a machine that does other things as well.
const WITHIN: Duration = Duration::from_secs(900);
/// How long the hub is left alone before its memory counts as that without agents.
const REST: Duration = Duration::from_secs(10);
/// Two rounds of renewals, so that what follows registration is over.
const WARM_UP: Duration = Duration::from_secs(20);

/// What is measured, and where.
#[derive(Debug, Clone, Args)]
pub(crate) struct FleetArgs {
    /// How many agents
    #[arg(long, default_value_t = 1000, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=20_000))]
    agents: u32,
    /// For how long renewals are measured
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    seconds: u64,
    /// How many register at a time
    #[arg(long, default_value_t = 64, value_name = "N")]
    at_once: usize,
    /// The hub that is started: Towline's own API server, or kube-apiserver and etcd
    #[arg(long, value_enum, default_value_t = Foundation::Builtin, value_name = "KIND")]
    hub: Foundation,
    /// A hub that runs already, in place of one that is started; it is not restarted
    #[arg(long, value_name = "FILE", conflicts_with = "hub")]
    kubeconfig: Option<PathBuf>,
    /// Processes of that hub, whose time and memory are counted
    #[arg(
        long,
        value_name = "ID",
        value_delimiter = ',',
        requires = "kubeconfig"
    )]
    pid: Vec<u32>,
    /// How the result is printed
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Measure binaries as they are shipped, the profile `dist` (read by the script before this program runs)
    #[arg(long)]
    release: bool,
}

/// Measures and prints.
pub(crate) async fn fleet(args: &FleetArgs) -> Result<()> {
    room_for(args.agents as usize)?;
    let scratch = Scratch::new("fleet")?;
    let hub = Hub::start(args.hub, args.kubeconfig.as_deref(), &args.pid, &scratch).await?;
    let mut fleet = Fleet {
        board: Arc::new(Board::new(args.agents as usize)),
        ready: Ready::watching(hub.client().await?),
        names: Vec::new(),
        hub,
    };
    let report = fleet.measure(args, &scratch).await?;
    match args.output {
        Output::Table => print!("{report}"),
        Output::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    fleet.hub.stop().await;
    scratch.passed();
    Ok(())
}

struct Fleet {
    hub: Hub,
    board: Arc<Board>,
    ready: Ready,
    names: Vec<String>,
}

impl Fleet {
    async fn measure(&mut self, args: &FleetArgs, scratch: &Scratch) -> Result<Report> {
        let count = args.agents as usize;
        sleep(REST).await;
        let before = of_all(&self.hub.pids(), resident)?;
        eprintln!("registering {count} agents …");
        let (crew, registered) = Crew::register(&self.hub, scratch, count, args.at_once).await?;
        self.names = crew.names();
        let crew = crew.work(&self.board).await?;
        wait_for("every Cluster to be Ready", WITHIN, async || {
            let missing = self.not_ready();
            ensure!(missing == 0, "{missing} are not");
            Ok(true)
        })
        .await?;
        eprintln!("all are Ready; measuring …");
        sleep(WARM_UP).await;
        self.board.forget();
        let connections = crew.connections()?;
        let own = std::process::id();
        let worked = of_all(&self.hub.pids(), processor_time)?;
        let worked_here = processor_time(own)?;
        let began = Instant::now();
        sleep(Duration::from_secs(args.seconds)).await;
        let took = began.elapsed();
        let share = |from: Duration, to: Duration| {
            (to.saturating_sub(from)).as_secs_f64() / took.as_secs_f64() * 100.0
        };
        let cpu = share(worked, of_all(&self.hub.pids(), processor_time)?);
        let cpu_here = share(worked_here, processor_time(own)?);
        let memory = of_all(&self.hub.pids(), resident)?;
        let (latencies, failures) = self.board.forget();
        let not_ready = self.not_ready();
        let restart = match self.hub.can_restart() {
            true => Some(self.restart(count).await?),
            false => None,
        };
        crew.stop();
        Ok(Report {
            hub: self.hub.what(),
            agents: count,
            registered_seconds: registered.as_secs_f64(),
            seconds: took.as_secs_f64(),
            renewals: latencies.len(),
            failures,
            renewal: Latency::of(&latencies),
            hub_cpu_percent: cpu,
            simulator_cpu_percent: cpu_here,
            hub_mib_before: mib(before),
            hub_mib: mib(memory),
            kib_per_agent: (mib(memory) - mib(before)) * 1024.0 / count as f64,
            connections_per_agent: connections as f64 / count as f64,
            not_ready,
            restart,
        })
    }

    /// How many Clusters of ours are not Ready.
    fn not_ready(&self) -> usize {
        self.ready.missing(&self.names)
    }

    /// Kills the hub, starts it again, and waits until everybody is back.
    async fn restart(&mut self, count: usize) -> Result<Restart> {
        eprintln!("restarting the hub …");
        let killed = Instant::now();
        self.hub.kill();
        self.board.mark();
        self.hub.restart().await?;
        let ready = Instant::now();
        let board = self.board.clone();
        let back = async |what: &str, who: fn(&Board, Instant) -> Vec<Duration>| {
            wait_for(what, WITHIN, async || {
                let there = who(&board, killed).len();
                ensure!(there == count, "{there} of {count} are");
                Ok(true)
            })
            .await
        };
        try_join(
            back("every watch to be back", Board::watching_since),
            back("every Lease to be renewed", Board::renewed_since),
        )
        .await?;
        // Whoever was back before readiness was seen had no time to wait.
        let downtime = ready - killed;
        let after = |times: Vec<Duration>| -> Vec<Duration> {
            times.iter().map(|t| t.saturating_sub(downtime)).collect()
        };
        let failures = self.board.forget().1;
        Ok(Restart {
            hub_ready_seconds: downtime.as_secs_f64(),
            watches: Latency::of(&after(self.board.watching_since(killed))),
            leases: Latency::of(&after(self.board.renewed_since(killed))),
            failed_renewals: failures,
            not_ready: self.not_ready(),
            hub_mib: mib(of_all(&self.hub.pids(), resident)?),
        })
    }
}
