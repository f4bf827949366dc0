//! The body of a request.

use bytes::Bytes;

/// How a body is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaType {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

/// A body as it came.
#[derive(Debug, Clone)]
pub struct Body {
    /// How it is encoded.
    pub media: MediaType,
    /// Its bytes, within the limit of the server.
    pub bytes: Bytes,
}
