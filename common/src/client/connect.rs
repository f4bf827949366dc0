//! Connections: several addresses in turn, a proxy when there is one, TLS, and a deadline for all of it.

use super::CONNECT_TIMEOUT;
use super::problem::Problem;
use super::target::HostPort;
use crate::env::Env;
use crate::network::{Line, Network, Reached, Sockets, Wire};
use crate::proxy::{Proxy, ProxyChoice, TunnelError};
use crate::tls::{self, ClientTls, PeerProblem};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{AlertDescription, CertificateError, OtherError};
use socket2::{SockRef, TcpKeepalive};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;

/// A second address of the same host is tried beside the first after so long.
const STAGGER: Duration = Duration::from_millis(300);
/// Idle time before the kernel probes, and between its probes.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// How long sent data may go unacknowledged before the kernel gives the connection up.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// What happened with one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The address.
    pub address: HostPort,
    /// Why it did not work.
    pub problem: Problem,
}

/// No address could be connected to.
#[derive(Debug, Clone)]
pub struct ConnectError {
    /// What happened with each address, in the order they were tried.
    pub attempts: Vec<Attempt>,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, attempt) in self.attempts.iter().enumerate() {
            let separator = if n == 0 { "" } else { "; " };
            write!(f, "{separator}{}", attempt.problem)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConnectError {}

/// Gives the TLS of the next connection.
pub(crate) type TlsSource = Arc<dyn Fn() -> Result<ClientTls, tls::Error> + Send + Sync>;

/// Makes connections. Clones share which address worked last.
#[derive(Clone)]
pub(crate) struct Connector(Arc<Shared>);

struct Shared {
    servers: Vec<HostPort>,
    preferred: AtomicUsize,
    proxy: ProxyChoice,
    tls: TlsSource,
    server_name: Option<String>,
    /// What is in the place of sockets.
    network: Option<Arc<dyn Network>>,
    /// What is in the place of TCP.
    sockets: Option<Arc<dyn Sockets>>,
}

impl Connector {
    pub(crate) fn new(
        servers: Vec<HostPort>,
        proxy: ProxyChoice,
        tls: TlsSource,
        env: &Env,
    ) -> Self {
        Self::with_server_name(servers, proxy, tls, None, env)
    }

    pub(crate) fn with_server_name(
        servers: Vec<HostPort>,
        proxy: ProxyChoice,
        tls: TlsSource,
        server_name: Option<String>,
        env: &Env,
    ) -> Self {
        Self(Arc::new(Shared {
            servers,
            preferred: AtomicUsize::new(0),
            proxy,
            tls,
            server_name,
            network: env.network.clone(),
            sockets: env.sockets.clone(),
        }))
    }

    /// Whether it makes lines rather than sockets.
    pub(crate) fn has_network(&self) -> bool {
        self.0.network.is_some()
    }

    /// Begins with the next address the next time: the current one connects but does not answer.
    pub(crate) fn distrust_current(&self) {
        self.0.preferred.fetch_add(1, Ordering::Relaxed);
    }

    /// Connects to the first address that works.
    pub(crate) async fn connect(&self) -> Result<Stream, ConnectError> {
        self.first(|address| self.0.dial(address)).await
    }

    /// The same where there is something in the place of sockets.
    pub(crate) async fn line(&self) -> Result<Line, ConnectError> {
        self.first(|address| self.0.line(address)).await
    }

    /// The addresses in turn, from the one that worked last, until one does.
    async fn first<'a, T, F>(
        &'a self,
        connect: impl Fn(&'a HostPort) -> F,
    ) -> Result<T, ConnectError>
    where
        F: Future<Output = Result<T, Problem>>,
    {
        let count = self.0.servers.len().max(1);
        let start = self.0.preferred.load(Ordering::Relaxed) % count;
        let mut attempts = Vec::new();
        for (index, address) in self
            .0
            .servers
            .iter()
            .enumerate()
            .cycle()
            .skip(start)
            .take(count)
        {
            match tokio::time::timeout(CONNECT_TIMEOUT, connect(address)).await {
                Ok(Ok(made)) => {
                    self.0.preferred.store(index, Ordering::Relaxed);
                    return Ok(made);
                }
                Ok(Err(problem)) => attempts.push(Attempt {
                    address: address.clone(),
                    problem,
                }),
                Err(_) => attempts.push(Attempt {
                    address: address.clone(),
                    problem: Problem::ConnectTimeout {
                        address: address.clone(),
                        after: CONNECT_TIMEOUT,
                    },
                }),
            }
        }
        Err(ConnectError { attempts })
    }
}

impl Shared {
    async fn dial(&self, address: &HostPort) -> Result<Stream, Problem> {
        if let Some(network) = &self.network {
            return self.wire(network, address).await;
        }
        let proxy = self
            .proxy
            .proxy_for(address)
            .map_err(|error| Problem::Other(error.to_string()))?;
        let tcp = match (&self.sockets, &proxy) {
            (Some(sockets), _) => {
                let connected = sockets.connect(address.host(), address.port()).await;
                Either::Right(connected.map_err(|error| io_problem(address, &error))?)
            }
            (None, Some(proxy)) => Either::Left(through(proxy, address).await?),
            (None, None) => Either::Left(tcp(address).await?),
        };
        let (tls, name) = self.tls(address)?;
        let tls = TlsConnector::from(tls.config())
            .connect(name, tcp)
            .await
            .map_err(|error| tls_problem(address, &error))?;
        let protocol = tls.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        Ok(Stream {
            io: Io::Tls(Box::new(TokioIo::new(tls))),
            protocol,
        })
    }

    /// What [`Self::dial`] does, on what is in the place of sockets.
    async fn wire(
        &self,
        network: &Arc<dyn Network>,
        address: &HostPort,
    ) -> Result<Stream, Problem> {
        let (reached, tls, mine) = self.meet(network, address).await?;
        let offered = &tls.config().alpn_protocols;
        let agreed = (reached.agree)(mine, offered);
        let agreed = agreed.ok_or_else(|| Problem::Protocol {
            address: address.clone(),
        })?;
        Ok(Stream {
            io: Io::Wire(TokioIo::new(agreed.wire)),
            protocol: agreed.protocol,
        })
    }

    /// The same for requests and answers.
    async fn line(&self, address: &HostPort) -> Result<Line, Problem> {
        let unreachable = || Problem::Unreachable {
            address: address.clone(),
            reason: "there is no network".to_owned(),
        };
        let network = self.network.as_ref().ok_or_else(unreachable)?;
        let (reached, _, mine) = self.meet(network, address).await?;
        Ok((reached.open)(mine))
    }

    /// A server in the middle of the handshake that is trusted, by what, and what it is shown.
    async fn meet(
        &self,
        network: &Arc<dyn Network>,
        address: &HostPort,
    ) -> Result<(Reached, ClientTls, Vec<CertificateDer<'static>>), Problem> {
        let reached = network.reach(address.host(), address.port()).await;
        let reached = reached.map_err(|error| io_problem(address, &error))?;
        let (tls, name) = self.tls(address)?;
        let mine = tls
            .meet(&reached.shown, &name)
            .map_err(|error| refusal(address, &error))?;
        Ok((reached, tls, mine))
    }

    /// TLS for a connection to an address, and the name that the server must have.
    fn tls(&self, address: &HostPort) -> Result<(ClientTls, ServerName<'static>), Problem> {
        let failed = |reason: String| Problem::Tls {
            address: address.clone(),
            reason,
        };
        let tls = (self.tls)().map_err(|e| failed(crate::errors::chain(&e).to_string()))?;
        let name = self.server_name.as_deref().unwrap_or(address.host());
        let name = ServerName::try_from(name.to_owned()).map_err(|e| failed(e.to_string()))?;
        Ok((tls, name))
    }
}

async fn through(proxy: &Proxy, address: &HostPort) -> Result<TcpStream, Problem> {
    let unreachable = |reason: String| Problem::ProxyUnreachable {
        proxy: proxy.address.clone(),
        reason,
    };
    let mut tcp = tcp(&proxy.address)
        .await
        .map_err(|problem| unreachable(problem.to_string()))?;
    match proxy.connect(&mut tcp, address).await {
        Ok(()) => Ok(tcp),
        Err(TunnelError::Refused { status, reason }) => Err(Problem::ProxyRefused {
            proxy: proxy.address.clone(),
            address: address.clone(),
            status,
            reason,
        }),
        Err(error) => Err(unreachable(crate::errors::chain(&error).to_string())),
    }
}

/// Resolves the host and takes the first of its addresses that answers; a slow one does not hold up
/// the next.
async fn tcp(address: &HostPort) -> Result<TcpStream, Problem> {
    let resolved: Vec<SocketAddr> = tokio::net::lookup_host((address.host(), address.port()))
        .await
        .map_err(|error| Problem::Dns {
            host: address.host().to_owned(),
            reason: error.to_string(),
        })?
        .collect();
    let mut waiting = resolved.into_iter();
    let mut running = FuturesUnordered::new();
    let mut last: Option<io::Error> = None;
    loop {
        let more = waiting.len() > 0;
        if running.is_empty() {
            let Some(next) = waiting.next() else { break };
            running.push(TcpStream::connect(next));
        }
        tokio::select! {
            biased;
            Some(result) = running.next() => match result {
                Ok(stream) => return prepare(address, stream),
                Err(error) => last = Some(error),
            },
            () = tokio::time::sleep(STAGGER), if more => {
                running.extend(waiting.next().map(TcpStream::connect));
            }
        }
    }
    Err(match last {
        Some(error) => io_problem(address, &error),
        None => Problem::Dns {
            host: address.host().to_owned(),
            reason: "it has no address".to_owned(),
        },
    })
}

fn prepare(address: &HostPort, stream: TcpStream) -> Result<TcpStream, Problem> {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE)
        .with_retries(3);
    let socket = SockRef::from(&stream);
    stream
        .set_nodelay(true)
        .and_then(|()| socket.set_tcp_keepalive(&keepalive))
        .and_then(|()| socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED)))
        .map_err(|error| io_problem(address, &error))?;
    Ok(stream)
}

