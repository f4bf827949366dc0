//! The small HTTP server of health and metrics: `/livez`, `/healthz`, `/readyz` (`?verbose` names the
//! checks) and `/metrics`.

use crate::exposition;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::registry::Registry;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Connections served at once; the oldest one makes room for another.
const CONNECTIONS: usize = 16;
/// How long a client may take to send its request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one connection may last at all.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is taken or not ours.
    #[error("failed to listen on {0}")]
    Listen(SocketAddr, #[source] std::io::Error),
}

/// Named checks, each failing until it is said to be well. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Checks(Arc<Mutex<BTreeMap<&'static str, Result<(), String>>>>);

/// One check of [`Checks`].
#[derive(Debug, Clone)]
pub struct Check {
    checks: Checks,
    name: &'static str,
}

impl Checks {
    /// Adds a check that fails until [`Check::ok`].
    pub fn add(&self, name: &'static str) -> Check {
        self.set(name, Err("not yet".to_owned()));
        Check {
            checks: self.clone(),
            name,
        }
    }

    /// Whether every check is well.
    pub fn all_ok(&self) -> bool {
        self.lock().values().all(Result::is_ok)
    }

    /// The name of each check, and whether it is well.
    pub fn results(&self) -> Vec<(&'static str, bool)> {
        let all = self.lock();
        all.iter()
            .map(|(name, state)| (*name, state.is_ok()))
            .collect()
    }

    fn set(&self, name: &'static str, state: Result<(), String>) {
        self.lock().insert(name, state);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, Result<(), String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line a check, in the form that API servers use.
    pub fn report(&self) -> String {
        let mut out = String::new();
        for (name, state) in self.lock().iter() {
            // Writing to a String cannot fail.
            let _ = match state {
                Ok(()) => writeln!(out, "[+]{name} ok"),
                Err(reason) => writeln!(out, "[-]{name} failed: {reason}"),
            };
        }
        out
    }
}

impl Check {
    /// It is well.
    pub fn ok(&self) {
        self.checks.set(self.name, Ok(()));
    }

    /// It is not, and this is why.
    pub fn fail(&self, reason: impl Into<String>) {
        self.checks.set(self.name, Err(reason.into()));
    }
}

/// What the server shows. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct AdminState {
    /// Checks of `/livez` and `/healthz`: failing asks for a restart.
    pub liveness: Checks,
    /// Checks of `/readyz`.
    pub readiness: Checks,
    /// Metrics of `/metrics`; more may be registered while it is served.
    pub registry: Arc<Mutex<Registry>>,
}

/// Reads an address to listen on: `HOST:PORT`, `:PORT` for every interface, `0` or nothing for nowhere.
pub fn parse_address(value: &str) -> Result<Option<SocketAddr>, std::net::AddrParseError> {
    if value == "0" || value.is_empty() {
        return Ok(None);
    }
    let full = match value.strip_prefix(':') {
        Some(port) => format!("0.0.0.0:{port}"),
        None => value.to_owned(),
    };
    full.parse().map(Some)
}

/// A server that runs.
#[derive(Debug)]
pub struct Serving {
    /// Where health is answered.
    pub health: Option<SocketAddr>,
    /// Where metrics are answered.
    pub metrics: Option<SocketAddr>,
    /// Ends after the stop.
    pub task: AbortOnDropHandle<()>,
}

/// Serves health and metrics until `stop`, on one listener when both addresses are the same, and
/// nothing at an address that is none.
pub async fn serve(
    health: impl Into<Option<SocketAddr>>,
    metrics: impl Into<Option<SocketAddr>>,
    state: AdminState,
    stop: CancellationToken,
) -> Result<Serving, Error> {
    let (health, metrics) = (health.into(), metrics.into());
    if health == metrics {
        let (listener, bound) = bind(health).await?;
        let task = accept(listener, Paths::ALL, state, stop);
        let task = AbortOnDropHandle::new(tokio::spawn(task));
        return Ok(Serving {
            health: bound,
            metrics: bound,
            task,
        });
    }
    let (first, health) = bind(health).await?;
    let (second, metrics) = bind(metrics).await?;
    let task = AbortOnDropHandle::new(tokio::spawn(async move {
        tokio::join!(
            accept(first, Paths::HEALTH, state.clone(), stop.clone()),
            accept(second, Paths::METRICS, state, stop)
        );
    }));
    Ok(Serving {
        health,
        metrics,
        task,
    })
}

