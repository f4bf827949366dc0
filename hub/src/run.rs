//! The process `towline-hub run`: waits until it leads, runs the controllers, and ends in order.
//!
//! Everything that writes belongs to one term of leadership. A hub that loses its lease ends its term at
//! once and begins a new one, with nothing remembered, when it leads again. What a term has to know is read while the
//! leader of before is silent already, but not yet given up: that takes as long.

mod standing;

use crate::access::UnderWay;
use crate::aggregated::Aggregated;
use crate::config::{Config, Propagating};
use crate::controller::binding::sync::Sync;
use crate::controller::binding_status::Answers;
use crate::controller::bindings::Bindings;
use crate::controller::cluster::{self, Clusters};
use crate::controller::detector::policies::Policies;
use crate::controller::detector::{Detector, Holdings, Unsettled};
use crate::controller::events::Events;
use crate::controller::eviction::{self, Evictions};
use crate::controller::fleet::Fleet;
use crate::controller::monitor::{self, Monitor};
use crate::controller::namespace::{Namespaces, Spaces};
use crate::controller::notices::Notices;
use crate::controller::quarantine::Quarantine;
use crate::controller::rebalancer::Rebalancers;
use crate::controller::registration::Registrar;
use crate::controller::rights::Rights;
use crate::controller::scheduler::{Placing, Scheduler};
use crate::controller::taint_policy::TaintPolicies;
use crate::install::repair::{Known, Repair};
use crate::liveness::Signs;
use crate::world::{Sizes, World};
use common::admin::{self, AdminState, Check};
use common::client::{self, ClientOptions, kubeconfig_client};
use common::controller::{Controller, Metrics, Reconcile};
use common::env::Env;
use common::leader::{self, Election};
use common::names::SYSTEM_NAMESPACE;
use common::signal;
use kube::Client;
use prometheus_client::registry::Registry;
use standing::{refuse_built_in, show_standing};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::task::{self, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Deadline of a request; watches have their own.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How long what is under way may take at the end of a term.
const END_WITHIN: Duration = Duration::from_secs(10);
/// Name of the Lease of the election.
const LEASE: &str = "towline-hub";
/// Requests of agents judged at once.
const CONCURRENT_REGISTRATIONS: usize = 8;
/// Clusters whose permissions are compared at once.
const CONCURRENT_RIGHTS: usize = 2;
/// Quarantines settled at once.
const CONCURRENT_QUARANTINES: usize = 2;

/// Of bindings whose Works are written, and of those that leave clusters, there are so many times as many at once as
/// of others.
const WORKERS_OF_WORKS: usize = 4;

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
    shared.fleet.look_at(&world);
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
                term.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                () = lost => {}
                ended = self.term(identity, leading, term.clone(), Known::default()) => ended?,
            }
        }
    }

    /// Everything a leader does, until `stop`; before it leads, it only reads.
    async fn term(
        &self,
        identity: &str,
        mut leading: signal::Receiver<bool>,
        stop: CancellationToken,
        known: Known,
    ) -> Result<(), Error> {
        let Env { clock, chance, .. } = self.env.clone();
        let world = World::new(
            &self.client,
            &chance,
            self.config.propagation.shipped.clone(),
        );
        let mut parts = Parts::new(stop.clone(), Some(leading.clone()));
        let client = || self.client.clone();
        let (repair, in_force) = Repair::new(client(), known, chance.clone());
        parts.drop_at_end("repair", repair.run());
        let proof = show(in_force.clone(), self.policies.clone());
        parts.drop_at_end("proof of the policies", proof);
        let registrar =
            Registrar::new(client(), clock.clone(), in_force, world.clusters_of.clone());
        let registrar = registrar.watching(&world);
        self.start(&mut parts, registrar.workers(CONCURRENT_REGISTRATIONS));
        let options = cluster::decide::Options {
            deletion_timeout: self.config.deletion_timeout,
            failover_after: self.config.failover.after,
        };
        let events = Events::new(client(), clock.clone(), identity);
        let clusters = Clusters::watching(client(), clock.clone(), events, options, &world);
        self.start(
            &mut parts,
            clusters.workers(self.config.concurrent_clusters),
        );
        let rights = Rights::new(client()).watching(&world);
        self.start(&mut parts, rights.workers(CONCURRENT_RIGHTS));
        self.propagate(&mut parts, &world, identity);
        let quarantine = Quarantine::new(client(), clock, self.config.write_budget);
        let quarantine = quarantine.watching(&world);
        self.start(&mut parts, quarantine.workers(CONCURRENT_QUARANTINES));
        let monitor = Monitor::new(
            self.monitor.clone(),
            self.env.clone(),
            self.config.grace,
            self.metrics.monitor.clone(),
            &world,
        );
        let monitor = monitor.hearing(self.signs.as_ref());
        parts.begin("monitor", monitor.run(leading.clone(), stop.clone()));
        if let Some(begins) = self.begins.clone() {
            let all = world.clone();
            parts.drop_at_end("word of the start", async move {
                all.synced().await;
                begins.send_replace(false);
                std::future::pending::<()>().await;
            });
        }
        // Last: every listener is there.
        let metrics = self.metrics.controllers.clone();
        let (reading, stopped) = (world.clone().run(metrics, chance), stop.clone());
        parts.begin("world", async move {
            stopped.run_until_cancelled_owned(reading).await;
        });
        let leads = *leading.borrow();
        if !leads {
            tracing::info!("the leader is silent: reading everything, to take over soon");
        }
        let led = stop.run_until_cancelled(leading.wait_for(|leads| *leads));
        if let Some(Ok(_)) = led.await {
            tracing::info!("leading");
            self.metrics.fleet.look_at(&world);
            self.metrics.sizes.look_at(&world);
        }
        let ended = parts.end().await;
        self.metrics.fleet.clear();
        ended
    }

    /// From policies to Works, and the answers back.
    fn propagate(&self, parts: &mut Parts, world: &World, identity: &str) {
        let Env { clock, chance, .. } = &self.env;
        let client = || self.client.clone();
        let events = Events::new(client(), clock.clone(), identity);
        let notices = Notices::default();
        let bindings = || Bindings::new(client(), world.clone(), notices.clone());
        let Propagating {
            skips,
            namespaces,
            workers,
            shipped: _,
        } = self.config.propagation.clone();
        let (holdings, unsettled) = (Holdings::default(), Unsettled::default());
        let placing = Placing::watching(world);
        let detector = Detector::watching(
            client(),
            (bindings(), placing.clone()),
            skips.clone(),
            (holdings.clone(), unsettled.clone()),
            chance,
            world,
        );
        let detected = detector.queue();
        self.start(parts, detector.workers(workers));
        let policies = Policies::watching(client(), holdings, skips.clone(), chance, world);
        self.start(parts, policies);
        let scheduler = Scheduler::watching(bindings(), placing.clone(), clock.clone(), world);
        let scheduled = scheduler.queue();
        self.start(parts, scheduler.workers(workers));
        let spaces = Spaces::watching(skips, namespaces, world);
        let brought = Namespaces::watching(client(), bindings(), spaces.clone(), world);
        self.start(parts, brought.workers(workers));
        let works = Sync::watching(
            client(),
            bindings(),
            (unsettled, spaces),
            clock.clone(),
            world,
        );
        let synced = works.queue();
        // What bounds them is how many Works are written at once.
        self.start(parts, works.workers(workers * WORKERS_OF_WORKS));
        let answers = Answers::watching(
            client(),
            (bindings(), placing.clone()),
            clock.clone(),
            world,
        );
        let answered = answers.queue();
        self.start(parts, answers.workers(workers));
        let evictions = Evictions::watching(
            client(),
            (bindings(), placing),
            clock.clone(),
            self.config.failover.eviction,
            self.metrics.eviction.clone(),
            world,
        );
        let evicted = evictions.queue();
        // What bounds them is their turns.
        self.start(parts, evictions.workers(workers * WORKERS_OF_WORKS));
        let policies = TaintPolicies::watching(client(), bindings(), clock.clone(), world);
        self.start(parts, policies.workers(workers));
        let rebalancers = Rebalancers::watching(client(), bindings(), clock.clone(), world);
        self.start(parts, rebalancers);
        let is_busy = move || {
            detected.is_busy()
                || scheduled.is_busy()
                || synced.is_busy()
                || answered.is_busy()
                || evicted.is_busy()
        };
        parts.drop_at_end("events", notices.tell(events, is_busy));
    }

    fn start<R: Reconcile>(&self, parts: &mut Parts, controller: Controller<R>) {
        let metrics = self.metrics.controllers.clone();
        let stop = parts.stop.clone();
        parts.spawn(
            R::NAME,
            controller.run(metrics, self.env.chance.clone(), stop),
        );
    }
}

