//! Answers: encoded, compressed when they are long, with the headers clients look at.

use super::negotiate::{Accepted, Format, Shape};
use crate::apiserver::error::ApiError;
use crate::apiserver::registry::ListResult;
use crate::apiserver::scheme::{Resource, go_package};
use crate::apiserver::table::{self, IncludeObject};
use bytes::Bytes;
use chrono::{DateTime, Utc};
use common::yaml;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, VARY,
    WARNING,
};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::Write as _;

/// The body of an answer: whole, or a watch.
pub type Body = crate::access::Body;

/// From this size on, answers are compressed for clients that can undo it.
const COMPRESS_FROM: usize = 128 * 1024;
/// Said instead of a body type that clients could be made to guess.
const NOSNIFF: HeaderName = HeaderName::from_static("x-content-type-options");

/// How one request is to be answered.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reply {
    /// Encoding and shape.
    pub accepted: Accepted,
    /// What of objects a table shows.
    pub include: IncludeObject,
    /// Whether the client undoes gzip.
    pub gzip: bool,
    /// Time for the ages in tables.
    pub now: DateTime<Utc>,
}

/// A whole body.
pub fn whole(bytes: impl Into<Bytes>) -> Body {
    let full = Full::new(bytes.into());
    full.map_err(|never| match never {}).boxed_unsync()
}

/// Text that is no object.
pub fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(whole(text));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(NOSNIFF, HeaderValue::from_static("nosniff"));
    response
}

/// Text whose type clients may guess.
pub fn bare(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = self::text(code, text);
    response.headers_mut().remove(NOSNIFF);
    response
}

/// No such page.
pub fn not_found() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

impl Reply {
    /// A value as it is, whatever shape of objects is wanted.
    pub fn value(&self, code: StatusCode, value: &Value) -> Response<Body> {
        self.bytes(code, self.encode(value))
    }

    /// A value whose text has an order of its own, where it is not laid out in another way.
    pub fn written(&self, value: &Value, text: impl FnOnce(&Value) -> String) -> Response<Body> {
        if self.is_plain() {
            self.bytes(StatusCode::OK, text(value))
        } else {
            self.value(StatusCode::OK, value)
        }
    }

