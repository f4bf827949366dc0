//! `clusters/*/proxy/…`: one list of all clusters that whoever asks may reach. The hub's API server has judged the
//! right to `*`; the right to each cluster is asked here.

use super::front::User;
use super::review::Right;
use super::server::{Answer, Port};
use super::{GROUP, VERSION};
use crate::access::{Asked, EVERY, Failure, Form, Listed, Missing, gather, onward};
use crate::apiserver::error::{ApiError, GroupResource};
use crate::apiserver::http::negotiate::{Shape, accepted};
use crate::apiserver::http::respond::{Reply, warn};
use crate::apiserver::http::sending::kept;
use crate::apiserver::request::Query;
use bytes::Bytes;
use common::errors::chain;
use common::tunnel::Identity;
use common::uuid::random_uuid;
use http::header::{ACCEPT, ACCEPT_ENCODING, USER_AGENT};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderName, Method, Response, Uri};
use http_body_util::Full;
use std::time::Duration;
use tokio::time::Instant;

/// How long all clusters together may take.
const WITHIN: Duration = Duration::from_secs(50);

impl Port {
    pub(super) async fn gathered(
        &self,
        head: &Parts,
        user: User,
        prefix: &str,
    ) -> Result<Answer, ApiError> {
        let onward = onward(&head.uri, prefix)?;
        let text = |name: HeaderName| {
            let value = head.headers.get(name).and_then(|it| it.to_str().ok());
            value.unwrap_or_default()
        };
        let query = Query::read(head.uri.query());
        let wanted = accepted(text(ACCEPT), &query, text(USER_AGENT)).unwrap_or_default();
        let form = match wanted.shape {
            Shape::Table(_) => Form::Table,
            Shape::PartialList(_) => Form::Metadata,
            Shape::Object | Shape::Partial(_) => Form::Objects,
        };
        let listed = Listed::read(&head.method, &onward, form).map_err(Failure::from)?;
        Identity::of(&user.name, &user.groups).map_err(Failure::from)?;
        let too_many =
            || ApiError::too_many_requests("too many requests, please try again later", 1);
        let [of_user, of_all] = &self.lists;
        let of_user = (
            of_user.enter(&user.name).ok_or_else(too_many)?,
            self.streams.enter(&user.name).ok_or_else(too_many)?,
        );
        let of_all = of_all.enter("").ok_or_else(too_many)?;
        let until = Instant::now() + WITHIN;
        let ask = |cluster: String, onward: Uri| self.one(head, &user, &listed, cluster, onward);
        let merged = gather(&listed, self.registered.names(), until, ask).await;
        if merged.is_refused() {
            let on = GroupResource::new(GROUP, "clusters");
            let why = format!(
                "User {:?} cannot get resource \"clusters/proxy\" of any cluster",
                user.name
            );
            return Err(ApiError::forbidden(&on, EVERY, &why));
        }
        if let Some(why) = merged.failed() {
            return Err(ApiError::unavailable(why));
        }
        let may_list = user.may_list(&self.client).await.unwrap_or(false);
        let reply = Reply {
            gzip: text(ACCEPT_ENCODING).contains("gzip"),
            ..Reply::default()
        };
        let mut response = reply.raw(merged.text());
        warn(&mut response, &merged.warnings(may_list));
        // Whoever takes their answer slowly holds up nobody else, and has no third one meanwhile.
        drop(of_all);
        Ok(response.map(|body| kept(body, of_user)))
    }

    /// Asks one cluster, as whoever asks for all.
    async fn one(
        &self,
        head: &Parts,
        user: &User,
        listed: &Listed,
        cluster: String,
        onward: Uri,
    ) -> Result<Response<crate::access::Body>, Missing> {
        let right = Right {
            user: user.clone(),
            cluster: cluster.clone(),
            verbs: vec!["get"],
        };
        let unknown = |error: kube::Error| Missing::Because(chain(&error).to_string());
        if right.lacks(&self.client).await.map_err(unknown)?.is_some() {
            return Err(Missing::Refused);
        }
        let ticket = self.tunnels.stream(&cluster)?;
        let headers = listed.headers(&head.headers);
        let asked = Asked {
            cluster: &cluster,
            user: &user.name,
            groups: &user.groups,
            method: &Method::GET,
            headers: &headers,
            onward,
            stream: random_uuid(&mut common::chance::secret::rng()),
        };
        let Ok(tunnel) = self.tunnels.of(&cluster) else {
            let path = asked
                .onward
                .path_and_query()
                .map_or("/", PathAndQuery::as_str);
            let path = format!("/apis/{GROUP}/{VERSION}/clusters/{cluster}/proxy{path}");
            let uri: Uri = path.parse().map_err(|_| Failure::Unreadable)?;
            let came = (&head.headers, &uri);
            return Ok(self.pass_on(asked, came, None, None, ticket).await?);
        };
        let over = Box::pin(right.ended(self.client.clone()));
        let nothing = Full::new(Bytes::new());
        Ok(tunnel.pass(asked, nothing, None, over, ticket).await?)
    }
}