fn io_problem(address: &HostPort, error: &io::Error) -> Problem {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        return Problem::Refused {
            address: address.clone(),
        };
    }
    Problem::Unreachable {
        address: address.clone(),
        reason: error.to_string(),
    }
}

fn tls_problem(address: &HostPort, error: &io::Error) -> Problem {
    let tls = error.get_ref().and_then(|e| e.downcast_ref());
    tls.map_or_else(
        || Problem::Tls {
            address: address.clone(),
            reason: error.to_string(),
        },
        |tls| refusal(address, tls),
    )
}

/// Why the server was not taken.
fn refusal(address: &HostPort, error: &rustls::Error) -> Problem {
    if let rustls::Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) = error
        && let Some(problem) = inner.downcast_ref::<PeerProblem>()
    {
        return Problem::Certificate {
            address: address.clone(),
            problem: problem.clone(),
        };
    }
    if let rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) = error {
        return Problem::Protocol {
            address: address.clone(),
        };
    }
    Problem::Tls {
        address: address.clone(),
        reason: error.to_string(),
    }
}

impl tower::Service<http::Uri> for Connector {
    type Response = Stream;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Stream, ConnectError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _uri: http::Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.connect().await })
    }
}

/// TCP, or what is in its place.
type Carrier = Either<TcpStream, Box<dyn Wire>>;

