//! A request that may be carried out, its body still unread.

use super::super::body;
use super::super::body::Incoming;
use super::super::connection::Connection;
use super::super::respond::Reply;
use super::super::shares::Tickets;
use crate::apiserver::authn::Peer;
use crate::apiserver::caller::Caller;
use crate::apiserver::error::ApiError;
use crate::apiserver::request::{Query, RequestInfo, Warnings};
use bytes::Bytes;
use http::{HeaderMap, Method};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A request without its body, read.
pub(in crate::apiserver::http) struct Asked<'a> {
    /// When its head was there.
    pub(in crate::apiserver::http) began: Instant,
    pub(in crate::apiserver::http) method: &'a Method,
    pub(in crate::apiserver::http) headers: &'a HeaderMap,
    pub(in crate::apiserver::http) query: &'a Query,
    pub(in crate::apiserver::http) info: &'a RequestInfo,
    pub(in crate::apiserver::http) peer: &'a Peer,
    /// Where it came from; none within the process.
    pub(in crate::apiserver::http) connection: Option<&'a Arc<Connection>>,
    /// Who asks, before acting as somebody else.
    pub(in crate::apiserver::http) real: &'a Arc<Caller>,
    pub(in crate::apiserver::http) reply: Reply,
    /// The same for what is no object: never a table.
    pub(in crate::apiserver::http) plain: Reply,
    /// Whether anything that is accepted can be written.
    pub(in crate::apiserver::http) acceptable: bool,
    pub(in crate::apiserver::http) warnings: &'a Warnings,
    /// How long it may take until the answer begins.
    pub(in crate::apiserver::http) limit: Duration,
    pub(in crate::apiserver::http) kept: &'a Kept,
}

/// What became of a write, as far as the audit log asks.
#[derive(Default)]
pub(in crate::apiserver::http) struct Kept {
    /// Whether nothing is kept, once that was read from wherever it counts.
    pub(in crate::apiserver::http) dry_run: AtomicBool,
    /// Whether it changed nothing, or only renewed a Lease: what a fleet at rest sends without end, and
    /// would push everything else out of the files.
    pub(in crate::apiserver::http) routine: AtomicBool,
}

impl Asked<'_> {
    pub(in crate::apiserver::http) fn header(&self, name: http::HeaderName) -> &str {
        header(self.headers, name)
    }
}

pub(in crate::apiserver::http) fn header(headers: &HeaderMap, name: http::HeaderName) -> &str {
    let value = headers.get(name);
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

/// What a stage that carries a request out is handed.
pub(super) struct Admitted<'a, B> {
    pub(super) asked: &'a Asked<'a>,
    /// Whom the request is carried out as.
    pub(super) caller: &'a Arc<Caller>,
    /// What it counts as until its answer has left.
    pub(super) tickets: Tickets,
    pub(super) body: B,
}

impl Asked<'_> {
    /// The body, read whole. What only asks has none; one that comes all the same, however slowly, is not
    /// waited for.
    pub(super) async fn whole<B: Incoming>(&self, body: B) -> Result<Bytes, ApiError> {
        match *self.method {
            Method::GET | Method::HEAD => Ok(Bytes::new()),
            _ => body::read(body, self.headers).await,
        }
    }

    /// What is not there within the limit of the request may still happen, and is told so.
    pub(super) async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        timeout(self.limit, work).await.unwrap_or_else(|_| {
            Err(ApiError::timeout(
                "request did not complete within the allotted timeout",
                0,
            ))
        })
    }
}
