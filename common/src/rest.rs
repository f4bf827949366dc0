//! Requests to an API server whose bodies are JSON and whose status code matters.
//!
//! kube's typed calls hide whether an apply created or changed, cannot ask for metadata alone in the
//! answer to a patch, and print bodies when they fail. The client's own deadline holds.

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// Longest answer that is read: an object may have 1.5 MiB in etcd and grow in JSON.
const BODY_LIMIT: usize = 16 * 1024 * 1024;
/// Shortest and longest time for which a server that asks for it is left alone, in seconds: what asks for an hour is
/// mostly a page of maintenance in front of it, which says nothing of when it is back; what asks for none would be
/// asked in a loop.
const RETRY_AFTER_MIN: u64 = 1;
const RETRY_AFTER_MAX: u64 = 30;
/// Asks for an object's metadata and nothing else.
pub const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// Asks for a list of metadata.
pub const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused.
    #[error("{message}")]
    Refused {
        /// HTTP status.
        code: u16,
        /// Machine-readable reason.
        reason: String,
        /// The server's text.
        message: String,
        /// The whole `Status`.
        status: Box<Value>,
        /// When the server wants to be asked again, within bounds.
        retry_after: Option<Duration>,
    },
    /// No answer.
    #[error("failed to reach the API server")]
    Transport(#[source] Box<kube::Error>),
    /// The answer is too long or breaks off.
    #[error("failed to read the API server's answer: {0}")]
    Body(String),
    /// The answer is no JSON.
    #[error("failed to decode the API server's answer")]
    Decode(#[source] serde_json::Error),
    /// The request cannot be built.
    #[error("failed to build a request")]
    Request(#[source] http::Error),
}

impl Error {
    /// The HTTP status, when the server answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether nobody answered, or nobody who decides.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Refused { code, .. } => matches!(code, 401 | 429 | 502..=504),
            Self::Transport(_) | Self::Body(_) => true,
            Self::Decode(_) | Self::Request(_) => false,
        }
    }

    /// How long the server wants to be left alone; never more than half a minute.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    /// Whether the request made the object.
    pub created: bool,
    /// The body.
    pub body: Bytes,
}

impl Reply {
    /// Decodes the body.
    pub fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(Error::Decode)
    }
}

/// One request.
#[derive(Debug)]
pub struct Call<'a> {
    /// Method.
    pub method: Method,
    /// Path and query.
    pub uri: &'a str,
    /// Type of the body, if there is one.
    pub content_type: &'static str,
    /// Type of the answer.
    pub accept: &'static str,
    /// The body.
    pub body: Vec<u8>,
    /// Longest answer that is read.
    pub limit: usize,
}

/// Type of a merge patch.
pub const MERGE_PATCH: &str = "application/merge-patch+json";
/// Type of a JSON patch.
pub const JSON_PATCH: &str = "application/json-patch+json";
/// Type of a server-side apply; JSON is YAML.
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";
/// Plain JSON.
pub const JSON: &str = "application/json";

impl<'a> Call<'a> {
    /// Reads something.
    pub fn get(uri: &'a str, accept: &'static str) -> Self {
        Self {
            method: Method::GET,
            uri,
            content_type: JSON,
            accept,
            body: Vec::new(),
            limit: BODY_LIMIT,
        }
    }

    /// Changes something.
    pub fn patch(uri: &'a str, content_type: &'static str, body: &Value) -> Self {
        Self {
            method: Method::PATCH,
            uri,
            content_type,
            accept: JSON,
            // A Value always serialises: its keys are strings.
            body: serde_json::to_vec(body).unwrap_or_default(),
            limit: BODY_LIMIT,
        }
    }

    /// Makes something.
    pub fn post(uri: &'a str, body: &Value) -> Self {
        Self {
            method: Method::POST,
            ..Self::patch(uri, JSON, body)
        }
    }

    /// Deletes something.
    pub fn delete(uri: &'a str, options: &Value) -> Self {
        Self {
            method: Method::DELETE,
            ..Self::patch(uri, JSON, options)
        }
    }

    /// Asks for metadata alone in the answer.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.accept = METADATA_ONLY;
        self
    }

    /// Reads no more of an answer than this.
    #[must_use]
    pub fn at_most(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self
    }

    /// Sends it.
    pub async fn send(self, client: &kube::Client) -> Result<Reply, Error> {
        let request = Request::builder()
            .method(self.method)
            .uri(self.uri)
            .header(header::CONTENT_TYPE, self.content_type)
            .header(header::ACCEPT, self.accept)
            .body(Body::from(self.body))
            .map_err(Error::Request)?;
        let response = client
            .send(request)
            .await
            .map_err(|e| Error::Transport(Box::new(e)))?;
        let status = response.status();
        let retry_after = response
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(|value| asked_delay(value.to_str().ok()?));
        let body = Limited::new(response.into_body(), self.limit)
            .collect()
            .await
            .map_err(|e| Error::Body(e.to_string()))?
            .to_bytes();
        if status.is_success() {
            return Ok(Reply {
                created: status == StatusCode::CREATED,
                body,
            });
        }
        Err(refusal(status, &body, retry_after))
    }
}

/// The delay of a `Retry-After`; none of a date, which no API server sends.
fn asked_delay(value: &str) -> Option<Duration> {
    let seconds: u64 = value.parse().ok()?;
    let seconds = seconds.clamp(RETRY_AFTER_MIN, RETRY_AFTER_MAX);
    Some(Duration::from_secs(seconds))
}

fn refusal(status: StatusCode, body: &[u8], retry_after: Option<Duration>) -> Error {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |key: &str| {
        value
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let message = Some(text("message"))
        .filter(|m| !m.is_empty())
        .unwrap_or_else(|| format!("the API server answered {status}"));
    Error::Refused {
        code: status.as_u16(),
        reason: text("reason"),
        message,
        status: Box::new(value),
        retry_after,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_left_alone_for_as_long_as_it_asks_but_not_for_longer_than_makes_sense() {
        for (value, seconds) in [
            ("9", Some(9)),
            ("30", Some(30)),
            ("31", Some(30)),
            ("86400", Some(30)),
            ("18446744073709551615", Some(30)),
            ("0", Some(1)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("x", None),
            ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ] {
            let expected = seconds.map(Duration::from_secs);
            assert_eq!(asked_delay(value), expected, "{value}");
        }
    }
}
