//! A stage that carries requests out: those for a member, `clusters/NAME/proxy/…`, through its agent's tunnel. They have
//! limits of their own, and go on for as long as the member answers and whoever asked may ask.

use super::super::body::Incoming;
use super::super::limit::Ticket;
use super::super::respond::{Body, whole};
use super::super::tunnel::{self, Sent};
use super::super::websocket::Upgrade;
use super::authorize::attributes;
use super::{Admitted, Asked, Router};
use crate::apiserver::caller::Caller;
use crate::apiserver::error::{ApiError, GroupResource};
use crate::apiserver::request::RequestInfo;
use crate::apiserver::store::Key;
use bytes::Bytes;
use common::tunnel::{Identity, forwarded, headers};
use common::uuid::random_uuid;
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::ext::Protocol;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Group, resource and subresource.
const PROXY: (&str, &str, &str) = ("cluster.karmada.io", "clusters", "proxy");
/// What connections are taken over for.
const PROTOCOLS: [&str; 2] = ["websocket", "SPDY/3.1"];
/// Who has too many requests under way is to ask again after so long.
const AGAIN: u32 = 1;

/// Whether a request is for a member.
pub(super) fn is_proxied(info: &RequestInfo) -> bool {
    let of = (&*info.group, &*info.resource, &*info.subresource);
    info.is_resource && info.name_in_path && info.namespace.is_empty() && of == PROXY
}

/// For which protocol a connection is to be taken over.
fn protocol(headers: &HeaderMap) -> Option<&'static str> {
    let text = |name: HeaderName| {
        let value = headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let asked = text(CONNECTION);
    let mut asked = asked.split(',').map(str::trim);
    let upgrades = asked.any(|one| one.eq_ignore_ascii_case("upgrade"));
    let wanted = text(UPGRADE);
    let mut known = PROTOCOLS.into_iter();
    known.find(|name| upgrades && wanted.trim().eq_ignore_ascii_case(name))
}

/// What of a request's address is the member's: path and query as they were sent.
fn onward(uri: &Uri, info: &RequestInfo) -> Result<Uri, ApiError> {
    let (group, resource, subresource) = PROXY;
    let (version, name) = (&info.version, &info.name);
    let prefix = format!("/apis/{group}/{version}/{resource}/{name}/{subresource}");
    let bad = |why: String| ApiError::bad_request(why);
    let rest = uri.path().strip_prefix(&prefix);
    let rest =
        rest.ok_or_else(|| bad(format!("the path to a member must begin with {prefix:?}")))?;
    let path = forwarded(rest).map_err(|error| bad(error.to_string()))?;
    let query = uri
        .query()
        .map_or_else(String::new, |query| format!("?{query}"));
    let onward = format!("{path}{query}").parse();
    onward.map_err(|_| bad("the path to a member cannot be read".to_owned()))
}

