//! One request from its head to its answer: who asks, whether they may, and what carries it out.

use super::body;
use super::info::{self, Malformed, Query, RequestInfo};
use super::metrics::Metrics;
use super::negotiate::{self, Accepted};
use super::respond::{self, Body, Reply};
use super::shares::Shares;
use super::verbs::Call;
use crate::apiserver::agents::{self, Target};
use crate::apiserver::audit::{Audit, Entry};
use crate::apiserver::authn::{Authenticator, Impersonators, Peer, impersonated};
use crate::apiserver::authz::{Attributes, Authorizer};
use crate::apiserver::backup;
use crate::apiserver::caller::Caller;
use crate::apiserver::catalogue::Catalogue;
use crate::apiserver::error::{ApiError, quote};
use crate::apiserver::registry::{Registry, Warnings};
use crate::apiserver::table::IncludeObject;
use crate::apiserver::uuid::random_uuid;
use bytes::Bytes;
use common::admin::AdminState;
use common::time::SharedClock;
use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use std::fmt::Display;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Longest time of a request that is no watch.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Verbs that change nothing.
const READS: [&str; 3] = ["get", "list", "watch"];

/// What answers requests.
pub struct Parts {
    /// The verbs.
    pub registry: Registry,
    /// The kinds.
    pub catalogue: Catalogue,
    /// Who asks.
    pub authenticator: Authenticator,
    /// What they may.
    pub authorizer: Arc<Authorizer>,
    /// What they did.
    pub audit: Audit,
    /// Health and metrics.
    pub admin: AdminState,
    /// The time of day.
    pub clock: SharedClock,
    /// Ends watches.
    pub shutdown: CancellationToken,
    /// `host:port` of this server as discovery says it.
    pub address: String,
    /// Where everything is kept.
    pub data_dir: std::path::PathBuf,
}

/// Answers requests. Cheap to clone.
#[derive(Clone)]
pub struct Router {
    parts: Arc<Parts>,
    shares: Shares,
    metrics: Metrics,
    impersonators: Arc<Impersonators>,
}

/// A request without its body, read.
pub(super) struct Asked<'a> {
    /// When its head was there.
    pub(super) began: Instant,
    pub(super) method: &'a Method,
    pub(super) headers: &'a HeaderMap,
    pub(super) query: &'a Query,
    pub(super) info: &'a RequestInfo,
    pub(super) peer: &'a Peer,
    pub(super) reply: Reply,
    /// Whether anything that is accepted can be written.
    pub(super) acceptable: bool,
    pub(super) warnings: &'a Warnings,
    pub(super) kept: &'a Kept,
}

/// What became of a write, as far as the audit log asks.
#[derive(Default)]
pub(super) struct Kept {
    /// Whether nothing is kept, once that was read from wherever it counts.
    pub(super) dry_run: AtomicBool,
    /// Whether it changed nothing, or only renewed a Lease: what a fleet at rest sends without end, and
    /// would push everything else out of the files.
    pub(super) routine: AtomicBool,
}

impl Asked<'_> {
    pub(super) fn header(&self, name: http::HeaderName) -> &str {
        header(self.headers, name)
    }
}

