//! The process `towline-hub run`: waits until it leads, runs the controllers, and ends in order.
//!
//! Everything that writes belongs to one term of leadership. A hub that loses its lease ends its term at
//! once and begins a new one, with nothing remembered, when it leads again. What a term has to know is read while the
//! leader of before is silent already, but not yet given up: that takes as long.

mod parts;
mod standing;
mod term;

use crate::access::UnderWay;
use crate::aggregated::Aggregated;
use crate::config::Config;
use crate::controller::fleet::Fleet;
use crate::controller::{eviction, monitor};
use crate::install::repair::Known;
use crate::liveness::Signs;
use crate::world::Sizes;
use common::admin::{self, AdminState, Check};
use common::client::{self, ClientOptions, kubeconfig_client};
use common::controller::Metrics;
use common::env::Env;
use common::leader::{self, Election};
use common::names::SYSTEM_NAMESPACE;
use common::signal;
use kube::Client;
use parts::{END_WITHIN, Parts};
use prometheus_client::registry::Registry;
use standing::{refuse_built_in, show_standing};
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Deadline of a request; watches have their own.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Name of the Lease of the election.
const LEASE: &str = "towline-hub";

/// Why the hub cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No client.
    #[error("failed to make a client of the hub's API server")]
    Client(#[source] client::Error),
    /// Health and metrics.
    #[error(transparent)]
    Serve(#[from] admin::Error),
    /// The API server has controllers of its own.
    #[error(
        "this API server is that of `towline-hub serve`, which runs the controllers itself; a second set of them would \
         undo what the first does. Name the kubeconfig of another API server by --kubeconfig; beside `serve` there is \
         nothing to run"
    )]
    BuiltIn,
    /// A part that never ends did.
    #[error("the hub's {0} ended unexpectedly; this is a defect")]
    Part(&'static str),
}

/// Runs the hub until `shutdown`.
pub async fn run(
    config: Config,
    identity: &str,
    env: Env,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let state = AdminState::default();
    let hub = Hub {
        metrics: Shared::register(&state.registry),
        client: connect(&config, "hub", &env).await?,
        monitor: connect(&config, "monitor", &env).await?,
        leading: state.readiness.add("leader-election"),
        policies: state.readiness.add("admission-policies"),
        signs: None,
        begins: None,
        config,
        env,
    };
    if hub.config.access.is_some() {
        // In the process of an API server it is that one which takes tunnels, and tells of them.
        let registry = state.registry.lock();
        let mut registry = registry.unwrap_or_else(PoisonError::into_inner);
        registry.register_collector(Box::new(hub.metrics.under_way.clone()));
    }
    let admin_stop = CancellationToken::new();
    let (health, metrics) = (hub.config.health_address, hub.config.metrics_address);
    let serving = admin::serve(health, metrics, state, admin_stop.clone()).await?;
    tracing::info!(health = ?serving.health, metrics = ?serving.metrics, "serving");
    let ended = hub.live(identity, &shutdown).await;
    admin_stop.cancel();
    ended
}

/// The hub over an API server in the same process: there is nobody to lead against.
pub struct InProcess(Hub);

impl InProcess {
    /// Over a client in this process.
    pub fn new(config: Config, client: Client, state: &AdminState, env: Env) -> Self {
        Self(Hub {
            metrics: Shared::register(&state.registry),
            monitor: client.clone(),
            client,
            leading: state.readiness.add("leader-election"),
            policies: state.readiness.add("admission-policies"),
            signs: None,
            begins: None,
            config,
            env,
        })
    }

    /// Has `begins` say when the start is over: all was listed.
    #[must_use]
    pub fn telling(mut self, begins: signal::Sender<bool>) -> Self {
        self.0.begins = Some(begins);
        self
    }

    /// Where the server's signs of life are, which count if the configuration says so.
    #[must_use]
    pub fn hearing(mut self, signs: &Signs) -> Self {
        self.0.signs = Some(signs.clone());
        self
    }

    /// Runs the controllers until `shutdown`; may be run again, with nothing remembered. What is in
    /// `known` was put in place just now.
    pub async fn run(&self, shutdown: &CancellationToken, known: Known) -> Result<(), Error> {
        self.0.leading.ok();
        let (_leads, leading) = signal::channel(true);
        let term = self.0.term("towline-hub", leading, shutdown.clone(), known);
        term.await
    }

    /// What `towline-hub run` asks of its API server before anything else.
    #[cfg(test)]
    pub(crate) async fn refuse_built_in(&self) -> Result<(), Error> {
        refuse_built_in(&self.0.client, &self.0.leading).await
    }

    /// Stands by until `shutdown`, as one of several: reads when the leader is silent, and acts when this one leads.
    #[cfg(test)]
    pub(crate) async fn stand_by(
        &self,
        near: signal::Receiver<bool>,
        leading: &signal::Receiver<bool>,
        shutdown: &CancellationToken,
    ) -> Result<(), Error> {
        self.0.leading.ok();
        self.0.terms("another", near, leading, shutdown).await
    }
}

async fn connect(config: &Config, purpose: &'static str, env: &Env) -> Result<Client, Error> {
    let options = ClientOptions::new(purpose).with_timeout(REQUEST_TIMEOUT);
    let kubeconfig = config.kubeconfig.as_deref();
    let context = config.context.as_deref();
    let connected = kubeconfig_client(kubeconfig, context, &options, env).await;
    connected.map(|(client, _)| client).map_err(Error::Client)
}

