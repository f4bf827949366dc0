//! Every HTTP client of the project: kube clients over our own connections.
//!
//! * Each client has a pool of its own, a deadline for every request (watches excepted; they have the
//!   idle deadline of [`crate::watch`]), and no hidden retry: kube's retry layer is not in the stack.
//! * HTTP/2 is asked for first, because its pings reach the server itself: a connection that something in
//!   between drops silently is noticed within [`PING_INTERVAL`] + [`PING_TIMEOUT`], an idle watch's
//!   too, which neither HTTP/1.1 nor TCP keepalive through a relay can do. A server that speaks only
//!   HTTP/1.1 is left with deadlines and short idle times.
//! * A request that misses its deadline takes its pool with it: whatever else waits on the dead
//!   connection would only wait as long. So does an exchanged client certificate, and an answer of 401 where the
//!   certificate is in a file that may have been renewed.

mod authorization;
mod connect;
mod kubeconfig;
mod pool;
mod problem;
mod raw;
mod target;
mod transport;

pub use authorization::CredentialsError;
pub(crate) use connect::Connector;
pub use connect::{Attempt, ConnectError, Stream};
use kubeconfig::pem;
pub use kubeconfig::{
    KubeconfigError, MemberTarget, kubeconfig_client, kubeconfig_client_through, kubeconfigs,
    member_client, read_kubeconfig,
};
pub(crate) use pool::Pool;
pub(crate) use problem::find;
pub use problem::{Problem, TimedOut, attempts, classify, classify_error};
pub use raw::{Dialer, Relay, never_left};
pub use target::{HostPort, InvalidHostPort};

use crate::env::Env;
use crate::proxy::ProxyChoice;
use crate::secret::Secret;
use crate::tls::{self, CertificateSwap, ClientTls};
use authorization::Authorization;
use http::HeaderValue;
use kube::client::Body;
use std::sync::Arc;
use std::time::Duration;
use transport::{Identity, Transport};

/// How often an HTTP/2 connection is pinged, also when nothing else happens on it.
pub const PING_INTERVAL: Duration = Duration::from_secs(10);
/// How long a ping may go unanswered before the connection is given up.
pub const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one address may take to be connected to, TLS included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a request may take unless its client says otherwise.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Who the client says it is.
#[derive(Debug, Clone)]
pub enum Credentials {
    /// Nobody.
    Anonymous,
    /// The holder of a token.
    Bearer(Secret<String>),
    /// The subject of a client certificate.
    Certificate(CertificateSwap),
}

/// Where the hub is and how to speak to it.
#[derive(Debug, Clone)]
pub struct HubTarget {
    /// Addresses, tried in turn from the one that worked last.
    pub servers: Vec<HostPort>,
    /// The CA certificates that are trusted, and no others.
    pub ca_pem: Vec<u8>,
    /// The way out.
    pub proxy: ProxyChoice,
    /// Who we are.
    pub credentials: Credentials,
}

/// What clients differ in.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Deadline of every request but watches.
    pub request_timeout: Duration,
    /// What the client is for, as part of its `User-Agent`: `agent lease`.
    pub purpose: &'static str,
    /// HTTP/1.1 where the server would speak HTTP/2.
    pub one_at_a_time: bool,
    /// Longest answer that is read, in bytes, watches excepted; any without one.
    pub answer_max: Option<usize>,
}

impl ClientOptions {
    /// The usual deadline.
    pub const fn new(purpose: &'static str) -> Self {
        Self {
            request_timeout: REQUEST_TIMEOUT,
            purpose,
            one_at_a_time: false,
            answer_max: None,
        }
    }

    /// For a connection that never has two requests at once: without what HTTP/2 keeps for many, it
    /// costs either side 30 KiB less.
    #[must_use]
    pub const fn one_at_a_time(mut self) -> Self {
        self.one_at_a_time = true;
        self
    }

    /// What is offered in the TLS handshake.
    fn protocols(&self) -> Vec<Vec<u8>> {
        match self.one_at_a_time {
            true => vec![b"http/1.1".to_vec()],
            false => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        }
    }

    /// Cuts answers off that are longer than `bytes`: for servers that are not trusted with our memory.
    #[must_use]
    pub const fn with_answer_max(mut self, bytes: usize) -> Self {
        self.answer_max = Some(bytes);
        self
    }

    /// Another deadline.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }
}