impl Router {
    pub(super) async fn proxied<B: Incoming>(
        &self,
        Admitted {
            asked,
            caller,
            tickets,
            body,
        }: Admitted<'_, B>,
        uri: &Uri,
        upgrade: Option<Upgrade>,
    ) -> Result<Response<Body>, ApiError> {
        drop(tickets);
        let cluster = asked.info.name.as_str();
        let protocol = protocol(asked.headers);
        let upgrade = match (protocol, upgrade) {
            (None, _) => None,
            (Some(protocol), Some(upgrade)) => Some((protocol, upgrade)),
            (Some(_), None) => {
                let why = "a connection can be taken over only when it is one of HTTP/1.1";
                return Err(ApiError::bad_request(why));
            }
        };
        if upgrade.is_some() {
            // A GET that runs something: it takes more than the right to read.
            let mut right = attributes(asked.info);
            "create".clone_into(&mut right.verb);
            self.parts.authorizer.check(caller, &right)?;
        }
        let onward = onward(uri, asked.info)?;
        self.known(asked, cluster)?;
        let tunnel = self.tunnels.of(cluster).ok_or_else(|| no_tunnel(cluster))?;
        let tickets = (self.shares.stream(caller)?, self.through(cluster)?);
        let stream = self.parts.registry.draws().draw(random_uuid);
        let request = request(
            asked,
            caller,
            onward,
            upgrade.as_ref().map(|(p, _)| *p),
            &stream,
        )?;
        let is_taken = upgrade.is_some();
        let request = request.map(|()| sent(body, is_taken));
        let told = Told::begin(asked, caller, stream);
        let answer = tunnel.send(request).await.map_err(|error| {
            let why = common::errors::chain(&error).to_string();
            ApiError::unavailable(format!(
                "cluster {cluster:?} was lost while it was asked: {why}"
            ))
        })?;
        let standing = self.standing(asked, caller);
        let kept = (told, tickets);
        match (upgrade, answer.status()) {
            (Some((protocol, upgrade)), StatusCode::OK) => {
                let mut response = Response::new(whole(Bytes::new()));
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                let mut said = headers::answered(answer.headers());
                said.remove(headers::UPGRADE);
                said.insert(UPGRADE, HeaderValue::from_static(protocol));
                said.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
                *response.headers_mut() = said;
                tunnel::join(upgrade, answer, standing, kept);
                Ok(response)
            }
            (_, code) => {
                if code.is_informational()
                    || code.is_redirection() && code != StatusCode::NOT_MODIFIED
                {
                    let why =
                        format!("cluster {cluster:?} answered {code}, which is not passed on");
                    return Err(ApiError::plain(502, "InternalError", why));
                }
                let mut said = headers::answered(answer.headers());
                said.remove(headers::UPGRADE);
                let body = answer.into_body();
                let mut response = Response::new(tunnel::lasting(body, standing, kept));
                *response.status_mut() = code;
                *response.headers_mut() = said;
                Ok(response)
            }
        }
    }

    /// An error unless there is such a cluster.
    fn known(&self, asked: &Asked<'_>, cluster: &str) -> Result<(), ApiError> {
        let info = asked.info;
        let scheme = &self.parts.scheme;
        let kind = scheme.resource(&info.group, &info.version, &info.resource);
        let kind = kind.ok_or_else(ApiError::no_such_path)?;
        let store = self.parts.registry.store();
        match store.get(&kind.storage_key, &Key::cluster(cluster)) {
            Some(_) => Ok(()),
            None => {
                let on = GroupResource::new(info.group.as_str(), info.resource.as_str());
                Err(ApiError::not_found(&on, cluster))
            }
        }
    }

    fn through(&self, cluster: &str) -> Result<Ticket, ApiError> {
        self.tunnels.stream(cluster).ok_or_else(|| {
            let why = format!(
                "too many requests are under way to cluster {cluster:?}, please try again later"
            );
            ApiError::too_many_requests(why, AGAIN)
        })
    }
}

fn no_tunnel(cluster: &str) -> ApiError {
    ApiError::unavailable(format!(
        "cluster {cluster:?} has no tunnel to this hub: its owner opens one by `towline register --proxy read-only` or \
         `--proxy impersonate`, run on that cluster; `towline check {cluster}` says whether its agent is there"
    ))
}

/// The head of a request as its member's agent is to see it.
fn request(
    asked: &Asked<'_>,
    caller: &Caller,
    onward: Uri,
    protocol: Option<&'static str>,
    stream: &str,
) -> Result<Request<()>, ApiError> {
    let unfit = |error: common::tunnel::Unfit| {
        ApiError::plain(
            403,
            "Forbidden",
            format!("you cannot be named to a member: {error}"),
        )
    };
    let mut request = Request::new(());
    let mut said = headers::asked(asked.headers, protocol.is_some());
    let identity = Identity::of(&caller.user, &caller.groups).map_err(unfit)?;
    identity.write(&mut said).map_err(unfit)?;
    let value = |text: &str| HeaderValue::from_str(text).map_err(ApiError::internal);
    said.insert(headers::STREAM, value(stream)?);
    *request.method_mut() = asked.method.clone();
    if let Some(protocol) = protocol {
        said.insert(headers::METHOD, value(asked.method.as_str())?);
        said.remove(http::header::CONTENT_LENGTH);
        *request.method_mut() = Method::CONNECT;
        request
            .extensions_mut()
            .insert(Protocol::from_static(protocol));
    }
    *request.headers_mut() = said;
    let mut parts = onward.into_parts();
    parts.scheme = Some(http::uri::Scheme::HTTPS);
    parts.authority = Some(http::uri::Authority::from_static("member"));
    *request.uri_mut() = Uri::from_parts(parts).map_err(ApiError::internal)?;
    Ok(request)
}

