//! The body of a request, read whole, and no more of it than may be.

use super::router::header;
use crate::apiserver::error::ApiError;
use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt as _;
use std::fmt::Display;
use std::pin::pin;

/// The body of a request, as it comes in.
pub trait Incoming: hyper::body::Body<Data = Bytes, Error: Display> + Send + 'static {}

impl<B: hyper::body::Body<Data = Bytes, Error: Display> + Send + 'static> Incoming for B {}

/// Longest body.
pub(super) const BODY_MAX: usize = 3 * 1024 * 1024;
/// How much of a body that is too long is read all the same: a client that is still sending when the
/// answer comes may never see it.
const DRAIN_MAX: usize = 4 * BODY_MAX;

/// Reads a body to its end.
pub(super) async fn read<B: Incoming>(body: B, headers: &HeaderMap) -> Result<Bytes, ApiError> {
    let said = header(headers, http::header::CONTENT_LENGTH);
    let said = said.parse::<u64>().unwrap_or(0);
    let mut seen = 0;
    let mut body = pin!(body);
    let mut first = Bytes::new();
    let mut all = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            ApiError::bad_request(format!("failed to read the body of the request: {error}"))
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        seen += data.len();
        if seen > BODY_MAX || said > BODY_MAX as u64 {
            if seen > DRAIN_MAX {
                break;
            }
            (first, all) = (Bytes::new(), Vec::new());
            continue;
        }
        // Most bodies are one piece, which is not copied.
        if first.is_empty() && all.is_empty() {
            first = data;
            continue;
        }
        if all.is_empty() {
            all.extend_from_slice(&std::mem::take(&mut first));
        }
        all.extend_from_slice(&data);
    }
    if seen > BODY_MAX || said > BODY_MAX as u64 {
        return Err(ApiError::too_large(&format!("limit is {BODY_MAX}")));
    }
    Ok(if all.is_empty() { first } else { all.into() })
}
