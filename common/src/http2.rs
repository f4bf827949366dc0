//! The server's end of a connection of HTTP/2, which nobody can hold who says nothing.

use hyper::body::{Body, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::HttpService;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

/// How an end learns that the other one is there.
#[derive(Debug, Clone, Copy)]
pub struct KeepAlive {
    /// Silence after which it is sent a ping.
    pub every: Duration,
    /// How long an answer may take.
    pub within: Duration,
}

impl KeepAlive {
    /// How long a connection may be silent.
    pub const fn silent(self) -> Duration {
        self.every.saturating_add(self.within)
    }
}

/// Serves a connection until it ends, or the other end is silent. Once `stop` is cancelled no more requests are taken, and
/// it ends with the last one.
pub async fn serve<S, A, B>(
    mut builder: Builder<TokioExecutor>,
    keep_alive: KeepAlive,
    stream: S,
    service: A,
    stop: CancellationToken,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite,
    A: HttpService<Incoming, ResBody = B, Error: Into<BoxError>, Future: Send + 'static>,
    B: Body<Data: Send, Error: Into<BoxError>> + Send + 'static,
{
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(keep_alive.every)
        .keep_alive_timeout(keep_alive.within);
    // hyper sends pings from when the other end has said its first word until the connection begins to close: neither
    // that word nor the end has a limit there.
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(Some(keep_alive.silent()));
    stream.set_write_timeout(Some(keep_alive.silent()));
    let stream = pin!(stream);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        biased;
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        ended = connection.as_mut() => return ended,
    }
    connection.await
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http::{Request, Response, StatusCode};
    use http_body_util::{BodyExt as _, Empty, StreamBody};
    use hyper::body::Frame;
    use hyper::client::conn::http2::SendRequest;
    use hyper::service::service_fn;
    use std::convert::Infallible;
    use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::{sleep, timeout};
    use tokio_util::task::AbortOnDropHandle;

    /// The preface of a client, and settings that say nothing.
    const FIRST: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const ROOM: usize = 64 * 1024;
    const KEEP_ALIVE: KeepAlive = KeepAlive {
        every: Duration::from_secs(20),
        within: Duration::from_secs(15),
    };
    const SILENT: Duration = KEEP_ALIVE.silent();
    const SOON: Duration = Duration::from_secs(1);

    type Served = AbortOnDropHandle<hyper::Result<()>>;

    /// A server that has no content for anybody.
    fn served(stream: DuplexStream, stop: &CancellationToken) -> Served {
        let service = service_fn(async |_| {
            let mut answer = Response::new(Empty::<Bytes>::new());
            *answer.status_mut() = StatusCode::NO_CONTENT;
            Ok::<_, Infallible>(answer)
        });
        let builder = Builder::new(TokioExecutor::new());
        let serving = serve(builder, KEEP_ALIVE, stream, service, stop.clone());
        AbortOnDropHandle::new(tokio::spawn(serving))
    }

    /// How it ends by itself, within this time.
    async fn ends(served: Served, within: Duration) -> hyper::Result<()> {
        let ended = timeout(within, served).await;
        ended.expect("it ends").expect("no panic")
    }

    async fn client(stream: DuplexStream) -> (SendRequest<Empty<Bytes>>, AbortOnDropHandle<()>) {
        let begun =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = begun.await.expect("a handshake");
        let connection = tokio::spawn(async move { drop(connection.await) });
        (sender, AbortOnDropHandle::new(connection))
    }

    async fn ask(sender: &mut SendRequest<Empty<Bytes>>) -> StatusCode {
        let request = Request::get("https://server/").body(Empty::new());
        let answer = sender.send_request(request.expect("a request")).await;
        answer.expect("an answer").status()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_says_a_word_is_given_up() {
        for stops in [false, true] {
            let (near, _far) = duplex(ROOM);
            let stop = CancellationToken::new();
            let served = served(near, &stop);
            if stops {
                sleep(SILENT / 2).await;
                stop.cancel();
            }
            assert!(ends(served, SILENT + SOON).await.is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_begins_late_and_says_little_is_served() {
        let (near, far) = duplex(ROOM);
        let stop = CancellationToken::new();
        let served = served(near, &stop);
        sleep(SILENT - SOON).await;
        let (mut sender, _connection) = client(far).await;
        for _ in 0..3 {
            sleep(10 * SILENT).await;
            assert_eq!(ask(&mut sender).await, StatusCode::NO_CONTENT);
        }
        stop.cancel();
        // Who of them closes it first is left to chance.
        let _ = ends(served, SOON).await;
    }

    /// It takes little, so that it seldom has to say that there is room again, and hears enough to send no pings.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_listens_all_the_time_is_served() {
        for stops in [false, true] {
            let (near, far) = duplex(ROOM);
            let stop = CancellationToken::new();
            let service = service_fn(async |_| {
                let ticks = tokio::time::interval(SOON);
                let said = futures::stream::unfold(ticks, |mut ticks| async move {
                    ticks.tick().await;
                    Some((
                        Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"."))),
                        ticks,
                    ))
                });
                Ok::<_, Infallible>(Response::new(StreamBody::new(said)))
            });
            let serving = serve(
                Builder::new(TokioExecutor::new()),
                KEEP_ALIVE,
                near,
                service,
                stop.clone(),
            );
            let _served = AbortOnDropHandle::new(tokio::spawn(serving));
            let (mut sender, _connection) = client(far).await;
            let request = Request::get("https://server/").body(Empty::new());
            let answer = sender.send_request(request.expect("a request")).await;
            let mut answer = answer.expect("an answer").into_body();
            if stops {
                stop.cancel();
            }
            for _ in 0..5 * SILENT.as_secs() {
                let said = answer.frame().await.expect("more");
                assert!(said.is_ok(), "after {stops}: {said:?}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_falls_silent_is_given_up() {
        for stops in [false, true] {
            let (near, mut far) = duplex(ROOM);
            let stop = CancellationToken::new();
            let served = served(near, &stop);
            far.write_all(FIRST).await.expect("taken");
            if stops {
                sleep(SILENT / 2).await;
                stop.cancel();
            }
            assert!(ends(served, SILENT + SOON).await.is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_given_up() {
        // What the server says first does not leave, what it says then, what it says last.
        for room in [FIRST.len(), 64, 96] {
            let (near, mut far) = duplex(room);
            let stop = CancellationToken::new();
            let served = served(near, &stop);
            far.write_all(FIRST).await.expect("taken");
            assert!(ends(served, 2 * SILENT + SOON).await.is_err());
        }
    }
}