/// An extension of a request that has a deadline of its own in place of its client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerWithin(pub Duration);

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No address at all.
    #[error("no address of the hub is known")]
    NoServer,
    /// The CA or the client certificate is unusable.
    #[error("failed to prepare TLS to {0}")]
    Tls(String, #[source] tls::Error),
    /// The token cannot be a header.
    #[error("the bearer token has characters that no header may have")]
    Token,
    /// The kubeconfig cannot be read or lacks something.
    #[error("failed to read kubeconfig {0}")]
    Kubeconfig(String, #[source] KubeconfigError),
    /// The kubeconfig has no such context, or names none.
    #[error("kubeconfig {kubeconfig} {}; it has {}", missing(wanted.as_deref()), known(contexts))]
    Context {
        /// Which kubeconfig.
        kubeconfig: String,
        /// The context that was asked for; none when there is no current one.
        wanted: Option<String>,
        /// Those it has.
        contexts: Vec<String>,
    },
    /// There is no kubeconfig, and this is no pod with a service account.
    #[error("failed to read the service account of this pod (give --kubeconfig outside a cluster)")]
    InCluster(#[source] kube::config::InClusterError),
    /// The server's URL cannot be used.
    #[error("server {0:?} in the kubeconfig must be https://host[:port]")]
    Server(String),
    /// `insecure-skip-tls-verify` is set.
    #[error("the kubeconfig skips TLS verification, which is never done here")]
    Insecure,
    /// The token, its file or its program cannot be used.
    #[error("failed to prepare the credentials of the kubeconfig")]
    Credentials(#[source] CredentialsError),
    /// Whom the kubeconfig acts as cannot be a header.
    #[error("failed to act as whom the kubeconfig names")]
    Acting(#[source] Box<kube::Error>),
    /// The proxy of the kubeconfig.
    #[error("failed to use proxy-url of the kubeconfig")]
    Proxy(#[source] crate::proxy::InvalidProxy),
}

fn missing(wanted: Option<&str>) -> String {
    wanted.map_or_else(
        || "has no current context".to_owned(),
        |wanted| format!("has no context {wanted:?}"),
    )
}

fn known(contexts: &[String]) -> String {
    match contexts {
        [] => "none".to_owned(),
        some => some.join(", "),
    }
}

/// A client of the hub. Must be called inside a tokio runtime.
pub fn hub_client(
    target: &HubTarget,
    options: &ClientOptions,
    env: &Env,
) -> Result<kube::Client, Error> {
    let first = target.servers.first().ok_or(Error::NoServer)?;
    let failed = |error| Error::Tls(first.to_string(), error);
    let roots = tls::certificates(&target.ca_pem).map_err(failed)?;
    let (identity, authorization) = match &target.credentials {
        Credentials::Anonymous => (None, Authorization::None),
        Credentials::Bearer(token) => (None, Authorization::Fixed(bearer(token)?)),
        Credentials::Certificate(swap) => (Some(swap.clone()), Authorization::None),
    };
    let tls = ClientTls::new(&roots, identity.clone(), &env.clock).map_err(failed)?;
    let tls = tls.offering(options.protocols());
    let connector = Connector::new(
        target.servers.clone(),
        target.proxy.clone(),
        Arc::new(move || Ok(tls.clone())),
        env,
    );
    let identity = identity.map_or(Identity::Fixed, Identity::Swapped);
    let transport = Transport::new(connector, options, authorization, identity);
    let service = tower::ServiceBuilder::new()
        .layer(kube::client::middleware::BaseUriLayer::new(first.uri()))
        .service(transport);
    Ok(kube::Client::new::<_, transport::ResponseBody, _>(
        service, "default",
    ))
}

fn bearer(token: &Secret<String>) -> Result<HeaderValue, Error> {
    let mut value =
        HeaderValue::from_str(&format!("Bearer {}", token.expose())).map_err(|_| Error::Token)?;
    value.set_sensitive(true);
    Ok(value)
}

/// The `User-Agent` of a purpose: `towline-agent-lease/0.1.0`.
fn user_agent(purpose: &str) -> HeaderValue {
    let text = format!(
        "towline-{}/{}",
        purpose.replace(' ', "-"),
        env!("CARGO_PKG_VERSION")
    );
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("towline"))
}

/// The type of every client's requests.
type RequestBody = Body;

#[cfg(test)]
mod tests;
