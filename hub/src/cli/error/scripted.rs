//! A hub that answers as a test says, and what it was asked.

use common::lock::lock;
use http::Method;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::io;
use std::sync::{Arc, Mutex};

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cli) struct Ask {
    pub(in crate::cli) method: Method,
    pub(in crate::cli) path: String,
    pub(in crate::cli) query: String,
    pub(in crate::cli) body: Value,
}

/// What was asked so far.
pub(in crate::cli) type Asked = Arc<Mutex<Vec<Ask>>>;

/// A client of a hub that answers by status and body; without an answer the connection breaks.
pub(in crate::cli) fn hub(
    answer: impl Fn(&Ask) -> Option<(u16, Value)> + Send + Sync + 'static,
) -> (Client, Asked) {
    let asked = Asked::default();
    let (noted, answer) = (Arc::clone(&asked), Arc::new(answer));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (noted, answer) = (Arc::clone(&noted), Arc::clone(&answer));
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.expect("a body").to_bytes();
            let ask = Ask {
                method: parts.method,
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                body: serde_json::from_slice(&body).unwrap_or_default(),
            };
            lock(&noted).push(ask.clone());
            let Some((code, body)) = answer(&ask) else {
                return Err(io::Error::other("the connection broke"));
            };
            let answer = http::Response::builder()
                .status(code)
                .body(Body::from(body.to_string().into_bytes()));
            Ok(answer.expect("an answer"))
        }
    });
    (Client::new(service, "default"), asked)
}

/// A refusal, as an API server says it.
pub(in crate::cli) fn refusal(code: u16, message: &str) -> Option<(u16, Value)> {
    let reason = match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        422 => "Invalid",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": message});
    Some((code, status))
}

/// What was asked by a method, in order.
pub(in crate::cli) fn by(asked: &Asked, method: &Method) -> Vec<Ask> {
    let asked = lock(asked);
    asked
        .iter()
        .filter(|it| it.method == *method)
        .cloned()
        .collect()
}