/// A connection inside TLS.
pub struct Stream {
    io: Io,
    protocol: Option<Vec<u8>>,
}

enum Io {
    Tls(Box<TokioIo<TlsStream<Carrier>>>),
    /// What is in its place.
    Wire(TokioIo<Box<dyn Wire>>),
}

impl Stream {
    /// What was agreed on in the handshake; none where the server did not say.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.protocol.as_deref()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self.protocol() {
            Some(b"h2") => Connected::new().negotiated_h2(),
            _ => Connected::new(),
        }
    }
}

impl hyper::rt::Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Tls(io) => Pin::new(io.as_mut()).poll_read(cx, buf),
            Io::Wire(io) => Pin::new(io).poll_read(cx, buf),
        }
    }
}

impl hyper::rt::Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Tls(io) => Pin::new(io.as_mut()).poll_write(cx, buf),
            Io::Wire(io) => Pin::new(io).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Tls(io) => Pin::new(io.as_mut()).poll_flush(cx),
            Io::Wire(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.io {
            Io::Tls(io) => Pin::new(io.as_mut()).poll_shutdown(cx),
            Io::Wire(io) => Pin::new(io).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Tls(io) => io.is_write_vectored(),
            Io::Wire(io) => io.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.io {
            Io::Tls(io) => Pin::new(io.as_mut()).poll_write_vectored(cx, bufs),
            Io::Wire(io) => Pin::new(io).poll_write_vectored(cx, bufs),
        }
    }
}
