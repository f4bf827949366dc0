//! One tunnel, from its first byte to its last: the agent is the HTTP/2 server of the connection that it dialled.

use super::refusal::Body;
use common::errors::chain;
use common::tunnel;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http2;
use hyper::service::HttpService;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;

/// How long nothing may come from the hub, or be taken by it. It sends a ping sooner.
const SILENT: Duration = tunnel::PING_EVERY.saturating_add(tunnel::PING_WITHIN);

/// Answers the requests of one tunnel until it ends, and says why it did. Once `retire` is cancelled it takes no more, and
/// ends with the last one.
pub(super) async fn serve<S, A>(stream: S, service: A, retire: CancellationToken) -> String
where
    S: Read + Write,
    A: HttpService<Incoming, ResBody = Body, Error = Infallible, Future: Send + 'static>,
{
    // hyper sends pings from when the hub has said its first word until it begins to close: neither that word nor the
    // end has a limit of its own.
    let mut stream = TimeoutStream::new(TokioIo::new(stream));
    stream.set_read_timeout(Some(SILENT));
    stream.set_write_timeout(Some(SILENT));
    let stream = pin!(stream);
    let stream = TokioIo::new(stream);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .enable_connect_protocol()
        // That of an answer is the member's, or the hub's.
        .auto_date_header(false)
        .max_concurrent_streams(tunnel::STREAMS)
        .max_header_list_size(tunnel::HEADERS_MAX)
        .max_pending_accept_reset_streams(tunnel::CANCELLED)
        .initial_stream_window_size(tunnel::STREAM_WINDOW)
        .initial_connection_window_size(tunnel::CONNECTION_WINDOW)
        .keep_alive_interval(tunnel::PING_EVERY)
        .keep_alive_timeout(tunnel::PING_WITHIN);
    let mut connection = pin!(builder.serve_connection(stream, service));
    let ended = tokio::select! {
        biased;
        () = retire.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        ended = connection.as_mut() => ended,
    };
    match ended {
        Ok(()) => "the hub closed it".to_owned(),
        Err(error) => chain(&error).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{Request, Response, StatusCode};
    use http_body_util::{BodyExt as _, Empty};
    use hyper::client::conn::http2::SendRequest;
    use hyper::service::service_fn;
    use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::{sleep, timeout};
    use tokio_util::task::AbortOnDropHandle;

    /// The preface of a client, and settings that say nothing.
    const FIRST: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const ROOM: usize = 64 * 1024;

    type Served = AbortOnDropHandle<String>;

    /// An agent that has no content for anybody.
    fn served(stream: DuplexStream, retire: &CancellationToken) -> Served {
        let service = service_fn(async |_| {
            let mut answer = Response::new(Empty::new().map_err(|it| match it {}).boxed_unsync());
            *answer.status_mut() = StatusCode::NO_CONTENT;
            Ok::<_, Infallible>(answer)
        });
        let serving = serve(TokioIo::new(stream), service, retire.clone());
        AbortOnDropHandle::new(tokio::spawn(serving))
    }

    /// Why it ends by itself, within this time.
    async fn ends(served: Served, within: Duration) -> String {
        let ended = timeout(within, served).await;
        ended.expect("it ends").expect("no panic")
    }

    async fn hub(stream: DuplexStream) -> (SendRequest<Empty<Bytes>>, AbortOnDropHandle<()>) {
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(tunnel::PING_EVERY)
            .keep_alive_timeout(tunnel::PING_WITHIN)
            .keep_alive_while_idle(true);
        let begun = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = begun.expect("a handshake");
        let connection = tokio::spawn(async move { drop(connection.await) });
        (sender, AbortOnDropHandle::new(connection))
    }

    async fn ask(sender: &mut SendRequest<Empty<Bytes>>) -> StatusCode {
        let request = Request::get("https://m1/api").body(Empty::new());
        let answer = sender.send_request(request.expect("a request")).await;
        answer.expect("an answer").status()
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_never_says_a_word_is_given_up() {
        for retires in [false, true] {
            let (near, _far) = duplex(ROOM);
            let retire = CancellationToken::new();
            let served = served(near, &retire);
            if retires {
                sleep(Duration::from_secs(10)).await;
                retire.cancel();
            }
            let why = ends(served, SILENT + Duration::from_secs(1)).await;
            assert!(why.contains("timed out"), "{why}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_begins_late_and_says_little_is_served() {
        let (near, far) = duplex(ROOM);
        let retire = CancellationToken::new();
        let served = served(near, &retire);
        sleep(SILENT - Duration::from_secs(1)).await;
        let (mut sender, _connection) = hub(far).await;
        for _ in 0..3 {
            sleep(10 * SILENT).await;
            assert_eq!(ask(&mut sender).await, StatusCode::NO_CONTENT);
        }
        retire.cancel();
        ends(served, Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_falls_silent_is_given_up() {
        for retires in [false, true] {
            let (near, mut far) = duplex(ROOM);
            let retire = CancellationToken::new();
            let served = served(near, &retire);
            far.write_all(FIRST).await.expect("taken");
            if retires {
                sleep(Duration::from_secs(10)).await;
                retire.cancel();
            }
            let why = ends(served, SILENT + Duration::from_secs(1)).await;
            assert!(why.contains("timed out"), "{why}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_takes_nothing_is_given_up() {
        // What the agent says first does not leave, what it says then, what it says last.
        for room in [FIRST.len(), 64, 96] {
            let (near, mut far) = duplex(room);
            let retire = CancellationToken::new();
            let served = served(near, &retire);
            far.write_all(FIRST).await.expect("taken");
            ends(served, 2 * SILENT + Duration::from_secs(1)).await;
        }
    }
}
