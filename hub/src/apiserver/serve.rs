//! The API server as a whole: from a data directory to a router that answers, and what keeps it so.

use super::admit::Rules;
use super::audit::Audit;
use super::authn::Authenticator;
use super::authz::Authorizer;
use super::catalogue::Catalogue;
use super::control;
use super::error::ApiError;
use super::http::router::{Parts, Router};
use super::http::server::{Server, Shown, tls};
use super::keys::{self, Keys, server};
use super::registry::Registry;
use super::store::{self, Health, Store};
use super::{seed, signer};
use common::admin::{AdminState, Check};
use common::time::SharedClock;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// How often the files of the keys are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why the API server cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store.
    #[error("failed to open the store in {dir}")]
    Store {
        /// Where.
        dir: PathBuf,
        /// Why.
        #[source]
        source: store::OpenError,
    },
    /// The keys.
    #[error(transparent)]
    Keys(#[from] keys::Error),
    /// The audit log.
    #[error("failed to open the audit log in {dir}")]
    Audit {
        /// Where.
        dir: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The address is taken or not ours.
    #[error("failed to listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Objects that every API server has could not be made.
    #[error("failed to make {what}")]
    Seed {
        /// Which objects.
        what: &'static str,
        /// Why.
        #[source]
        source: ApiError,
    },
    /// TLS cannot be set up.
    #[error("failed to set up TLS")]
    Tls(#[source] rustls::Error),
}

/// How the server is reached and for how long its certificates live.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Names and addresses in its certificate.
    pub names: BTreeSet<String>,
    /// Life of its certificate.
    pub certificate_lifetime: chrono::Duration,
    /// `host:port` as discovery says it; filled in from the listener when empty.
    pub address: String,
}

/// An API server that listens.
pub struct Running {
    /// Answers requests, also in this process.
    pub router: Router,
    /// What is signed with.
    pub keys: Keys,
    /// The store below.
    pub store: Store,
    /// Where it listens.
    pub address: SocketAddr,
    /// Tells of changed authorities.
    pub authorities: tokio::sync::watch::Receiver<u64>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Running {
    /// Begins to serve. Ready for requests when it returns.
    pub async fn begin(
        options: Options,
        admin: AdminState,
        clock: SharedClock,
    ) -> Result<Self, Error> {
        let dir = options.data_dir.clone();
        let listener = TcpListener::bind(options.listen).await;
        let listener = listener.map_err(|source| Error::Listen {
            address: options.listen,
            source,
        })?;
        let address = listener.local_addr().map_err(|source| Error::Listen {
            address: options.listen,
            source,
        })?;
        let store = open_store(&dir).await?;
        let keys = Keys::open(&dir, &clock)?;
        let audit = Audit::open(&dir).map_err(|source| Error::Audit {
            dir: dir.clone(),
            source,
        })?;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let authorizer = Arc::new(Authorizer::default());
        tasks.spawn(show_health(store.clone(), admin.readiness.add("store")));
        let catalogue = Catalogue::new();
        let rules = Arc::new(Rules::new(authorizer.clone()));
        let registry = Registry::new(store.clone(), catalogue.clone(), clock.clone(), rules);
        control::load_definitions(&registry);
        let shown_address = match options.address.as_str() {
            "" => address.to_string(),
            given => given.to_owned(),
        };
        let router = Router::new(Parts {
            registry: registry.clone(),
            catalogue,
            authenticator: Authenticator::new(keys.clone(), store.clone(), clock.clone()),
            authorizer: authorizer.clone(),
            audit,
            admin,
            clock: clock.clone(),
            shutdown: stop.clone(),
            address: shown_address,
            data_dir: dir,
        });
        let failed = |what| move |source| Error::Seed { what, source };
        control::ensure_namespaces(&registry)
            .await
            .map_err(failed("the namespaces of the system"))?;
        seed::ensure_roles(&registry)
            .await
            .map_err(failed("the roles that every API server has"))?;
        // Not before: whoever asks at once finds them in force.
        tasks.spawn(authorizer.follow(&store));
        let bundle_keys = keys.clone();
        let bundle: control::CaBundle = Arc::new(move || bundle_keys.authorities().bundle());
        tasks.spawn(control::run(registry, bundle, stop.clone()));
        let signing = signer::run(router.client(), keys.clone(), clock.clone());
        tasks.spawn(until(stop.clone(), signing));
        let (names, life) = (options.names, options.certificate_lifetime);
        let certificate = server::current(&keys, &names, life, clock.now())?;
        let shown = Shown::new(certificate.key.clone());
        let serving = Server {
            router: router.clone(),
            keys: keys.clone(),
            clock: clock.clone(),
            tls: Arc::new(tls(shown.clone()).map_err(Error::Tls)?),
        };
        tasks.spawn(serving.run(listener, stop.clone()));
        let (changed, authorities) = tokio::sync::watch::channel(0);
        let upkeep = Upkeep {
            keys: keys.clone(),
            names,
            life,
            clock,
            shown,
            renew_at: certificate.renew_at,
            changed,
        };
        tasks.spawn(until(stop.clone(), upkeep.run()));
        Ok(Self {
            router,
            keys,
            store,
            address,
            authorities,
            tasks,
            stop,
        })
    }

    /// Ends watches and connections, then the controllers, then the store.
    pub async fn end(mut self) {
        self.stop.cancel();
        let ends_with_the_store = 2;
        while self.tasks.len() > ends_with_the_store {
            if self.tasks.join_next().await.is_none() {
                break;
            }
        }
        self.store.close().await;
        self.tasks.shutdown().await;
    }
}

async fn open_store(dir: &Path) -> Result<Store, Error> {
    let path = dir.to_owned();
    let opened = tokio::task::spawn_blocking(move || Store::open(&path, store::Options::default()));
    match opened.await {
        Ok(Ok(store)) => Ok(store),
        Ok(Err(source)) => Err(Error::Store {
            dir: dir.to_owned(),
            source,
        }),
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
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

/// Keeps the server's certificate fresh and notices other authorities.
struct Upkeep {
    keys: Keys,
    names: BTreeSet<String>,
    life: chrono::Duration,
    clock: SharedClock,
    shown: Shown,
    renew_at: chrono::DateTime<chrono::Utc>,
    changed: tokio::sync::watch::Sender<u64>,
}

impl Upkeep {
    async fn run(mut self) {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let replaced = match self.keys.reload() {
                Ok(replaced) => replaced,
                // The files of an authority change one after the other.
                Err(error) => {
                    tracing::debug!(error = %common::errors::chain(&error), "failed to read the keys");
                    continue;
                }
            };
            let now = self.clock.now();
            if !replaced && now < self.renew_at {
                continue;
            }
            match server::current(&self.keys, &self.names, self.life, now) {
                Ok(certificate) => {
                    self.renew_at = certificate.renew_at;
                    self.shown.set(certificate.key);
                    tracing::info!(until_renewal = %(self.renew_at - now), "the server's certificate was renewed");
                }
                Err(error) => {
                    tracing::error!(error = %common::errors::chain(&error), "failed to renew the server's certificate");
                }
            }
            if replaced {
                self.changed.send_modify(|version| *version += 1);
            }
        }
    }
}
