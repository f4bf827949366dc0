//! A client's connection that was taken over, joined with a stream of a tunnel.

use super::super::standing::Standing;
use super::super::websocket::Upgrade;
use super::lasting::over;
use common::tunnel;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::Arc;

/// Joins them, until one of them ends, the client's connection does, or whoever asked would no longer be allowed to.
/// `with` is dropped at the end.
pub(in crate::apiserver::http) fn join(
    upgrade: Upgrade,
    answer: http::Response<Incoming>,
    standing: Option<Arc<Standing>>,
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
            tunnel::join(TokioIo::new(client), TokioIo::new(member)).await
        };
        tokio::select! {
            biased;
            () = end.cancelled() => {}
            () = over(standing) => {}
            joined = joined => if let Err(error) = joined {
                tracing::debug!(%error, "a connection through a tunnel broke off");
            },
        }
        drop(with);
    });
}
