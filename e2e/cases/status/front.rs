//! An API server in front of a member's: it answers some paths itself and passes the rest on.

use anyhow::{Context as _, Result};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use crate::env::Plane;

type Answers = Arc<Mutex<HashMap<String, StatusCode>>>;

/// The front; dropped, it is gone.
pub(super) struct Front {
    address: SocketAddr,
    answers: Answers,
    _server: AbortOnDropHandle<()>,
}

impl Front {
    /// Stands before `plane`, with its certificate and all rights.
    pub(super) async fn start(plane: &Plane) -> Result<Self> {
        let identity = plane.pki.server(&["127.0.0.1".to_owned()])?;
        let chain = CertificateDer::pem_slice_iter(identity.cert.as_bytes());
        let chain = chain
            .collect::<Result<Vec<_>, _>>()
            .context("bad certificate")?;
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).context("bad key")?;
        let mut tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .context("bad pair")?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .context("no free port")?;
        let address = listener.local_addr().context("no address")?;
        let behind = plane.client().await?;
        let answers = Answers::default();
        let shared = Arc::clone(&answers);
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, behind, answers) =
                    (acceptor.clone(), behind.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = service_fn(move |request| {
                        answer(request, behind.clone(), Arc::clone(&answers))
                    });
                    let http = hyper::server::conn::http1::Builder::new();
                    // A connection that breaks is its client's concern.
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self {
            address,
            answers,
            _server: AbortOnDropHandle::new(server),
        })
    }

    /// Where it listens.
    pub(super) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Answers `path` with `status` from now on.
    pub(super) fn answer(&self, path: &str, status: StatusCode) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.insert(path.to_owned(), status);
    }

    /// Passes everything on again.
    pub(super) fn pass(&self) {
        self.answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

async fn answer(
    request: Request<Incoming>,
    behind: kube::Client,
    answers: Answers,
) -> Result<Response<Body>, Infallible> {
    let own = {
        let answers = answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(request.uri().path()).copied()
    };
    let passed = match own {
        Some(status) => Ok(status_only(status)),
        None => pass(request, behind).await,
    };
    Ok(passed.unwrap_or_else(|_| status_only(StatusCode::BAD_GATEWAY)))
}

async fn pass(request: Request<Incoming>, behind: kube::Client) -> Result<Response<Body>> {
    let (mut parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    // The client behind adds its own.
    parts.headers.remove(http::header::HOST);
    parts.headers.remove(http::header::CONTENT_LENGTH);
    let request = Request::from_parts(parts, Body::from(body.to_vec()));
    let mut response = behind.send(request).await?;
    for hop in [http::header::TRANSFER_ENCODING, http::header::CONNECTION] {
        response.headers_mut().remove(hop);
    }
    Ok(response)
}

fn status_only(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