/// Metrics that outlive a term.
struct Shared {
    controllers: Metrics,
    monitor: monitor::Metrics,
    eviction: eviction::Metrics,
    fleet: Fleet,
    sizes: Sizes,
    under_way: UnderWay,
}

impl Shared {
    /// Tells nothing of a fleet any more: only who leads does.
    fn clear(&self) {
        self.fleet.clear();
        self.sizes.clear();
        self.monitor.clear();
        self.eviction.clear();
    }

    fn register(registry: &Mutex<Registry>) -> Self {
        let mut registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            controllers: Metrics::register(&mut registry, "towline_hub"),
            monitor: monitor::Metrics::register(&mut registry),
            eviction: eviction::Metrics::register(&mut registry),
            fleet: Fleet::register(&mut registry),
            sizes: Sizes::register(&mut registry),
            under_way: UnderWay::default(),
        }
    }
}

/// Every metric of the controllers with some value, for a reference of them.
#[cfg(test)]
pub(crate) fn sample_metrics(registry: &Mutex<Registry>) {
    let shared = Shared::register(registry);
    shared.controllers.sample();
    shared.monitor.sample();
    shared.eviction.sample();
    let world = crate::world::testing::sample();
    shared.fleet.look_at(&world, Fleet::hear(&world));
    shared.sizes.look_at(&world);
    crate::world::testing::renewed(&world);
}

struct Hub {
    config: Config,
    env: Env,
    client: Client,
    /// The monitor's connection is its own: a flood elsewhere must not delay a live read.
    monitor: Client,
    metrics: Shared,
    leading: Check,
    policies: Check,
    /// What agents show between renewals, where the API server is in this process.
    signs: Option<Signs>,
    /// Whether this hub reads everything just now, for that API server.
    begins: Option<signal::Sender<bool>>,
}

impl Hub {
    async fn live(&self, identity: &str, shutdown: &CancellationToken) -> Result<(), Error> {
        match shutdown
            .run_until_cancelled(refuse_built_in(&self.client, &self.leading))
            .await
        {
            Some(answered) => answered?,
            None => return Ok(()),
        }
        let Some(election) = self.config.election else {
            self.leading.ok();
            let known = Known::default();
            let stop = shutdown.child_token();
            let (_leads, leading) = signal::channel(true);
            let term = self.term(identity, leading.clone(), stop.clone(), known);
            return self.reached(identity, leading, stop, term).await;
        };
        let client = connect(&self.config, "election", &self.env).await?;
        let election = Election {
            lease_duration: election.lease_duration,
            renew_deadline: election.renew_deadline,
            retry_period: election.retry_period,
            ..Election::new(SYSTEM_NAMESPACE, LEASE, identity)
        };
        let stop = CancellationToken::new();
        let running = leader::run(election, client, self.env.clone(), stop.clone());
        let shown = show_standing(running.standing, self.leading.clone());
        let _shown = AbortOnDropHandle::new(tokio::spawn(shown));
        let (leading, ending) = (running.leading.clone(), shutdown.child_token());
        let terms = self.terms(identity, running.near, &running.leading, &ending);
        let ended = self.reached(identity, leading, ending.clone(), terms);
        let ended = ended.await;
        // The lease is given up only after everything of the term has ended.
        stop.cancel();
        if tokio::time::timeout(END_WITHIN, running.task)
            .await
            .is_err()
        {
            tracing::warn!("the lease was not released; another hub waits for it to run out");
        }
        ended
    }

    /// Has members be reached by this replica, if that is asked for, while something else goes on until `stop`.
    async fn reached(
        &self,
        identity: &str,
        leading: signal::Receiver<bool>,
        stop: CancellationToken,
        beside: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        let Some(access) = self.config.access.clone() else {
            return beside.await;
        };
        let port = Aggregated {
            access,
            client: self.client.clone(),
            env: self.env.clone(),
            identity: identity.to_owned(),
            metrics: self.metrics.controllers.clone(),
            under_way: self.metrics.under_way.clone(),
        };
        let mut parts = Parts::new(stop.clone(), None);
        parts.spawn("access", port.run(leading, stop.clone()));
        let beside = async {
            let ended = beside.await;
            stop.cancel();
            ended
        };
        let (served, ended) = tokio::join!(parts.end(), beside);
        ended.and(served)
    }

    async fn terms(
        &self,
        identity: &str,
        mut near: signal::Receiver<bool>,
        leading: &signal::Receiver<bool>,
        shutdown: &CancellationToken,
    ) -> Result<(), Error> {
        loop {
            // A hub that stands by is ready: it would take over, and prove the policies then.
            self.policies.ok();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(()),
                near = near.wait_for(|near| *near) => {
                    near.map_err(|_| Error::Part("leader election"))?;
                }
            }
            let term = shutdown.child_token();
            let (mut led, leading) = (leading.clone(), leading.clone());
            let lost = async {
                tokio::select! {
                    biased;
                    () = async {
                        let _ = led.wait_for(|leads| *leads).await;
                        let _ = led.wait_for(|leads| !*leads).await;
                        tracing::warn!("no longer leading");
                    } => {}
                    _ = near.wait_for(|near| !*near) => {}
                }
            };
            tokio::select! {
                biased;
                // Another hub may lead by now, and have decided otherwise: what is under way is cut off, as by a kill.
                () = lost => self.metrics.clear(),
                ended = self.term(identity, leading, term.clone(), Known::default()) => ended?,
            }
        }
    }
}