fn sent<B: Incoming>(body: B, is_taken: bool) -> Sent {
    match is_taken {
        true => Empty::new().map_err(|never| match never {}).boxed_unsync(),
        false => body
            .map_err(|error| error.to_string().into())
            .boxed_unsync(),
    }
}

/// A line in the log at the begin and at the end of what goes through a tunnel.
struct Told {
    stream: String,
    cluster: String,
    began: Instant,
}

impl Told {
    fn begin(asked: &Asked<'_>, caller: &Arc<Caller>, stream: String) -> Self {
        let (cluster, user) = (&asked.info.name, &caller.user);
        let (method, path) = (asked.method, &asked.info.path);
        tracing::info!(stream, cluster, user, %method, path, "a member is asked");
        Self {
            stream,
            cluster: cluster.clone(),
            began: Instant::now(),
        }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let took: Duration = self.began.elapsed();
        let (stream, cluster, seconds) = (&self.stream, &self.cluster, took.as_secs_f64());
        tracing::info!(stream, cluster, seconds, "the answer of a member ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::request::Query;

    fn info(path: &str) -> RequestInfo {
        RequestInfo::read(&Method::GET, path, &Query::default()).expect("a path")
    }

    const TO: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy";

    #[test]
    fn what_is_for_a_member_is_told_by_its_path() {
        for (path, proxied) in [
            (format!("{TO}/api/v1/pods"), true),
            (TO.to_owned(), true),
            (format!("{TO}/"), true),
            (
                "/apis/cluster.karmada.io/v1alpha1/clusters/m1/status".to_owned(),
                false,
            ),
            (
                "/apis/cluster.karmada.io/v1alpha1/clusters/m1".to_owned(),
                false,
            ),
            (
                "/apis/cluster.karmada.io/v1alpha1/namespaces/a/clusters/m1/proxy".to_owned(),
                false,
            ),
            ("/apis/example.com/v1/clusters/m1/proxy".to_owned(), false),
        ] {
            assert_eq!(is_proxied(&info(&path)), proxied, "{path}");
        }
    }

    #[test]
    fn the_member_is_asked_what_was_asked() {
        let of = |path: &str| {
            let uri: Uri = path.parse().expect("an address");
            let (bare, _) = path.split_once('?').unwrap_or((path, ""));
            onward(&uri, &info(bare))
                .map(|uri| uri.to_string())
                .map_err(|e| e.code)
        };
        assert_eq!(
            of(&format!("{TO}/api/v1/pods?watch=1&x=%2F")),
            Ok("/api/v1/pods?watch=1&x=%2F".to_owned())
        );
        assert_eq!(of(TO), Ok("/".to_owned()));
        assert_eq!(of(&format!("{TO}/")), Ok("/".to_owned()));
        for odd in [
            "/apis/cluster.karmada.io/v1alpha1/clusters/%6d1/proxy/api",
            "/apis/cluster.karmada.io/v1alpha1/clusters/m1/%70roxy/api",
        ] {
            assert_eq!(of(odd), Err(400), "{odd}");
        }
    }

    #[test]
    fn connections_are_taken_over_for_two_protocols() {
        let of = |connection: &str, upgrade: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(
                CONNECTION,
                HeaderValue::from_str(connection).expect("a value"),
            );
            headers.insert(UPGRADE, HeaderValue::from_str(upgrade).expect("a value"));
            protocol(&headers)
        };
        assert_eq!(of("Upgrade", "websocket"), Some("websocket"));
        assert_eq!(of("keep-alive, upgrade", "spdy/3.1"), Some("SPDY/3.1"));
        assert_eq!(of("keep-alive", "websocket"), None);
        assert_eq!(of("Upgrade", "h2c"), None);
    }
}
