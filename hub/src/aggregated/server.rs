//! The port: connections, their certificates, and their orderly end.

use super::registered::Registered;
use super::replicas::Replicas;
use super::trust::Trusted;
use crate::access::{Body, TakenOver, Tunnels};
use crate::apiserver::http::accepting::Accepting;
use crate::apiserver::http::server::{Tls, open_files};
use crate::limit::InFlight;
use chrono::{DateTime, Utc};
use common::http2::KeepAlive;
use common::time::SharedClock;
use common::tunnel::{self, Begins};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::Client;
use rustls::pki_types::CertificateDer;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// Connections at once; more wait.
const CONNECTIONS: usize = 20_000;
/// Files that are no connections of this port.
const OTHER_FILES: usize = 256;
/// Connections of one agent: those that it lost may not be noticed at once.
const OF_AGENT: usize = 8;
/// Longest chain of certificates that is looked at.
const CHAIN_MAX: usize = 16 * 1024;
/// How long a client may take to shake hands, and to send the head of a request.
const HANDSHAKE: Duration = Duration::from_secs(10);
const HEAD: Duration = Duration::from_secs(15);
/// Requests of all users come over few connections of the API server; it opens more beyond.
const STREAMS: u32 = 1_000;
/// A front proxy has a header for each group of a user.
const HEADERS: usize = 512;
/// How it learns that the client of an HTTP/2 connection is there.
const KEEP_ALIVE: KeepAlive = KeepAlive {
    every: Duration::from_secs(30),
    within: Duration::from_secs(15),
};
/// How long connections may take to end.
const END_WITHIN: Duration = Duration::from_secs(5);

/// What every connection shares.
pub(super) struct Port {
    pub(super) client: Client,
    pub(super) trusted: Trusted,
    pub(super) registered: Registered,
    pub(super) replicas: Replicas,
    pub(super) tunnels: Tunnels,
    /// Requests of each user at once.
    pub(super) streams: InFlight,
    /// Lists over all clusters at once, of each user and of all.
    pub(super) lists: [InFlight; 2],
    pub(super) tls: Tls,
    pub(super) clock: SharedClock,
}

/// What the other end of a connection showed.
#[derive(Clone)]
pub(super) struct Shown(Arc<Vec<CertificateDer<'static>>>);

impl Shown {
    pub(super) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.0
    }
}

