//! `access`: what the way into members costs, beside the same requests straight at the member, on built-in servers.

mod caller;
mod front;
mod idle;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use common::client::HostPort;
use common::names::{AGENT_NAMESPACE, PROXY_NAME};
use futures::StreamExt as _;
use futures::future::try_join_all;
use futures::stream::{self, TryStreamExt as _};
use kube::Client;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

use super::latency::Latency;
use super::vitals::{mib, processor_time, resident};
use crate::env::{Fleet, JSON, Lab, LabOptions, Middleman, Parts, Process, Scratch, ask, wait_for};
use caller::{Session, Way};
use front::Front;

const WITHIN: Duration = Duration::from_secs(180);
/// How long everything is left alone before it is looked at.
const SETTLED: Duration = Duration::from_secs(10);
/// Fewer than a cluster and a user may have streams.
const OF_CLUSTER: usize = 200;
const OF_USER: usize = 50;
/// Small requests that are timed, each way.
const SMALL: usize = 5_000;
/// Watches that are opened at a time, for each user.
const AT_ONCE: usize = 16;
/// How often a long answer is read, each way.
const TURNS: u32 = 5;
/// How often each session types, and for how long.
const TYPES_EVERY: Duration = Duration::from_secs(1);
const TYPES_FOR: u32 = 20;
/// Names of the servers that are played.
const NAMES: [&str; 2] = ["127.0.0.1", "localhost"];
/// How long after the last watch nothing of it may be left.
const FORGOTTEN: Duration = Duration::from_secs(5);

/// What is measured.
#[derive(Debug, Clone, Args)]
pub(crate) struct AccessArgs {
    /// How many tunnels stand idle
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    tunnels: usize,
    /// How many sessions are open at once
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    sessions: usize,
    /// How many watches are opened and cancelled
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    watches: usize,
    /// How much is read in one answer, in MiB
    #[arg(long, default_value_t = 1_024, value_name = "MIB")]
    bulk: u64,
    /// Measure binaries as they are shipped, the profile `dist` (read by the script before this program runs)
    #[arg(long)]
    release: bool,
}

/// Measures, and prints as it goes.
pub(crate) async fn access(args: &AccessArgs) -> Result<()> {
    let stage = Stage::set(args.sessions).await?;
    stage.small().await?;
    stage.bulk(args.bulk << 20).await?;
    stage.sessions(args.sessions).await?;
    stage.cancelled(args.watches).await?;
    stage.end().await;
    if args.tunnels > 0 {
        idle::idle(args.tunnels).await?;
    }
    Ok(())
}

/// A hub, and agents of one member whose requests are played.
struct Stage {
    scratch: Scratch,
    lab: Lab,
    fleet: Fleet,
    fronts: Vec<Front>,
    agents: Vec<Process>,
    users: usize,
}

impl Stage {
    async fn set(sessions: usize) -> Result<Self> {
        let scratch = Scratch::new("access-figures")?;
        let clusters = sessions.div_ceil(OF_CLUSTER).max(1);
        let users = sessions.div_ceil(OF_USER).max(1);
        let mut options = LabOptions::new(clusters);
        options.hub.builtin = true;
        for member in &mut options.members {
            (member.builtin, member.nodes, member.scheduler) = (true, 0, false);
        }
        let lab = Lab::start(&Parts::from_env()?, &scratch.join("lab"), &options).await?;
        let fleet = Fleet::start(&scratch.join("towline"), &lab.hub).await?;
        make(&fleet.client().await?, on_the_hub()).await?;
        let (mut fronts, mut agents) = (Vec::new(), Vec::new());
        for (number, plane) in lab.members.iter().enumerate() {
            let name = cluster(number);
            let member = plane.client().await?;
            make(&member, in_the_member(users)).await?;
            let shows = plane.pki.server(&NAMES.map(str::to_owned))?;
            let front = Front::start(member, &shows).await?;
            let (kubeconfig, ca) = (
                scratch.join(format!("{name}.kubeconfig")),
                scratch.join(format!("{name}.pem")),
            );
            std::fs::write(&ca, plane.pki.ca_pem())?;
            front.kubeconfig(&kubeconfig, &ca)?;
            let token = fleet.token(&["--cluster", &name]).await?;
            let flags = ["--proxy", "impersonate"];
            let spec = fleet.agent_spec(&kubeconfig, &name, &token, &flags)?;
            agents.push(Process::start(spec)?);
            fleet.wait_ready(&name, "True", WITHIN).await?;
            fronts.push(front);
        }
        let stage = Self {
            scratch,
            lab,
            fleet,
            fronts,
            agents,
            users,
        };
        for number in 0..clusters {
            stage.opened(number).await?;
        }
        sleep(SETTLED).await;
        let (hub, agent) = stage.memory()?;
        println!(
            "one tunnel to each of {clusters} members: hub {:.1} MiB, an agent {:.1} MiB",
            mib(hub),
            mib(agent)
        );
        Ok(stage)
    }