/// Shows on /readyz whether anybody can be registered.
async fn show(mut in_force: signal::Receiver<bool>, check: Check) {
    loop {
        if *in_force.borrow_and_update() {
            check.ok();
        } else {
            check.fail("not proved to be in force; nobody is registered. See the log, or run `towline init`");
        }
        if in_force.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The parts of a term: they all end together.
struct Parts {
    tasks: JoinSet<()>,
    /// Those that go on.
    names: BTreeMap<task::Id, &'static str>,
    stop: CancellationToken,
    /// Whether this hub leads, where parts wait for that.
    leading: Option<signal::Receiver<bool>>,
}

impl Parts {
    fn new(stop: CancellationToken, leading: Option<signal::Receiver<bool>>) -> Self {
        Self {
            tasks: JoinSet::new(),
            names: BTreeMap::new(),
            stop,
            leading,
        }
    }

    /// A part that begins at once.
    fn begin(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        let task = self.tasks.spawn(part);
        self.names.insert(task.id(), name);
    }

    /// A part that hears the stop itself and finishes what is under way.
    fn spawn(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        let (stop, leading) = (self.stop.clone(), self.leading.clone());
        self.begin(name, async move {
            if let Some(mut leading) = leading {
                let led = stop.run_until_cancelled(leading.wait_for(|leads| *leads));
                if !matches!(led.await, Some(Ok(_))) {
                    return;
                }
            }
            part.await;
        });
    }

    /// A part that only reads, or whose writes may be cut off anywhere.
    fn drop_at_end(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.spawn(name, async move {
            stop.run_until_cancelled_owned(part).await;
        });
    }

    /// Waits for the end of one.
    async fn ended(&mut self) -> Option<&'static str> {
        let id = match self.tasks.join_next_with_id().await? {
            Ok((id, ())) => id,
            Err(panicked) => panicked.id(),
        };
        self.names.remove(&id).or(Some("part"))
    }

    /// Waits for the end of all parts; one that ends before the stop ends the rest, and is an error.
    async fn end(mut self) -> Result<(), Error> {
        let mut failed = None;
        let stop = self.stop.clone();
        if let Some(first) = self.ended().await
            && !stop.is_cancelled()
        {
            failed = Some(Error::Part(first));
        }
        stop.cancel();
        let rest = async { while self.ended().await.is_some() {} };
        if tokio::time::timeout(END_WITHIN, rest).await.is_err() {
            let parts: Vec<_> = self.names.values().collect();
            tracing::warn!(?parts, "some work did not end in time and is cut off");
        }
        failed.map_or(Ok(()), Err)
    }
}
