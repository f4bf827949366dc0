//! What requests go out on: connections over sockets, as many as are needed, or one line of a simulation.

use super::connect::{ConnectError, Connector};
use super::{PING_INTERVAL, PING_TIMEOUT, RequestBody};
use crate::network::{Line, LineBody};
use http::{Request, Response};
use http_body_util::Either;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tower::{BoxError, Service as _, ServiceExt as _};

/// How long a connection may lie unused in the pool.
const IDLE: Duration = Duration::from_secs(60);
/// What a server may send ahead of us on one stream and on the whole connection: enough for a page of
/// large objects, little enough for the agent's memory.
const STREAM_WINDOW: u32 = 512 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// The body of an answer.
pub(crate) type Answer = Either<Incoming, LineBody>;

/// Clones share its connections.
#[derive(Clone)]
pub(crate) enum Pool {
    Sockets(Arc<Client<Connector, RequestBody>>),
    Line(Arc<Alone>),
}

/// One line, made when it is needed.
pub(crate) struct Alone {
    connector: Connector,
    line: Mutex<Option<Line>>,
}

impl Pool {
    /// One without a connection yet.
    pub(crate) fn new(connector: &Connector) -> Self {
        if connector.has_network() {
            return Self::Line(Arc::new(Alone {
                connector: connector.clone(),
                line: Mutex::default(),
            }));
        }
        let pool = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(4)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_keep_alive_while_idle(true)
            .build(connector.clone());
        Self::Sockets(Arc::new(pool))
    }

    /// Asks, over a connection that is there or a new one.
    pub(crate) async fn request(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<Answer>, BoxError> {
        match self {
            Self::Sockets(pool) => Ok(pool.request(request).await?.map(Either::Left)),
            Self::Line(alone) => Ok(alone.request(request).await?.map(Either::Right)),
        }
    }
}

impl Alone {
    async fn request(&self, request: Request<RequestBody>) -> Result<Response<LineBody>, BoxError> {
        let mut line = self.open().await?;
        let answered = async { line.ready().await?.call(request).await }.await;
        if answered.is_err() {
            *self.line.lock().await = None;
        }
        answered
    }

    async fn open(&self) -> Result<Line, ConnectError> {
        let mut line = self.line.lock().await;
        if let Some(line) = &*line {
            return Ok(line.clone());
        }
        let made = self.connector.line().await?;
        Ok(line.insert(made).clone())
    }
}
