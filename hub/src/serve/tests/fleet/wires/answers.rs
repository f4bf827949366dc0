//! Answers that no server gave.

use bytes::Bytes;
use common::network::LineBody;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use std::io;
use tower::BoxError;

/// What a connection says that is gone.
pub(super) fn reset() -> BoxError {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

pub(super) fn whole(body: Bytes) -> LineBody {
    let body = Full::new(body).map_err(|never| match never {});
    body.boxed_unsync()
}

/// What an API server, or something before it, says instead of an answer.
pub(super) fn refusal(status: u16) -> Response<LineBody> {
    let reason = match status {
        403 => "Forbidden",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        500 => "InternalError",
        _ => "ServiceUnavailable",
    };
    let message = match status {
        403 => "exceeded quota: workloads, requested: 1, used: 1, limited: 1",
        _ => "the simulation says so",
    };
    let said = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status,
        "reason": reason, "message": message});
    let mut answer = Response::new(whole(said.to_string().into()));
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}
