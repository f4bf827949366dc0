//! `towline-hub serve`: a whole hub in one process, its own API server under the controllers.

pub mod account_key;
mod addresses;
pub mod authority;
pub mod backup;
mod beside;
pub mod encryption;
mod hint;
mod kubeconfig;
mod push;
pub mod restore;
pub mod revoke;

pub use hint::hints;
pub(crate) use kubeconfig::ADMIN;
pub use kubeconfig::{KubeconfigArgs, print as print_kubeconfig};

use crate::apiserver::http::router::Router;
use crate::apiserver::http::server::STRANGERS_OF_ADDRESS;
use crate::apiserver::keys::Keys;
use crate::apiserver::serve::{self as api, Options, Running};
use crate::config::{self, ClusterArgs, Config, LivenessArgs};
use crate::install::cluster_info::ClusterInfo;
use crate::install::repair::Known;
use crate::install::{Installation, crds, plan};
use crate::run::{self, InProcess};
use addresses::Addresses;
use clap::Args;
use common::admin::AdminState;
use common::client::HostPort;
use common::duration;
use common::env::Env;
use common::signal;
use common::telemetry::TelemetryArgs;
use kube::Client;
use kubeconfig::Servers;
use push::Push;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How long everything may take until the hub is ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
/// How often the administrator's kubeconfig is looked at.
const LOOK_AT_KUBECONFIG: Duration = Duration::from_secs(60);
/// How soon what is published is tried again that could not be written.
const INSTALL_AGAIN: Duration = Duration::from_secs(5);

/// Flags of `towline-hub serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    clusters: ClusterArgs,
    #[command(flatten)]
    liveness: LivenessArgs,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "The hub's API server")]
struct ServerArgs {
    /// Where everything is kept: database, keys, audit log and the administrator's kubeconfig
    #[arg(long, value_name = "DIR", env = "TOWLINE_HUB_DATA_DIR")]
    data_dir: PathBuf,
    /// File with the key by which Secrets, tokens, Works and private keys are encrypted on disk; made at the first
    /// start. Default: encryption.key in the data directory, which protects backups but not the disk itself
    #[arg(long, value_name = "FILE", env = "TOWLINE_HUB_ENCRYPTION_KEY_FILE")]
    encryption_key_file: Option<PathBuf>,
    /// Where the administrator's kubeconfig is written. Default: admin.kubeconfig in the data directory
    #[arg(long, value_name = "FILE", env = "TOWLINE_HUB_ADMIN_KUBECONFIG")]
    admin_kubeconfig: Option<PathBuf>,
    /// Where the audit log is written, `-` for standard output. Default: audit.log in the data directory
    #[arg(long, value_name = "FILE", env = "TOWLINE_HUB_AUDIT_LOG")]
    audit_log: Option<PathBuf>,
    /// Address to listen on
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "0.0.0.0:6443",
        env = "TOWLINE_HUB_LISTEN"
    )]
    listen: SocketAddr,
    /// Address by which agents reach the hub; repeat for several, tried in this order. Default: the
    /// address of this machine
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_parser = addresses::advertised,
        value_delimiter = ',',
        env = "TOWLINE_HUB_ADVERTISE"
    )]
    advertise: Vec<HostPort>,
    /// Name or address in the server's certificate beside those it has anyway; repeat for several
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        env = "TOWLINE_HUB_TLS_SAN"
    )]
    tls_san: Vec<String>,
    /// Connections at once from one address without a client certificate that holds, more for several
    /// operators or joining members behind one
    #[arg(long, value_name = "N", default_value_t = STRANGERS_OF_ADDRESS,
        env = "TOWLINE_HUB_CONNECTIONS_PER_ADDRESS")]
    connections_per_address: usize,
    /// Program that is run beside this one, as `PROGRAM push`, while there are clusters that `towline join` made known;
    /// `none` to run it elsewhere. Default: towline-agent in the directory of this program
    #[arg(long, value_name = "PROGRAM", env = "TOWLINE_HUB_PUSH_PROGRAM")]
    push_program: Option<PathBuf>,
    /// Life of the server's certificate; it is replaced after two thirds of it
    #[arg(long, value_name = "DURATION", default_value = "2160h", value_parser = duration::parse,
        hide = true, env = "TOWLINE_HUB_SERVER_CERTIFICATE_LIFETIME")]
    server_certificate_lifetime: Duration,
    /// Life of the certificate in the administrator's kubeconfig; it is replaced after two thirds of it
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = duration::parse,
        hide = true, env = "TOWLINE_HUB_ADMIN_CERTIFICATE_LIFETIME")]
    admin_certificate_lifetime: Duration,
    /// Begin an empty hub although the data directory holds the keys of one and no database
    #[arg(long, env = "TOWLINE_HUB_NEW_DATABASE")]
    new_database: bool,
}

