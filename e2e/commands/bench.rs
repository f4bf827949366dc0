//! `bench`: what the delivery of Works costs, beside what the API servers allow.
//!
//! Everything happens in one run on one lab of its own, so that the machine's mood is in all figures
//! alike; ratios say more than rates.

mod load;
mod meter;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, sleep};

use crate::env::{
    CLUSTER_READY_WITHIN, Fleet, Lab, LabOptions, Parts, Process, Scratch, target_dir, wait_for,
};
use load::{Load, Pace};
use meter::{Meter, Requests, processor_time, resident};

const CLUSTER: &str = "bench";
/// For the slowest part on a machine that does other things as well.
const WITHIN: Duration = Duration::from_secs(900);
/// Without news for so long, nothing is going on any more.
const QUIET: Duration = Duration::from_secs(10);

/// What is measured, and how much of it.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    /// How many Works at a time, one round each
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "200,1000",
        value_name = "N,..."
    )]
    counts: Vec<usize>,
    /// Works that stay, for memory and a restart; 0 to leave that out
    #[arg(long, default_value_t = 5000, value_name = "N")]
    many: usize,
    /// Nodes and ten times as many pods beside them; 0 to leave them out
    #[arg(long, default_value_t = 1000, value_name = "N")]
    nodes: usize,
    /// Connections that create Works
    #[arg(long, default_value_t = 16, value_name = "N")]
    connections: usize,
    /// A flag for the agent, such as --agent-flag=--concurrent-work-syncs=32
    #[arg(long, value_name = "FLAG")]
    agent_flag: Vec<String>,
    /// Another program as the agent, that takes the same flags
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// Measure release binaries (read by the script before this program runs)
    #[arg(long)]
    release: bool,
}

/// A lab with one agent, and what looks at it.
struct Bench {
    lab: Lab,
    fleet: Fleet,
    agent: Process,
    load: Load,
    meter: Meter,
    connections: usize,
}

/// Measures, and prints as it goes.
pub(crate) async fn bench(args: &BenchArgs) -> Result<()> {
    let scratch = Scratch::new("bench")?;
    let mut bench = Bench::start(args, &scratch).await?;
    let built = target_dir()?;
    let built = built.file_name().unwrap_or_default().to_string_lossy();
    println!("a {built} build; agent flags {:?}", args.agent_flag);
    println!("memory of the agent, idle: {}", bench.memory()?);

    bench.one_by_one().await?;
    let mut ratios = Vec::new();
    for count in &args.counts {
        let limit = bench.limit(*count).await?;
        for finalizer in [true, false] {
            let rate = bench.round(*count, finalizer).await?;
            ratios.push((*count, finalizer, rate / limit));
        }
    }
    for (count, finalizer, ratio) in ratios {
        let with = if finalizer { "with" } else { "without" };
        println!(
            "{count} Works {with} finalizer: {:.0} % of the limit",
            ratio * 100.0
        );
    }
    bench.rollout().await?;
    if args.many > 0 {
        bench.many(args.many).await?;
        if args.nodes > 0 {
            bench.crowd(args.nodes).await?;
        }
        bench.restart(args.many).await?;
    }
    bench.at_rest().await?;
    let Bench {
        mut lab,
        fleet,
        agent,
        ..
    } = bench;
    drop((agent, fleet));
    lab.stop().await;
    scratch.passed();
    Ok(())
}

impl Bench {
    async fn start(args: &BenchArgs, scratch: &Scratch) -> Result<Self> {
        let parts = Parts::from_env()?;
        let options = LabOptions::new(1);
        parts.build(&options.parts()).await?;
        let lab = Lab::start(&parts, &scratch.join("lab"), &options).await?;
        let fleet = Fleet::start(&scratch.join("towline"), &lab.hub, &[]).await?;
        let token = fleet.token(&["--cluster", CLUSTER]).await?;
        let flags: Vec<&str> = args.agent_flag.iter().map(String::as_str).collect();
        let member = &lab.members[0];
        let mut spec = fleet.agent_spec(&member.kubeconfig, CLUSTER, &token, &flags)?;
        if let Some(program) = &args.agent {
            spec.program.clone_from(program);
        }
        let agent = Process::start(spec)?;
        fleet
            .wait_ready(CLUSTER, "True", CLUSTER_READY_WITHIN)
            .await?;
        let (hub, member) = (fleet.client().await?, member.client().await?);
        Ok(Self {
            load: Load::new(hub.clone(), member.clone(), CLUSTER),
            meter: Meter::new(hub, member),
            connections: args.connections,
            lab,
            fleet,
            agent,
        })
    }

    /// Resident memory of the agent.
    fn memory(&self) -> Result<String> {
        let pid = self.agent.pid().context("the agent does not run")?;
        Ok(format!(
            "{:.1} MiB",
            resident(pid)? as f64 / 1024.0 / 1024.0
        ))
    }

    /// One Work after another.
    async fn one_by_one(&self) -> Result<()> {
        for finalizer in [true, false] {
            let pace = self.load.one_by_one(30, finalizer).await?;
            let with = if finalizer { "with" } else { "without" };
            println!(
                "one Work, created to Applied, {with} finalizer: {}",
                pace.latency()
            );
        }
        Ok(())
    }

