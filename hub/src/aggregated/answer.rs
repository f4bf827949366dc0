//! A request that came in by the port: who passes it on, who asks, whether they may, and what answers it.

use super::documents;
use super::front::User;
use super::hop::{HOP, elsewhere, tunnel_of};
use super::replicas::decide::{Way, is_one_hop};
use super::review::Right;
use super::server::{Answer, Port, Shown};
use super::{GROUP, VERSION};
use crate::access::{Asked, Failure, Upgrade, every, onward, protocol};
use crate::apiserver::error::{ApiError, GroupResource};
use crate::apiserver::http::respond::{Reply, whole};
use common::errors::chain;
use common::names::ClusterName;
use common::tunnel::headers;
use common::uuid::random_uuid;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::{Body as _, Incoming};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The length of a UUID.
const ID_LENGTH: usize = 36;
/// How long the hub's API server may take to say what somebody may.
const REVIEWED_WITHIN: Duration = Duration::from_secs(10);

impl Port {
    /// Answers a request of whoever showed this certificate.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        shown: &Shown,
    ) -> Answer {
        let (head, body) = request.into_parts();
        let answered = self.answered(head, body, shown).await;
        answered.unwrap_or_else(|error| Reply::default().refusal(&error))
    }

    async fn answered(
        &self,
        mut head: Parts,
        body: Incoming,
        shown: &Shown,
    ) -> Result<Answer, ApiError> {
        let trust = self.trusted.now();
        let now = self.clock.now();
        let replica = match trust.front(shown.chain(), now) {
            Ok(_) => None,
            Err(_) => {
                let who = self.replicas.who(shown.chain(), now);
                Some(who.ok_or_else(ApiError::unauthorized)?)
            }
        };
        let path = head.uri.path();
        match &replica {
            Some(replica) => {
                one_hop(&head.headers, &replica.id)?;
                if let Some(cluster) = tunnel_of(&head.method, path) {
                    return Ok(match self.tunnels.of(cluster) {
                        Ok(_) => Response::new(whole("")),
                        Err(_) => elsewhere(),
                    });
                }
            }
            None => {
                if let Some(page) = documents::page(path) {
                    let user = User::read(&head.headers, trust.headers());
                    user.ok_or_else(ApiError::unauthorized)?;
                    return match head.method {
                        Method::GET | Method::HEAD => {
                            Ok(Reply::default().value(StatusCode::OK, &page))
                        }
                        _ => Err(not_allowed()),
                    };
                }
            }
        }
        let user = User::read(&head.headers, trust.headers());
        let user = user.ok_or_else(ApiError::unauthorized)?;
        if replica.is_none()
            && let Some(prefix) = every(path, &format!("/apis/{GROUP}/{VERSION}/clusters"))
        {
            return self.gathered(&head, user, &prefix).await;
        }
        let cluster = cluster(path).ok_or_else(ApiError::no_such_path)?;
        let tunnel = self.tunnels.of(cluster.as_str());
        let way = self
            .replicas
            .way(cluster.as_str(), tunnel.is_ok(), replica.is_some());
        if way == Way::Elsewhere {
            return Ok(elsewhere());
        }
        let verb = verb(&head.method).ok_or_else(not_allowed)?;
        let upgrade = Upgrade::take(&mut head.extensions);
        let upgrade = match (protocol(&head.headers), upgrade) {
            (None, _) => None,
            (Some(protocol), Some(upgrade)) => Some((protocol, upgrade)),
            (Some(_), None) => return Err(Failure::NotTakenOver.into()),
        };
        let mut verbs = vec![verb];
        if upgrade.is_some() && verb != "create" {
            // A GET that runs something: it takes more than the right to read.
            verbs.push("create");
        }
        let right = Right {
            user,
            cluster: cluster.as_str().to_owned(),
            verbs,
        };
        self.may(&right).await?;
        let prefix = format!("/apis/{GROUP}/{VERSION}/clusters/{cluster}/proxy");
        let onward = onward(&head.uri, &prefix)?;
        if !self.registered.knows(cluster.as_str()) {
            let on = GroupResource::new("cluster.karmada.io", "clusters");
            return Err(ApiError::not_found(&on, cluster.as_str()));
        }
        let of_user = self.streams.enter(&right.user.name);
        let of_user = of_user.ok_or_else(|| {
            ApiError::too_many_requests("too many requests, please try again later", 1)
        })?;
        let tickets = (of_user, self.tunnels.stream(cluster.as_str())?);
        let asked = Asked {
            cluster: cluster.as_str(),
            user: &right.user.name,
            groups: &right.user.groups,
            method: &head.method,
            headers: &head.headers,
            onward,
            stream: stream(&head.headers, replica.is_some()),
        };
        let Ok(tunnel) = tunnel else {
            let body = (upgrade.is_none() && !body.is_end_stream()).then_some(body);
            let came = (&head.headers, &head.uri);
            return Ok(self.pass_on(asked, came, body, upgrade, tickets).await?);
        };
        let over = Box::pin(right.clone().ended(self.client.clone()));
        Ok(tunnel.pass(asked, body, upgrade, over, tickets).await?)
    }

    /// An error unless they have a right.
    async fn may(&self, right: &Right) -> Result<(), ApiError> {
        let asked = timeout(REVIEWED_WITHIN, right.lacks(&self.client)).await;
        let unknown = |why: String| {
            ApiError::unavailable(format!("nobody can say whether you may do this: {why}"))
        };
        let lacks =
            asked.map_err(|_| unknown("the hub's API server does not answer".to_owned()))?;
        let lacks = lacks.map_err(|error| unknown(chain(&error).to_string()))?;
        let Some(verb) = lacks else {
            return Ok(());
        };
        let (user, cluster) = (&right.user.name, &right.cluster);
        let on = GroupResource::new(GROUP, "clusters");
        let why = format!(
            "User {user:?} cannot {verb} resource \"clusters/proxy\" in API group {GROUP:?} at the cluster scope"
        );
        tracing::info!(user, cluster, verb, "somebody may not reach a member");
        Err(ApiError::forbidden(&on, cluster, &why))
    }
}

