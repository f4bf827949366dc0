//! Connections: TLS, HTTP/1.1 and HTTP/2, and their orderly end.

use super::respond::Body;
use super::router::Router;
use crate::apiserver::authn::Peer;
use crate::apiserver::keys::Keys;
use common::time::SharedClock;
use http::Request;
use hyper::body::Incoming;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::DigitallySignedStruct;
use rustls::DistinguishedName;
use rustls::SignatureScheme;
use rustls::crypto::{WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SignatureScheme as Scheme};
use std::convert::Infallible;
use std::fmt;
use std::io;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Connections at once; more wait.
const CONNECTIONS: usize = 20_000;
/// Files that are no connections: where so many may be open that more connections fit not, fewer are let in.
const OTHER_FILES: usize = 128;
/// How many of them may have shown no certificate that holds: a crowd of strangers leaves room for agents.
const STRANGERS: usize = 5_000;
/// How long a client may take to shake hands, and to send the head of a request.
const HANDSHAKE: Duration = Duration::from_secs(10);
const HEAD: Duration = Duration::from_secs(15);
/// Requests on one HTTP/2 connection at once.
const STREAMS: u32 = 250;
/// Silence after which an HTTP/2 connection is asked whether it lives, and how long it may take.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// How long connections may take to end.
const END_WITHIN: Duration = Duration::from_secs(10);
/// How a connection ended.
type Ended = Result<(), String>;

/// Pause when no connection can be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The server's certificate, exchanged while it serves. Clones share it.
#[derive(Clone)]
pub struct Shown(Arc<RwLock<Arc<CertifiedKey>>>);

impl Shown {
    /// Shows this one.
    pub fn new(key: Arc<CertifiedKey>) -> Self {
        Self(Arc::new(RwLock::new(key)))
    }

    /// Shows another one from now on.
    pub fn set(&self, key: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = key;
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let key = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(key.clone())
    }
}

/// Takes any certificate whose key the client has; what it is worth is judged by [`Peer::of`], so that
/// one that does not hold gets an answer rather than a broken handshake.
#[derive(Debug)]
struct AnyClient(WebPkiSupportedAlgorithms);

impl ClientCertVerifier for AnyClient {
    fn offer_client_auth(&self) -> bool {
        true
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<Scheme> {
        let schemes: Vec<SignatureScheme> = self.0.supported_schemes();
        schemes
    }
}

/// TLS 1.3 with `shown`, asking for a client certificate without wanting one.
pub fn tls(shown: Shown) -> Result<ServerConfig, rustls::Error> {
    let provider = ring::default_provider();
    let verifier = AnyClient(provider.signature_verification_algorithms);
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(shown));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A resumed session would bring the certificate of an older one.
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// A server of connections.
pub struct Server {
    /// Answers requests.
    pub router: Router,
    /// Judges certificates.
    pub keys: Keys,
    /// The time of day.
    pub clock: SharedClock,
    /// TLS.
    pub tls: Arc<ServerConfig>,
}

impl Server {
    /// Serves until `stop`, then lets requests end.
    pub async fn run(self, listener: TcpListener, stop: CancellationToken) {
        let server = Arc::new(self);
        let most = CONNECTIONS.min(open_files().saturating_sub(OTHER_FILES));
        let room = Arc::new(Semaphore::new(most));
        let strangers = Arc::new(Semaphore::new(STRANGERS.min(most / 2)));
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                accepted = accept(&listener, &room) => accepted,
            };
            let (stream, permit) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (server, stop) = (server.clone(), stop.clone());
            let strangers = strangers.clone();
            connections.spawn(async move {
                if let Err(error) = server.serve(stream, &strangers, stop).await {
                    tracing::debug!(error, "a connection ended");
                }
                drop(permit);
            });
        }
        drop(listener);
        connections.close();
        if timeout(END_WITHIN, connections.wait()).await.is_err() {
            tracing::warn!("some connections did not end in time and are cut off");
        }
    }

    /// Serves one connection to its end. There are thousands that mostly lie still: what only their
    /// beginning or a request needs is boxed, and given back.
    async fn serve(
        &self,
        stream: TcpStream,
        strangers: &Semaphore,
        stop: CancellationToken,
    ) -> Result<(), String> {
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let acceptor = TlsAcceptor::from(self.tls.clone());
        let stream = timeout(HANDSHAKE, Box::pin(acceptor.accept(stream)))
            .await
            .map_err(|e| e.to_string())?
            .map_err(|e| e.to_string())?;
        let (_, session) = stream.get_ref();
        let chain = session.peer_certificates().unwrap_or_default();
        let peer = Arc::new(Peer::of(chain, &self.keys.authorities(), self.clock.now()));
        let _room = match &*peer {
            Peer::Known { caller, .. } => {
                let ticket = self.router.shares().connection(caller);
                let ticket = ticket.map_err(|_| format!("{} has too many", caller.user))?;
                (None, ticket)
            }
            Peer::Itself => (None, None),
            Peer::Unknown | Peer::Refused(_) => {
                let room = strangers.try_acquire().map_err(|_| "too many strangers")?;
                (Some(room), None)
            }
        };
        let is_h2 = session.alpn_protocol() == Some(b"h2");
        let router = self.router.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (router, peer) = (router.clone(), peer.clone());
            Box::pin(async move { Ok::<_, Infallible>(router.handle(request, &peer).await) })
        });
        if is_h2 {
            Box::pin(http2(stream, service, stop)).await
        } else {
            Box::pin(http1(stream, service, stop)).await
        }
    }
}

async fn http2<S>(stream: TlsStream<TcpStream>, service: S, stop: CancellationToken) -> Ended
where
    S: HttpService<Incoming, ResBody = Body, Error = Infallible, Future: Send + 'static>,
{
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended.map_err(|e| e.to_string()),
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await.map_err(|e| e.to_string())
}

async fn http1<S>(stream: TlsStream<TcpStream>, service: S, stop: CancellationToken) -> Ended
where
    S: HttpService<Incoming, ResBody = Body, Error = Infallible, Future: Send + 'static>,
{
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection.with_upgrades());
    tokio::select! {
        ended = connection.as_mut() => return ended.map_err(|e| e.to_string()),
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    connection.await.map_err(|e| e.to_string())
}

/// How many files may be open; first as many as the system lets this process have. With what shells and
/// systemd give, a thousand idle connections would be all.
fn open_files() -> usize {
    let most = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: most.maximum,
        ..most
    };
    let current = match setrlimit(Resource::Nofile, all) {
        Ok(()) => all.current,
        Err(_) => most.current,
    };
    current.map_or(usize::MAX, |most| {
        usize::try_from(most).unwrap_or(usize::MAX)
    })
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = room.clone().acquire_owned().await;
    let permit = permit.expect("invariant: the semaphore is never closed");
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}