pub(super) fn header(headers: &HeaderMap, name: http::HeaderName) -> &str {
    let value = headers.get(name);
    value
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

impl Router {
    /// A router over its parts.
    pub fn new(parts: Parts) -> Self {
        let metrics = {
            let registry = parts.admin.registry.lock();
            Metrics::register(&mut registry.unwrap_or_else(PoisonError::into_inner))
        };
        Self {
            parts: Arc::new(parts),
            shares: Shares::new(),
            metrics,
            impersonators: Arc::default(),
        }
    }

    /// What it consists of.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// What each caller has of what there is.
    pub(super) fn shares(&self) -> &Shares {
        &self.shares
    }

    pub(super) fn counters(&self) -> &Metrics {
        &self.metrics
    }

    /// A client in this process, with every right.
    pub fn client(&self) -> kube::Client {
        let router = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let router = router.clone();
            async move {
                let answer = router.handle(request, &Peer::Itself).await;
                Ok::<_, std::convert::Infallible>(answer)
            }
        });
        kube::Client::new(service, "default")
    }

    /// Answers a request.
    pub async fn handle<B>(&self, request: Request<B>, peer: &Peer) -> Response<Body>
    where
        B: hyper::body::Body<Data = Bytes> + Send,
        B::Error: Display,
    {
        if !info::is_escaped(request.uri().path()) {
            return respond::bare(StatusCode::BAD_REQUEST, "400 Bad Request");
        }
        let audit_id = audit_id(request.headers());
        let is_head = request.method() == Method::HEAD;
        let warnings = Warnings::default();
        let mut response = self.answer(request, peer, &audit_id, &warnings).await;
        respond::common_headers(&mut response, &audit_id);
        respond::warn(&mut response, &warnings.all());
        if is_head {
            *response.body_mut() = respond::whole(Bytes::new());
        }
        response
    }

    async fn answer<B>(
        &self,
        request: Request<B>,
        peer: &Peer,
        audit_id: &str,
        warnings: &Warnings,
    ) -> Response<Body>
    where
        B: hyper::body::Body<Data = Bytes> + Send,
        B::Error: Display,
    {
        let began = Instant::now();
        let (head, body) = request.into_parts();
        let query = Query::read(head.uri.query());
        let user_agent = header(&head.headers, USER_AGENT);
        let accept = header(&head.headers, ACCEPT);
        let accepted = negotiate::accepted(accept, &query, user_agent);
        let reply = Reply {
            accepted: accepted.unwrap_or_default(),
            include: IncludeObject::default(),
            gzip: header(&head.headers, ACCEPT_ENCODING).contains("gzip"),
            now: self.parts.clock.now(),
        };
        let plain = Reply {
            accepted: Accepted {
                shape: Default::default(),
                ..reply.accepted
            },
            ..reply
        };
        let info = match RequestInfo::read(&head.method, head.uri.path(), &query) {
            Ok(info) => info,
            Err(Malformed::Dots(name)) => {
                return plain.error(&ApiError::bad_request(format!(
                    "Name parameter invalid: \"{name}\": may not be '{name}'"
                )));
            }
            Err(Malformed::DotsBefore(key)) => {
                return plain.error(&ApiError::plain(
                    500,
                    "",
                    format!("invalid key: {}", quote(&key)),
                ));
            }
            Err(Malformed::Other) if head.uri.path().starts_with("/api/") => {
                return plain.error(&ApiError::no_such_path());
            }
            Err(Malformed::Other) => return respond::not_found(),
        };
        // A watch has a deadline of its own.
        let limit = match negotiate::deadline(&query) {
            Ok(limit) if info.verb != "watch" => limit.min(REQUEST_TIMEOUT),
            Err(error) if info.verb != "watch" => return plain.error(&error),
            _ => REQUEST_TIMEOUT,
        };
        let authenticated = self.parts.authenticator.authenticate(peer, &head.headers);
        let refused = |real: &Caller, error: &ApiError| {
            self.audit(audit_id, &info, (real, real), false, error.code);
            plain.refusal(error)
        };
        let real = match authenticated {
            Ok(real) => Arc::new(real),
            Err(error) => return refused(&Caller::anonymous(), &error),
        };
        let caller = match self.acting(&real, &head.headers, &info) {
            Ok(caller) => caller,
            Err(error) => return refused(&real, &error),
        };
        let ticket = match self.shares.request(&caller) {
            Ok(ticket) => ticket,
            Err(error) => return plain.error(&error),
        };
        if let Err(error) = self.authorize(&caller, &info) {
            self.audit(audit_id, &info, (&real, &caller), false, 403);
            return plain.refusal(&error);
        }
        let kept = Kept::default();
        let asked = Asked {
            began,
            kept: &kept,
            method: &head.method,
            headers: &head.headers,
            query: &query,
            info: &info,
            peer,
            reply,
            acceptable: accepted.is_some(),
            warnings,
        };
        let answered = async {
            // What only asks has no body; one that comes all the same, however slowly, is not waited for.
            let body = match head.method {
                Method::GET | Method::HEAD => Bytes::new(),
                _ => body::read(body, &head.headers).await?,
            };
            let _turn = self.shares.turn_for(body.len(), &caller).await;
            if info.path == backup::PAGE && info.verb == "get" {
                return backup::answer(&self.parts).await;
            }
            if !info.is_resource {
                return Ok(self.page(&asked));
            }
            if accepted.is_none() {
                let collection = READS[1..].contains(&info.verb.as_str());
                return Err(negotiate::not_acceptable(accept, collection));
            }
            self.call(&asked, &caller, body).await
        };
        let answered = timeout(limit, answered).await.unwrap_or_else(|_| {
            Err(ApiError::timeout(
                "request did not complete within the allotted timeout",
                0,
            ))
        });
        let response = answered
            .and_then(|response| match info.verb.as_str() {
                // A watch has its own, and is no longer under way once it has begun.
                "watch" => Ok(response),
                verb if READS.contains(&verb) => self.shares.sending(response, &caller, ticket),
                // What is done is done, and its answer is no larger than what was sent.
                _ => Ok(response.map(|body| respond::kept(body, ticket))),
            })
            .unwrap_or_else(|error| plain.error(&error));
        let code = response.status().as_u16();
        if !kept.routine.into_inner() {
            let dry_run = kept.dry_run.into_inner();
            self.audit(audit_id, &info, (&real, &caller), dry_run, code);
        }
        response
    }

    /// Whom a caller acts as: itself, or somebody else.
    fn acting(
        &self,
        real: &Arc<Caller>,
        headers: &HeaderMap,
        info: &RequestInfo,
    ) -> Result<Arc<Caller>, ApiError> {
        let authorizer = &self.parts.authorizer;
        let attributes = attributes(info);
        let known = &self.impersonators;
        let acting = impersonated(real, headers, authorizer, known, &attributes)?;
        Ok(acting.map_or_else(|| real.clone(), Arc::new))
    }

    fn authorize(&self, caller: &Caller, info: &RequestInfo) -> Result<(), ApiError> {
        self.parts.authorizer.check(caller, &attributes(info))?;
        if !info.is_resource || READS.contains(&info.verb.as_str()) {
            return Ok(());
        }
        let target = Target {
            operation: match info.verb.as_str() {
                "create" => "CREATE",
                "update" | "patch" => "UPDATE",
                "delete" | "deletecollection" => "DELETE",
                _ => "CONNECT",
            },
            group: &info.group,
            resource: &info.resource,
            subresource: &info.subresource,
            namespace: &info.namespace,
            name: &info.name,
        };
        agents::check_target(caller, &target)
    }

    async fn call(
        &self,
        asked: &Asked<'_>,
        caller: &Arc<Caller>,
        body: Bytes,
    ) -> Result<Response<Body>, ApiError> {
        let info = asked.info;
        let found = self
            .parts
            .catalogue
            .resource(&info.group, &info.version, &info.resource);
        let Some(resource) = found else {
            return Ok(self.no_such_kind(asked));
        };
        // A path of a built-in kind is found by the types that it writes, as they are named.
        let accept = asked.header(ACCEPT);
        if !resource.is_custom() && !negotiate::is_routed(accept) {
            let collection = READS[1..].contains(&info.verb.as_str());
            return Err(negotiate::not_acceptable(accept, collection));
        }
        let call = Call {
            router: self,
            asked,
            caller,
            resource: &resource,
        };
        call.run(body).await
    }

    /// Within a group of Kubernetes the answer is an error object, elsewhere a page.
    fn no_such_kind(&self, asked: &Asked<'_>) -> Response<Body> {
        let snapshot = self.parts.catalogue.snapshot();
        let known = snapshot
            .all()
            .iter()
            .any(|kind| *kind.group == asked.info.group && !kind.is_custom());
        if known {
            asked.reply.error(&ApiError::no_such_path())
        } else {
            respond::not_found()
        }
    }

    fn audit(
        &self,
        id: &str,
        info: &RequestInfo,
        (real, caller): (&Caller, &Caller),
        dry_run: bool,
        code: u16,
    ) {
        let refused = matches!(code, 401 | 403);
        if READS.contains(&info.verb.as_str()) && !refused || !info.is_resource {
            return;
        }
        self.parts.audit.write(&Entry {
            id,
            now: self.parts.clock.now(),
            info,
            user: real,
            acting: (real != caller).then_some(caller),
            dry_run,
            code,
        });
    }
}

/// What the authorizer is asked about a request.
pub(super) fn attributes(info: &RequestInfo) -> Attributes {
    if !info.is_resource {
        return Attributes {
            verb: info.verb.clone(),
            path: Some(info.path.clone()),
            ..Attributes::default()
        };
    }
    Attributes {
        verb: info.verb.clone(),
        group: info.group.clone(),
        resource: info.resource.clone(),
        subresource: info.subresource.clone(),
        namespace: info.namespace.clone(),
        name: info.name.clone(),
        path: None,
    }
}

/// The id of a request in logs: the client's, or a new one.
fn audit_id(headers: &HeaderMap) -> String {
    let given = header(headers, http::HeaderName::from_static("audit-id"));
    if !given.is_empty() && given.len() <= 64 && given.chars().all(|c| c.is_ascii_graphic()) {
        return given.to_owned();
    }
    random_uuid()
}

/// The answer to a method that a path does not have.
pub(super) fn method_not_allowed(reply: &Reply) -> Response<Body> {
    reply.error(&ApiError {
        details: Some(Default::default()),
        ..ApiError::plain(
            StatusCode::METHOD_NOT_ALLOWED.as_u16(),
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    })
}

#[cfg(test)]
mod tests;
