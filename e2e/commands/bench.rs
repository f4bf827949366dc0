//! `bench`: what the delivery of Works costs, beside what the API servers allow.
//!
//! Everything happens in one run on one lab of its own, so that the machine's mood is in all figures
//! alike; ratios say more than rates.

mod findings;
mod load;
mod meter;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use common::api::cluster::Cluster;
use kube::api::Api;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, sleep};

use super::up::Foundation;
use super::vitals::{processor_time, resident};
use crate::env::{
    CLUSTER_READY_WITHIN, Fleet, Lab, LabOptions, Parts, Process, Scratch, target_dir, wait_for,
};
use findings::{Findings, Goal, median};
use load::{Load, Pace};
use meter::{Meter, Requests};

const CLUSTER: &str = "bench";
/// Works a second that Karmada's agent reached with its limits raised.
const KARMADA: f64 = 128.0;
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
    /// How often each round is run; its median counts
    #[arg(long, default_value_t = 3, value_name = "N")]
    repeat: usize,
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
    /// What the hub is: kube-apiserver, or Towline's own
    #[arg(long, value_enum, default_value_t = Foundation::Real, value_name = "KIND")]
    hub: Foundation,
    /// What the member is
    #[arg(long, value_enum, default_value_t = Foundation::Real, value_name = "KIND")]
    member: Foundation,
    /// Another program as the agent, that takes the same flags
    #[arg(long, value_name = "FILE")]
    agent: Option<PathBuf>,
    /// Measure binaries as they are shipped, the profile `dist` (read by the script before this program runs)
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
    /// How many times Karmada's rate is wanted.
    factor: f64,
    /// Which share of the limit is wanted. Built-in servers allow so much that none is.
    share: Option<f64>,
}