    /// The writes of that many Works, by nobody but this program.
    async fn limit(&self, count: usize) -> Result<f64> {
        let took = self.load.limit(count).await?;
        let rate = count as f64 / took.as_secs_f64();
        println!("{count} Works, the same writes without an agent: {rate:.0}/s");
        Ok(rate)
    }

    /// That many Works at once.
    async fn round(&self, count: usize, finalizer: bool) -> Result<f64> {
        let before = self.meter.read().await?;
        let worked = self.processor_times()?;
        let run = format!("round-{count}-{finalizer}");
        let pace = self
            .load
            .many(&run, count, self.connections, finalizer, WITHIN)
            .await?;
        let times = self.processor_times()?.into_iter().zip(worked);
        self.settle().await?;
        let asked = self.meter.read().await?.since(&before);
        let with = if finalizer { "with" } else { "without" };
        println!(
            "{count} Works {with} finalizer: {:.0}/s, {}",
            pace.rate(),
            pace.latency()
        );
        println!("  requests per Work: {}", asked.per(count));
        let times = times.map(|((name, after), (_, before))| {
            let each = (after - before).as_secs_f64() * 1e3 / count as f64;
            format!("{name} {each:.2} ms")
        });
        println!(
            "  processor time per Work: {}",
            times.collect::<Vec<_>>().join(", ")
        );
        self.load.delete(&run, WITHIN).await?;
        Ok(pace.rate())
    }

    /// Who has worked for how long.
    fn processor_times(&self) -> Result<Vec<(&'static str, Duration)>> {
        let (hub, member) = (&self.lab.hub, &self.lab.members[0]);
        let all = [
            ("agent", self.agent.pid()),
            ("hub's API server", hub.apiserver.pid()),
            ("hub's etcd", hub.etcd.pid()),
            ("member's API server", member.apiserver.pid()),
            ("member's etcd", member.etcd.pid()),
            ("this program", Some(std::process::id())),
        ];
        let times = all.into_iter().map(|(name, pid)| {
            let pid = pid.with_context(|| format!("{name} does not run"))?;
            Ok((name, processor_time(pid)?))
        });
        times.collect()
    }

    /// Waits until the agent asks for nothing but its heartbeat any more.
    async fn settle(&self) -> Result<Requests> {
        let mut last = self.meter.read().await?;
        let mut since = Instant::now();
        let deadline = Instant::now() + WITHIN;
        while since.elapsed() < QUIET {
            ensure!(Instant::now() < deadline, "the agent does not come to rest");
            sleep(Duration::from_secs(1)).await;
            let now = self.meter.read().await?;
            if now.of_works() != last.of_works() {
                since = Instant::now();
            }
            last = now;
        }
        Ok(last)
    }

    /// What one rollout of ten replicas costs.
    async fn rollout(&self) -> Result<()> {
        let before = self.settle().await?;
        self.load.rollout(10, WITHIN).await?;
        let after = self.settle().await?;
        let writes = after.since(&before).count("hub PATCH works/status");
        println!("a rollout of 10 replicas: {writes} status writes");
        Ok(())
    }

    /// Many Works that stay.
    async fn many(&self, count: usize) -> Result<()> {
        let before = self.memory()?;
        let pace: Pace = self.load.many("many", count, 32, true, WITHIN).await?;
        println!("{count} Works that stay: {:.0}/s", pace.rate());
        self.settle().await?;
        println!(
            "memory of the agent, with {count} Works: {} after {before}",
            self.memory()?
        );
        Ok(())
    }

    /// Nodes and pods beside them.
    async fn crowd(&self, nodes: usize) -> Result<()> {
        self.load.crowd(nodes, nodes * 10).await?;
        // The sums of nodes and pods follow.
        sleep(QUIET * 2).await;
        println!(
            "memory of the agent, with {nodes} nodes and {} pods besides: {}",
            nodes * 10,
            self.memory()?
        );
        Ok(())
    }

    /// The agent starts again with that many Works; another one comes at that moment.
    async fn restart(&mut self, count: usize) -> Result<()> {
        let before = self.settle().await?;
        let started = Instant::now();
        self.agent.restart()?;
        let one = self.load.one_by_one(1, true).await?;
        println!(
            "restarted with {count} Works: a new one was applied {:.2} s after the start",
            started.elapsed().as_secs_f64()
        );
        drop(one);
        let asked = self.settle().await?.since(&before);
        println!(
            "  requests until it was at rest, that one's among them: {}",
            asked.all()
        );
        println!("  memory of the agent then: {}", self.memory()?);
        self.agent.check()
    }

    /// What is asked while nothing happens.
    async fn at_rest(&self) -> Result<()> {
        let before = self.settle().await?;
        sleep(Duration::from_secs(60)).await;
        let asked = self.meter.read().await?.since(&before);
        println!("one minute at rest: {}", asked.all());
        wait_for("the agent's heartbeat", WITHIN, async || {
            Ok(self.fleet.ready(CLUSTER).await?.as_deref() == Some("True"))
        })
        .await
    }
}
