//! The agent's connection to the hub, as the parts that use it see it.
//!
//! The credentials change while the agent runs (rotation, a moved hub); nobody keeps a client across a
//! change of [`HubHandle::generation`].

pub mod by_update;
pub mod connect;

use common::client::{ClientOptions, Dialer};
use common::lock::lock;
use common::signal;
use common::tunnel::Place;
use futures::future::BoxFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The shared client; the deadline is that of everything but watches.
const SHARED: ClientOptions = ClientOptions::new("agent").with_timeout(Duration::from_secs(15));
/// Longest answer of the hub: one object, or a page of a list, which has a bound of its own.
const ANSWER_MAX: usize = 32 * 1024 * 1024;

/// A failure to build a client.
#[derive(Debug, thiserror::Error)]
#[error("failed to build the {purpose} client for the hub")]
pub struct ConnectError {
    purpose: &'static str,
    #[source]
    source: Box<dyn std::error::Error + Send + Sync>,
}

/// Makes clients for the hub with the credentials of the moment.
pub trait Connect: Send + Sync {
    /// A client with a connection pool of its own.
    fn connect(
        &self,
        options: ClientOptions,
    ) -> BoxFuture<'static, Result<kube::Client, Box<dyn std::error::Error + Send + Sync>>>;

    /// What connections of a protocol of ours are made with, to another place than the hub's API if it is named; none
    /// where there are none.
    fn dialer(
        &self,
        _protocols: &[&[u8]],
        _place: Option<&Place>,
    ) -> Option<Result<Dialer, common::client::Error>> {
        None
    }
}

/// The hub, shared by all parts of the agent.
#[derive(Clone)]
pub struct HubHandle {
    inner: Arc<Inner>,
}

struct Inner {
    connector: Mutex<Arc<dyn Connect>>,
    shared: Mutex<kube::Client>,
    generation: signal::Sender<u64>,
}

impl HubHandle {
    /// A handle over `connector`, with its shared client made.
    pub async fn new(connector: Arc<dyn Connect>) -> Result<Self, ConnectError> {
        let shared = connect(connector.as_ref(), SHARED).await?;
        Ok(Self {
            inner: Arc::new(Inner {
                connector: Mutex::new(connector),
                shared: Mutex::new(shared),
                generation: signal::Sender::new(0),
            }),
        })
    }

    /// The client that status, Works and renewal share. Cheap; take it anew for every request.
    pub fn client(&self) -> kube::Client {
        lock(&self.inner.shared).clone()
    }

    /// A client with a connection of its own, for the Lease: built again after a timeout.
    pub async fn connect(&self, options: ClientOptions) -> Result<kube::Client, ConnectError> {
        let connector = Arc::clone(&lock(&self.inner.connector));
        connect(connector.as_ref(), options).await
    }

    /// What connections of a protocol of ours are made with, to another place than the hub's API if it is named; none
    /// where there are none.
    pub fn dialer(
        &self,
        protocols: &[&[u8]],
        place: Option<&Place>,
    ) -> Option<Result<Dialer, common::client::Error>> {
        lock(&self.inner.connector).dialer(protocols, place)
    }

    /// Counts the changes of credentials and addresses; after one, clients and watches are made anew.
    pub fn generation(&self) -> signal::Receiver<u64> {
        self.inner.generation.subscribe()
    }

    /// Puts another connector in force, drops the shared pool and tells everybody.
    pub async fn replace(&self, connector: Arc<dyn Connect>) -> Result<(), ConnectError> {
        let shared = connect(connector.as_ref(), SHARED).await?;
        *lock(&self.inner.connector) = connector;
        *lock(&self.inner.shared) = shared;
        self.inner.generation.send_modify(|n| *n += 1);
        Ok(())
    }
}

async fn connect(
    connector: &dyn Connect,
    options: ClientOptions,
) -> Result<kube::Client, ConnectError> {
    let purpose = options.purpose;
    let made = connector.connect(options.with_answer_max(ANSWER_MAX)).await;
    made.map_err(|source| ConnectError { purpose, source })
}
