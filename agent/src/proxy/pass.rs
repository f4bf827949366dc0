//! One request of a user of the hub: judged, passed on as that user, and answered.

use super::account::Account;
use super::decide::{self, Asked};
use super::open::{Open, Stream, lasting};
use super::refusal::{Body, Refusal};
use common::client::Relay;
use common::errors::chain;
use common::names::ClusterName;
use common::tunnel::{Ending, Identity, Mode, cause, forwarded, headers, join};
use http::header::{AUTHORIZATION, CONNECTION, HeaderName, UPGRADE, WARNING};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const IMPERSONATE_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATE_GROUP: HeaderName = HeaderName::from_static("impersonate-group");
/// [`common::tunnel::PROXIED_USER`] as a header has it.
const IMPERSONATE_NAME: HeaderName =
    HeaderName::from_static("impersonate-extra-towline.dev%2fuser");
/// What connections are taken over for.
const PROTOCOLS: [&str; 2] = ["websocket", "SPDY/3.1"];

/// Passes requests on.
#[derive(Debug)]
pub(super) struct Passer {
    pub(super) cluster: ClusterName,
    pub(super) mode: Mode,
    pub(super) relay: Relay,
    pub(super) account: Account,
    /// What is under way.
    pub(super) open: Arc<Open>,
    /// Connections that were taken over; they end with the token.
    pub(super) taken: TaskTracker,
    pub(super) end: CancellationToken,
}

/// A request as the hub means it.
struct Meant {
    method: Method,
    /// For which protocol the connection is to be taken over.
    protocol: Option<&'static str>,
    identity: Identity,
    stream: String,
}

impl Passer {
    /// Answers a request that came through the tunnel.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let answered = self.passed(request).await;
        answered.unwrap_or_else(|refusal| self.refused(&refusal))
    }

    fn refused(&self, refusal: &Refusal) -> Response<Body> {
        tracing::debug!(%refusal, "a request of a user of the hub is refused");
        refusal.answer(self.cluster.as_str())
    }

    async fn passed(&self, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
        let (mut head, body) = request.into_parts();
        let meant = Meant::read(&head)?;
        let path = forwarded(head.uri.path()).map_err(|e| Refusal::Malformed(e.to_string()))?;
        let asked = Asked {
            method: &meant.method,
            path,
            takes_over: meant.protocol.is_some(),
        };
        if let Some(why) = decide::refused(self.mode, &asked) {
            return Err(Refusal::Forbidden(cause::READING_ALONE, why.to_owned()));
        }
        let acting = self.account.acting().await;
        let acting = acting.map_err(|error| Refusal::Unavailable(chain(&error).to_string()))?;
        let comes = HeaderValue::from_static(acting.listed.comes().as_str());
        let whom = match acting.listed.whom(&meant.identity) {
            Ok(whom) => whom,
            Err(why) => {
                let refusal = Refusal::Forbidden(cause::NOT_LET_IN, why.to_string());
                let mut answer = self.refused(&refusal);
                answer.headers_mut().insert(headers::COMES, comes);
                return Ok(answer);
            }
        };
        let mut sent = headers::asked(&head.headers, meant.protocol.is_some());
        sent.insert(AUTHORIZATION, acting.bearer);
        name(&mut sent, IMPERSONATE_USER, &whom.user)?;
        for group in &whom.groups {
            name(&mut sent, IMPERSONATE_GROUP, group)?;
        }
        if let Some(named) = &whom.named {
            name(&mut sent, IMPERSONATE_NAME, named)?;
        }
        if let Some(protocol) = meant.protocol {
            sent.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            sent.insert(UPGRADE, HeaderValue::from_static(protocol));
        }
        let left_out = whom.left_out.clone();
        let open = self.open.begin(meant.identity.clone(), whom);
        let told = Arc::new(Told::begin(&meant, path, open));
        let taken = head.extensions.remove::<OnUpgrade>();
        let query = head.uri.path_and_query().cloned();
        let mut onward = Request::new(meant.protocol.is_none().then_some(body));
        *onward.method_mut() = meant.method;
        *onward.headers_mut() = sent;
        *onward.uri_mut() = query.map_or_else(Uri::default, Uri::from);
        let answer = tokio::select! {
            biased;
            () = told.open.over().cancelled() => {
                let why = "its owner lets you in no more; it may have done what was asked just before that";
                return Err(Refusal::Forbidden(cause::NOT_LET_IN, why.to_owned()));
            }
            answer = self.relay.send(onward) => answer,
        };
        let answer = answer.map_err(|error| {
            let error = chain(error.as_ref()).to_string();
            Refusal::Unavailable(format!("its API server does not answer: {error}"))
        })?;
        told.status(answer.status());
        if answer.status() == StatusCode::UNAUTHORIZED {
            self.account.forget_token().await;
        }
        let mut answer = match (meant.protocol, answer.status()) {
            (Some(protocol), StatusCode::SWITCHING_PROTOCOLS) => {
                self.take_over(answer, protocol, taken, told)?
            }
            // The hub would take it for a connection that was taken over.
            (Some(protocol), code) if code.is_success() => {
                let why = format!(
                    "its API server answered {code} where it was asked to switch to {protocol:?}"
                );
                return Err(Refusal::BadAnswer(why));
            }
            _ => whole(answer, told)?,
        };
        answer.headers_mut().insert(headers::COMES, comes);
        for group in &left_out {
            warn(&mut answer, &self.cluster, group);
        }
        Ok(answer)
    }
}

