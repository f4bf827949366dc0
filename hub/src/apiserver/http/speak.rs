//! What is spoken on a connection once both ends know of each other: HTTP/1.1, HTTP/2 or a tunnel, to its orderly end.

use super::connection::Connection;
use super::respond::Body;
use super::router::Router;
use super::sending::kept;
use crate::access::TakenOver;
use common::http2::KeepAlive;
use common::tunnel::Begins;
use http::{Request, Response};
use hyper::body::{Body as _, Incoming};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// How long a client may take to send the head of a request.
const HEAD: Duration = Duration::from_secs(15);
/// Requests on one HTTP/2 connection at once.
const STREAMS: u32 = 250;
/// How it learns that the client of an HTTP/2 connection is there.
const KEEP_ALIVE: KeepAlive = KeepAlive {
    every: Duration::from_secs(30),
    within: Duration::from_secs(15),
};

/// How a connection ended.
pub(super) type Ended = Result<(), String>;

/// What a connection is for, as ALPN has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/2.
    Http2,
    /// HTTP/1.1; what is spoken where nothing is said.
    Http1,
    /// A tunnel into a member, [`common::tunnel`].
    Tunnel(Begins),
}

impl Protocol {
    /// What clients are offered, the best first.
    pub const ALL: [Self; 4] = [
        Self::Http2,
        Self::Http1,
        Self::Tunnel(Begins::ALL[0]),
        Self::Tunnel(Begins::ALL[1]),
    ];

    /// In the handshake.
    pub const fn name(self) -> &'static [u8] {
        match self {
            Self::Http2 => b"h2",
            Self::Http1 => b"http/1.1",
            Self::Tunnel(begins) => begins.alpn(),
        }
    }

    /// What was agreed on.
    pub(super) fn of(name: Option<&[u8]>) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|it| Some(it.name()) == name)
            .unwrap_or(Self::Http1)
    }
}

impl Router {
    /// Serves a connection to its end. There are thousands that mostly lie still: what only their beginning or a request
    /// needs is boxed, and given back.
    pub(super) async fn speak<S>(
        &self,
        stream: S,
        protocol: Protocol,
        connection: &Arc<Connection>,
        stop: CancellationToken,
    ) -> Ended
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        if let Protocol::Tunnel(begins) = protocol {
            return Box::pin(self.tunnel(stream, begins, connection, stop)).await;
        }
        // A connection that was taken over still counts as one, and ends with it.
        let taken_over = TakenOver::default();
        let _ends = taken_over.end.clone().drop_guard();
        let asked = Asked {
            router: self.clone(),
            connection: connection.clone(),
            taken_over: taken_over.clone(),
        };
        let service = service_fn(move |request| {
            let asked = asked.clone();
            Box::pin(async move { Ok::<_, Infallible>(asked.answer(request).await) })
        });
        let ended = match protocol {
            Protocol::Http2 => Box::pin(http2(stream, service, stop)).await,
            _ => Box::pin(http1(stream, service, stop)).await,
        };
        taken_over.tasks.close();
        taken_over.tasks.wait().await;
        ended
    }
}

/// What answers the requests of one connection.
#[derive(Clone)]
struct Asked {
    router: Router,
    connection: Arc<Connection>,
    taken_over: TakenOver,
}

impl Asked {
    async fn answer(self, mut request: Request<Incoming>) -> Response<Body> {
        let authenticator = &self.router.parts().authenticator;
        let peer = self
            .connection
            .peer(&authenticator.keys, authenticator.clock.now());
        request.extensions_mut().insert(self.connection.clone());
        request.extensions_mut().insert(self.taken_over.clone());
        let response = self.router.handle(request, &peer).await;
        // A watch has no length, and no time by which it must have left.
        match response.body().size_hint().exact() {
            None | Some(0) => response,
            Some(size) => {
                let leaving = self.connection.unsent.begin(size);
                response.map(|body| kept(body, leaving))
            }
        }
    }
}

async fn http2<S, A>(stream: S, service: A, stop: CancellationToken) -> Ended
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    A: HttpService<Incoming, ResBody = Body, Error = Infallible, Future: Send + 'static>,
{
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(STREAMS);
    let ended = common::http2::serve(builder, KEEP_ALIVE, stream, service, stop);
    ended.await.map_err(|e| e.to_string())
}

async fn http1<S, A>(stream: S, service: A, stop: CancellationToken) -> Ended
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    A: HttpService<Incoming, ResBody = Body, Error = Infallible, Future: Send + 'static>,
{
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection.with_upgrades());
    tokio::select! {
        biased;
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        ended = connection.as_mut() => return ended.map_err(|e| e.to_string()),
    }
    connection.await.map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::respond::whole;
    use super::*;
    use tokio::io::duplex;
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn whoever_never_says_a_word_does_not_stay() {
        let answers = || {
            service_fn(async |_: Request<Incoming>| Ok::<_, Infallible>(Response::new(whole(""))))
        };
        for is_h2 in [true, false] {
            let (near, _far) = duplex(1024);
            let stop = CancellationToken::new();
            let serving = async {
                match is_h2 {
                    true => http2(near, answers(), stop).await,
                    false => http1(near, answers(), stop).await,
                }
            };
            let ended = timeout(2 * KEEP_ALIVE.silent(), serving).await;
            assert!(ended.expect("it ends").is_err());
        }
    }
}
