//! Which APIs the member serves, from aggregated discovery.
//!
//! Two requests (`/api`, `/apis`) say everything; their ETags make the usual answer "not modified",
//! so nothing is decoded again until the set of APIs changes.

use common::api::cluster::{ApiEnablement, ApiResource};
use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde::Deserialize;

/// Newest first; servers from 1.27 know one of them.
const ACCEPTED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
const LIST_KIND: &str = "APIGroupDiscoveryList";
/// More than any API server serves; a bound on what is read into memory.
const MAX_BODY: usize = 32 << 20;

/// Why discovery failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request could not be made or answered.
    #[error("failed to discover the member's APIs at {path}")]
    Request {
        /// Which endpoint.
        path: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Answered, but not with 200.
    #[error("the member answered discovery at {path} with {status}")]
    Status {
        /// Which endpoint.
        path: &'static str,
        /// The answer.
        status: StatusCode,
    },
    /// Answered with something else.
    #[error("the member does not offer aggregated discovery at {path}")]
    NotAggregated {
        /// Which endpoint.
        path: &'static str,
    },
}

/// What is known of the member's APIs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Enablements {
    /// Sorted by group and version, resources by name.
    pub apis: Vec<ApiEnablement>,
    /// Whether some group could not be asked.
    pub partial: bool,
}

impl Enablements {
    /// Status (as bool), reason and message of the condition `CompleteAPIEnablements`.
    pub fn condition(&self) -> (bool, &'static str, String) {
        if self.apis.is_empty() {
            let message = "collected empty APIEnablements from the cluster".to_owned();
            return (false, "Empty", message);
        }
        if self.partial {
            let count = self.apis.len();
            let message = format!("might collect partial APIEnablements({count}) from the cluster");
            return (false, "Partial", message);
        }
        let message = "collected complete APIEnablements from the cluster".to_owned();
        (true, "Complete", message)
    }
}

/// One endpoint, and what it said last.
#[derive(Debug, Default)]
struct Endpoint {
    etag: Option<String>,
    known: Vec<ApiEnablement>,
    stale: bool,
}

/// Asks the member and remembers.
#[derive(Debug, Default)]
pub struct Discovery {
    core: Endpoint,
    groups: Endpoint,
}

impl Discovery {
    /// Brings the memory up to date. On an error what was known stays, and counts as partial.
    pub async fn refresh(&mut self, member: &Client) -> Result<(), Error> {
        let core = self.core.refresh(member, "/api").await;
        let groups = self.groups.refresh(member, "/apis").await;
        core.and(groups)
    }

    /// What the member serves.
    pub fn enablements(&self) -> Enablements {
        let mut apis: Vec<_> = self
            .core
            .known
            .iter()
            .chain(&self.groups.known)
            .cloned()
            .collect();
        apis.sort_by(|a, b| a.group_version.cmp(&b.group_version));
        Enablements {
            apis,
            partial: self.core.stale || self.groups.stale,
        }
    }
}

impl Endpoint {
    async fn refresh(&mut self, member: &Client, path: &'static str) -> Result<(), Error> {
        let result = self.ask(member, path).await;
        if result.is_err() {
            self.stale = true;
            self.etag = None;
        }
        result
    }

    async fn ask(&mut self, member: &Client, path: &'static str) -> Result<(), Error> {
        let mut request = Request::get(path).header(ACCEPT, ACCEPTED);
        if let Some(etag) = &self.etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let failed =
            |source: Box<dyn std::error::Error + Send + Sync>| Error::Request { path, source };
        let request = request.body(Body::empty()).map_err(|e| failed(e.into()))?;
        let response = member.send(request).await.map_err(|e| failed(e.into()))?;
        match response.status() {
            StatusCode::NOT_MODIFIED => return Ok(()),
            StatusCode::OK => {}
            status => return Err(Error::Status { path, status }),
        }
        let etag = response.headers().get(ETAG);
        let etag = etag
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let body = http_body_util::Limited::new(response.into_body(), MAX_BODY);
        let body = body.collect().await.map_err(failed)?.to_bytes();
        let list: GroupList = serde_json::from_slice(&body).map_err(|e| failed(e.into()))?;
        if list.kind != LIST_KIND {
            return Err(Error::NotAggregated { path });
        }
        (self.known, self.stale) = flatten(list);
        // A stale group may come back without a new set of resources: ask in full again.
        self.etag = if self.stale { None } else { etag };
        Ok(())
    }
}

