//! A stage that carries requests out: those for a member, `clusters/NAME/proxy/…`, through its agent's tunnel. They have
//! limits of their own, and go on for as long as the member answers and whoever asked may ask.

use super::super::body::Incoming;
use super::super::respond::Body;
use super::super::standing::over;
use super::authorize::attributes;
use super::gathered::is_gathered;
use super::{Admitted, Asked, Router};
use crate::access::{self, Failure, Upgrade, onward, protocol};
use crate::apiserver::error::{ApiError, GroupResource};
use crate::apiserver::request::RequestInfo;
use crate::apiserver::store::Key;
use common::uuid::random_uuid;
use http::{Response, Uri};
use http_body_util::BodyExt as _;

/// Group, resource and subresource.
pub(super) const PROXY: (&str, &str, &str) = ("cluster.karmada.io", "clusters", "proxy");

/// Whether a request is for a member.
pub(super) fn is_proxied(info: &RequestInfo) -> bool {
    let of = (&*info.group, &*info.resource, &*info.subresource);
    info.is_resource && info.name_in_path && info.namespace.is_empty() && of == PROXY
}

/// The path in the member that a request is for.
pub(super) fn proxied_path(info: &RequestInfo) -> Option<&str> {
    if !is_proxied(info) {
        return None;
    }
    info.path.strip_prefix(&prefix(info))
}

/// What comes before the path in the member.
fn prefix(info: &RequestInfo) -> String {
    let (group, resource, subresource) = PROXY;
    let (version, cluster) = (&info.version, &info.name);
    format!("/apis/{group}/{version}/{resource}/{cluster}/{subresource}")
}

impl Router {
    pub(super) async fn proxied<B: Incoming>(
        &self,
        admitted: Admitted<'_, B>,
        uri: &Uri,
        upgrade: Option<Upgrade>,
    ) -> Result<Response<Body>, ApiError> {
        if is_gathered(admitted.asked.info) {
            return self.gathered(admitted, uri).await;
        }
        let Admitted {
            asked,
            caller,
            tickets,
            body,
        } = admitted;
        drop(tickets);
        let cluster = asked.info.name.as_str();
        let upgrade = match (protocol(asked.headers), upgrade) {
            (None, _) => None,
            (Some(protocol), Some(upgrade)) => Some((protocol, upgrade)),
            (Some(_), None) => return Err(Failure::NotTakenOver.into()),
        };
        let mut right = attributes(asked.info);
        if upgrade.is_some() {
            // A GET that runs something: it takes more than the right to read.
            "create".clone_into(&mut right.verb);
            self.parts.authorizer.check(caller, &right)?;
        }
        let onward = onward(uri, &prefix(asked.info))?;
        self.known(asked, cluster)?;
        let tunnel = self.tunnels.of(cluster)?;
        let tickets = (self.shares.stream(caller)?, self.tunnels.stream(cluster)?);
        let through = access::Asked {
            cluster,
            user: &caller.user,
            groups: &caller.groups,
            method: asked.method,
            headers: asked.headers,
            onward,
            stream: self.parts.registry.draws().draw(random_uuid),
        };
        let body = body.map_err(|error| error.to_string());
        let over = over(self.standing_of(asked, caller, right));
        Ok(tunnel.pass(through, body, upgrade, over, tickets).await?)
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::request::Query;
    use http::Method;

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
}