/// Which paths a listener answers.
#[derive(Debug, Clone, Copy)]
struct Paths {
    health: bool,
    metrics: bool,
}

impl Paths {
    const ALL: Self = Self {
        health: true,
        metrics: true,
    };
    const HEALTH: Self = Self {
        health: true,
        metrics: false,
    };
    const METRICS: Self = Self {
        health: false,
        metrics: true,
    };
}

async fn bind(
    address: Option<SocketAddr>,
) -> Result<(Option<TcpListener>, Option<SocketAddr>), Error> {
    let Some(address) = address else {
        return Ok((None, None));
    };
    let failed = |error| Error::Listen(address, error);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((Some(listener), Some(bound)))
}

async fn accept(
    listener: Option<TcpListener>,
    paths: Paths,
    state: AdminState,
    stop: CancellationToken,
) {
    let Some(listener) = listener else {
        return;
    };
    let mut connections = JoinSet::new();
    let mut open = Open::default();
    loop {
        let stream = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        while connections.try_join_next().is_some() {}
        match stream {
            Ok((stream, _)) => {
                let serving = connection(stream, paths, state.clone(), stop.clone());
                open.add(connections.spawn(serving));
                // Whoever sent a request is answered before others, in a burst, take the place.
                tokio::task::yield_now().await;
            }
            Err(error) => {
                // Out of file descriptors, mostly: not to spin is all that can be done here.
                tracing::warn!(%error, "failed to accept a connection for health or metrics");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The connections that are served, the oldest first. Anybody in the cluster may open some and stay silent; that must
/// not keep the kubelet out, or it restarts a process that is well. It sends its request at once and has its answer
/// within milliseconds, so that the one that is ended is hardly ever its own.
#[derive(Default)]
struct Open(VecDeque<AbortHandle>);

impl Open {
    /// Adds one, and ends the oldest where there are too many.
    fn add(&mut self, connection: AbortHandle) {
        self.0.retain(|it| !it.is_finished());
        if self.0.len() >= CONNECTIONS
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.abort();
        }
        self.0.push_back(connection);
    }
}

async fn connection(stream: TcpStream, paths: Paths, state: AdminState, stop: CancellationToken) {
    let service = service_fn(|request| {
        let answer = answer(&request, paths, &state);
        async move { Ok::<_, Infallible>(answer) }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(16 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        // Broken and slow clients end here alike; neither is our trouble.
        _ = tokio::time::timeout(CONNECTION_TIMEOUT, serving) => {}
    }
}

fn answer(request: &Request<Incoming>, paths: Paths, state: &AdminState) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return text(
            StatusCode::METHOD_NOT_ALLOWED,
            "method not allowed\n".to_owned(),
        );
    }
    let verbose = request.uri().query().is_some_and(|query| {
        query
            .split('&')
            .any(|pair| pair == "verbose" || pair.starts_with("verbose="))
    });
    match request.uri().path() {
        "/livez" | "/healthz" if paths.health => verdict(&state.liveness, verbose),
        "/readyz" if paths.health => verdict(&state.readiness, verbose),
        "/metrics" if paths.metrics => {
            let accept = request.headers().get(header::ACCEPT);
            let accept = accept.and_then(|value| value.to_str().ok());
            metrics(&state.registry, accept.unwrap_or_default())
        }
        _ => text(StatusCode::NOT_FOUND, "not found\n".to_owned()),
    }
}

fn verdict(checks: &Checks, verbose: bool) -> Response<Full<Bytes>> {
    if !checks.all_ok() {
        return text(
            StatusCode::SERVICE_UNAVAILABLE,
            checks.report() + "not ok\n",
        );
    }
    let report = if verbose {
        checks.report() + "ok\n"
    } else {
        "ok".to_owned()
    };
    text(StatusCode::OK, report)
}

fn metrics(registry: &Mutex<Registry>, accept: &str) -> Response<Full<Bytes>> {
    let registry = registry.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok((out, form)) = exposition::render(&registry, accept) else {
        return text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "failed to encode the metrics\n".to_owned(),
        );
    };
    let mut response = Response::new(Full::new(out.into()));
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
    response
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

#[cfg(test)]
mod tests;
