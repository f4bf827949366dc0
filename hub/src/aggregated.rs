//! The port of `towline-hub run` by which users of a hub of kube-apiserver reach members: it takes the tunnels of agents,
//! and serves `clusters/NAME/proxy` of [`GROUP`], which the hub's API server passes on to it as an aggregated API.
//!
//! Whoever comes in shows a certificate: an agent that of its registration, the API server that of its front proxy.
//! Nobody else is anybody here, whatever a request says. Only the replica that leads serves it, and says where: to the
//! API server by an APIService, to agents in cluster-info.

mod announce;
mod answer;
mod certificate;
pub mod documents;
pub mod front;
mod gathered;
mod registered;
mod review;
mod server;
pub mod trust;

pub use announce::{APISERVICE, withdraw_unavailable};

use crate::access::{LISTS, LISTS_OF_USER, STREAMS_OF_USER, Tunnels, UnderWay};
use crate::config::Access;
use crate::limit::InFlight;
use crate::world::World;
use announce::Announcement;
use certificate::Made;
use common::env::Env;
use common::errors::chain;
use kube::Client;
use registered::Registered;
use server::Port;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
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

/// The port of one term of leadership.
pub struct Aggregated {
    access: Access,
    client: Client,
    env: Env,
    registered: Registered,
    under_way: UnderWay,
}

impl Aggregated {
    /// One over the clusters of a world that is not watched yet; what goes through it is counted there.
    pub fn watching(
        access: Access,
        client: Client,
        env: Env,
        world: &World,
        under_way: UnderWay,
    ) -> Self {
        Self {
            access,
            client,
            env,
            under_way,
            registered: Registered::watching(world),
        }
    }

    /// Serves until `stop`; what cannot be served yet is tried again.
    pub async fn run(self, stop: CancellationToken) {
        let mut complaint = None;
        loop {
            let served = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                served = self.prepare() => served,
            };
            match served {
                Ok((port, announcement)) => return port.run(announcement, stop).await,
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

    async fn prepare(&self) -> Result<(Serving, Announcement), Error> {
        let trusted = Trusted::read(self.client.clone(), self.access.client_ca.clone()).await?;
        let address = self.access.address;
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|error| Error::Listen(address, error))?;
        let made = Made::new(&self.access.names(), self.env.clock.now());
        let made = made.map_err(Error::Certificate)?;
        // What is not known yet is no cluster.
        self.registered.synced().await;
        let announcement = Announcement::new(self.client.clone(), &self.access, &made.ca_pem);
        let port = Port {
            client: self.client.clone(),
            trusted,
            registered: self.registered.clone(),
            tunnels: Tunnels::counted(self.under_way.clone()),
            streams: InFlight::of(STREAMS_OF_USER),
            lists: [LISTS_OF_USER, LISTS].map(InFlight::of),
            tls: made.tls,
            clock: self.env.clock.clone(),
        };
        let port = Arc::new(port);
        Ok((Serving { port, listener }, announcement))
    }
}

/// A port that can be announced.
struct Serving {
    port: Arc<Port>,
    listener: TcpListener,
}

impl Serving {
    async fn run(self, announcement: Announcement, stop: CancellationToken) {
        let Self { port, listener } = self;
        tracing::info!(address = ?listener.local_addr().ok(), "tunnels and {GROUP} are served");
        let trusted = port.trusted.clone();
        // It is told before it ends: nobody is sent to a port that is gone.
        let ending = CancellationToken::new();
        let telling = async {
            announcement.keep(&stop).await;
            ending.cancel();
        };
        let serving = port.serve(listener, ending.clone());
        let following = ending.run_until_cancelled(trusted.follow());
        tokio::join!(telling, serving, following);
    }
}
