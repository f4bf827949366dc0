//! A connection on which an agent offered a tunnel.

use super::super::connection::Connection;
use super::super::router::Router;
use super::severed::Severable;
use crate::apiserver::agents;
use common::tunnel;
use http::HeaderMap;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::future::pending;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

impl Router {
    /// Keeps the tunnel of the agent at the other end, until it ends, the hub stops, or the agent's registration is no
    /// longer in force: then everything in it ends at once.
    pub(in crate::apiserver::http) async fn tunnel<S>(
        &self,
        stream: S,
        connection: &Arc<Connection>,
        stop: CancellationToken,
    ) -> Result<(), String>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let authenticator = &self.parts().authenticator;
        let peer = connection.peer(&authenticator.keys, authenticator.clock.now());
        let caller = authenticator.authenticate(&peer, &HeaderMap::new());
        let caller = caller.map_err(|error| error.message)?;
        let agent = agents::cluster_of(&caller).map(str::to_owned);
        let right = agents::right_of_registered(&caller);
        let (Some(cluster), Some(right)) = (agent, right) else {
            return Err(format!("{} is no agent, and has no tunnel", caller.user));
        };
        if !self.parts().authorizer.decide(&caller, &right).allowed {
            return Err(format!(
                "{} is not registered, and has no tunnel",
                caller.user
            ));
        }
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
        let standing = self.standing_of_agent(connection, &Arc::new(caller), right);
        let over = async {
            match standing {
                Some(standing) => standing.ended().await,
                None => pending().await,
            }
        };
        let _kept = self.tunnels().keep(&cluster, sender);
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
