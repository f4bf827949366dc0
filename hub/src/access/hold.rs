//! A connection on which an agent offered a tunnel, once it is known to be that agent's.

use super::Tunnels;
use super::lasting::Over;
use super::severed::Severable;
use common::tunnel;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

impl Tunnels {
    /// Reaches a cluster by this connection, until it ends, `stop`, or `over`, by which the agent's registration is no
    /// longer in force: then everything in it ends at once.
    pub async fn hold<S>(
        &self,
        cluster: &str,
        stream: S,
        over: Over,
        stop: CancellationToken,
    ) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .initial_stream_window_size(tunnel::STREAM_WINDOW)
            .initial_connection_window_size(tunnel::CONNECTION_WINDOW)
            .max_header_list_size(tunnel::HEADERS_MAX)
            .keep_alive_interval(tunnel::PING_EVERY)
            .keep_alive_timeout(tunnel::PING_WITHIN)
            .keep_alive_while_idle(true);
        let cut = CancellationToken::new();
        let stream = Severable::new(stream, cut.clone());
        let _cuts = cut.drop_guard();
        let begun = builder.handshake(TokioIo::new(stream)).await;
        let (sender, serving) = begun.map_err(|error| error.to_string())?;
        let _kept = self.keep(cluster, sender);
        tracing::info!(cluster, "the agent's tunnel is open");
        let ended = tokio::select! {
            biased;
            () = stop.cancelled() => Ok(()),
            () = over => Err("its registration is no longer in force".to_owned()),
            ended = serving => ended.map_err(|error| error.to_string()),
        };
        let why = ended.as_ref().err();
        tracing::info!(cluster, why, "the agent's tunnel is closed");
        ended
    }
}