impl Passer {
    /// A connection that was taken over, joined with the stream of the tunnel.
    fn take_over(
        &self,
        mut answer: Response<Incoming>,
        protocol: &'static str,
        taken: Option<OnUpgrade>,
        told: Arc<Told>,
    ) -> Result<Response<Body>, Refusal> {
        let said = answer.headers().get(UPGRADE);
        let said = said
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let taken = taken.filter(|_| said.eq_ignore_ascii_case(protocol));
        let taken = taken.ok_or_else(|| {
            let why =
                format!("its API server switched to {said:?} where {protocol:?} was asked for");
            Refusal::BadAnswer(why)
        })?;
        let member = hyper::upgrade::on(&mut answer);
        let mut passed = headers::answered(answer.headers());
        passed.insert(headers::UPGRADE, HeaderValue::from_static(protocol));
        let end = self.end.clone();
        self.taken.spawn(async move {
            let joined = async {
                let (hub, member) =
                    tokio::try_join!(taken, member).map_err(std::io::Error::other)?;
                join(Ending::new(TokioIo::new(hub)), TokioIo::new(member)).await
            };
            let joined = tokio::select! {
                biased;
                () = end.cancelled() => return,
                () = told.open.over().cancelled() => return,
                joined = joined => joined,
            };
            match joined {
                Ok(sent) => told.count(usize::try_from(sent).unwrap_or(usize::MAX)),
                Err(error) => {
                    tracing::debug!(%error, stream = told.stream, "a connection broke off");
                }
            }
        });
        let mut response =
            Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
        *response.headers_mut() = passed;
        Ok(response)
    }
}

impl Meant {
    fn read(head: &http::request::Parts) -> Result<Self, Refusal> {
        let malformed = |why: &str| Refusal::Malformed(why.to_owned());
        let text = |name: &str| {
            let mut values = head.headers.get_all(name).iter();
            match (values.next(), values.next()) {
                (Some(value), None) => value.to_str().ok(),
                _ => None,
            }
        };
        let identity = Identity::read(&head.headers);
        let identity = identity.map_err(|error| Refusal::Malformed(error.to_string()))?;
        let stream = text(headers::STREAM).ok_or_else(|| malformed("the request has no id"))?;
        let stream = stream.to_owned();
        if head.method != Method::CONNECT {
            return Ok(Self {
                method: head.method.clone(),
                protocol: None,
                identity,
                stream,
            });
        }
        let wanted = head.extensions.get::<Protocol>();
        let wanted = wanted.ok_or_else(|| malformed("a CONNECT without a protocol"))?;
        let mut known = PROTOCOLS.into_iter();
        let protocol = known.find(|name| name.eq_ignore_ascii_case(wanted.as_str()));
        let protocol = protocol.ok_or_else(|| malformed("no protocol that is passed on"))?;
        let method = match text(headers::METHOD) {
            Some("GET") => Method::GET,
            Some("POST") => Method::POST,
            _ => return Err(malformed("a connection is taken over by GET or POST")),
        };
        Ok(Self {
            method,
            protocol: Some(protocol),
            identity,
            stream,
        })
    }
}

fn name(headers: &mut HeaderMap, of: HeaderName, value: &str) -> Result<(), Refusal> {
    let value = HeaderValue::from_bytes(value.as_bytes());
    let value =
        value.map_err(|_| Refusal::Malformed("a name that no header may have".to_owned()))?;
    headers.append(of, value);
    Ok(())
}

/// An answer that goes on as it is. A redirect would lead the client past the tunnel.
fn whole(answer: Response<Incoming>, told: Arc<Told>) -> Result<Response<Body>, Refusal> {
    let code = answer.status();
    let leads_away = code.is_redirection() && code != StatusCode::NOT_MODIFIED;
    if leads_away || code.is_informational() {
        let why = format!("its API server answered {code}, which is not passed on");
        return Err(Refusal::BadAnswer(why));
    }
    let (head, body) = answer.into_parts();
    let over = told.open.over().clone();
    let body = lasting(body, &over, move |bytes| told.count(bytes));
    let mut response = Response::new(body);
    *response.status_mut() = code;
    *response.headers_mut() = headers::answered(&head.headers);
    response.headers_mut().remove(headers::UPGRADE);
    Ok(response)
}

fn warn(answer: &mut Response<Body>, cluster: &ClusterName, group: &str) {
    let text = format!("299 - \"{}\"", cause::left_out(cluster.as_str(), group));
    if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
        answer.headers_mut().append(WARNING, value);
    }
}

/// A line in the log at the begin and at the end of what goes through the tunnel.
#[derive(Debug)]
struct Told {
    open: Stream,
    stream: String,
    began: Instant,
    status: AtomicU64,
    sent: AtomicU64,
}

impl Told {
    fn begin(meant: &Meant, path: &str, open: Stream) -> Self {
        let (user, method, stream) = (meant.identity.user(), &meant.method, &meant.stream);
        tracing::info!(stream, user, %method, path, "a user of the hub asks this member");
        Self {
            open,
            stream: stream.clone(),
            began: Instant::now(),
            status: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        }
    }

    fn status(&self, status: StatusCode) {
        self.status.store(status.as_u16().into(), Ordering::Relaxed);
    }

    fn count(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let status = self.status.load(Ordering::Relaxed);
        let bytes = self.sent.load(Ordering::Relaxed);
        let seconds = self.began.elapsed().as_secs_f64();
        tracing::info!(
            stream = self.stream,
            status,
            bytes,
            seconds,
            "the member's answer ended"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::tunnel::PROXIED_USER;

    #[test]
    fn the_name_of_who_it_is_is_an_extra_of_the_user() {
        let escaped = PROXIED_USER.replace('/', "%2f");
        let header = format!("impersonate-extra-{escaped}");
        assert_eq!(IMPERSONATE_NAME.as_str(), header);
    }
}
