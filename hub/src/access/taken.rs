//! Connections that are taken over, and joined with a stream of a tunnel.

use super::lasting::Over;
use common::tunnel::{self, Ending};
use http::{Extensions, StatusCode};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::io;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What runs over a connection after it was taken over, and its end.
#[derive(Debug, Clone, Default)]
pub struct TakenOver {
    /// What runs over it.
    pub tasks: TaskTracker,
    /// Cancelled when the connection ends.
    pub end: CancellationToken,
}

/// A connection that can be taken over.
pub struct Upgrade {
    /// The connection, once the answer has left.
    pub connection: OnUpgrade,
    /// What runs over it then.
    pub taken_over: TakenOver,
}

impl Upgrade {
    /// That of a request, if its connection can be taken over.
    pub fn take(extensions: &mut Extensions) -> Option<Self> {
        let taken_over = extensions.remove::<TakenOver>();
        Some(Self {
            connection: extensions.remove::<OnUpgrade>()?,
            taken_over: taken_over?,
        })
    }
}

/// What answers: its streams end as they do there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The member's agent.
    Tunnel,
    /// Another replica of the hub.
    Replica,
}

impl Source {
    /// What it answers when a stream of it can be joined.
    pub(super) const fn switches(self) -> StatusCode {
        match self {
            Self::Tunnel => StatusCode::OK,
            Self::Replica => StatusCode::SWITCHING_PROTOCOLS,
        }
    }
}

/// Joins a client's connection with a stream, until one of them ends, the client's connection does, or whoever asked
/// would no longer be allowed to. `with` is dropped at the end.
pub(super) fn join(
    upgrade: Upgrade,
    source: Source,
    answer: http::Response<Incoming>,
    over: Over,
    with: impl Send + 'static,
) {
    let Upgrade {
        connection,
        taken_over,
    } = upgrade;
    let end = taken_over.end;
    taken_over.tasks.spawn(async move {
        let joined = async {
            let member = hyper::upgrade::on(answer);
            let (client, member) =
                tokio::try_join!(connection, member).map_err(io::Error::other)?;
            let (client, member) = (TokioIo::new(client), TokioIo::new(member));
            match source {
                Source::Tunnel => tunnel::join(client, Ending::new(member)).await,
                Source::Replica => tunnel::join(client, member).await,
            }
        };
        tokio::select! {
            biased;
            () = end.cancelled() => {}
            () = over => {}
            joined = joined => if let Err(error) = joined {
                tracing::debug!(%error, "a connection through a tunnel broke off");
            },
        }
        drop(with);
    });
}
