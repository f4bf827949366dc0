//! `towline-agent push`: an agent for each cluster that the hub reaches itself, in one process beside the hub.
//!
//! Each is the agent that a member would run, with a registration, a certificate and rights of its own; what the process
//! adds is that it knows which clusters there are, and reads where each is and by which token from the Secret that
//! `towline join` made. What this process may do on the hub is no more than that: to see Clusters, and to read those
//! Secrets. [`decide`] says who is served, [`serve`] serves one.

pub mod decide;
mod record;
mod serve;

use crate::config::PushConfig;
use crate::error::Error;
use common::admin::{self, AdminState, Check};
use common::api::cluster::Cluster;
use common::client::{ClientOptions, kubeconfig_client};
use common::env::Env;
use common::lock::lock;
use common::watch::{Collection, Event, WatchConfig, watch};
use decide::{Ground, Order, Refusal, Seen, Standing};
use futures::StreamExt as _;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use record::Record;
use serve::{Ended, Post, Serving};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{Id, JoinError, JoinSet, LocalSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long agents may take to end in order.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves every cluster that is to be served until `shutdown`, on the thread that asks for it.
pub async fn run(config: PushConfig, env: Env, shutdown: CancellationToken) -> Result<(), Error> {
    let here = LocalSet::new();
    here.run_until(keep(config, env, shutdown)).await
}

async fn keep(config: PushConfig, env: Env, shutdown: CancellationToken) -> Result<(), Error> {
    let state = AdminState::default();
    let metrics = Metrics::register(&mut lock(&state.registry));
    let listed = state.readiness.add("clusters");
    let admin_stop = CancellationToken::new();
    let serving = admin::serve(
        config.health_address,
        config.metrics_address,
        state,
        admin_stop.clone(),
    );
    let serving = serving.await.map_err(|e| Error::Serve(Box::new(e)))?;
    tracing::info!(health = ?serving.health, metrics = ?serving.metrics, "serving");
    let options = ClientOptions::new("agent push");
    let (kubeconfig, context) = (config.kubeconfig.as_deref(), config.context.as_deref());
    let connected = kubeconfig_client(kubeconfig, context, &options, &env).await;
    let (hub, _) = connected.map_err(Error::HubClient)?;
    let clusters = Collection::of::<Cluster>(None);
    let mut events = pin!(watch::<Record>(
        hub.clone(),
        clusters,
        WatchConfig::new(&env.chance)
    ));
    let mut keeper = Keeper {
        post: Post {
            hub,
            config: Arc::new(config),
            env,
            failures: metrics.failures.clone(),
        },
        metrics,
        listed,
        seen: BTreeMap::new(),
        fresh: None,
        served: BTreeMap::new(),
        left: BTreeMap::new(),
        refused: BTreeMap::new(),
        tasks: JoinSet::new(),
    };
    loop {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(ended) = keeper.tasks.join_next_with_id() => keeper.ended(ended),
            Some(event) = events.next() => keeper.heard(event),
        }
    }
    keeper.stop().await;
    admin_stop.cancel();
    Ok(())
}

/// What the process has of its own; each agent's figures are those of its Cluster's status.
struct Metrics {
    clusters: Gauge,
    failures: Counter,
}

impl Metrics {
    fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            clusters: Gauge::default(),
            failures: Counter::default(),
        };
        registry.register(
            "towline_push_clusters",
            "Clusters that this process has an agent for",
            metrics.clusters.clone(),
        );
        registry.register(
            "towline_push_failures",
            "How often an agent could not be started, or ended",
            metrics.failures.clone(),
        );
        metrics
    }
}

/// A cluster that is served.
struct Served {
    standing: Standing,
    task: Id,
    /// Ends its agent.
    stop: CancellationToken,
    /// Says that its Cluster is gone.
    gone: CancellationToken,
    /// Says that its Cluster is unregistered, or gone.
    unregistered: CancellationToken,
}

/// Keeps an agent for each cluster that is to have one.
struct Keeper {
    post: Post,
    metrics: Metrics,
    listed: Check,
    seen: BTreeMap<String, Seen>,
    /// What a list that is under way has told.
    fresh: Option<BTreeMap<String, Seen>>,
    served: BTreeMap<String, Served>,
    /// UIDs of Clusters that are there and whose agents have left.
    left: BTreeMap<String, String>,
    refused: BTreeMap<String, Refusal>,
    tasks: JoinSet<Ended>,
}

