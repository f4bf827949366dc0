//! The agents of a fleet: registered by tokens as any other, then at work in this one process.

use agent::config::Config;
use agent::context::AgentContext;
use agent::hub::Connect;
use agent::hub::connect::Registered;
use agent::{cluster_status, heartbeat};
use anyhow::{Context as _, Result};
use common::api::work::Work;
use common::client::ClientOptions;
use common::env::Env;
use common::names::ClusterName;
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, TryStreamExt as _};
use http::Request;
use kube::Client;
use kube::client::Body;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::de::IgnoredAny;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::board::Board;
use super::hub::Hub;
use super::member;
use crate::env::{Enrolled, Scratch, agent_config};

/// So many register by one token: the Secret of a token lists who did.
const USES: usize = 50;

/// Files that an agent has open: its connections. The hub has as many.
const FILES_EACH: u64 = 2;
const FILES_BESIDE: u64 = 500;

/// How long an agent may take until it has renewed its Lease once.
const HEARD_WITHIN: Duration = Duration::from_secs(120);

/// Lets this process, and the hub that it starts, have as many files open as so many agents have connections.
pub(in crate::commands) fn room_for(agents: usize) -> Result<()> {
    let wanted = agents as u64 * FILES_EACH + FILES_BESIDE;
    let now = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= wanted);
    if enough(now.current) {
        return Ok(());
    }
    let limit = Rlimit {
        current: Some(wanted),
        maximum: if enough(now.maximum) {
            now.maximum
        } else {
            Some(wanted)
        },
    };
    setrlimit(Resource::Nofile, limit).with_context(|| {
        format!("{agents} agents need {wanted} open files, and this shell allows fewer: run `ulimit -n {wanted}` as root, or have fewer agents")
    })
}

/// Registered agents.
pub(in crate::commands) struct Crew {
    config: Arc<Config>,
    env: Env,
    agents: Vec<Enrolled>,
    stop: CancellationToken,
    port: u16,
}

impl Crew {
    /// Registers so many agents, some at a time; returns how long that took, once they had their tokens.
    pub(in crate::commands) async fn register(
        hub: &Hub,
        scratch: &Scratch,
        count: usize,
        at_once: usize,
    ) -> Result<(Self, Duration)> {
        let config = agent_config(&[
            "--cluster-success-threshold=1s",
            // A played member has no nodes.
            "--enable-cluster-resource-modeling=false",
            // Nothing dials by it unless `tunnels` is called.
            "--proxy=impersonate",
            "--registration-timeout=10m",
        ])?;
        let env = Env::system();
        let (config, env) = (&config, &env);
        let run = std::process::id();
        let mut handed = Vec::new();
        for first in (0..count).step_by(USES) {
            let uses = USES.min(count - first);
            let given = hub.token(uses).await?;
            for number in first..first + uses {
                let cluster = ClusterName::parse(&format!("fleet-{run}-{number:05}"))?;
                handed.push((given.clone(), cluster));
            }
        }
        let port = handed.first().and_then(|(given, _)| given.port());
        let began = Instant::now();
        let registered = handed.into_iter().map(|(given, cluster)| async move {
            Enrolled::by(&given, cluster, config, env, scratch.path()).await
        });
        // As they come: the slowest must not keep the next one from beginning.
        let mut agents: Vec<Enrolled> = stream::iter(registered)
            .buffer_unordered(at_once.max(1))
            .try_collect()
            .await?;
        agents.sort_by(|a, b| a.registration.cluster.cmp(&b.registration.cluster));
        let took = began.elapsed();
        let crew = Self {
            config: config.clone(),
            env: env.clone(),
            agents,
            stop: CancellationToken::new(),
            port: port.unwrap_or_default(),
        };
        Ok((crew, took))
    }

    /// Their names, sorted.
    pub(in crate::commands) fn names(&self) -> Vec<String> {
        let names = self
            .agents
            .iter()
            .map(|it| it.registration.cluster.to_string());
        names.collect()
    }

    /// Lets all of them work. Each begins when its first renewal would be due by chance, as agents
    /// that were not started together do.
    pub(super) async fn work(self, board: &Arc<Board>) -> Result<Self> {
        let interval = self
            .config
            .lease
            .duration
            .mul_f64(self.config.lease.renew_fraction);
        let count = self.agents.len().max(1);
        for (number, agent) in self.agents.iter().enumerate() {
            let told = {
                let board = board.clone();
                move |succeeded, took| match succeeded {
                    true => board.renewed(number, took),
                    false => board.failed(),
                }
            };
            let timed = |way| -> Arc<dyn Connect> { Arc::new(Told { way, told }) };
            let context = self.context(agent, timed).await?;
            let begin = interval.mul_f64(number as f64 / count as f64);
            tokio::spawn(live(context, number, board.clone(), begin));
        }
        Ok(self)
    }

