//! Waiting for a resourceVersion that has not come yet.

use super::Registry;
use crate::apiserver::error::ApiError;
use std::time::Duration;

/// How long a request waits for a resourceVersion.
const WAIT: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(50);

/// A resourceVersion of a query; `None` where there is none.
pub(super) fn parse(text: &str) -> Result<Option<u64>, ApiError> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        let message = format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        );
        ApiError::plain(500, "", message)
    })
}

/// Too far ahead.
pub(super) fn too_large(asked: u64, current: u64) -> ApiError {
    let message = format!("Too large resource version: {asked}, current: {current}");
    ApiError::timeout(&message, 1).with_cause(
        "ResourceVersionTooLarge",
        "Too large resource version",
        "",
    )
}

impl Registry {
    /// Waits a moment until the store has got as far as `revision`.
    pub(super) async fn not_older_than(&self, revision: u64) -> Result<(), ApiError> {
        let store = &self.inner.store;
        let deadline = tokio::time::Instant::now() + WAIT;
        // Nothing tells of revisions of every kind at once; this path is for clients that are ahead.
        while store.revision() < revision {
            if tokio::time::Instant::now() >= deadline {
                return Err(too_large(revision, store.revision()));
            }
            tokio::time::sleep(STEP).await;
        }
        Ok(())
    }
}