impl Keeper {
    /// Takes in what the watch tells, and does what follows from it.
    fn heard(&mut self, event: Event<Record>) {
        match event {
            Event::Init => self.fresh = Some(BTreeMap::new()),
            Event::Applied(record) => {
                let (name, seen) = record.seen();
                if let Some(fresh) = &mut self.fresh {
                    fresh.insert(name.clone(), seen.clone());
                }
                self.seen.insert(name.clone(), seen);
                self.settle(&name);
            }
            // It is there, as it was.
            Event::Undecodable(odd) => {
                let (name, error) = (odd.key.name, odd.error);
                tracing::warn!(cluster = name, error, "not understood");
                if let (Some(fresh), Some(seen)) = (&mut self.fresh, self.seen.get(&name)) {
                    fresh.insert(name, seen.clone());
                }
            }
            Event::Deleted(key) => {
                self.seen.remove(&key.name);
                if let Some(fresh) = &mut self.fresh {
                    fresh.remove(&key.name);
                }
                self.settle(&key.name);
            }
            Event::InitDone { .. } => {
                let fresh = self.fresh.take().unwrap_or_default();
                let before = std::mem::replace(&mut self.seen, fresh);
                for name in before.keys() {
                    if !self.seen.contains_key(name) {
                        self.settle(name);
                    }
                }
                self.listed.ok();
            }
            Event::Disconnected { problem, .. } => {
                tracing::warn!(%problem, "the hub's Clusters cannot be watched; agents go on");
            }
            Event::Resumed { .. } => {}
        }
    }

    /// Starts or stops the agent of a cluster, if that is to be done.
    fn settle(&mut self, name: &str) {
        let seen = self.seen.get(name);
        if seen.is_none() {
            self.left.remove(name);
        }
        self.tell_refusal(name);
        let served = self.served.get(name);
        let standing = served.map(|served| &served.standing);
        let left = self.left.get(name).map(String::as_str);
        match decide::decide(name, self.seen.get(name), standing, left) {
            None => {}
            Some(Order::Start(ground)) => self.start(name, ground),
            Some(Order::Stop) => {
                if let Some(served) = self.served.get_mut(name) {
                    tracing::info!(cluster = name, "its agent is stopped");
                    served.standing = Standing::Stopping;
                    served.stop.cancel();
                }
            }
            Some(Order::Outlive) => {
                if let Some(served) = self.served.get_mut(name) {
                    served.standing = Standing::Outliving;
                    served.gone.cancel();
                }
            }
        }
        if let Some(served) = self.served.get(name)
            && decide::is_to_leave(self.seen.get(name))
        {
            served.unregistered.cancel();
        }
    }

    fn start(&mut self, name: &str, ground: Ground) {
        tracing::info!(cluster = name, "an agent is started for it");
        let (stop, gone) = (CancellationToken::new(), CancellationToken::new());
        let unregistered = CancellationToken::new();
        let serving = Serving {
            post: self.post.clone(),
            name: name.to_owned(),
            ground: ground.clone(),
            stop: stop.clone(),
            gone: gone.clone(),
            unregistered: unregistered.clone(),
        };
        let task = self.tasks.spawn_local(serving.run()).id();
        let standing = Standing::Working(ground);
        let served = Served {
            standing,
            task,
            stop,
            gone,
            unregistered,
        };
        self.served.insert(name.to_owned(), served);
        self.count();
    }

    fn ended(&mut self, ended: Result<(Id, Ended), JoinError>) {
        let (task, ended) = match ended {
            Ok((task, ended)) => (task, Some(ended)),
            Err(error) => {
                tracing::error!(%error, "what serves a cluster ended; this is a defect");
                self.metrics.failures.inc();
                (error.id(), None)
            }
        };
        let mut all = self.served.iter();
        let Some(name) = all.find(|(_, served)| served.task == task) else {
            return;
        };
        let name = name.0.clone();
        self.served.remove(&name);
        self.count();
        if let Some(Ended::Left { uid }) = ended {
            self.left.insert(name.clone(), uid);
        }
        self.settle(&name);
    }

    fn count(&self) {
        let count = i64::try_from(self.served.len()).unwrap_or(i64::MAX);
        self.metrics.clusters.set(count);
    }

    /// Says once why a cluster that was joined is not served.
    fn tell_refusal(&mut self, name: &str) {
        let found = self.seen.get(name);
        let refusal = found.and_then(|seen| decide::ground(name, seen).err());
        let Some(refusal) = refusal else {
            self.refused.remove(name);
            return;
        };
        if self.refused.get(name) != Some(&refusal) {
            tracing::error!(cluster = name, "not served: {refusal}");
        }
        self.refused.insert(name.to_owned(), refusal);
    }

    async fn stop(mut self) {
        for served in self.served.values() {
            served.stop.cancel();
        }
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(STOP_TIMEOUT, ended).await.is_err() {
            tracing::warn!("some agents did not end in time");
        }
    }
}
