//! Worlds that are told by a test what is in them.

use super::World;
use common::chance::Chance;
use common::labels::CERTIFICATE_END;
use common::lock::lock;
use futures::FutureExt as _;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// A client of an API server that nobody reaches.
pub(crate) fn nobody() -> Client {
    let service = tower::service_fn(|_: http::Request<Body>| async {
        Err::<http::Response<Body>, _>(std::io::Error::other("nobody is there"))
    });
    Client::new(service, "default")
}

/// A client of an API server that has all it says there at once: one body for every request.
pub(crate) fn at_once(body: String) -> Client {
    let service = tower::service_fn(move |_: http::Request<Body>| {
        let body = Body::from(body.clone().into_bytes());
        async { Ok::<_, std::io::Error>(http::Response::new(body)) }
    });
    Client::new(service, "default")
}

/// What was asked of an API server: methods, paths and bodies.
pub(crate) type Asked = Arc<Mutex<Vec<(Method, String, Value)>>>;

/// A client of an API server that answers a method and a path so, with an object that has a version, and what it was
/// asked.
pub(crate) fn answering(
    answer: impl Fn(&Method, &str) -> StatusCode + Send + 'static,
) -> (Client, Asked) {
    let asked = Asked::default();
    let noted = Arc::clone(&asked);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let status = answer(&parts.method, &path);
        let noted = Arc::clone(&noted);
        async move {
            let body = body.collect().await.expect("a body").to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            lock(&noted).push((parts.method, path, body));
            let object = json!({"metadata": {"resourceVersion": "1"}}).to_string();
            let mut response = http::Response::new(Body::from(object.into_bytes()));
            *response.status_mut() = status;
            Ok::<_, std::io::Error>(response)
        }
    });
    (Client::new(service, "default"), asked)
}

/// A world over the first.
pub(crate) fn unreachable() -> World {
    World::new(&nobody(), &Chance::seeded(1), Arc::default())
}

/// A world with something in it, of which every number has a value.
pub(crate) fn sample() -> World {
    let world = unreachable();
    let metadata = json!({"name": "m1", "annotations": {CERTIFICATE_END: "2026-01-01T00:00:00Z"}});
    let object = [json!({"metadata": metadata})];
    // Nobody has to be waited for.
    let _ = world.clusters.listed(&object).now_or_never();
    world
}

/// The same with a Lease that was seen, for those who listen by now.
pub(crate) fn renewed(world: &World) {
    let lease = json!({"metadata": {"name": "m1"}, "spec": {"renewTime": "t"}});
    let _ = world.leases.listed(&[lease]).now_or_never();
}
