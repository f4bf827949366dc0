//! A server that is whole and listens nowhere: it answers in this process. What listens comes on top.

use super::upkeep::Upkeep;
use super::{Error, Running};
use crate::apiserver::admit::Rules;
use crate::apiserver::agents::Unknown;
use crate::apiserver::audit::Audit;
use crate::apiserver::authn::Authenticator;
use crate::apiserver::authz::Authorizer;
use crate::apiserver::http::listener::Listener;
use crate::apiserver::http::router::{Parts, Router};
use crate::apiserver::http::server::{Server, Tls};
use crate::apiserver::http::{Changes, Requests};
use crate::apiserver::keys::{Keys, server};
use crate::apiserver::registry::Registry;
use crate::apiserver::scheme::Scheme;
use crate::apiserver::store::{Health, Store};
use crate::apiserver::{control, removed, seed, signer};
use common::admin::{AdminState, Check};
use common::controller;
use common::env::Env;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What a server stands on.
pub struct Foundation {
    /// The objects.
    pub store: Store,
    /// What is signed with.
    pub keys: Keys,
    /// What callers did.
    pub audit: Audit,
    /// Where backups are made.
    pub data_dir: PathBuf,
    /// `host:port` as discovery says it.
    pub address: String,
    /// Whether those who will use it are busy with their start; nobody is unless given.
    pub busy: Option<control::Busy>,
    /// Health and metrics.
    pub admin: AdminState,
    /// Time of day and chance.
    pub env: Env,
}

/// What strangers meet first.
#[derive(Debug, Clone)]
pub struct Front {
    /// Names and addresses in the certificate.
    pub names: BTreeSet<String>,
    /// Life of the certificate.
    pub certificate_lifetime: chrono::Duration,
    /// Connections from one address that have shown no certificate that holds.
    pub strangers_of_address: usize,
}

/// An API server with its controllers, without a socket or a thread. When it is dropped, all of it ends at once.
pub struct Assembled {
    /// Answers requests.
    pub router: Router,
    /// What is signed with.
    pub keys: Keys,
    /// The store below.
    pub store: Store,
    admin: AdminState,
    env: Env,
    tasks: Tasks,
}

impl Assembled {
    /// Ready for requests when it returns.
    pub async fn new(foundation: Foundation) -> Result<Self, Error> {
        let Foundation {
            store,
            keys,
            audit,
            data_dir,
            address,
            busy,
            admin,
            env,
        } = foundation;
        let clock = env.clock.clone();
        let mut tasks = Tasks::default();
        let authorizer = Arc::new(Authorizer::default());
        let health = admin.readiness.add("store");
        tasks.follow_store(show_health(store.clone(), health));
        let scheme = Scheme::new();
        let rules = Arc::new(Rules::new(authorizer.clone()));
        let registry = Registry::new(store.clone(), scheme.clone(), env.clone(), rules);
        control::load_crds(&registry);
        let changes = Changes::default();
        tasks.follow_store(changes.follow(&store, &authorizer, &keys));
        let router = Router::new(Parts {
            registry: registry.clone(),
            scheme,
            authenticator: Authenticator::new(keys.clone(), store.clone(), clock.clone()),
            authorizer: authorizer.clone(),
            audit,
            admin: admin.clone(),
            clock: clock.clone(),
            requests: Requests::of(store.clone()),
            changes,
            shutdown: tasks.stop.clone(),
            address: address.clone(),
            data_dir,
            unknown: Unknown::default(),
        });
        let failed = |what| move |source| Error::Seed { what, source };
        control::ensure_namespaces(&registry)
            .await
            .map_err(failed("the namespaces of the system"))?;
        seed::ensure_roles(&registry)
            .await
            .map_err(failed("the roles that every API server has"))?;
        // Not before: whoever asks at once finds them in force.
        tasks.follow_store(authorizer.follow(&store));
        tasks.follow_store(removed::run(store.clone(), keys.clone(), clock));
        let bundle_keys = keys.clone();
        let bundle: control::CaBundle = Arc::new(move || bundle_keys.authorities().bundle());
        let metrics = {
            let metrics = admin.registry.lock();
            let mut metrics = metrics.unwrap_or_else(PoisonError::into_inner);
            controller::Metrics::register(&mut metrics, "towline_apiserver")
        };
        let stop = tasks.stop.clone();
        tasks.work(control::run(
            registry,
            bundle,
            address,
            busy,
            metrics.clone(),
            stop.clone(),
        ));
        let (client, keys_of) = (router.client(), keys.clone());
        tasks.work(signer::run(client, keys_of, env.clone(), metrics, stop));
        Ok(Self {
            router,
            keys,
            store,
            admin,
            env,
            tasks,
        })
    }

    /// Lets others in over what `listener` accepts at `address`, and keeps the certificate fresh that they see.
    pub fn listen(
        mut self,
        listener: impl Listener,
        address: SocketAddr,
        front: Front,
    ) -> Result<Running, Error> {
        let (keys, clock) = (&self.keys, &self.env.clock);
        let readable = self.admin.readiness.add("keys");
        readable.ok();
        let (names, life) = (front.names, front.certificate_lifetime);
        let certificate = server::current(keys, &names, life, clock.now())?;
        let shown = Tls::new(certificate.key.clone(), keys.authorities().names());
        let shown = shown.map_err(Error::Tls)?;
        let serving = Server {
            router: self.router.clone(),
            keys: keys.clone(),
            clock: clock.clone(),
            tls: shown.clone(),
            strangers_of_address: front.strangers_of_address,
        };
        let (changed, authorities) = common::signal::channel(0);
        let upkeep = Upkeep {
            keys: keys.clone(),
            names,
            life,
            clock: clock.clone(),
            shown,
            serves: certificate.serves,
            changed,
            readable,
        };
        let stop = self.tasks.stop.clone();
        self.tasks.work(serving.run(listener, stop.clone()));
        self.tasks.work(until(stop, upkeep.run()));
        Ok(Running {
            router: self.router,
            keys: self.keys,
            store: self.store,
            address,
            authorities,
            tasks: self.tasks,
        })
    }

    /// Ends watches, then the controllers, then the store.
    pub async fn end(self) {
        self.tasks.end(&self.store).await;
    }
}

/// Everything that a server does by itself; ends when it is dropped.
#[derive(Default)]
pub(super) struct Tasks {
    stop: CancellationToken,
    /// End when they are told to.
    working: JoinSet<()>,
    /// End with the store.
    following: JoinSet<()>,
}

impl Tasks {
    /// What ends by itself after `stop`.
    fn work(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.working.spawn(task);
    }

    fn follow_store(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.following.spawn(task);
    }

    pub(super) async fn end(mut self, store: &Store) {
        self.stop.cancel();
        while self.working.join_next().await.is_some() {}
        store.close().await;
        self.following.shutdown().await;
    }
}

async fn until(stop: CancellationToken, task: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = task => {}
    }
}

async fn show_health(store: Store, check: Check) {
    let mut health = store.health();
    loop {
        match &*health.borrow_and_update() {
            Health::Ready => check.ok(),
            Health::Full { why } => check.fail(format!("no writes: {why}")),
            Health::Closed => check.fail("closed"),
        }
        if health.changed().await.is_err() {
            return;
        }
    }
}