    /// An error.
    pub fn error(&self, error: &ApiError) -> Response<Body> {
        let code = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = self.value(code, &error.to_status());
        if let Some(seconds) = error.retry_after {
            response
                .headers_mut()
                .insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// The answer to somebody who may not, or does not say who they are.
    pub fn refusal(&self, error: &ApiError) -> Response<Body> {
        let mut response = self.error(error);
        if matches!(error.code, 400 | 403) {
            response
                .headers_mut()
                .insert(NOSNIFF, HeaderValue::from_static("nosniff"));
        }
        response
    }

    /// One object.
    pub fn object(&self, code: StatusCode, object: Bytes, resource: &Resource) -> Response<Body> {
        let shape = self.accepted.shape;
        if shape == Shape::Object && self.is_plain() {
            return self.bytes(code, object);
        }
        if let Shape::PartialList(_) = shape {
            let what = "PartialObjectMetadataList, but the requested object is not a list";
            return self.misshaped(what, &resource.go_type(false));
        }
        let Some(value) = self.read(&object) else {
            return self.error(&ApiError::internal("a stored object is not JSON"));
        };
        self.value(code, &self.shaped(value, resource, true))
    }

    /// The answer to a question: an object that is not stored.
    pub fn answer(&self, code: StatusCode, answer: Value) -> Response<Body> {
        let text = |key: &str| answer[key].as_str().unwrap_or_default();
        match self.accepted.shape {
            Shape::Object | Shape::Table(_) => self.value(code, &answer),
            Shape::Partial(version) => {
                let shown = json!({
                    "kind": "PartialObjectMetadata",
                    "apiVersion": format!("meta.k8s.io/{version}"),
                    "metadata": answer["metadata"],
                });
                self.value(code, &shown)
            }
            Shape::PartialList(_) => {
                let what = "PartialObjectMetadataList, but the requested object is not a list";
                let group = text("apiVersion").split('/').next().unwrap_or_default();
                let of = format!("*{}.{}", go_package(group), text("kind"));
                self.misshaped(what, &of)
            }
        }
    }

    /// A stored object, or as much of it as is shown.
    pub fn read(&self, object: &[u8]) -> Option<Value> {
        #[derive(Deserialize)]
        struct Partial {
            metadata: Option<Value>,
        }
        match self.accepted.shape {
            Shape::Partial(_) | Shape::PartialList(_) => {
                let partial: Partial = serde_json::from_slice(object).ok()?;
                let metadata = partial.metadata.unwrap_or_else(|| json!({}));
                Some(json!({"metadata": metadata}))
            }
            Shape::Object | Shape::Table(_) => serde_json::from_slice(object).ok(),
        }
    }

    /// The answer to somebody who wants a list of one object, or one object of a list.
    fn misshaped(&self, what: &str, of: &str) -> Response<Body> {
        let message = format!("you requested {what} ({of})");
        self.error(&ApiError::plain(406, "NotAcceptable", message))
    }

    /// An object in the shape that is wanted; `headers` as tables of one row need them.
    pub fn shaped(&self, value: Value, resource: &Resource, headers: bool) -> Value {
        match self.accepted.shape {
            // A watch has no lists: its objects stay as they are.
            Shape::Object | Shape::PartialList(_) => value,
            Shape::Partial(version) => table::partial(resource, version, &value),
            Shape::Table(version) => {
                let metadata = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
                let objects = [value];
                table::table(
                    resource,
                    version,
                    &objects,
                    metadata,
                    self.include,
                    headers,
                    self.now,
                )
            }
        }
    }

    /// A page of objects.
    pub fn list(&self, list: &ListResult, resource: &Resource) -> Response<Body> {
        if self.accepted.shape == Shape::Object {
            let encoded = list.encode(resource);
            if self.is_plain() {
                return self.bytes(StatusCode::OK, encoded);
            }
            let value: Value = serde_json::from_slice(&encoded).unwrap_or_default();
            return self.value(StatusCode::OK, &value);
        }
        if let Shape::Partial(_) = self.accepted.shape {
            let what = "PartialObjectMetadata, but the requested object is a list";
            return self.misshaped(what, &resource.go_type(true));
        }
        let metadata = list.metadata(false);
        let items: Option<Vec<Value>> = list.items.iter().map(|item| self.read(item)).collect();
        let Some(items) = items else {
            return self.error(&ApiError::internal("a stored object is not JSON"));
        };
        let value = match self.accepted.shape {
            Shape::Object | Shape::Partial(_) => Value::Null,
            Shape::PartialList(version) => table::partial_list(resource, version, &items, metadata),
            Shape::Table(version) => table::table(
                resource,
                version,
                &items,
                metadata,
                self.include,
                true,
                self.now,
            ),
        };
        self.value(StatusCode::OK, &value)
    }

    /// Bytes as they are, compressed when they are long; the caller says what they are.
    pub fn raw(&self, bytes: Bytes) -> Response<Body> {
        self.bytes(StatusCode::OK, bytes)
    }

    /// The same of bytes that are compressed already; `plain` makes them what they were for those who do
    /// not take them so.
    pub fn compressed(&self, gzip: Bytes, plain: impl FnOnce() -> Bytes) -> Response<Body> {
        let mut response = Response::new(whole(if self.gzip { gzip } else { plain() }));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, self.content_type());
        if self.gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        response
    }

    /// Whether stored bytes are the answer as they are.
    fn is_plain(&self) -> bool {
        self.accepted.format == Format::Json && !self.accepted.pretty
    }

    fn encode(&self, value: &Value) -> Vec<u8> {
        match (self.accepted.format, self.accepted.pretty) {
            (Format::Yaml, _) => yaml::document(value).into_bytes(),
            (Format::Json, true) => format!("{value:#}").into_bytes(),
            (Format::Json, false) => value.to_string().into_bytes(),
        }
    }

    fn bytes(&self, code: StatusCode, bytes: impl Into<Bytes>) -> Response<Body> {
        let mut bytes = bytes.into();
        let compressed = (self.gzip && bytes.len() >= COMPRESS_FROM)
            .then(|| gzip(&bytes))
            .flatten();
        let is_compressed = compressed.is_some();
        if let Some(compressed) = compressed {
            bytes = compressed;
        }
        let mut response = Response::new(whole(bytes));
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, self.content_type());
        if is_compressed {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        response
    }

    fn content_type(&self) -> HeaderValue {
        HeaderValue::from_static(match self.accepted.format {
            Format::Json => "application/json",
            Format::Yaml => "application/yaml",
        })
    }
}

fn gzip(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// The headers that every answer has.
pub fn common_headers(response: &mut Response<Body>, audit_id: &str) {
    let headers = response.headers_mut();
    if !headers.contains_key(CACHE_CONTROL) {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    }
    if let Ok(id) = HeaderValue::from_str(audit_id) {
        headers.insert(HeaderName::from_static("audit-id"), id);
    }
}

/// How long all warnings of an answer may be, each of them when they are longer, and how many: clients take only so
/// many headers.
const WARNINGS_MAX: usize = 4096;
const WARNING_MAX: usize = 256;
const WARNINGS: usize = 64;

/// Puts warnings into their headers.
pub fn warn(response: &mut Response<Body>, warnings: &[String]) {
    let all: usize = warnings.iter().map(|text| text.chars().count()).sum();
    let longest = if all > WARNINGS_MAX { WARNING_MAX } else { all };
    let mut left = WARNINGS_MAX;
    for warning in warnings.iter().take(WARNINGS) {
        let shown: String = warning.chars().take(longest).collect();
        let Some(rest) = left.checked_sub(shown.chars().count()) else {
            return;
        };
        left = rest;
        let quoted: String = shown
            .chars()
            .filter(|c| !c.is_control())
            .flat_map(|c| match c {
                '"' | '\\' => vec!['\\', c],
                _ => vec![c],
            })
            .collect();
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
}
