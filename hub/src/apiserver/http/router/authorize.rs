//! The second stage: whether they may, and whether they ask for too much at once.

use super::super::pages::HEALTH;
use super::super::requests::UnderWay;
use super::super::shares::Tickets;
use super::authenticate::Identity;
use super::gathered::is_gathered;
use super::head::Head;
use super::proxy::proxied_path;
use super::{READS, Router};
use crate::apiserver::agents::{self, Target};
use crate::apiserver::authz::Attributes;
use crate::apiserver::backup;
use crate::apiserver::caller::Caller;
use crate::apiserver::error::ApiError;
use crate::apiserver::request::RequestInfo;
use common::tunnel::asks_of_oneself;

/// What is counted of a request that may begin.
pub(super) struct Begun {
    /// Until its answer has left.
    pub(super) tickets: Tickets,
    /// Until its answer is there.
    pub(super) under_way: Option<UnderWay>,
}

/// Why a request may not begin.
pub(super) enum Refused {
    /// Somebody asks for too much at once, which is nothing for the audit log.
    TooMany(ApiError),
    /// They have no right to it.
    Forbidden(ApiError),
}

impl Router {
    /// Lets a request begin.
    pub(super) fn admit(&self, head: &Head, identity: &Identity) -> Result<Begun, Refused> {
        let (info, caller) = (&head.info, &identity.caller);
        let tickets = match is_health(info) {
            true => [None, None],
            false => {
                let tickets = self.shares.request(caller, head.connection.as_ref());
                tickets.map_err(Refused::TooMany)?
            }
        };
        self.authorize(caller, info).map_err(Refused::Forbidden)?;
        let under_way = self.parts.requests.begin(caller, info);
        Ok(Begun {
            tickets,
            under_way: under_way.map_err(Refused::TooMany)?,
        })
    }

    fn authorize(&self, caller: &Caller, info: &RequestInfo) -> Result<(), ApiError> {
        if is_gathered(info) {
            // What all clusters are asked takes the right to each.
            return Ok(());
        }
        let asked = attributes(info);
        let checked = self.parts.authorizer.check(caller, &asked);
        checked.map_err(|error| match agents::is_agent(caller) {
            true => self
                .parts
                .unknown
                .explain(self.parts.registry.store(), caller, error),
            false => error,
        })?;
        // Whoever has an identity may read schemas; a certificate without a registration is none.
        if !info.is_resource && info.path.starts_with("/openapi/") {
            let right = agents::right_of_registered(caller);
            let registered = |right| self.parts.authorizer.decide(caller, &right).allowed;
            if !right.is_none_or(registered) {
                return Err(asked.forbidden(caller, "its cluster is not registered"));
            }
        }
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
}

/// Whether somebody looks whether the server lives: that is never too much.
fn is_health(info: &RequestInfo) -> bool {
    let first = info.path.split('/').nth(1).unwrap_or_default();
    !info.is_resource && HEALTH.contains(&first)
}

/// What the authorizer is asked about a request.
pub(super) fn attributes(info: &RequestInfo) -> Attributes {
    if info.path == backup::PAGE {
        return backup::right();
    }
    if !info.is_resource {
        return Attributes {
            verb: info.verb.clone(),
            path: Some(info.path.clone()),
            ..Attributes::default()
        };
    }
    // Who they are in a member, and what they may there, asks who may read there.
    let verb = match proxied_path(info) {
        Some(path) if info.verb == "create" && asks_of_oneself(path) => "get",
        _ => info.verb.as_str(),
    };
    Attributes {
        verb: verb.to_owned(),
        group: info.group.clone(),
        resource: info.resource.clone(),
        subresource: info.subresource.clone(),
        namespace: info.namespace.clone(),
        name: info.name.clone(),
        path: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::request::Query;
    use http::Method;

    fn info(method: &Method, path: &str) -> RequestInfo {
        RequestInfo::read(method, path, &Query::default()).expect("a path")
    }

    #[test]
    fn asking_a_member_of_oneself_is_reading_and_any_other_post_creates() {
        let to = "/apis/cluster.karmada.io/v1alpha1/clusters/m1";
        let who = "apis/authentication.k8s.io/v1/selfsubjectreviews";
        let may = "apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        for (method, path, verb) in [
            (Method::POST, format!("{to}/proxy/{who}"), "get"),
            (Method::POST, format!("{to}/proxy/{may}"), "get"),
            (
                Method::POST,
                format!("{to}/proxy/{}", may.replace("access", "rules")),
                "get",
            ),
            (Method::GET, format!("{to}/proxy/{may}"), "get"),
            (Method::POST, format!("{to}/proxy/{may}/"), "create"),
            (Method::POST, format!("{to}/proxy/{may}/a"), "create"),
            (Method::POST, format!("{to}/proxy/a/{may}"), "create"),
            (
                Method::POST,
                format!("{to}/proxy/{}", may.replace("self", "")),
                "create",
            ),
            (
                Method::POST,
                format!("{to}/proxy/{}", may.replace("/v1/", "/v2/")),
                "create",
            ),
            (
                Method::POST,
                format!("{to}/proxy/api/v1/namespaces"),
                "create",
            ),
            (Method::POST, format!("{to}/proxy"), "create"),
            (Method::POST, format!("{to}/status/{may}"), "create"),
            (Method::PUT, format!("{to}/proxy/{may}"), "update"),
            (Method::PATCH, format!("{to}/proxy/{may}"), "patch"),
            (Method::DELETE, format!("{to}/proxy/{may}"), "delete"),
            (Method::POST, format!("/{may}"), "create"),
        ] {
            let judged = attributes(&info(&method, &path)).verb;
            assert_eq!(judged, verb, "{method} {path}");
        }
    }

    #[test]
    fn a_right_is_one_to_an_object_or_to_a_path() {
        let page = attributes(&info(&Method::GET, "/version"));
        assert_eq!(
            (page.verb.as_str(), page.path.as_deref()),
            ("get", Some("/version"))
        );
        let object = attributes(&info(&Method::PUT, "/api/v1/namespaces/a/pods/b/status"));
        assert_eq!(object.path, None);
        let said = [
            &object.verb,
            &object.namespace,
            &object.resource,
            &object.name,
        ];
        assert_eq!(said, ["update", "a", "pods", "b"]);
        assert_eq!(object.subresource, "status");
        // A right to every page is none to everything that is kept.
        let backup = attributes(&info(&Method::POST, backup::PAGE));
        assert_eq!((backup.resource.as_str(), backup.path), ("backups", None));
    }

    #[test]
    fn only_probes_are_never_too_many() {
        for (path, probe) in [
            ("/livez", true),
            ("/readyz/store", true),
            ("/healthz", true),
            ("/version", false),
            ("/api/v1/namespaces/livez", false),
        ] {
            assert_eq!(is_health(&info(&Method::GET, path)), probe, "{path}");
        }
    }
}