impl Port {
    /// Serves until `stop`, then lets requests end.
    pub(super) async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        let accepting = Accepting {
            most: CONNECTIONS.min(open_files().saturating_sub(OTHER_FILES)),
            end_within: END_WITHIN,
        };
        let (agents, end) = (InFlight::of(OF_AGENT), stop.clone());
        let serve = move |stream, _, handshake| {
            let (port, agents, end) = (self.clone(), agents.clone(), end.clone());
            async move {
                let (stream, shown) = port.shake_hands(stream).await?;
                // Whoever is nobody counts as one who shakes hands until they have gone.
                match Begins::of(stream.get_ref().1.alpn_protocol()) {
                    Some(begins) => {
                        drop(handshake);
                        port.tunnel((stream, begins), &shown, &agents, end).await
                    }
                    None => port.requests(stream, shown, handshake, end).await,
                }
            }
        };
        accepting.run(listener, stop, serve).await;
    }

    async fn shake_hands(
        &self,
        stream: TcpStream,
    ) -> Result<(Box<TlsStream<TcpStream>>, Shown), String> {
        let acceptor = TlsAcceptor::from(self.tls.now());
        let shaken = timeout(HANDSHAKE, Box::pin(acceptor.accept(stream))).await;
        let shaken = shaken.map_err(|e| e.to_string())?;
        let stream = shaken.map_err(|e| e.to_string())?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        if chain.iter().map(|der| der.len()).sum::<usize>() > CHAIN_MAX {
            return Err("its certificates are too long".to_owned());
        }
        let chain = chain.iter().map(|der| der.clone().into_owned()).collect();
        Ok((Box::new(stream), Shown(Arc::new(chain))))
    }

    /// Keeps the tunnel of the agent at the other end as long as its certificate and its registration hold.
    async fn tunnel(
        &self,
        (stream, begins): (Box<TlsStream<TcpStream>>, Begins),
        shown: &Shown,
        agents: &InFlight,
        stop: CancellationToken,
    ) -> Result<(), String> {
        let judged = self.trusted.now().agent(shown.chain(), self.clock.now());
        let (agent, until) = judged.map_err(|why| format!("no agent's tunnel: {why}"))?;
        let cluster = agent.cluster.as_str();
        let held = self.registered.hold(&agent);
        let held = held.ok_or_else(|| {
            format!("the registration of this agent of cluster {cluster:?} is not in force")
        })?;
        let one_more = agents.enter(cluster);
        let _one = one_more.ok_or_else(|| format!("cluster {cluster:?} has too many tunnels"))?;
        let (ended, clock) = (held.over.clone(), self.clock.clone());
        let over = async move {
            tokio::select! {
                biased;
                () = ended.cancelled() => {}
                () = end(&clock, until) => {}
            }
        };
        self.tunnels
            .hold(cluster, stream, begins, Box::pin(over), stop)
            .await
    }

    async fn requests(
        self: Arc<Self>,
        stream: Box<TlsStream<TcpStream>>,
        shown: Shown,
        handshake: impl Send,
        stop: CancellationToken,
    ) -> Result<(), String> {
        let (trust, now) = (self.trusted.now(), self.clock.now());
        let is_known = trust.front(shown.chain(), now).is_ok()
            || self.replicas.who(shown.chain(), now).is_some();
        let stranger = match is_known {
            true => {
                drop(handshake);
                None
            }
            // They are told so, and go.
            false => Some(handshake),
        };
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let taken_over = TakenOver::default();
        let _ends = taken_over.end.clone().drop_guard();
        let (port, taken) = (self, taken_over.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            let (port, shown) = (port.clone(), shown.clone());
            request.extensions_mut().insert(taken.clone());
            Box::pin(async move { Ok::<_, Infallible>(port.answer(request, &shown).await) })
        });
        let serving = async {
            let ended = match is_h2 {
                true => Box::pin(http2(stream, service, stop)).await,
                false => Box::pin(http1(stream, service, stop)).await,
            };
            taken_over.tasks.close();
            taken_over.tasks.wait().await;
            ended
        };
        match stranger {
            None => serving.await,
            Some(_counted) => timeout(HANDSHAKE, serving)
                .await
                .unwrap_or_else(|_| Err("whoever is nobody does not stay".to_owned())),
        }
    }
}

/// Ends at a time of the clock.
async fn end(clock: &SharedClock, at: DateTime<Utc>) {
    /// Clocks are read twice, and may be set.
    const LOOK: Duration = Duration::from_secs(60);
    loop {
        let left = (at - clock.now()).to_std().unwrap_or_default();
        if left.is_zero() {
            return;
        }
        sleep(left.min(LOOK)).await;
    }
}

async fn http2<A>(
    stream: Box<TlsStream<TcpStream>>,
    service: A,
    stop: CancellationToken,
) -> Result<(), String>
where
    A: HttpService<Incoming, ResBody = Body, Error = Infallible, Future: Send + 'static>,
{
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(tunnel::CANCELLED)
        .initial_stream_window_size(tunnel::STREAM_WINDOW)
        .initial_connection_window_size(tunnel::CONNECTION_WINDOW)
        .max_header_list_size(2 * tunnel::HEADERS_MAX);
    let ended = common::http2::serve(builder, KEEP_ALIVE, stream, service, stop);
    ended.await.map_err(|e| e.to_string())
}

async fn http1<A>(
    stream: Box<TlsStream<TcpStream>>,
    service: A,
    stop: CancellationToken,
) -> Result<(), String>
where
    A: HttpService<Incoming, ResBody = Body, Error = Infallible, Future: Send + 'static>,
{
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_headers(HEADERS);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection.with_upgrades());
    tokio::select! {
        biased;
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        ended = connection.as_mut() => return ended.map_err(|e| e.to_string()),
    }
    connection.await.map_err(|e| e.to_string())
}

/// An answer of this port.
pub(super) type Answer = Response<Body>;
