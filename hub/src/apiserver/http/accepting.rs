//! Connections as they come in: how many there may be, a task for each, and their orderly end.

use super::connection::place;
use super::listener::Listener;
use crate::limit::{InFlight, Ticket};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, unconstrained, yield_now};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Which part of all connections may shake hands from one address: a fleet behind one comes back at once.
const HANDSHAKES_OF_ADDRESS: usize = 8;
/// So many are accepted before others have a turn on this thread.
const IN_A_ROW: usize = 1024;
/// Pause when no connection can be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// How the connections of a port are accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accepting {
    /// Connections at once; more wait.
    pub(crate) most: usize,
    /// How long they may take to end.
    pub(crate) end_within: Duration,
}

impl Accepting {
    /// Serves each connection until `stop`, then waits until those that there are have ended. Each counts as one that
    /// shakes hands as long as its ticket is kept.
    pub(crate) async fn run<L, S, F>(self, listener: L, stop: CancellationToken, serve: S)
    where
        L: Listener,
        S: Fn(L::Stream, IpAddr, Ticket) -> F,
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        // Under load a task has its turn seldom: all that wait are accepted then.
        unconstrained(self.accept_all(listener, stop, serve)).await;
    }

    async fn accept_all<L, S, F>(self, mut listener: L, stop: CancellationToken, serve: S)
    where
        L: Listener,
        S: Fn(L::Stream, IpAddr, Ticket) -> F,
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let room = Arc::new(Semaphore::new(self.most));
        let handshakes = InFlight::of((self.most / HANDSHAKES_OF_ADDRESS).max(1));
        let mut connections = JoinSet::new();
        let mut in_a_row = 0;
        loop {
            let next = async {
                let permit = room.clone().acquire_owned().await;
                let permit = permit.expect("invariant: the semaphore is never closed");
                (listener.accept().await, permit)
            };
            let (accepted, permit) = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                next = next => next,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    sleep(PAUSE).await;
                    continue;
                }
            };
            in_a_row += 1;
            if in_a_row == IN_A_ROW {
                in_a_row = 0;
                yield_now().await;
            }
            let Some(handshake) = handshakes.enter(&place(address)) else {
                tracing::debug!(%address, "too many handshakes at once");
                continue;
            };
            let serving = serve(stream, address, handshake);
            connections.spawn(async move {
                if let Err(error) = serving.await {
                    tracing::debug!(error, %address, "a connection ended");
                }
                drop(permit);
            });
        }
        drop(listener);
        let all = async { while connections.join_next().await.is_some() {} };
        if timeout(self.end_within, all).await.is_err() {
            tracing::warn!("some connections did not end in time and are cut off");
        }
    }
}
