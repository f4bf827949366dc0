//! The port of `towline-hub run` by which users of a hub of kube-apiserver reach members: it takes the tunnels of agents,
//! and serves `clusters/NAME/proxy` of [`GROUP`], which the hub's API server passes on to it as an aggregated API.
//!
//! Whoever comes in shows a certificate: an agent that of its registration, the API server that of its front proxy,
//! another replica of this hub that of its Lease. Nobody else is anybody here, whatever a request says. Every replica
//! serves it; the one that leads says where: to the API server by an APIService, to agents in cluster-info. An agent keeps
//! a tunnel to one of them, and whichever is asked passes a request on to the one that has it.

mod announce;
mod answer;
mod certificate;
pub mod documents;
pub mod front;
mod gathered;
mod hop;
mod registered;
mod replicas;
mod review;
mod server;
mod stand_in;
pub mod trust;

pub use announce::{APISERVICE, withdraw_unavailable};

use crate::access::{LISTS, LISTS_OF_USER, STREAMS_OF_USER, Tunnels, UnderWay};
use crate::apiserver::http::listener::listen;
use crate::config::Access;
use crate::limit::InFlight;
use crate::world::watched;
use announce::Announcement;
use certificate::Made;
use common::controller::Metrics;
use common::env::Env;
use common::errors::chain;
use common::signal;
use kube::Client;
use registered::Registered;
use replicas::Replicas;
use server::Port;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use trust::Trusted;

/// The API group.
pub const GROUP: &str = "proxy.towline.dev";
/// Its version.
pub const VERSION: &str = "v1alpha1";

/// What is waited after a failure that somebody has to mend.
const AGAIN: Duration = Duration::from_secs(5);

/// Why the port cannot serve.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// Something else has it.
    #[error("failed to listen on {0}, where tunnels and {GROUP} are to be served")]
    Listen(std::net::SocketAddr, #[source] std::io::Error),
    /// No certificate.
    #[error("failed to make a certificate for the port of tunnels and {GROUP}")]
    Certificate(#[source] certificate::Error),
    /// Nobody can be told.
    #[error(transparent)]
    Trust(#[from] trust::Error),
}

/// The port of one replica.
pub struct Aggregated {
    /// Where it is.
    pub access: Access,
    /// Of the hub's API server.
    pub client: Client,
    /// The process.
    pub env: Env,
    /// What the election calls it.
    pub identity: String,
    /// Of the collections that it watches.
    pub metrics: Metrics,
    /// What goes through it is counted there.
    pub under_way: UnderWay,
}

impl Aggregated {
    /// Serves until `stop`; what cannot be served yet is tried again.
    /// While it leads, it says where all of them are.
    pub async fn run(self, leading: signal::Receiver<bool>, stop: CancellationToken) {
        let mut complaint = None;
        loop {
            let served = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                served = self.prepare() => served,
            };
            match served {
                Ok(serving) => return serving.run(leading, stop).await,
                Err(error) => {
                    let text = chain(&error).to_string();
                    if complaint.as_ref() != Some(&text) {
                        tracing::error!(error = text, "users of this hub cannot reach members");
                        complaint = Some(text);
                    }
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => return,
                        () = sleep(AGAIN) => {}
                    }
                }
            }
        }
    }

    async fn prepare(&self) -> Result<Serving, Error> {
        let (client, env) = (self.client.clone(), &self.env);
        let trusted = Trusted::read(client.clone(), self.access.client_ca.clone()).await?;
        let address = self.access.address;
        let listener = listen(address).map_err(|error| Error::Listen(address, error))?;
        let made = Made::new(&self.access.names(), env.clock.now());
        let made = made.map_err(Error::Certificate)?;
        let registered = Registered::new(client.clone(), &env.chance);
        let replicas = Replicas::new(client.clone(), env, &self.access, &made, &self.identity);
        let (metrics, chance) = (&self.metrics, &env.chance);
        let watches = [
            watched(registered.clusters(), metrics, chance),
            watched(replicas.leases(), metrics, chance),
        ];
        let watches = watches.into_iter().collect();
        // What is not known yet is no cluster.
        registered.synced().await;
        replicas.leases().synced().await;
        let port = Port {
            client: client.clone(),
            trusted,
            registered,
            replicas,
            tunnels: Tunnels::counted(self.under_way.clone()),
            streams: InFlight::of(STREAMS_OF_USER),
            lists: [LISTS_OF_USER, LISTS].map(InFlight::of),
            tls: made.tls,
            clock: env.clock.clone(),
        };
        Ok(Serving {
            port: Arc::new(port),
            listener,
            announcement: Announcement::new(client),
            _watches: watches,
        })
    }
}

/// A port that can be announced.
struct Serving {
    port: Arc<Port>,
    listener: TcpListener,
    announcement: Announcement,
    _watches: JoinSet<()>,
}

impl Serving {
    async fn run(self, leading: signal::Receiver<bool>, stop: CancellationToken) {
        let Self {
            port,
            listener,
            mut announcement,
            _watches,
        } = self;
        tracing::info!(address = ?listener.local_addr().ok(), "tunnels and {GROUP} are served");
        let (trusted, replicas) = (port.trusted.clone(), port.replicas.clone());
        // It is told before it ends: nobody is sent to a port that is gone.
        let ending = CancellationToken::new();
        let telling = async {
            tokio::join!(
                replicas.keep(&stop),
                announcement.keep(&replicas, leading, &stop),
            );
            announcement.leave(&replicas).await;
            ending.cancel();
        };
        let serving = port.serve(listener, ending.clone());
        let following = ending.run_until_cancelled(trusted.follow());
        tokio::join!(telling, serving, following);
    }
}
