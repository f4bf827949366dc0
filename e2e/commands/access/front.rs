//! What stands before a member: it plays the requests that are measured, and passes everything else on.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use common::tls::install_provider;
use futures::{StreamExt as _, stream};
use http::header::{CONNECTION, CONTENT_TYPE, ETAG, IF_NONE_MATCH, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::Client;
use kube::client::Body as Sent;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::env::{Identity, write_private};

/// Below it everything is played.
const PLAYED: &str = "/api/v1/namespaces/figures";
/// One piece of a long answer, in bytes.
const PIECE: usize = 32 * 1024;
/// What is small, in bytes.
const SMALL: usize = 1024;

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The path of something small.
pub(super) fn small() -> String {
    format!("{PLAYED}/configmaps/small")
}

/// The path of a watch that says one thing and then nothing.
pub(super) fn watch() -> String {
    format!("{PLAYED}/configmaps?watch=true")
}

/// The path of a log that is so long, in bytes.
pub(super) fn log(bytes: u64) -> String {
    format!("{PLAYED}/pods/pod/log?limitBytes={bytes}")
}

/// The path of a shell that repeats what it hears.
pub(super) fn exec() -> String {
    format!("{PLAYED}/pods/pod/exec?command=cat&stdin=true&stdout=true")
}

/// It, at work.
pub(super) struct Front {
    port: u16,
    task: JoinHandle<()>,
}

impl Front {
    /// Before the member of this client, under this certificate.
    pub(super) async fn start(member: Client, shows: &Identity) -> Result<Self> {
        install_provider();
        let chain = CertificateDer::from_pem_slice(shows.cert.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(shows.key.as_bytes())?;
        let mut tls = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, member) = (acceptor.clone(), member.clone());
                tokio::spawn(async move {
                    // Whoever hangs up has what they wanted.
                    let _ = serve(stream, &acceptor, member).await;
                });
            }
        });
        Ok(Self { port, task })
    }

    /// Where it listens.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Writes a kubeconfig by which an agent takes it for its member.
    pub(super) fn kubeconfig(&self, path: &Path, ca_file: &Path) -> Result<()> {
        let (port, ca) = (self.port, ca_file.display());
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: member\n\
             clusters:\n- name: member\n  cluster: {{server: \"https://127.0.0.1:{port}\", certificate-authority: {ca}}}\n\
             users:\n- name: agent\n  user: {{token: nobody-asks}}\n\
             contexts:\n- name: member\n  context: {{cluster: member, user: agent}}\n"
        );
        write_private(path, &text)
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(stream: TcpStream, acceptor: &TlsAcceptor, member: Client) -> Result<()> {
    stream.set_nodelay(true)?;
    let stream = acceptor.accept(stream).await?;
    let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |request| {
        let member = member.clone();
        async move { answer(&member, request).await }
    });
    let stream = TokioIo::new(stream);
    if h2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.max_concurrent_streams(10_000);
        builder.max_pending_accept_reset_streams(usize::from(u16::MAX));
        builder.serve_connection(stream, service).await?;
    } else {
        let connection = http1::Builder::new().serve_connection(stream, service);
        connection.with_upgrades().await?;
    }
    Ok(())
}

async fn answer(member: &Client, request: Request<Incoming>) -> Result<Response<Body>> {
    let path = request.uri().path();
    if !path.starts_with(PLAYED) {
        return passed(member, request).await;
    }
    let query = request.uri().query().unwrap_or_default();
    if path.ends_with("/exec") {
        return Ok(shell(request));
    }
    if let Some(length) = query.strip_prefix("limitBytes=") {
        return Ok(Response::new(long(length.parse()?)));
    }
    if query == "watch=true" {
        let first = Bytes::from_static(b"{\"type\":\"ADDED\",\"object\":{}}\n");
        let said = stream::iter([Ok(Frame::data(first))]).chain(stream::pending());
        return Ok(Response::new(StreamBody::new(said).boxed_unsync()));
    }
    let text = Full::new(Bytes::from(vec![b' '; SMALL]));
    Ok(Response::new(
        text.map_err(|never| match never {}).boxed_unsync(),
    ))
}

fn long(length: u64) -> Body {
    let piece = Bytes::from(vec![b'x'; PIECE]);
    let (whole, rest) = (length / PIECE as u64, length % PIECE as u64);
    let rest = piece.slice(..usize::try_from(rest).unwrap_or_default());
    let pieces = (0..whole).map(move |_| piece.clone()).chain([rest]);
    let frames = pieces.map(|piece| Ok(Frame::data(piece)));
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

/// Takes the connection over, and sends back what comes.
fn shell(request: Request<Incoming>) -> Response<Body> {
    tokio::spawn(async move {
        if let Ok(taken) = hyper::upgrade::on(request).await {
            let (mut hears, mut says) = tokio::io::split(TokioIo::new(taken));
            let _ = tokio::io::copy(&mut hears, &mut says).await;
        }
    });
    let none = Full::default().map_err(|never| match never {});
    let mut response = Response::new(none.boxed_unsync());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    response
}

/// What the agent asks for itself, by a client that may everything.
async fn passed(member: &Client, request: Request<Incoming>) -> Result<Response<Body>> {
    let (head, body) = request.into_parts();
    let path = head.uri.path_and_query().context("no path")?.to_string();
    let body = body.collect().await?.to_bytes();
    let mut onward = Request::new(Sent::from(body.to_vec()));
    *onward.method_mut() = head.method;
    *onward.uri_mut() = path.parse()?;
    copy(
        &head.headers,
        onward.headers_mut(),
        &[CONTENT_TYPE, IF_NONE_MATCH, http::header::ACCEPT],
    );
    let answer = member.send(onward).await?;
    let (head, body) = answer.into_parts();
    let mut response = Response::new(body.map_err(io::Error::other).boxed_unsync());
    *response.status_mut() = head.status;
    copy(&head.headers, response.headers_mut(), &[CONTENT_TYPE, ETAG]);
    Ok(response)
}

fn copy(from: &HeaderMap, to: &mut HeaderMap, names: &[HeaderName]) {
    for name in names {
        for value in from.get_all(name) {
            to.append(name, value.clone());
        }
    }
}