    /// A user's way through the hub.
    fn led(&self, user: usize, number: usize) -> Result<Way> {
        let hub = &self.lab.hub;
        let identity = hub.pki.client(&name(user), &["figures"])?;
        let cluster = cluster(number);
        let prefix = format!("/apis/cluster.karmada.io/v1alpha1/clusters/{cluster}/proxy");
        Ok(Way::new(hub.port, hub.pki.ca_pem(), identity, &prefix))
    }

    /// The way straight to the first member.
    fn straight(&self) -> Result<Way> {
        self.at(self.port())
    }

    fn port(&self) -> u16 {
        self.fronts.first().map_or(0, Front::port)
    }

    fn at(&self, port: u16) -> Result<Way> {
        let pki = &self.lab.members[0].pki;
        let identity = pki.client("anybody", &["figures"])?;
        Ok(Way::new(port, pki.ca_pem(), identity, ""))
    }

    async fn opened(&self, number: usize) -> Result<()> {
        let way = self.led(0, number)?;
        wait_for("an answer through the tunnel", WITHIN, async || {
            way.time(&mut way.many().await?, &front::small()).await?;
            Ok(true)
        })
        .await
    }

    async fn end(mut self) {
        self.agents.clear();
        self.lab.stop().await;
        self.scratch.passed();
    }

    fn hub_pid(&self) -> Result<u32> {
        let pid = self.lab.hub.apiserver.pid();
        pid.context("the hub does not run")
    }

    /// Resident memory of the hub and of the first agent.
    fn memory(&self) -> Result<(u64, u64)> {
        let agent = self.agents.first().and_then(Process::pid);
        Ok((
            resident(self.hub_pid()?)?,
            resident(agent.context("no agent runs")?)?,
        ))
    }

    /// Small requests, by turns.
    async fn small(&self) -> Result<()> {
        let (led, straight) = (self.led(0, 0)?, self.straight()?);
        let (mut through, mut direct) = (led.many().await?, straight.many().await?);
        let path = front::small();
        let (mut by_tunnel, mut by_itself) = (Vec::new(), Vec::new());
        for _ in 0..SMALL {
            by_itself.push(straight.time(&mut direct, &path).await?);
            by_tunnel.push(led.time(&mut through, &path).await?);
        }
        let (by_itself, by_tunnel) = (Latency::of(&by_itself), Latency::of(&by_tunnel));
        println!(
            "a small GET: straight p50 {:.2} p99 {:.2} ms, through the hub p50 {:.2} p99 {:.2} ms",
            by_itself.p50, by_itself.p99, by_tunnel.p50, by_tunnel.p99
        );
        Ok(())
    }

