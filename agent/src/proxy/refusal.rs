//! Answers of the agent's own to users of the hub, in the form of an API server's.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::json;
use tower::BoxError;

/// The body of an answer through the tunnel.
pub(super) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Why a request is not answered by the member.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    /// The hub asks for what no hub of ours asks for.
    #[error("{0}")]
    Malformed(String),
    /// The member's owner wants it so; which of its wishes, as [`common::tunnel::cause`] names it.
    #[error("{1}")]
    Forbidden(&'static str, String),
    /// The member cannot be asked now.
    #[error("{0}")]
    Unavailable(String),
    /// The member answers what is not passed on.
    #[error("{0}")]
    BadAnswer(String),
}

impl Refusal {
    fn code(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Malformed(_) => (StatusCode::BAD_REQUEST, "BadRequest"),
            Self::Forbidden(..) => (StatusCode::FORBIDDEN, "Forbidden"),
            Self::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
            Self::BadAnswer(_) => (StatusCode::BAD_GATEWAY, "InternalError"),
        }
    }

    /// The answer, which names the cluster it comes from.
    pub(super) fn answer(&self, cluster: &str) -> Response<Body> {
        let (code, reason) = self.code();
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": format!("cluster {cluster:?}: {self}"),
            "reason": reason,
            "code": code.as_u16(),
        });
        if let Self::Forbidden(cause, _) = self {
            status["details"] = json!({"causes": [{"reason": cause}]});
        }
        let body = Full::new(Bytes::from(status.to_string()));
        let body = body.map_err(|never| match never {}).boxed_unsync();
        let mut response = Response::new(body);
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if code == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
