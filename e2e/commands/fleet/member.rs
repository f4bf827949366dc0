//! A member that is played: well, with the APIs of an ordinary cluster and nothing in it.
//!
//! It answers what the status of a Cluster is made of and refuses everything else.

use http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use http::{HeaderValue, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::{Arc, LazyLock};

/// Groups and kinds in each, about what a cluster with a few operators has.
const GROUPS: usize = 20;
const KINDS: usize = 8;
const VERSION: &str = r#"{"major":"1","minor":"36","gitVersion":"v1.36.3"}"#;
const TAG: HeaderValue = HeaderValue::from_static("\"1\"");

static CORE: LazyLock<Arc<str>> = LazyLock::new(|| discovery(&[String::new()]));
static APIS: LazyLock<Arc<str>> = LazyLock::new(|| {
    let names: Vec<String> = (0..GROUPS).map(|n| format!("g{n}.example.io")).collect();
    discovery(&names)
});

fn discovery(groups: &[String]) -> Arc<str> {
    let resource = |n: usize| {
        json!({"resource": format!("r{n}s"), "scope": "Namespaced", "verbs": ["get"],
            "responseKind": {"group": "", "version": "v1", "kind": format!("R{n}")}})
    };
    let resources: Vec<Value> = (0..KINDS).map(resource).collect();
    let items: Vec<Value> = groups
        .iter()
        .map(|name| {
            json!({"metadata": {"name": name}, "versions": [
                {"version": "v1", "freshness": "Current", "resources": resources}]})
        })
        .collect();
    let list = json!({"apiVersion": "apidiscovery.k8s.io/v2", "kind": "APIGroupDiscoveryList",
        "metadata": {}, "items": items});
    list.to_string().into()
}

/// A client of such a member.
pub(super) fn client() -> Client {
    let service =
        tower::service_fn(
            |request: Request<Body>| async move { Ok::<_, Infallible>(answer(&request)) },
        );
    Client::new(service, "default")
}

fn answer(request: &Request<Body>) -> Response<Body> {
    let text = match request.uri().path() {
        "/readyz" => "ok",
        "/version" => VERSION,
        "/api" | "/apis" if request.headers().get(IF_NONE_MATCH) == Some(&TAG) => {
            return status(StatusCode::NOT_MODIFIED);
        }
        "/api" => &CORE,
        "/apis" => &APIS,
        _ => return status(StatusCode::NOT_FOUND),
    };
    let mut response = Response::new(Body::from(text.as_bytes().to_vec()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ETAG, TAG);
    response
}

fn status(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    response
}
