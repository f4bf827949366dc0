//! `clusters/*/proxy/…`: one list of all clusters that whoever asks may reach, each through its agent's tunnel.

use super::super::body::Incoming;
use super::super::negotiate::{Format, Shape};
use super::super::respond::{Body, Reply};
use super::super::sending::while_holds;
use super::super::standing::over;
use super::authorize::attributes;
use super::proxy::{PROXY, is_proxied};
use super::{Admitted, Asked, Router};
use crate::access::{self, EVERY, Failure, Form, Listed, Missing, every, gather, onward};
use crate::apiserver::authz::Attributes;
use crate::apiserver::caller::Caller;
use crate::apiserver::error::ApiError;
use crate::apiserver::request::RequestInfo;
use bytes::Bytes;
use common::tunnel::Identity;
use common::uuid::random_uuid;
use http::{Method, Response, Uri};
use http_body_util::Full;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long before the request's own end clusters are no longer waited for.
const MARGIN: Duration = Duration::from_secs(2);

/// Whether a request is for a list of all clusters. What is no GET of that is judged and refused as of one cluster.
pub(super) fn is_gathered(info: &RequestInfo) -> bool {
    is_proxied(info) && info.name == EVERY && info.verb == "get"
}

impl Router {
    pub(super) async fn gathered<B: Incoming>(
        &self,
        Admitted {
            asked,
            caller,
            tickets,
            ..
        }: Admitted<'_, B>,
        uri: &Uri,
    ) -> Result<Response<Body>, ApiError> {
        let listed = listed(asked, uri)?;
        // Whoever cannot be named to one member can be named to none.
        Identity::of(&caller.user, &caller.groups).map_err(Failure::from)?;
        let counted = (self.shares.list(caller)?, self.shares.stream(caller)?);
        let limit = asked.limit.saturating_sub(MARGIN.min(asked.limit / 4));
        let ask = |cluster: String, onward: Uri| self.one(asked, caller, &listed, cluster, onward);
        let merged = gather(&listed, self.clusters(asked)?, asked.began + limit, ask).await;
        if merged.is_refused() {
            self.parts
                .authorizer
                .check(caller, &attributes(asked.info))?;
        }
        if let Some(why) = merged.failed() {
            return Err(ApiError::unavailable(why));
        }
        let clusters = Attributes {
            verb: "list".to_owned(),
            group: asked.info.group.clone(),
            resource: asked.info.resource.clone(),
            ..Attributes::default()
        };
        let may_list = self.parts.authorizer.decide(caller, &clusters).allowed;
        for warning in merged.warnings(may_list) {
            asked.warnings.add(warning);
        }
        let text = merged.text();
        let of = |cluster: &str| self.standing_of(asked, caller, right(asked, cluster));
        let standing: Vec<_> = merged.clusters().filter_map(of).collect();
        drop(merged);
        let mut reply = Reply {
            include: Default::default(),
            ..asked.plain
        };
        reply.accepted.format = Format::Json;
        let response = reply.raw(text);
        let response = response.map(|body| {
            let body = while_holds(body, move || standing.iter().all(|it| it.holds()));
            super::super::sending::kept(body, counted)
        });
        self.shares.sending(response, caller, tickets)
    }

    /// Asks one cluster, as whoever asks for all.
    async fn one(
        &self,
        asked: &Asked<'_>,
        caller: &Arc<Caller>,
        listed: &Listed,
        cluster: String,
        onward: Uri,
    ) -> Result<Response<Body>, Missing> {
        let right = right(asked, &cluster);
        if !self.parts.authorizer.decide(caller, &right).allowed {
            return Err(Missing::Refused);
        }
        let tunnel = self.tunnels.of(&cluster)?;
        let ticket = self.tunnels.stream(&cluster)?;
        let headers = listed.headers(asked.headers);
        let through = access::Asked {
            cluster: &cluster,
            user: &caller.user,
            groups: &caller.groups,
            method: &Method::GET,
            headers: &headers,
            onward,
            stream: self.parts.registry.draws().draw(random_uuid),
        };
        let over = over(self.standing_of(asked, caller, right));
        let nothing = Full::new(Bytes::new());
        Ok(tunnel.pass(through, nothing, None, over, ticket).await?)
    }

    /// The clusters of the hub.
    fn clusters(&self, asked: &Asked<'_>) -> Result<BTreeSet<String>, ApiError> {
        let info = asked.info;
        let scheme = &self.parts.scheme;
        let kind = scheme.resource(&info.group, &info.version, &info.resource);
        let kind = kind.ok_or_else(ApiError::no_such_path)?;
        let all = self.parts.registry.store().snapshot(&kind.storage_key);
        Ok(all.table.iter().map(|it| it.name().to_owned()).collect())
    }
}

/// What each cluster is asked.
fn listed(asked: &Asked<'_>, uri: &Uri) -> Result<Listed, Failure> {
    let (group, resource, _) = PROXY;
    let clusters = format!("/apis/{group}/{}/{resource}", asked.info.version);
    let prefix = every(uri.path(), &clusters).ok_or(Failure::Unreadable)?;
    let onward = onward(uri, &prefix)?;
    let form = match asked.reply.accepted.shape {
        Shape::Table(_) => Form::Table,
        Shape::PartialList(_) => Form::Metadata,
        Shape::Object | Shape::Partial(_) => Form::Objects,
    };
    Ok(Listed::read(asked.method, &onward, form)?)
}

/// The right to one cluster.
fn right(asked: &Asked<'_>, cluster: &str) -> Attributes {
    Attributes {
        name: cluster.to_owned(),
        ..attributes(asked.info)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::request::Query;
    use proptest::prelude::*;

    fn info(method: &Method, path: &str) -> RequestInfo {
        RequestInfo::read(method, path, &Query::default()).expect("a path")
    }

    #[test]
    fn only_reading_of_every_cluster_is_judged_by_each() {
        let to = "/apis/cluster.karmada.io/v1alpha1/clusters";
        for (method, path, gathered) in [
            (Method::GET, "/*/proxy/api/v1/pods", true),
            (Method::GET, "/%2A/proxy/api/v1/pods", true),
            (Method::GET, "/%2a/proxy/api/v1/pods", true),
            (Method::GET, "/*/proxy", true),
            (Method::POST, "/*/proxy/api/v1/pods", false),
            (Method::DELETE, "/*/proxy/api/v1/pods", false),
            (Method::GET, "/m1/proxy/api/v1/pods", false),
            (Method::GET, "/*/status", false),
            (Method::GET, "/*", false),
        ] {
            let path = format!("{to}{path}");
            assert_eq!(
                is_gathered(&info(&method, &path)),
                gathered,
                "{method} {path}"
            );
        }
    }

    proptest! {
        /// What members are asked is a list to an API server too.
        #[test]
        fn what_is_a_list_here_is_one_there(
            segments in prop::collection::vec("api|apis|v1|apps|namespaces|watch|proxy|pods|status|finalize|a|", 0..7),
            query in "(watch=(1|0|false|true|)|limit=1|)",
        ) {
            let path = format!("/{}", segments.join("/"));
            let uri: Uri = format!("{path}?{query}").parse().expect("an address");
            if Listed::read(&Method::GET, &uri, Form::Objects).is_ok() {
                let read = RequestInfo::read(&Method::GET, &path, &Query::read(Some(&query)));
                let read = read.expect("a path");
                prop_assert!(read.is_resource && read.subresource.is_empty() && !read.name_in_path, "{}", path);
                prop_assert_eq!(read.verb, "list");
            }
        }
    }
}
