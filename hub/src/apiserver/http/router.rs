//! One request from its head to its answer, in stages: who asks, whether they may, and what carries it out.

mod answer;
mod asked;
mod authenticate;
mod authorize;
mod gathered;
mod head;
mod object;
mod page;
mod proxy;
mod stream;
mod told;

pub(super) use asked::{Asked, Kept, header};

use super::body::Incoming;
use super::metrics::Metrics;
use super::requests::Requests;
use super::respond::{self, Body, Reply};
use super::shares::Shares;
use super::slis::Slis;
use super::standing::Changes;
use crate::access::{Tunnels, UnderWay};
use crate::apiserver::agents::Unknown;
use crate::apiserver::audit::Audit;
use crate::apiserver::authn::{Authenticator, Impersonators, Peer};
use crate::apiserver::authz::Authorizer;
use crate::apiserver::error::ApiError;
use crate::apiserver::registry::Registry;
use crate::apiserver::request::{self, RequestInfo, Warnings};
use crate::apiserver::scheme::Scheme;
use crate::liveness::{Sign, Signs};
use asked::Admitted;
use authorize::Refused;
use bytes::Bytes;
use common::admin::AdminState;
use common::liveness;
use common::names::CLUSTER_NAMESPACE;
use common::time::SharedClock;
use common::uuid::random_uuid;
use head::Head;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use std::sync::{Arc, PoisonError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Verbs that change nothing.
const READS: [&str; 3] = ["get", "list", "watch"];

/// What answers requests.
pub struct Parts {
    /// The verbs.
    pub registry: Registry,
    /// The kinds.
    pub scheme: Scheme,
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
    /// Who has how many certificate requests.
    pub requests: Requests,
    /// Tells when what is open has to be judged again.
    pub changes: Changes,
    /// Ends watches.
    pub shutdown: CancellationToken,
    /// `host:port` of this server as discovery says it.
    pub address: String,
    /// Where everything is kept.
    pub data_dir: std::path::PathBuf,
    /// Agents that this hub does not know.
    pub unknown: Unknown,
}

/// Answers requests. Cheap to clone.
#[derive(Clone)]
pub struct Router {
    parts: Arc<Parts>,
    shares: Shares,
    metrics: Metrics,
    slis: Slis,
    impersonators: Arc<Impersonators>,
    tunnels: Tunnels,
    signs: Signs,
}

impl Router {
    /// A router over its parts.
    pub fn new(parts: Parts) -> Self {
        let under_way = UnderWay::default();
        let metrics = {
            let registry = parts.admin.registry.lock();
            let mut registry = registry.unwrap_or_else(PoisonError::into_inner);
            registry.register_collector(Box::new(under_way.clone()));
            Metrics::register(&mut registry)
        };
        Self {
            parts: Arc::new(parts),
            shares: Shares::new(),
            metrics,
            slis: Slis::default(),
            impersonators: Arc::default(),
            tunnels: Tunnels::counted(under_way),
            signs: Signs::default(),
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

    /// The ways into members.
    pub(super) fn tunnels(&self) -> &Tunnels {
        &self.tunnels
    }

    /// What agents show between renewals of their Leases.
    pub fn signs(&self) -> &Signs {
        &self.signs
    }

    pub(super) fn slis(&self) -> &Slis {
        &self.slis
    }

    pub(super) fn counters(&self) -> &Metrics {
        &self.metrics
    }

    /// Answers a request.
    pub async fn handle<B: Incoming>(&self, request: Request<B>, peer: &Peer) -> Response<Body> {
        if !request::is_escaped(request.uri().path()) {
            return respond::bare(StatusCode::BAD_REQUEST, "400 Bad Request");
        }
        let audit_id = audit_id(request.headers(), &self.parts.registry);
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

    async fn answer<B: Incoming>(
        &self,
        request: Request<B>,
        peer: &Peer,
        audit_id: &str,
        warnings: &Warnings,
    ) -> Response<Body> {
        let (head, body) = request.into_parts();
        let mut head = match Head::read(head, self.parts.clock.now()) {
            Ok(head) => head,
            Err(answer) => return answer,
        };
        let (socket, upgrade) = (head.socket.take(), head.upgrade.take());
        let from = (audit_id, head.source());
        let identity = match self.authenticate(&head, socket.as_ref(), peer) {
            Ok(identity) => identity,
            Err(refused) => {
                let (real, code) = (&*refused.real, refused.error.code);
                self.audit(from, &head.info, (real, real), false, code);
                return head.plain.refusal(&refused.error);
            }
        };
        let (real, caller) = (&identity.real, &identity.caller);
        let begun = match self.admit(&head, &identity) {
            Ok(begun) => begun,
            Err(Refused::TooMany(error)) => return head.plain.error(&error),
            Err(Refused::Forbidden(error)) => {
                self.audit(from, &head.info, (real, caller), false, 403);
                return head.plain.refusal(&error);
            }
        };
        let kept = Kept::default();
        let asked = Asked {
            began: head.began,
            kept: &kept,
            method: &head.method,
            headers: &head.headers,
            query: &head.query,
            info: &head.info,
            peer,
            connection: head.connection.as_ref(),
            real,
            reply: head.reply,
            plain: head.plain,
            acceptable: head.acceptable,
            warnings,
            limit: head.limit,
        };
        let admitted = Admitted {
            asked: &asked,
            caller,
            tickets: begun.tickets,
            body,
        };
        let answered = match Stage::of(&head.info) {
            Stage::Object => self.object(admitted).await,
            Stage::Page => self.page(admitted).await,
            Stage::Proxy => self.proxied(admitted, &head.uri, upgrade).await,
            Stage::Stream => {
                let socket = socket.map(|_| upgrade);
                self.stream(admitted, socket).await
            }
        };
        let response = answered.unwrap_or_else(|error| head.plain.error(&error));
        if response.status().is_success() {
            self.hear(&head);
        }
        if !kept.routine.into_inner() {
            let dry_run = kept.dry_run.into_inner();
            let code = response.status().as_u16();
            self.audit(from, &head.info, (real, caller), dry_run, code);
        }
        drop(begun.under_way);
        response
    }

    /// Whoever was let patch the Lease of a cluster gives a sign of life by it, if they say so.
    fn hear(&self, head: &Head) {
        let info = &head.info;
        let is_of_cluster = info.group == "coordination.k8s.io"
            && info.resource == "leases"
            && info.subresource.is_empty()
            && info.namespace == CLUSTER_NAMESPACE;
        if self.signs.are_counted()
            && info.verb == "patch"
            && is_of_cluster
            && let Some(next) = liveness::read(&head.headers)
        {
            let at = Instant::now();
            self.signs.heard(&info.name, Sign { at, next });
        }
    }
}

/// What carries a request out that may begin. Each is handed the body unread, and sets its own limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A verb on objects.
    Object,
    /// What is no object.
    Page,
    /// What is for a member.
    Proxy,
    /// What goes on once it has begun.
    Stream,
}

impl Stage {
    fn of(info: &RequestInfo) -> Self {
        match info.verb.as_str() {
            _ if !info.is_resource => Self::Page,
            _ if proxy::is_proxied(info) => Self::Proxy,
            "watch" => Self::Stream,
            _ => Self::Object,
        }
    }
}

/// The id of a request in logs: the client's, or a new one.
fn audit_id(headers: &HeaderMap, registry: &Registry) -> String {
    let given = header(headers, http::HeaderName::from_static("audit-id"));
    if !given.is_empty() && given.len() <= 64 && given.chars().all(|c| c.is_ascii_graphic()) {
        return given.to_owned();
    }
    registry.draws().draw(random_uuid)
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
