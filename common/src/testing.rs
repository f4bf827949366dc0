//! Small TLS servers, relays and proxies for the tests of this crate.

use crate::client::HostPort;
use crate::signal;
use crate::tls;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

pub(crate) type Answer = Response<BoxBody<Bytes, Infallible>>;
pub(crate) type Handler =
    Arc<dyn Fn(Request<Incoming>) -> BoxFuture<'static, Answer> + Send + Sync>;

/// The client's certificate, among a request's extensions.
#[derive(Clone)]
pub(crate) struct Peer(pub(crate) Option<CertificateDer<'static>>);

/// A server; it ends when this is dropped.
pub(crate) struct TestServer {
    pub(crate) address: HostPort,
    task: JoinHandle<()>,
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A body of text.
pub(crate) fn text(status: u16, body: impl Into<String>) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body.into())).boxed());
    *answer.status_mut() = http::StatusCode::from_u16(status).expect("a status");
    answer
}

/// Wraps a closure that answers at once.
pub(crate) fn handler(
    answer: impl Fn(Request<Incoming>) -> Answer + Send + Sync + 'static,
) -> Handler {
    Arc::new(move |request| {
        let answer = answer(request);
        Box::pin(async move { answer })
    })
}

/// TLS of a server with this certificate; `h2` or only HTTP/1.1.
pub(crate) fn server_config(identity: &(String, String), h2: bool) -> ServerConfig {
    server_config_for(identity, h2, None)
}

/// The same, asking for client certificates of an authority.
pub(crate) fn server_config_for(
    (cert, key): &(String, String),
    h2: bool,
    clients: Option<&str>,
) -> ServerConfig {
    let chain = CertificateDer::pem_slice_iter(cert.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .expect("certificates");
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(clients.map_or_else(
            WebPkiClientVerifier::no_client_auth,
            |ca| {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(tls::certificates(ca.as_bytes()).expect("a CA"));
                let provider = Arc::new(rustls::crypto::ring::default_provider());
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .expect("a verifier")
            },
        ))
        .with_single_cert(chain, key)
        .expect("a pair");
    if h2 {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    config
}

/// Serves on a free port of 127.0.0.1.
pub(crate) async fn serve(config: ServerConfig, handler: Handler) -> TestServer {
    serve_on("127.0.0.1:0", config, handler).await
}

/// Serves at an address.
pub(crate) async fn serve_on(at: &str, config: ServerConfig, handler: Handler) -> TestServer {
    let listener = TcpListener::bind(at).await.expect("a port");
    let bound = listener.local_addr().expect("bound");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let task = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, handler) = (acceptor.clone(), handler.clone());
            connections.spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let session = stream.get_ref().1;
                let h2 = session.alpn_protocol() == Some(b"h2");
                let peer = session.peer_certificates().and_then(|chain| chain.first());
                let peer = Peer(peer.map(|der| der.clone().into_owned()));
                let service = service_fn(move |mut request: Request<Incoming>| {
                    request.extensions_mut().insert(peer.clone());
                    let answer = handler(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                // A client that goes away is no failure of the server's.
                if h2 {
                    let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = builder
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                } else {
                    let builder = hyper::server::conn::http1::Builder::new();
                    let _ = builder
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                }
            });
        }
    });
    TestServer {
        address: HostPort::new(&bound.ip().to_string(), bound.port()),
        task,
    }
}

/// How a [`Relay`] treats connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relaying {
    /// To the target as they are.
    Plain,
    /// Only after a CONNECT, with this `Proxy-Authorization` when there is one.
    Connect(Option<&'static str>),
}

/// Stands between a client and a server.
pub(crate) struct Relay {
    pub(crate) address: HostPort,
    /// Connections that were accepted.
    pub(crate) accepted: Arc<AtomicUsize>,
    /// Moves to swallow everything of the connections that are open then.
    hole: signal::Sender<u64>,
    task: JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Relay {
    /// Swallows all that the connections of now still send, without closing them.
    pub(crate) fn drop_established(&self) {
        self.hole.send_modify(|n| *n += 1);
    }
}

/// Relays from a free port of 127.0.0.1.
pub(crate) async fn relay(target: &HostPort, how: Relaying) -> Relay {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (hole, falls) = signal::channel(0);
    let accepted = Arc::new(AtomicUsize::new(0));
    let (count, target) = (accepted.clone(), (target.host().to_owned(), target.port()));
    let task = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let (mut falls, target) = (falls.clone(), target.clone());
            falls.mark_unchanged();
            connections.spawn(async move {
                // Kept open on both sides when it falls into the hole.
                let mut client = client;
                if let Relaying::Connect(wanted) = how
                    && !admit(&mut client, wanted).await
                {
                    return;
                }
                let Ok(mut server) = TcpStream::connect(target).await else {
                    return;
                };
                tokio::select! {
                    biased;
                    _ = falls.changed() => std::future::pending().await,
                    _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                }
            });
        }
    });
    Relay {
        address: HostPort::new("127.0.0.1", port),
        accepted,
        hole,
        task,
    }
}

async fn admit(client: &mut TcpStream, wanted: Option<&str>) -> bool {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if client.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return false;
        }
    }
    let request = String::from_utf8_lossy(&request);
    let authorized = wanted.is_none_or(|w| request.contains(&format!("Proxy-Authorization: {w}")));
    let answer = if authorized {
        "200 Go on"
    } else {
        "407 Who are you"
    };
    let written = client
        .write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes())
        .await;
    request.starts_with("CONNECT ") && authorized && written.is_ok()
}