/// An error unless what a replica asks for comes from there.
fn one_hop(headers: &HeaderMap, replica: &str) -> Result<(), ApiError> {
    let named: Vec<&[u8]> = headers
        .get_all(HOP)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if is_one_hop(&named, replica) {
        return Ok(());
    }
    tracing::warn!(replica, "a replica passes on what is not its own");
    let code = StatusCode::LOOP_DETECTED.as_u16();
    let why =
        format!("a request is passed on between replicas once, by the one that says so in {HOP}");
    Err(ApiError::plain(code, "InternalError", why))
}

/// The id of a request: that of the replica which passed it on, or one of our own, never the client's.
fn stream(headers: &HeaderMap, passed_on: bool) -> String {
    let given = headers.get(headers::STREAM).filter(|_| passed_on);
    let given = given.and_then(|value| value.to_str().ok());
    let is_id = |text: &&str| {
        let plain = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
        text.len() == ID_LENGTH && text.bytes().all(plain)
    };
    match given.filter(is_id) {
        Some(id) => id.to_owned(),
        None => random_uuid(&mut common::chance::secret::rng()),
    }
}

/// Which cluster a path leads into.
fn cluster(path: &str) -> Option<ClusterName> {
    let rest = path.strip_prefix("/apis/")?.strip_prefix(GROUP)?;
    let rest = rest.strip_prefix('/')?.strip_prefix(VERSION)?;
    let rest = rest.strip_prefix("/clusters/")?;
    let (name, rest) = rest.split_once('/')?;
    let proxied = rest == "proxy" || rest.starts_with("proxy/");
    proxied.then(|| ClusterName::parse(name).ok()).flatten()
}

/// What a method asks for.
fn verb(method: &Method) -> Option<&'static str> {
    match *method {
        Method::GET | Method::HEAD => Some("get"),
        Method::POST => Some("create"),
        Method::PUT => Some("update"),
        Method::PATCH => Some("patch"),
        Method::DELETE => Some("delete"),
        _ => None,
    }
}

fn not_allowed() -> ApiError {
    let on = GroupResource::new(GROUP, "clusters");
    ApiError::method_not_allowed(&on, "this method")
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Uri;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_leads_into_a_member_leads_nowhere_else(rest in "[a-z/.%2eF5c;@:?]{0,24}") {
            let prefix = format!("/apis/{GROUP}/{VERSION}/clusters/m1/proxy");
            let uri = format!("{prefix}{rest}").parse::<Uri>();
            if let Ok(uri) = uri && let Some(name) = cluster(uri.path()) {
                prop_assert_eq!(name.as_str(), "m1");
                if let Ok(onward) = onward(&uri, &prefix) {
                    let path = onward.path().to_ascii_lowercase();
                    prop_assert!(path.split('/').all(|it| it != ".." && it != "."), "{}", path);
                    prop_assert!(!path.contains("%2f") && !path.contains("%2e"), "{}", path);
                }
            }
        }
    }

    #[test]
    fn a_path_leads_into_one_cluster_or_into_none() {
        let of = |path: &str| cluster(path).map(|name| name.as_str().to_owned());
        let to = "/apis/proxy.towline.dev/v1alpha1/clusters";
        for (path, name) in [
            (format!("{to}/m1/proxy"), Some("m1")),
            (format!("{to}/m1/proxy/"), Some("m1")),
            (format!("{to}/m1/proxy/api/v1/pods"), Some("m1")),
            (format!("{to}/m1/proxy/../../m2/proxy"), Some("m1")),
            (format!("{to}/m1/proxyapi"), None),
            (format!("{to}/m1/status"), None),
            (format!("{to}/m1"), None),
            (format!("{to}/%6d1/proxy"), None),
            (format!("{to}//proxy"), None),
            (format!("{to}/../proxy"), None),
            (format!("{to}/M1/proxy"), None),
            (
                "/apis/proxy.towline.dev/v1/clusters/m1/proxy".to_owned(),
                None,
            ),
            (
                "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy".to_owned(),
                None,
            ),
        ] {
            assert_eq!(of(&path).as_deref(), name, "{path}");
        }
    }

    #[test]
    fn every_method_that_passes_takes_a_right() {
        assert_eq!(verb(&Method::HEAD), Some("get"));
        assert_eq!(verb(&Method::PATCH), Some("patch"));
        for none in [Method::CONNECT, Method::OPTIONS, Method::TRACE] {
            assert_eq!(verb(&none), None);
        }
    }
}
