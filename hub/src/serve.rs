//! `towline-hub serve`: a whole hub in one process, its own API server under the controllers.

pub mod authority;
pub mod backup;
mod kubeconfig;
mod place;

pub use kubeconfig::{KubeconfigArgs, print as print_kubeconfig};

use crate::apiserver::http::router::Router;
use crate::apiserver::keys::Keys;
use crate::apiserver::serve::{self as api, Options, Running};
use crate::config::{self, ClusterArgs, Config};
use crate::install::cluster_info::ClusterInfo;
use crate::install::repair::Known;
use crate::install::{Installation, crds, plan};
use crate::run::{self, InProcess};
use clap::Args;
use common::admin::AdminState;
use common::client::HostPort;
use common::duration;
use common::telemetry::TelemetryArgs;
use common::time::SharedClock;
use kube::Client;
use place::Place;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How long everything may take until the hub is ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// Flags of `towline-hub serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    clusters: ClusterArgs,
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "The hub's API server")]
struct ServerArgs {
    /// Where everything is kept: database, keys, audit log and the administrator's kubeconfig
    #[arg(long, value_name = "DIR", env = "TOWLINE_HUB_DATA_DIR")]
    data_dir: PathBuf,
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
    /// Life of the server's certificate; it is replaced after two thirds of it
    #[arg(long, value_name = "DURATION", default_value = "2160h", value_parser = duration::parse,
        hide = true, env = "TOWLINE_HUB_SERVER_CERTIFICATE_LIFETIME")]
    server_certificate_lifetime: Duration,
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
    clock: SharedClock,
    shutdown: CancellationToken,
    tell: impl FnOnce(String) + Send,
) -> Result<(), Error> {
    let began = Instant::now();
    let config = args.clusters.into_config(args.telemetry)?;
    let place = Place::new(args.server.listen, &args.server.advertise);
    let admin = AdminState::default();
    let life = chrono::Duration::from_std(args.server.server_certificate_lifetime);
    let options = Options {
        data_dir: args.server.data_dir.clone(),
        listen: args.server.listen,
        names: place.names(&args.server.tls_san),
        certificate_lifetime: life.unwrap_or(chrono::Duration::MAX),
        address: place.first(),
    };
    let running = Running::begin(options, admin.clone(), clock.clone()).await?;
    // The port may have been chosen by the system.
    let place = place.listening(running.address);
    let hub = Hub {
        data_dir: args.server.data_dir,
        place,
        clock,
        router: running.router.clone(),
        keys: running.keys.clone(),
        admin,
    };
    let ended = hub.live(config, &running, &shutdown, began, tell).await;
    running.end().await;
    ended
}

struct Hub {
    data_dir: PathBuf,
    place: Place,
    clock: SharedClock,
    router: Router,
    keys: Keys,
    admin: AdminState,
}

impl Hub {
    async fn live(
        &self,
        config: Config,
        running: &Running,
        shutdown: &CancellationToken,
        began: Instant,
        tell: impl FnOnce(String) + Send,
    ) -> Result<(), Error> {
        let client = self.router.client();
        let controllers = InProcess::new(config, client.clone(), &self.admin, self.clock.clone());
        let mut authorities = running.authorities.clone();
        let mut tell = Some(tell);
        loop {
            authorities.borrow_and_update();
            let known = self.install(&client).await?;
            let kubeconfig = self.kubeconfig()?;
            let term = shutdown.child_token();
            let ready = async {
                if let Some(tell) = tell.take()
                    && timeout(READY_WITHIN, self.ready()).await.is_ok()
                {
                    tell(self.greeting(&kubeconfig, began));
                }
                // Other authorities: what is published about them is put in place from the start.
                if authorities.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
                term.cancel();
                std::future::pending::<()>().await;
            };
            tokio::select! {
                ended = controllers.run(&term, known) => ended?,
                () = ready => {}
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
                servers: self.place.servers(),
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
        let path = self.data_dir.join(kubeconfig::ADMIN_FILE);
        let server = self.place.local();
        kubeconfig::ensure_admin(&path, &self.keys, &server, self.clock.now())?;
        Ok(path)
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
            self.place.servers().join(", "),
            began.elapsed().as_secs_f64(),
            kubeconfig.display(),
        )
    }
}
