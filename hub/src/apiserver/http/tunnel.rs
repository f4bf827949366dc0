//! Ways into members: the tunnels that agents dialled ([`common::tunnel`]), and what goes through them.

mod dialled;
mod lasting;
mod severed;
mod taken;

pub(super) use lasting::lasting;
pub(super) use taken::join;

use super::limit::{InFlight, Ticket};
use bytes::Bytes;
use common::lock::lock;
use common::tunnel::STREAMS;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tower::BoxError;

/// The body of a request through a tunnel.
pub(super) type Sent = UnsyncBoxBody<Bytes, BoxError>;

/// The tunnel of each cluster that has one. Clones share them.
#[derive(Clone)]
pub(super) struct Tunnels {
    open: Arc<Mutex<Open>>,
    /// Requests of each cluster at once.
    streams: InFlight,
}

#[derive(Default)]
struct Open {
    next: u64,
    of: BTreeMap<String, Tunnel>,
}

/// One that stands. It ends with its last clone, once no request is under way in it.
#[derive(Clone)]
pub(super) struct Tunnel {
    number: u64,
    sender: SendRequest<Sent>,
}

/// Keeps a tunnel where it is found, until it is dropped or another one of its cluster takes its place.
pub(super) struct Kept {
    tunnels: Tunnels,
    cluster: String,
    number: u64,
}

impl Tunnels {
    pub(super) fn new() -> Self {
        Self {
            open: Arc::default(),
            streams: InFlight::of(STREAMS as usize),
        }
    }

    /// Has a cluster be reached by this one from now on.
    fn keep(&self, cluster: &str, sender: SendRequest<Sent>) -> Kept {
        let mut open = lock(&self.open);
        open.next += 1;
        let number = open.next;
        open.of
            .insert(cluster.to_owned(), Tunnel { number, sender });
        Kept {
            tunnels: self.clone(),
            cluster: cluster.to_owned(),
            number,
        }
    }

    /// The one of a cluster.
    pub(super) fn of(&self, cluster: &str) -> Option<Tunnel> {
        let open = lock(&self.open);
        open.of.get(cluster).cloned()
    }

    /// Counts a request through the tunnel of a cluster, unless there are too many.
    pub(super) fn stream(&self, cluster: &str) -> Option<Ticket> {
        self.streams.enter(cluster)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut open = lock(&self.tunnels.open);
        let mine = |tunnel: &Tunnel| tunnel.number == self.number;
        if open.of.get(&self.cluster).is_some_and(mine) {
            open.of.remove(&self.cluster);
        }
    }
}

impl Tunnel {
    /// Sends a request; it is given up by dropping this.
    pub(super) async fn send(
        mut self,
        request: Request<Sent>,
    ) -> hyper::Result<Response<Incoming>> {
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }
}