/// Measures, and prints as it goes; all figures that have a goal come once more at the end.
pub(crate) async fn bench(args: &BenchArgs) -> Result<()> {
    let scratch = Scratch::new("bench")?;
    let mut bench = Bench::start(args, &scratch).await?;
    let built = target_dir()?;
    let built = built.file_name().unwrap_or_default().to_string_lossy();
    println!(
        "a {built} build; hub {:?}, member {:?}, agent flags {:?}",
        args.hub, args.member, args.agent_flag
    );
    let idle = bench.memory()?;
    let mut found = Findings::default();
    found.add(
        "memory, idle",
        mib(idle),
        Some(Goal::AtMost(12.0)),
        "67 MiB",
    );

    bench.one_by_one(&mut found).await?;
    for count in &args.counts {
        bench.rates(*count, args.repeat, &mut found).await?;
    }
    bench.rollout(&mut found).await?;
    if args.many > 0 {
        bench.many(args.many, &mut found).await?;
        if args.nodes > 0 {
            bench.crowd(args.nodes, &mut found).await?;
        }
        bench.restart(args.many, &mut found).await?;
    }
    bench.at_rest(&mut found).await?;
    println!("\n{found}");
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
        let mut options = LabOptions::new(1);
        options.hub.builtin |= args.hub == Foundation::Builtin;
        options.members[0].builtin |= args.member == Foundation::Builtin;
        parts.build(&options.parts()).await?;
        let lab = Lab::start(&parts, &scratch.join("lab"), &options).await?;
        let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
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
        let (factor, share) = match (args.hub, args.member) {
            (Foundation::Builtin, Foundation::Builtin) => (5.0, None),
            _ => (1.5, Some(60.0)),
        };
        Ok(Self {
            load: Load::new(hub.clone(), member.clone(), CLUSTER),
            meter: Meter::new(hub, member),
            connections: args.connections,
            factor,
            share,
            lab,
            fleet,
            agent,
        })
    }

    /// Resident memory of the agent, in bytes.
    fn memory(&self) -> Result<f64> {
        let pid = self.agent.pid().context("the agent does not run")?;
        let bytes = resident(pid)? as f64;
        println!("memory of the agent: {:.1} {}", mib(bytes).0, mib(bytes).1);
        Ok(bytes)
    }

    /// One Work after another.
    async fn one_by_one(&self, found: &mut Findings) -> Result<()> {
        for finalizer in [true, false] {
            let pace = self.load.one_by_one(30, finalizer).await?;
            let with = with(finalizer);
            println!("one Work {with}, created to Applied: {}", pace.latency());
            found.add(
                format!("one Work {with}, created to Applied, p50 of 30"),
                (pace.at(50), "ms"),
                finalizer.then_some(Goal::AtMost(20.0)),
                "28 to 43 ms",
            );
        }
        Ok(())
    }

    /// That many Works at once, several times, each time beside the limit before and after.
    async fn rates(&self, count: usize, repeat: usize, found: &mut Findings) -> Result<()> {
        for finalizer in [true, false] {
            let (mut rates, mut shares, mut limits) = (Vec::new(), Vec::new(), Vec::new());
            for turn in 0..repeat.max(1) {
                let before = self.limit(count).await?;
                let rate = self.round(count, finalizer, turn).await?;
                let limit = f64::midpoint(before, self.limit(count).await?);
                rates.push(rate);
                shares.push(rate / limit * 100.0);
                limits.push(limit);
            }
            let with = with(finalizer);
            let goal = |least: Option<f64>| least.filter(|_| finalizer).map(Goal::AtLeast);
            let karmada = match finalizer {
                true => "114 to 128 a second, 17 with default flags",
                false => "",
            };
            found.add(
                format!("{count} Works {with}, median of {repeat}"),
                (median(&rates), "a second"),
                goal(Some(KARMADA * self.factor)),
                karmada,
            );
            found.add(
                format!("{count} Works {with}, share of the limit"),
                (median(&shares), "%"),
                goal(self.share),
                if finalizer { "34 % (128 of 379)" } else { "" },
            );
            found.add(
                "the same writes without an agent",
                (median(&limits), "a second"),
                None,
                "",
            );
        }
        Ok(())
    }

    /// The writes of that many Works, by nobody but this program.
    async fn limit(&self, count: usize) -> Result<f64> {
        let worked = self.processor_times()?;
        let took = self.load.limit(count).await?;
        let rate = count as f64 / took.as_secs_f64();
        println!("{count} Works, the same writes without an agent: {rate:.0}/s");
        println!("  processor time per Work: {}", self.since(worked, count)?);
        self.load.end_limit(count).await?;
        Ok(rate)
    }

    /// That many Works at once.
    async fn round(&self, count: usize, finalizer: bool, turn: usize) -> Result<f64> {
        let before = self.meter.read().await?;
        let worked = self.processor_times()?;
        let run = format!("round-{count}-{finalizer}-{turn}");
        let pace = self
            .load
            .many(&run, count, self.connections, finalizer, WITHIN)
            .await?;
        let times = self.since(worked, count)?;
        self.settle().await?;
        let asked = self.meter.read().await?.since(&before);
        println!(
            "{count} Works {}: {:.0}/s, {}",
            with(finalizer),
            pace.rate(),
            pace.latency()
        );
        println!("  requests per Work: {}", asked.per(count));
        println!("  processor time per Work: {times}");
        self.load.delete(&run, WITHIN).await?;
        Ok(pace.rate())
    }

    /// How long each has worked since then, for each of so many Works.
    fn since(&self, before: Vec<(&str, Duration)>, count: usize) -> Result<String> {
        let times = self.processor_times()?.into_iter().zip(before);
        let times = times.map(|((name, after), (_, before))| {
            let each = (after - before).as_secs_f64() * 1e3 / count as f64;
            format!("{name} {each:.2} ms")
        });
        Ok(times.collect::<Vec<_>>().join(", "))
    }

    /// Who has worked for how long.
    fn processor_times(&self) -> Result<Vec<(&'static str, Duration)>> {
        let (hub, member) = (&self.lab.hub, &self.lab.members[0]);
        let all = [
            ("agent", self.agent.pid()),
            ("hub's controllers", self.fleet.hub.pid()),
            ("hub's API server", hub.apiserver.pid()),
            ("hub's etcd", hub.etcd.pid()),
            ("member's API server", member.apiserver.pid()),
            ("member's etcd", member.etcd.pid()),
            ("this program", Some(std::process::id())),
        ];
        // A built-in server has neither an etcd nor controllers in processes of their own.
        let all = all.into_iter().filter_map(|(name, pid)| Some((name, pid?)));
        all.map(|(name, pid)| Ok((name, processor_time(pid)?)))
            .collect()
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
    async fn rollout(&self, found: &mut Findings) -> Result<()> {
        let before = self.settle().await?;
        self.load.rollout(10, WITHIN).await?;
        let after = self.settle().await?;
        let writes = after.since(&before).count("hub PATCH works/status");
        found.add(
            "status writes of a rollout of 10 replicas",
            (writes as f64, ""),
            Some(Goal::AtMost(5.0)),
            "about a dozen",
        );
        Ok(())
    }

    /// Many Works that stay.
    async fn many(&self, count: usize, found: &mut Findings) -> Result<()> {
        let before = self.memory()?;
        let pace: Pace = self.load.many("many", count, 32, true, WITHIN).await?;
        println!("{count} Works that stay: {:.0}/s", pace.rate());
        self.settle().await?;
        let after = self.memory()?;
        let goal = Some(Goal::AtMost(40.0));
        found.add(format!("memory, {count} Works"), mib(after), goal, "");
        found.add(
            "of that, each Work",
            ((after - before) / count as f64 / 1e3, "kB"),
            None,
            "",
        );
        Ok(())
    }

    /// Nodes and pods beside them.
    async fn crowd(&self, nodes: usize, found: &mut Findings) -> Result<()> {
        self.load.crowd(nodes, nodes * 10).await?;
        // The sums of nodes and pods follow.
        sleep(QUIET * 2).await;
        found.add(
            format!("memory, {nodes} nodes and {} pods besides", nodes * 10),
            mib(self.memory()?),
            Some(Goal::AtMost(40.0)),
            "198 MiB, with about 2,700 Works",
        );
        Ok(())
    }

    /// The agent starts again with that many Works; new ones come at that moment.
    async fn restart(&mut self, count: usize, found: &mut Findings) -> Result<()> {
        const NEXT: usize = 10;
        let before = self.settle().await?;
        self.agent.restart()?;
        let first = self.load.one_by_one(1, true).await?;
        let next = self.load.one_by_one(NEXT, true).await?;
        found.add(
            format!("restarted with {count} Works: a new one is Applied after"),
            (first.at(50), "ms"),
            None,
            "",
        );
        found.add(
            format!("each of {NEXT} more, right after it, p50"),
            (next.at(50), "ms"),
            None,
            "",
        );
        let asked = self.settle().await?.since(&before);
        println!("  requests until it was at rest: {}", asked.all());
        // Each of the new Works is applied, and deleted again.
        let beyond = asked
            .writes_to("member")
            .saturating_sub(2 * (1 + NEXT as u64));
        found.add(
            "writes to the member for the Works that were there",
            (beyond as f64, ""),
            Some(Goal::AtMost(0.0)),
            "",
        );
        found.add(
            "memory then",
            mib(self.memory()?),
            Some(Goal::AtMost(40.0)),
            "",
        );
        self.agent.check()
    }

    /// What is asked while nothing happens.
    async fn at_rest(&self, found: &mut Findings) -> Result<()> {
        let before = self.settle().await?;
        let version = self.cluster_version().await?;
        sleep(Duration::from_secs(60)).await;
        let asked = self.meter.read().await?.since(&before);
        println!("one minute at rest: {}", asked.all());
        // Asking for the Cluster is an empty patch, which stores nothing.
        let stored = u64::from(self.cluster_version().await? != version);
        let writes = asked.of_works() + stored;
        found.add(
            "a minute at rest: writes beside the Lease's",
            (writes as f64, ""),
            Some(Goal::AtMost(0.0)),
            "",
        );
        wait_for("the agent's heartbeat", WITHIN, async || {
            Ok(self.fleet.ready(CLUSTER).await?.as_deref() == Some("True"))
        })
        .await
    }

    async fn cluster_version(&self) -> Result<Option<String>> {
        let clusters: Api<Cluster> = Api::all(self.fleet.client().await?);
        Ok(clusters.get(CLUSTER).await?.metadata.resource_version)
    }
}

fn mib(bytes: f64) -> (f64, &'static str) {
    (bytes / 1024.0 / 1024.0, "MiB")
}

fn with(finalizer: bool) -> &'static str {
    if finalizer {
        "with finalizer"
    } else {
        "without finalizer"
    }
}
