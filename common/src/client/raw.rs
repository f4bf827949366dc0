//! Connections without kube's client above them: the agent's end of a tunnel, and the way from there to the member's
//! API server.

use super::connect::{Connector, Stream};
use super::kubeconfig::{server_of, tls_source};
use super::{ConnectError, Credentials, Error, HostPort, HubTarget};
use crate::env::Env;
use crate::proxy::ProxyChoice;
use crate::tls::{self, CertificateSwap, ClientTls};
use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use http_body_util::{Either, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::Config;
use kube::config::AuthInfo;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tower::BoxError;

/// How long a connection to the member may lie unused, and how many of them may.
const IDLE: Duration = Duration::from_secs(60);
const IDLE_MAX: usize = 8;
/// The same of one between replicas of the hub, which close what was silent for longer.
const IDLE_BETWEEN: Duration = Duration::from_secs(10);

/// Makes connections to a hub that speak a protocol of ours.
#[derive(Clone)]
pub struct Dialer(Connector);

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").finish_non_exhaustive()
    }
}

impl Dialer {
    /// One for `target`, with its certificate, that offers these protocols.
    pub fn new(target: &HubTarget, protocols: &[&[u8]], env: &Env) -> Result<Self, Error> {
        let first = target.servers.first().ok_or(Error::NoServer)?;
        let failed = |error| Error::Tls(first.to_string(), error);
        let roots = tls::certificates(&target.ca_pem).map_err(failed)?;
        let identity = match &target.credentials {
            Credentials::Certificate(swap) => Some(swap.clone()),
            Credentials::Anonymous | Credentials::Bearer(_) => None,
        };
        let tls = ClientTls::new(&roots, identity, &env.clock).map_err(failed)?;
        let tls = tls.offering(protocols.iter().map(|it| it.to_vec()).collect());
        let (servers, proxy) = (target.servers.clone(), target.proxy.clone());
        let source = Arc::new(move || Ok(tls.clone()));
        Ok(Self(Connector::new(servers, proxy, source, env)))
    }

    /// Connects to the first address that works and speaks one of the protocols.
    pub async fn dial(&self) -> Result<Stream, ConnectError> {
        self.0.connect().await
    }
}

/// Passes requests on to one server, whatever else they name.
#[derive(Clone)]
pub struct Relay {
    client: Client<Connector, Either<Incoming, Empty<Bytes>>>,
    authority: Authority,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

impl Relay {
    /// One to the API server of a kubeconfig, whose credentials it leaves alone: requests bring theirs. HTTP/1.1 alone: a
    /// connection that is taken over is one of these, an answer that breaks off never looks like one that ends, and no
    /// stream waits for another one's reader. A proxy that the kubeconfig names is told the headers of `proxy`.
    pub fn new(config: &Config, proxy: &ProxyChoice, env: &Env) -> Result<Self, Error> {
        let server = server_of(config)?;
        let proxy = match &config.proxy_url {
            Some(url) => ProxyChoice::explicit(&url.to_string())
                .map_err(Error::Proxy)?
                .with_headers_of(proxy),
            None => ProxyChoice::direct(),
        };
        let mut nobody = config.clone();
        nobody.auth_info = AuthInfo::default();
        let source = tls_source(&nobody, vec![b"http/1.1".to_vec()], &env.clock);
        let name = config.tls_server_name.clone();
        let authority = authority(&server)?;
        let connector = Connector::with_server_name(vec![server], proxy, source, name, env);
        Ok(Self::over(connector, authority, IDLE))
    }

    /// One from a replica of the hub, which shows this certificate, to another one, whose certificate is of these
    /// authorities and has the host of the address. HTTP/1.1, for the same reasons.
    pub fn between(
        address: &HostPort,
        ca_pem: &str,
        identity: CertificateSwap,
        env: &Env,
    ) -> Result<Self, Error> {
        let failed = |error| Error::Tls(address.to_string(), error);
        let roots = tls::certificates(ca_pem.as_bytes()).map_err(failed)?;
        let tls = ClientTls::new(&roots, Some(identity), &env.clock).map_err(failed)?;
        let tls = tls.offering(vec![b"http/1.1".to_vec()]);
        let source = Arc::new(move || Ok(tls.clone()));
        let proxy = ProxyChoice::direct();
        let connector = Connector::new(vec![address.clone()], proxy, source, env);
        Ok(Self::over(connector, authority(address)?, IDLE_BETWEEN))
    }

    fn over(connector: Connector, authority: Authority, idle: Duration) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(idle)
            .pool_max_idle_per_host(IDLE_MAX)
            .build(connector);
        Self { client, authority }
    }

    /// Sends a request to the server, by its path and query alone. There is no deadline: the answer may be one that
    /// goes on, and whoever asked gives it up by dropping it.
    pub async fn send(
        &self,
        mut request: Request<Option<Incoming>>,
    ) -> Result<Response<Incoming>, BoxError> {
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(Scheme::HTTPS);
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = request.uri().path_and_query().cloned();
        *request.uri_mut() = Uri::from_parts(parts)?;
        let request = request.map(|body| match body {
            Some(body) => Either::Left(body),
            None => Either::Right(Empty::new()),
        });
        Ok(self.client.request(request).await?)
    }
}

fn authority(server: &HostPort) -> Result<Authority, Error> {
    let authority = server.to_string().parse();
    authority.map_err(|_| Error::Server(server.to_string()))
}

/// Whether nothing of a request has left, for nobody could be connected to.
pub fn never_left(error: &BoxError) -> bool {
    let error = error.downcast_ref::<legacy::Error>();
    error.is_some_and(legacy::Error::is_connect)
}