/// Why the hub cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A flag.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The API server.
    #[error(transparent)]
    Api(#[from] api::Error),
    /// The administrator's kubeconfig.
    #[error(transparent)]
    Keys(#[from] crate::apiserver::keys::Error),
    /// The same, where it does not lie in the data directory.
    #[error(
        "failed to keep the administrator's kubeconfig in {}; name a place that the hub may write to by \
         --admin-kubeconfig, such as {}",
        there.display(), own.display()
    )]
    Elsewhere {
        /// Where it is to be.
        there: PathBuf,
        /// Where it is unless asked for elsewhere.
        own: PathBuf,
        /// Why.
        #[source]
        source: crate::apiserver::keys::Error,
    },
    /// What makes it a hub.
    #[error(transparent)]
    Install(#[from] plan::Error),
    /// The kinds.
    #[error("failed to read the kinds")]
    Kinds(#[source] Box<kube::Error>),
    /// A kind is missing.
    #[error("the kinds {0} are not served within {READY_WITHIN:?}; this is a defect")]
    Unserved(String),
    /// The controllers.
    #[error(transparent)]
    Run(#[from] run::Error),
}

impl ServeArgs {
    /// How it logs.
    pub fn telemetry(&self) -> &TelemetryArgs {
        &self.telemetry
    }
}

/// Serves until `shutdown`; `tell` gets what people are to be told once the hub is ready.
pub async fn serve(
    args: ServeArgs,
    env: Env,
    shutdown: CancellationToken,
    tell: impl FnOnce(String) + Send,
) -> Result<(), Error> {
    let began = Instant::now();
    let mut config = args.clusters.into_config(args.telemetry)?;
    config.grace.signs = args.liveness.into_config()?;
    let addresses = Addresses::new(args.server.listen, &args.server.advertise);
    let admin = AdminState::default();
    let (begins, busy) = signal::channel(true);
    let options = Options {
        data_dir: args.server.data_dir.clone(),
        listen: args.server.listen,
        names: addresses.names(&args.server.tls_san),
        certificate_lifetime: lifetime(args.server.server_certificate_lifetime),
        address: addresses.first(),
        key_file: args.server.encryption_key_file,
        audit_log: args.server.audit_log,
        strangers_of_address: args.server.connections_per_address,
        busy: Some(busy),
        new_database: args.server.new_database,
    };
    let running = Running::begin(options, admin.clone(), env.clone()).await?;
    // The port may have been chosen by the system.
    let addresses = addresses.listening(running.address);
    // As agents are told: a machine that gets another address meanwhile changes neither.
    let advertised = addresses.servers();
    let push = Push::new(
        args.server.push_program.as_deref(),
        &args.server.data_dir,
        addresses.local(),
        running.keys.clone(),
        env.clone(),
    );
    let push = push.with_grace(config.grace.running);
    let hub = Hub {
        push,
        data_dir: args.server.data_dir,
        admin_kubeconfig: args.server.admin_kubeconfig,
        addresses,
        advertised,
        env,
        router: running.router.clone(),
        keys: running.keys.clone(),
        admin_life: lifetime(args.server.admin_certificate_lifetime),
        admin,
    };
    let ended = hub
        .live(config, begins, &running, &shutdown, began, tell)
        .await;
    running.end().await;
    ended
}

fn lifetime(given: Duration) -> chrono::Duration {
    chrono::Duration::from_std(given).unwrap_or(chrono::Duration::MAX)
}

struct Hub {
    push: Push,
    data_dir: PathBuf,
    admin_kubeconfig: Option<PathBuf>,
    addresses: Addresses,
    /// How others reach it.
    advertised: Vec<String>,
    env: Env,
    router: Router,
    keys: Keys,
    /// Life of the certificate in the administrator's kubeconfig.
    admin_life: chrono::Duration,
    admin: AdminState,
}

impl Hub {
    async fn live(
        &self,
        config: Config,
        begins: signal::Sender<bool>,
        running: &Running,
        shutdown: &CancellationToken,
        began: Instant,
        tell: impl FnOnce(String) + Send,
    ) -> Result<(), Error> {
        let client = self.router.client();
        let controllers = InProcess::new(config, client.clone(), &self.admin, self.env.clone());
        let controllers = controllers.hearing(self.router.signs()).telling(begins);
        let mut authorities = running.authorities.clone();
        let mut tell = Some(tell);
        loop {
            authorities.borrow_and_update();
            let known = match self.install(&client).await {
                // What it cannot write now, a full disk say, is no reason to serve nobody.
                Err(error) if tell.is_none() => {
                    tracing::error!(
                        error = %common::errors::chain(&error),
                        "other authorities are not published yet"
                    );
                    drop(error);
                    let again = sleep(INSTALL_AGAIN);
                    match shutdown.run_until_cancelled(again).await {
                        Some(()) => continue,
                        None => return Ok(()),
                    }
                }
                installed => installed?,
            };
            // Once it is there it is kept, below.
            let kubeconfig = tell.as_ref().map(|_| self.kubeconfig()).transpose()?;
            let term = shutdown.child_token();
            let ready = async {
                if let (Some(tell), Some(kubeconfig)) = (tell.take(), kubeconfig)
                    && timeout(READY_WITHIN, self.ready()).await.is_ok()
                {
                    tell(self.greeting(&kubeconfig, began));
                }
                // Other authorities: what is published about them is put in place from the start.
                tokio::select! {
                    biased;
                    changed = authorities.changed() => if changed.is_err() {
                        std::future::pending::<()>().await;
                    },
                    () = self.keep_kubeconfig() => {}
                    () = self.push.run(&client) => {}
                }
                term.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                () = ready => {}
                ended = controllers.run(&term, known) => ended?,
            }
            if shutdown.is_cancelled() {
                return Ok(());
            }
        }
    }

    /// Everything that `towline init` makes on another API server, and cluster-info as it is now.
    async fn install(&self, client: &Client) -> Result<Known, Error> {
        let installation = Installation {
            cluster_info: Some(ClusterInfo {
                servers: self.addresses.servers(),
                ca_pem: self.keys.authorities().bundle().into_bytes(),
            }),
            built_in: true,
        };
        let mut known = Known::default();
        for desired in installation.guards() {
            let enforced = plan::enforce(client, &desired).await?;
            known.insert(desired.key(), enforced.mark);
        }
        let missing = crds::await_established(client, READY_WITHIN).await;
        let missing = missing.map_err(|error| Error::Kinds(Box::new(error)))?;
        if !missing.is_empty() {
            return Err(Error::Unserved(missing.join(", ")));
        }
        for desired in installation.grants() {
            let enforced = plan::enforce(client, &desired).await?;
            known.insert(desired.key(), enforced.mark);
        }
        Ok(known)
    }

    fn kubeconfig(&self) -> Result<PathBuf, Error> {
        let own = self.data_dir.join(kubeconfig::ADMIN_FILE);
        let there = kubeconfig::place(&own, self.admin_kubeconfig.as_deref())?;
        let local = self.addresses.local();
        let servers = Servers {
            own: &local,
            advertised: &self.advertised,
        };
        let (life, now) = (self.admin_life, self.env.clock.now());
        let write = |path: &Path| kubeconfig::ensure_admin(path, &self.keys, servers, life, now);
        match kubeconfig::keep(&own, &there, write) {
            Err(source) if there != own => Err(Error::Elsewhere { there, own, source }),
            Err(source) => Err(source.into()),
            Ok(written) => {
                if written {
                    tracing::info!(path = %there.display(), "the administrator's kubeconfig was written");
                }
                Ok(there)
            }
        }
    }

    /// Renews the administrator's certificate before it ends. Never returns.
    async fn keep_kubeconfig(&self) {
        let usual = self.admin_life.to_std().unwrap_or_default() / 10;
        let mut looks = interval(usual.clamp(POLL, LOOK_AT_KUBECONFIG));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failing = false;
        loop {
            looks.tick().await;
            let written = self.kubeconfig();
            if let Err(error) = &written
                && !failing
            {
                let error = common::errors::chain(error);
                tracing::error!(%error, "failed to renew the administrator's kubeconfig");
            }
            failing = written.is_err();
        }
    }

    async fn ready(&self) {
        while !self.admin.readiness.all_ok() {
            sleep(POLL).await;
        }
    }

    fn greeting(&self, kubeconfig: &Path, began: Instant) -> String {
        let kubeconfig = kubeconfig.canonicalize();
        let path = self.data_dir.join(kubeconfig::ADMIN_FILE);
        let kubeconfig = kubeconfig.unwrap_or(path);
        format!(
            "The hub is ready at {} after {:.2} s. Next:\n  \
             export KUBECONFIG={}\n  \
             towline token create --print-register-command\n",
            self.addresses.servers().join(", "),
            began.elapsed().as_secs_f64(),
            kubeconfig.display(),
        )
    }
}

#[cfg(test)]
mod tests {
    mod commands;
    mod fleet;
    mod foretold;
    mod rig;
    mod simulated;
    mod standing_by;
    mod stuck;
}
