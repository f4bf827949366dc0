//! The agents of a fleet: registered by tokens as any other, then at work in this one process.

use agent::config::{Config, RunArgs};
use agent::context::{AgentContext, ErrorReport};
use agent::credentials::{Registration, Store};
use agent::hub::connect::Registered;
use agent::hub::{Connect, HubHandle};
use agent::registration::Registrar;
use agent::registration::bootstrap::{Bootstrap, Handed};
use agent::report::Reporter;
use agent::upkeep::InForce;
use agent::{cluster_status, heartbeat};
use anyhow::{Context as _, Result};
use clap::Parser;
use common::api::work::Work;
use common::client::ClientOptions;
use common::discovery::CaPin;
use common::env::Env;
use common::names::ClusterName;
use common::proxy::ProxyChoice;
use common::tls::CertificateSwap;
use common::token::BootstrapToken;
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, TryStreamExt as _};
use http::Request;
use kube::Client;
use kube::client::Body;
use prometheus_client::registry::Registry;
use serde::de::IgnoredAny;
use std::error::Error;
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::board::Board;
use super::hub::Hub;
use super::member;
use crate::env::Scratch;

/// So many register by one token: the Secret of a token lists who did.
const USES: usize = 50;

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    run: RunArgs,
}

/// Registered agents.
pub(super) struct Crew {
    config: Arc<Config>,
    env: Env,
    agents: Vec<(Registration, Handed)>,
    stop: CancellationToken,
    port: u16,
}

impl Crew {
    /// Registers so many agents, some at a time; returns how long that took, once they had their tokens.
    pub(super) async fn register(
        hub: &Hub,
        scratch: &Scratch,
        count: usize,
        at_once: usize,
    ) -> Result<(Self, Duration)> {
        let flags = Flags::try_parse_from([
            "towline-agent",
            "--cluster-success-threshold=1s",
            // A played member has no nodes.
            "--enable-cluster-resource-modeling=false",
            "--registration-timeout=10m",
        ])?;
        let config = Arc::new(flags.run.into_config()?);
        let env = Env::system();
        let (config, env) = (&config, &env);
        let run = std::process::id();
        let mut handed = Vec::new();
        for first in (0..count).step_by(USES) {
            let uses = USES.min(count - first);
            let given = hub.token(uses).await?;
            for number in first..first + uses {
                let cluster = ClusterName::parse(&format!("fleet-{run}-{number:05}"))?;
                handed.push((
                    given.pins.clone(),
                    given.servers.clone(),
                    given.token.clone(),
                    cluster,
                ));
            }
        }
        let port = handed.first().map_or(0, |(_, servers, ..)| {
            servers.first().map_or(0, common::client::HostPort::port)
        });
        let began = Instant::now();
        let registered = handed
            .into_iter()
            .map(|(pins, servers, token, cluster)| async move {
                let bootstrap = Bootstrap {
                    servers: servers.clone(),
                    cluster,
                    token,
                    pins,
                };
                let handed = Handed {
                    servers,
                    proxy: ProxyChoice::direct(),
                    bootstrap: Ok(bootstrap),
                };
                let registration = enrol(&handed, config, env, scratch.path()).await?;
                anyhow::Ok((registration, handed))
            });
        // As they come: the slowest must not keep the next one from beginning.
        let mut agents: Vec<_> = stream::iter(registered)
            .buffer_unordered(at_once.max(1))
            .try_collect()
            .await?;
        agents.sort_by(|(a, _): &(Registration, Handed), (b, _)| a.cluster.cmp(&b.cluster));
        let took = began.elapsed();
        let crew = Self {
            config: config.clone(),
            env: env.clone(),
            agents,
            stop: CancellationToken::new(),
            port,
        };
        Ok((crew, took))
    }

    /// Their names, sorted.
    pub(super) fn names(&self) -> Vec<String> {
        let names = self.agents.iter().map(|(own, _)| own.cluster.to_string());
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
        for (number, (registration, handed)) in self.agents.iter().enumerate() {
            let in_force = InForce {
                swap: CertificateSwap::empty(),
                certified: common::signal::Sender::default(),
                env: self.env.clone(),
            };
            let way = Timed {
                way: in_force.show(registration, handed)?,
                board: board.clone(),
                number,
            };
            let context = AgentContext {
                cluster: registration.cluster.clone(),
                cluster_id: registration.cluster_id.clone(),
                config: self.config.clone(),
                hub: HubHandle::new(Arc::new(way)).await?,
                member: member::client(),
                member_config: kube::Config::new(http::Uri::from_static("https://played.invalid")),
                clock: self.env.clock.clone(),
                chance: self.env.chance.clone(),
                metrics: Arc::new(Mutex::new(Registry::default())),
                shutdown: self.stop.clone(),
                cluster_view: common::signal::Sender::new(None),
                refused: common::signal::Sender::new(None),
                certified: in_force.certified.subscribe(),
                orphans: common::signal::Sender::new(None),
                errors: ErrorReport::default(),
            };
            let begin = interval.mul_f64(number as f64 / count as f64);
            tokio::spawn(live(context, number, board.clone(), begin));
        }
        Ok(self)
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
    pub(super) fn stop(&self) {
        self.stop.cancel();
    }
}

/// From a token to a certificate, by the agent's own registration.
async fn enrol(
    handed: &Handed,
    config: &Arc<Config>,
    env: &Env,
    dir: &Path,
) -> Result<Registration> {
    let bootstrap = handed
        .bootstrap
        .as_ref()
        .map_err(|why| anyhow::anyhow!("{why}"))?;
    let name = bootstrap.cluster.as_str();
    let dir = dir.join("agents").join(name);
    std::fs::create_dir_all(&dir).with_context(|| format!("failed to create {}", dir.display()))?;
    let registrar = Registrar {
        store: Arc::new(Store::in_directory(dir.clone())?),
        cluster_id: format!("id-of-{name}"),
        config: config.hub.clone(),
        env: env.clone(),
        reporter: Arc::new(Reporter::in_directory(&dir, env.clock.clone())),
    };
    let outcome = registrar.register(handed).await;
    let outcome = outcome.with_context(|| format!("failed to register {name}"))?;
    Ok(outcome.registration)
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

/// The way to the hub, with a clock on the connection of the Lease.
struct Timed {
    way: Registered,
    board: Arc<Board>,
    number: usize,
}

impl Connect for Timed {
    fn connect(
        &self,
        options: ClientOptions,
    ) -> BoxFuture<'static, Result<Client, Box<dyn Error + Send + Sync>>> {
        let made = self.way.connect(options.clone());
        let (board, number) = (self.board.clone(), self.number);
        Box::pin(async move {
            let client = made.await?;
            if options.purpose != "lease" {
                return Ok(client);
            }
            let service = tower::service_fn(move |request: Request<Body>| {
                let (client, board) = (client.clone(), board.clone());
                async move {
                    let began = Instant::now();
                    let answer = client.send(request).await;
                    match &answer {
                        Ok(answer) if answer.status().is_success() => {
                            board.renewed(number, began.elapsed());
                        }
                        Ok(_) | Err(_) => board.failed(),
                    }
                    answer
                }
            });
            Ok(Client::new(service, "default"))
        })
    }
}

/// What an operator hands to agents.
pub(super) struct Given {
    pub(super) servers: Vec<common::client::HostPort>,
    pub(super) token: BootstrapToken,
    pub(super) pins: Vec<CaPin>,
}