    /// One long answer: straight, through the hub, and by a relay that ends TLS and begins it anew.
    async fn bulk(&self, bytes: u64) -> Result<()> {
        let path = front::log(bytes);
        let pki = &self.lab.members[0].pki;
        let shows = pki.server(&NAMES.map(str::to_owned))?;
        let target = format!("127.0.0.1:{}", self.port());
        let relay = Middleman::start(&target, pki, &shows).await?;
        let port = HostPort::parse(&relay.address())?.port();
        let hub = self.hub_pid()?;
        let (direct, led, relayed) = (self.straight()?, self.led(0, 0)?, self.at(port)?);
        let rate = |took: &[Duration]| mib(bytes) / Latency::of(took).p50 * 1e3;
        let (mut straight, mut through, mut raw) = (Vec::new(), Vec::new(), Vec::new());
        let before = self.memory()?;
        let worked = processor_time(hub)?;
        for _ in 0..TURNS {
            straight.push(direct.read(&path, bytes).await?);
            through.push(led.read(&path, bytes).await?);
            raw.push(relayed.read(&path, bytes).await?);
        }
        let worked = processor_time(hub)?.saturating_sub(worked) / TURNS;
        let after = self.memory()?;
        println!(
            "{:.0} MiB in one answer, the median of {TURNS} by turns: straight {:.0} MiB/s, through the hub {:.0} MiB/s ({:.2} s of its processor time)",
            mib(bytes),
            rate(&straight),
            rate(&through),
            worked.as_secs_f64()
        );
        println!("the same by a relay of TLS: {:.0} MiB/s", rate(&raw));
        let grown = |from: u64, to: u64| mib(to) - mib(from);
        println!(
            "memory after it: hub {:+.1} MiB, agent {:+.1} MiB",
            grown(before.0, after.0),
            grown(before.1, after.1)
        );
        Ok(())
    }

    /// Sessions that all type, beside a long answer: straight, then through the hub.
    async fn sessions(&self, count: usize) -> Result<()> {
        let path = front::exec();
        let straight = self.straight()?;
        let mut open = Vec::new();
        for _ in 0..count {
            open.push(straight.session(&path).await?);
        }
        println!("{count} sessions, each typing once a second:");
        let by_itself = beside(&straight, &mut open).await?;
        println!("straight, beside one long answer: {by_itself}");
        open.clear();
        let before = self.memory()?;
        for number in 0..count {
            let way = self.led(number / OF_USER % self.users, number / OF_CLUSTER)?;
            open.push(way.session(&path).await?);
        }
        sleep(SETTLED).await;
        let after = self.memory()?;
        let each =
            |from: u64, to: u64, of: usize| to.saturating_sub(from) as f64 / 1024.0 / of as f64;
        println!(
            "memory of each: hub {:.1} KiB, agent {:.1} KiB",
            each(before.0, after.0, count),
            each(before.1, after.1, count.min(OF_CLUSTER))
        );
        println!("through the hub: {}", typing(&mut open).await?);
        let led = self.led(0, 0)?;
        let by_tunnel = beside(&led, &mut open).await?;
        println!("through the hub, beside one long answer: {by_tunnel}");
        Ok(())
    }

    /// Watches that are opened and left at once.
    async fn cancelled(&self, count: usize) -> Result<()> {
        let path = front::watch();
        let hub = self.fleet.client().await?;
        self.forgotten(&hub).await?;
        let before = self.memory()?;
        let began = Instant::now();
        let users = self.users.min(4);
        let each = count / users;
        try_join_all((0..users).map(|user| {
            let way = self.led(user, 0);
            let path = &path;
            async move {
                let way = way?;
                let sender = way.many().await?;
                stream::iter((0..each).map(|_| {
                    let (way, mut sender) = (&way, sender.clone());
                    async move { way.glance(&mut sender, path).await }
                }))
                .buffer_unordered(AT_ONCE)
                .try_collect::<Vec<()>>()
                .await
            }
        }))
        .await?;
        let took = began.elapsed();
        sleep(FORGOTTEN).await;
        let streams = self.streams(&hub).await?;
        let after = self.memory()?;
        println!(
            "{} watches opened and left in {:.0} s; {} s after: {streams} streams, hub {:+.1} MiB, agent {:+.1} MiB",
            each * users,
            took.as_secs_f64(),
            FORGOTTEN.as_secs(),
            mib(after.0) - mib(before.0),
            mib(after.1) - mib(before.1)
        );
        Ok(())
    }