#[derive(Debug, Deserialize)]
struct GroupList {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Debug, Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupName,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Debug, Default, Deserialize)]
struct GroupName {
    #[serde(default)]
    name: String,
}

#[derive(Debug, Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    resources: Vec<Resource>,
    #[serde(default)]
    freshness: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    resource: String,
    #[serde(default)]
    response_kind: Option<ResponseKind>,
}

#[derive(Debug, Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

fn flatten(list: GroupList) -> (Vec<ApiEnablement>, bool) {
    let mut stale = false;
    let mut apis = Vec::new();
    for group in list.items {
        for version in group.versions {
            stale |= version.freshness == "Stale";
            let group_version = match group.metadata.name.as_str() {
                "" => version.version,
                name => format!("{name}/{}", version.version),
            };
            let mut resources: Vec<_> = version
                .resources
                .into_iter()
                .filter_map(api_resource)
                .collect();
            resources.sort_by(|a, b| a.name.cmp(&b.name));
            resources.shrink_to_fit();
            apis.push(ApiEnablement {
                group_version,
                resources,
            });
        }
    }
    apis.shrink_to_fit();
    (apis, stale)
}

/// Only resources one can name a kind for; subresources are nested in the answer and not listed.
fn api_resource(resource: Resource) -> Option<ApiResource> {
    let kind = resource.response_kind?.kind;
    let main = !kind.is_empty() && !resource.resource.contains('/');
    main.then_some(ApiResource {
        name: resource.resource,
        kind,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resource(name: &str, kind: &str) -> serde_json::Value {
        json!({
            "resource": name, "scope": "Namespaced", "verbs": ["get"],
            "responseKind": {"group": "", "version": "", "kind": kind},
            "subresources": [{"subresource": "status"}],
        })
    }

    fn parse(value: serde_json::Value) -> (Vec<ApiEnablement>, bool) {
        flatten(serde_json::from_value(value).expect("a list"))
    }

    #[test]
    fn groups_become_sorted_enablements() {
        let (apis, stale) = parse(json!({
            "kind": LIST_KIND, "apiVersion": "apidiscovery.k8s.io/v2",
            "items": [
                {"metadata": {"name": "apps"}, "versions": [
                    {"version": "v1", "freshness": "Current", "resources": [
                        resource("statefulsets", "StatefulSet"),
                        resource("deployments", "Deployment"),
                        resource("deployments/scale", "Scale"),
                        {"resource": "virtual", "responseKind": null},
                    ]},
                ]},
                {"metadata": {}, "versions": [{"version": "v1", "resources": [resource("pods", "Pod")]}]},
            ],
        }));
        assert!(!stale);
        let text: Vec<_> = apis
            .iter()
            .map(|api| {
                let names: Vec<_> = api
                    .resources
                    .iter()
                    .map(|r| format!("{}={}", r.name, r.kind))
                    .collect();
                format!("{}: {}", api.group_version, names.join(" "))
            })
            .collect();
        let want = [
            "apps/v1: deployments=Deployment statefulsets=StatefulSet",
            "v1: pods=Pod",
        ];
        assert_eq!(text, want);
    }

    #[test]
    fn a_group_that_does_not_answer_makes_it_partial() {
        let (apis, stale) = parse(json!({
            "kind": LIST_KIND,
            "items": [{"metadata": {"name": "metrics.k8s.io"}, "versions": [
                {"version": "v1beta1", "freshness": "Stale"},
            ]}],
        }));
        assert!(stale);
        let found = Enablements {
            apis,
            partial: stale,
        };
        let message = "might collect partial APIEnablements(1) from the cluster";
        assert_eq!(found.condition(), (false, "Partial", message.to_owned()));
    }

    #[test]
    fn conditions_have_the_reference_words() {
        let none = Enablements::default();
        assert_eq!(none.condition().1, "Empty");
        let all = Enablements {
            apis: vec![ApiEnablement::default()],
            partial: false,
        };
        let message = "collected complete APIEnablements from the cluster";
        assert_eq!(all.condition(), (true, "Complete", message.to_owned()));
    }
}
