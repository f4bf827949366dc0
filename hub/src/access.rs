//! Ways into members: the tunnels that agents dialled ([`common::tunnel`]), and requests of users through them.
//!
//! Who an agent is, who asks, and what they may is judged where a connection comes in: by the built-in API server, or
//! on the port of `towline-hub run`. What goes through a tunnel, and how, is the same for both, and is here.

mod gather;
mod hold;
mod lasting;
mod listed;
mod merged;
mod pass;
mod severed;
mod taken;
mod under_way;

pub use gather::{LISTS, LISTS_OF_USER, Missing, gather};
pub use lasting::{Body, Cut, Over};
pub use listed::{EVERY, Form, Listed, NotAList, every};
pub use merged::{FROM, Merged};
pub use pass::{Asked, Failure, onward, pass_on, protocol};
pub use taken::{TakenOver, Upgrade};
pub use under_way::UnderWay;

use crate::limit::{InFlight, Ticket};
use bytes::Bytes;
use common::lock::lock;
use common::tunnel::STREAMS;
use futures::FutureExt as _;
use futures::channel::oneshot;
use futures::future::Shared;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::BoxError;
use under_way::Standing;

/// Requests of one user to all members at once.
pub const STREAMS_OF_USER: usize = 64;

/// The body of a request through a tunnel.
pub type Sent = UnsyncBoxBody<Bytes, BoxError>;

/// The tunnel of each cluster that has one. Clones share them.
#[derive(Clone)]
pub struct Tunnels {
    open: Arc<Mutex<Open>>,
    /// Requests of each cluster at once.
    streams: InFlight,
    under_way: UnderWay,
}

#[derive(Default)]
struct Open {
    next: u64,
    of: BTreeMap<String, (Tunnel, Standing)>,
}

/// One that stands. It ends with its last clone, of which each request under way in it has one.
#[derive(Clone)]
pub struct Tunnel {
    number: u64,
    /// Cancelled by whoever asks for something first: HTTP/2 begins then.
    asked: CancellationToken,
    /// What begins; nothing if the tunnel ends instead.
    sender: Shared<oneshot::Receiver<SendRequest<Sent>>>,
    since: Instant,
    under_way: UnderWay,
}

/// Why a tunnel brought no answer.
#[derive(Debug, thiserror::Error)]
enum Lost {
    /// HTTP/2 did not begin in it.
    #[error("its tunnel ended")]
    Ended,
    /// It broke there.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
}

/// Keeps a tunnel where it is found, until it is dropped or another one of its cluster takes its place.
struct Kept {
    tunnels: Tunnels,
    cluster: String,
    number: u64,
}

impl Tunnels {
    /// None yet; what goes through them is counted there.
    pub fn counted(under_way: UnderWay) -> Self {
        Self {
            open: Arc::default(),
            streams: InFlight::of(STREAMS as usize),
            under_way,
        }
    }

    /// Has a cluster be reached by one from now on: what is sent here begins once `asked` is cancelled.
    fn keep(
        &self,
        cluster: &str,
        asked: CancellationToken,
        sender: oneshot::Receiver<SendRequest<Sent>>,
    ) -> Kept {
        let mut open = lock(&self.open);
        open.next += 1;
        let number = open.next;
        let tunnel = Tunnel {
            number,
            asked,
            sender: sender.shared(),
            since: Instant::now(),
            under_way: self.under_way.clone(),
        };
        let stands = self.under_way.stands();
        open.of.insert(cluster.to_owned(), (tunnel, stands));
        Kept {
            tunnels: self.clone(),
            cluster: cluster.to_owned(),
            number,
        }
    }

    /// A request under way, for a reference of metrics.
    #[cfg(test)]
    pub(crate) fn sample(&self) -> impl Sized + use<> {
        self.under_way.begin("m1", "ann")
    }

    /// The one of a cluster.
    pub fn of(&self, cluster: &str) -> Result<Tunnel, Failure> {
        let open = lock(&self.open);
        let found = open.of.get(cluster).map(|(tunnel, _)| tunnel.clone());
        found.ok_or_else(|| Failure::NoTunnel(cluster.to_owned()))
    }

    /// Counts a request through the tunnel of a cluster, unless there are too many.
    pub fn stream(&self, cluster: &str) -> Result<Ticket, Failure> {
        let entered = self.streams.enter(cluster);
        entered.ok_or_else(|| Failure::TooMany(cluster.to_owned()))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut open = lock(&self.tunnels.open);
        let found = open.of.get(&self.cluster);
        if found.is_some_and(|(tunnel, _)| tunnel.number == self.number) {
            open.of.remove(&self.cluster);
        }
    }
}

impl Tunnel {
    /// Sends a request; it is given up by dropping this.
    async fn send(self, request: Request<Sent>) -> Result<Response<Incoming>, Lost> {
        self.asked.cancel();
        let mut sender = self.sender.await.map_err(|_| Lost::Ended)?;
        sender.ready().await?;
        Ok(sender.send_request(request).await?)
    }
}
