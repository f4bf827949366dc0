//! One tunnel, from its first byte to its last: the agent is the HTTP/2 server of the connection that it dialled, once its
//! hub asks for something.

use super::refusal::Body;
use super::tunnels::Signs;
use common::errors::chain;
use common::tunnel::{Begins, Still};
use common::{http2, tunnel};
use hyper::body::Incoming;
use hyper::server::conn::http2::Builder;
use hyper::service::HttpService;
use hyper_util::rt::TokioExecutor;
use std::convert::Infallible;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;

/// How it ends in order.
const CLOSED: &str = "the hub closed it";

/// Answers the requests of one tunnel until it ends, and says why it did.
pub(super) async fn serve<S, A>(stream: S, begins: Begins, service: A, signs: Signs) -> String
where
    S: AsyncRead + AsyncWrite + Unpin,
    A: HttpService<Incoming, ResBody = Body, Error = Infallible, Future: Send + 'static>,
{
    let Signs {
        heard,
        begun,
        retire,
    } = signs;
    let mut first = Some(heard);
    let stream = InspectReader::new(stream, move |read: &[u8]| {
        // A read of nothing is the end.
        if !read.is_empty()
            && let Some(first) = first.take()
        {
            first.cancel();
        }
    });
    let served = tunnel::serve(stream, begins, &begun, retire, |stream, retire| {
        http2(stream, service, retire)
    });
    match served.await {
        Ok(ended) => ended.unwrap_or_else(|| CLOSED.to_owned()),
        Err(error) => error.to_string(),
    }
}

async fn http2<S, A>(stream: Still<S>, service: A, retire: CancellationToken) -> String
where
    S: AsyncRead + AsyncWrite + Unpin,
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
        .initial_stream_window_size(tunnel::MEMBER_STREAM_WINDOW)
        .initial_connection_window_size(tunnel::MEMBER_CONNECTION_WINDOW);
    let ended = http2::serve(builder, tunnel::KEEP_ALIVE, stream, service, retire);
    match ended.await {
        Ok(()) => CLOSED.to_owned(),
        Err(error) => chain(&error).to_string(),
    }
}
