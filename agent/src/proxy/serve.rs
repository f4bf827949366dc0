//! One tunnel, from its first byte to its last: the agent is the HTTP/2 server of the connection that it dialled.

use super::refusal::Body;
use common::client::Stream;
use common::errors::chain;
use common::{http2, tunnel};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::HttpService;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use tokio_util::sync::CancellationToken;

/// Answers the requests of one tunnel until it ends, and says why it did. Once `retire` is cancelled it takes no more, and
/// ends with the last one.
pub(super) async fn serve<A>(stream: Stream, service: A, retire: CancellationToken) -> String
where
    A: HttpService<Incoming, ResBody = Body, Error = Infallible, Future: Send + 'static>,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .enable_connect_protocol()
        // That of an answer is the member's, or the hub's.
        .auto_date_header(false)
        .max_concurrent_streams(tunnel::STREAMS)
        .max_header_list_size(tunnel::HEADERS_MAX)
        .max_pending_accept_reset_streams(tunnel::CANCELLED)
        .initial_stream_window_size(tunnel::STREAM_WINDOW)
        .initial_connection_window_size(tunnel::CONNECTION_WINDOW);
    let ended = http2::serve(
        builder,
        tunnel::KEEP_ALIVE,
        TokioIo::new(stream),
        service,
        retire,
    );
    match ended.await {
        Ok(()) => "the hub closed it".to_owned(),
        Err(error) => chain(&error).to_string(),
    }
}
