//! A mutating webhook that puts a sidecar into every Deployment that asks for one.

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

use crate::env::Plane;

/// Deployments with this label get a sidecar.
pub(super) const LABEL: &str = "lab.towline.dev/sidecar";

/// The webhook; dropped, it is gone.
pub(super) struct Webhook {
    address: SocketAddr,
    injected: Arc<AtomicU32>,
    ca: String,
    _server: AbortOnDropHandle<()>,
}

impl Webhook {
    /// Serves with a certificate of `plane`'s CA.
    pub(super) async fn start(plane: &Plane) -> Result<Self> {
        let identity = plane.pki.server(&["127.0.0.1".to_owned()])?;
        let chain = CertificateDer::from_pem_slice(identity.cert.as_bytes())?;
        let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes())?;
        let tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let injected = Arc::new(AtomicU32::new(0));
        let counter = injected.clone();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A connection that breaks is the API server's concern.
                tokio::spawn(serve(stream, acceptor.clone(), counter.clone()));
            }
        });
        Ok(Self {
            address,
            injected,
            ca: plane.pki.ca_pem(),
            _server: AbortOnDropHandle::new(server),
        })
    }

    /// The object that makes the API server ask it.
    pub(super) fn configuration(&self) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "sidecars.lab.towline.dev"},
            "webhooks": [{
                "name": "sidecars.lab.towline.dev",
                "clientConfig": {"url": format!("https://{}/", self.address),
                    "caBundle": STANDARD.encode(&self.ca)},
                "rules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
                    "operations": ["CREATE", "UPDATE"]}],
                "objectSelector": {"matchLabels": {LABEL: "true"}},
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 20,
            }],
        })
    }

    /// How many sidecars it has put in.
    pub(super) fn injected(&self) -> u32 {
        self.injected.load(Ordering::SeqCst)
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, injected: Arc<AtomicU32>) {
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(move |request| review(request, injected.clone()));
    let http = hyper::server::conn::http1::Builder::new();
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn review(request: Request<Incoming>, injected: Arc<AtomicU32>) -> Result<Response<Body>> {
    let body = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&body)?;
    let request = &review["request"];
    let containers = request["object"]["spec"]["template"]["spec"]["containers"]
        .as_array()
        .context("a Deployment has containers")?;
    let mut response = json!({"uid": request["uid"], "allowed": true});
    if !containers.iter().any(|c| c["name"] == "sidecar") {
        injected.fetch_add(1, Ordering::SeqCst);
        let sidecar = json!({"name": "sidecar", "image": "registry.invalid/sidecar"});
        let patch =
            json!([{"op": "add", "path": "/spec/template/spec/containers/-", "value": sidecar}]);
        response["patchType"] = "JSONPatch".into();
        response["patch"] = STANDARD.encode(patch.to_string()).into();
    }
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    Ok(Response::builder()
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(answer.to_string().into_bytes()))?)
}