    /// Waits until nothing is under way.
    async fn forgotten(&self, hub: &Client) -> Result<()> {
        wait_for("no stream", WITHIN, async || {
            let streams = self.streams(hub).await?;
            ensure!(streams == 0, "{streams} streams");
            Ok(true)
        })
        .await
    }

    /// How many streams the hub tells of.
    async fn streams(&self, hub: &Client) -> Result<u64> {
        let metrics = ask(hub, "GET", "/metrics", None).await?.ok()?;
        let lines = metrics.body.lines();
        let counts = lines.filter(|line| line.starts_with("towline_hub_tunnel_streams{"));
        let counts = counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
        Ok(counts.sum())
    }
}

/// The same while somebody reads a long answer by `way`.
async fn beside(way: &Way, open: &mut [Session]) -> Result<Latency> {
    let endless = front::log(u64::MAX);
    tokio::select! {
        biased;
        ended = way.read(&endless, u64::MAX) => {
            ended?;
            anyhow::bail!("the long answer beside them ended");
        }
        typed = typing(open) => typed,
    }
}

/// Each session types once a second, not all at the same time.
async fn typing(open: &mut [Session]) -> Result<Latency> {
    let count = open.len().max(1);
    let all = open
        .iter_mut()
        .enumerate()
        .map(|(number, session)| async move {
            sleep(TYPES_EVERY.mul_f64(number as f64 / count as f64)).await;
            let mut took = Vec::new();
            for _ in 0..TYPES_FOR {
                let began = Instant::now();
                took.push(session.echo().await?);
                tokio::time::sleep_until(began + TYPES_EVERY).await;
            }
            Ok::<_, anyhow::Error>(took)
        });
    Ok(Latency::of(&try_join_all(all).await?.concat()))
}

fn cluster(number: usize) -> String {
    format!("figures-{number}")
}

fn name(user: usize) -> String {
    format!("user-{user}")
}

async fn make(client: &Client, objects: Vec<(String, Value)>) -> Result<()> {
    for (path, object) in objects {
        let body = object.to_string();
        let answer = ask(client, "POST", &path, Some((JSON, &body))).await?;
        ensure!(matches!(answer.code, 201 | 409), "{answer:?}");
    }
    Ok(())
}

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Who may reach the members.
fn on_the_hub() -> Vec<(String, Value)> {
    bound(
        "figures",
        &json!([{"apiGroups": ["cluster.karmada.io"], "resources": ["clusters/proxy"], "verbs": ["get", "create"]}]),
        &json!({"kind": "Group", "name": "figures", "apiGroup": "rbac.authorization.k8s.io"}),
    )
}

/// What `towline register --proxy impersonate` makes in a member that lets these users in.
fn in_the_member(users: usize) -> Vec<(String, Value)> {
    let users: Vec<String> = (0..users).map(name).collect();
    let mut all = vec![
        (
            "/api/v1/namespaces".to_owned(),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": AGENT_NAMESPACE}}),
        ),
        (
            format!("/api/v1/namespaces/{AGENT_NAMESPACE}/serviceaccounts"),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": PROXY_NAME}}),
        ),
    ];
    all.extend(bound(
        PROXY_NAME,
        &json!([
            {"apiGroups": [""], "resources": ["users"], "resourceNames": users, "verbs": ["impersonate"]},
            {"apiGroups": [""], "resources": ["groups"], "resourceNames": ["figures"], "verbs": ["impersonate"]},
        ]),
        &json!({"kind": "ServiceAccount", "name": PROXY_NAME, "namespace": AGENT_NAMESPACE}),
    ));
    all
}

/// A ClusterRole and who has it.
fn bound(name: &str, rules: &Value, subject: &Value) -> Vec<(String, Value)> {
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    vec![
        (
            format!("{RBAC}/clusterroles"),
            json!({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}),
        ),
        (
            format!("{RBAC}/clusterrolebindings"),
            json!({
                "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
                "subjects": [subject],
            }),
        ),
    ]
}
