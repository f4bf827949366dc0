//! One request, and what its answer is where it is none.

use super::wire;
use crate::client::{Problem, classify};
use http::{Request, Response};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::client::Body;
use std::time::Duration;

/// How long an answer is waited for. Clients made here have a shorter deadline of their own; one that has
/// none must not silence its consumer for ever.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(45);
/// Longest page that is read: several times the largest object that etcd takes. A longer one is asked for
/// again with fewer objects; a server that minds no limit costs no more memory than this.
pub(super) const PAGE_MAX: usize = 16 * 1024 * 1024;
/// Longest answer that is an error, and how long its text is waited for once its status code is there.
const ERROR_MAX: usize = 64 * 1024;
const ERROR_WITHIN: Duration = Duration::from_secs(10);

/// Why a page is not there.
pub(super) enum Unread {
    /// It is longer than [`PAGE_MAX`].
    TooLong,
    /// Anything else.
    Problem(Problem),
}

impl From<Problem> for Unread {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<Unread> for Problem {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::TooLong => Self::Decode(format!(
                "a list of one object is longer than {} MiB: the server minds no limit",
                PAGE_MAX / (1024 * 1024)
            )),
            Unread::Problem(problem) => problem,
        }
    }
}

pub(super) fn unread(error: Box<dyn std::error::Error + Send + Sync>) -> Unread {
    if error.is::<LengthLimitError>() {
        return Unread::TooLong;
    }
    Unread::Problem(match error.downcast::<kube::Error>() {
        Ok(error) => classify(&error),
        Err(error) => Problem::Other(error.to_string()),
    })
}

pub(super) async fn in_time<T, E: From<Problem>>(
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    tokio::time::timeout(ANSWER_WITHIN, answer)
        .await
        .unwrap_or_else(|_| {
            let waited = crate::duration::format(ANSWER_WITHIN);
            Err(Problem::Other(format!("no answer within {waited}")).into())
        })
}

pub(super) async fn send(
    client: &kube::Client,
    request: Request<Vec<u8>>,
) -> Result<Response<Body>, Problem> {
    let answer = client
        .send(request.map(Body::from))
        .await
        .map_err(|error| classify(&error))?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let code = answer.status().as_u16();
    let text = error_text(answer.into_body()).await;
    Err(wire::status_problem(&text, code))
}

/// As much of the text of an error as comes in time: its status code says what has to be done, and a watch, whose
/// answer has no deadline of its client's, must not wait for the rest for ever.
async fn error_text(body: Body) -> Vec<u8> {
    let mut text = Vec::new();
    let mut body = Limited::new(body, ERROR_MAX);
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            if let Some(data) = frame.data_ref() {
                text.extend_from_slice(data);
            }
        }
    };
    // What came until then does, too.
    let _ = tokio::time::timeout(ERROR_WITHIN, reading).await;
    text
}