    /// Has each renew its Lease once, some at a time: what the hub has to do for an agent that it never heard of is over
    /// then.
    pub(in crate::commands) async fn are_heard(&self, at_once: usize) -> Result<()> {
        let heard = self.agents.iter().map(|agent| async move {
            let renewed = CancellationToken::new();
            let told = {
                let renewed = renewed.clone();
                move |succeeded, _| {
                    if succeeded {
                        renewed.cancel();
                    }
                }
            };
            let heard = |way| -> Arc<dyn Connect> { Arc::new(Told { way, told }) };
            let context = self.context(agent, heard).await?;
            let lives = async {
                tokio::select! {
                    biased;
                    () = renewed.cancelled() => {}
                    () = heartbeat::run(context) => {}
                }
            };
            let cluster = &agent.registration.cluster;
            tokio::time::timeout(HEARD_WITHIN, lives)
                .await
                .with_context(|| format!("{cluster} could not renew its Lease"))
        });
        stream::iter(heard)
            .buffer_unordered(at_once.max(1))
            .try_collect()
            .await
    }

    /// Has all of them keep a tunnel to the hub, and do nothing else.
    pub(in crate::commands) async fn tunnels(&self) -> Result<()> {
        for agent in &self.agents {
            let context = self.context(agent, |way| Arc::new(way)).await?;
            tokio::spawn(agent::proxy::run(context));
        }
        Ok(())
    }

    async fn context(
        &self,
        agent: &Enrolled,
        connect: impl FnOnce(Registered) -> Arc<dyn Connect>,
    ) -> Result<AgentContext> {
        let played = kube::Config::new(http::Uri::from_static("https://played.invalid"));
        let member = (member::client(), played);
        let context = agent.context(&self.config, &self.env, member, &self.stop, connect);
        context.await
    }

    /// Connections of this process to the hub, all agents together.
    pub(super) fn connections(&self) -> Result<usize> {
        let path = "/proc/self/net/tcp";
        let table =
            std::fs::read_to_string(path).with_context(|| format!("failed to read {path}"))?;
        let to_the_hub = format!(":{:04X}", self.port);
        let established = table.lines().filter(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            matches!(fields[..], [_, _, remote, "01", ..] if remote.ends_with(&to_the_hub))
        });
        Ok(established.count())
    }

    /// Ends all of them.
    pub(in crate::commands) fn stop(&self) {
        self.stop.cancel();
    }
}

/// What an agent does towards its hub while it has nothing to carry out.
async fn live(context: AgentContext, number: usize, board: Arc<Board>, begin: Duration) {
    tokio::time::sleep(begin).await;
    let namespace = context.cluster.execution_namespace();
    let works = watch::<IgnoredAny>(
        context.hub.client(),
        Collection::of::<Work>(Some(&namespace)),
        WatchConfig::new(&context.chance),
    );
    let watched = async {
        let mut works = pin!(works);
        while let Some(event) = works.next().await {
            match event {
                Event::InitDone { .. } | Event::Resumed { .. } => board.watches(number, true),
                Event::Disconnected { .. } => board.watches(number, false),
                Event::Init | Event::Applied(_) | Event::Deleted(_) | Event::Undecodable(_) => {}
            }
        }
    };
    let stop = context.shutdown.clone();
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = heartbeat::run(context.clone()) => {}
        () = cluster_status::run(context.clone()) => {}
        () = watched => {}
    }
}

/// The way to the hub; whether each request about the Lease succeeded is told, and how long it took.
struct Told<F> {
    way: Registered,
    told: F,
}

impl<F> Connect for Told<F>
where
    F: Fn(bool, Duration) + Clone + Send + Sync + 'static,
{
    fn connect(
        &self,
        options: ClientOptions,
    ) -> BoxFuture<'static, Result<Client, Box<dyn Error + Send + Sync>>> {
        let made = self.way.connect(options.clone());
        let told = self.told.clone();
        Box::pin(async move {
            let client = made.await?;
            if options.purpose != "lease" {
                return Ok(client);
            }
            let service = tower::service_fn(move |request: Request<Body>| {
                let (client, told) = (client.clone(), told.clone());
                async move {
                    let began = Instant::now();
                    let answer = client.send(request).await;
                    let succeeded = answer.as_ref().is_ok_and(|it| it.status().is_success());
                    told(succeeded, began.elapsed());
                    answer
                }
            });
            Ok(Client::new(service, "default"))
        })
    }
}
