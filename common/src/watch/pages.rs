//! A list by pages: where a server sends none as the beginning of a watch, and where it costs it no more.

use super::ask::{PAGE_MAX, Unread, in_time, send, unread};
use super::wire::{Page, decode};
use super::{Decode, Event, Phase, Watcher, is_behind, is_gone};
use crate::client::Problem;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use kube::core::params::ListParams;
use kube::core::request;

/// By how much fewer objects a page is asked for that was too long; and one has at most so many times as many as the one
/// before.
const PAGE_STEP: u32 = 4;
/// So often in a row a page that goes on with a list may fail, by a server that answers, before the list is begun anew.
const PAGE_FAILURES_MAX: u32 = 3;

impl<K: Decode> Watcher<K> {
    pub(super) async fn list(&mut self, token: Option<String>) {
        let bytes = match self.page(token.clone()).await {
            Ok(bytes) => bytes,
            Err(Unread::TooLong) if self.page_size > 1 => {
                self.page_size = (self.page_size / PAGE_STEP).max(1);
                self.phase = Phase::List(token);
                return;
            }
            Err(unread) => return self.page_failed(unread.into(), token),
        };
        let page = match Page::parse(&bytes) {
            Ok(page) => page,
            Err(error) => return self.page_failed(Problem::Decode(error.to_string()), token),
        };
        self.page_failures = 0;
        if token.is_none() {
            // All pages are of this version, which a check before a later one is held against.
            self.version = Some(page.version());
            self.queue.push_back(Event::Init);
        }
        self.queue.extend(page.items().map(|item| decode(item)));
        if let Some(next) = page.next() {
            if let Some(wanted) = self.config.page_bytes {
                self.page_size = next_page(self.page_size, page.len(), bytes.len(), wanted);
            }
            self.phase = Phase::List(Some(next));
            return;
        }
        self.listed(page.version());
        self.phase = Phase::Open;
    }

    /// A page did not come, or cannot be read.
    fn page_failed(&mut self, problem: Problem, token: Option<String>) {
        let Some(token) = token else {
            return self.failed(problem, Phase::List(None));
        };
        self.page_failures = self.page_failures.saturating_add(1);
        match next_try(&problem, self.page_failures) {
            Try::Restart if is_gone(&problem) => {
                // The pages no longer belong together. That is no outage.
                let delay = self.backoff.next(&mut self.rng);
                self.phase = Phase::Wait(delay, Box::new(Phase::List(None)));
            }
            Try::Restart => self.failed(problem, Phase::List(None)),
            Try::Check => self.failed(problem, Phase::Check(Some(token))),
            Try::Repeat => self.failed(problem, Phase::List(Some(token))),
        }
    }

    /// After an outage the server may be one that was restored from a backup: a watch from a version
    /// it has not reached yet would stay silent until it has, and a page that goes on with the list from before is
    /// refused until then, and afterwards is one of other objects.
    pub(super) async fn check(&mut self, token: Option<String>) {
        let params = ListParams {
            limit: Some(1),
            ..ListParams::default()
        };
        let result = match self.get_page(params).await {
            Ok(bytes) => Page::parse(&bytes)
                .map(|page| page.version())
                .map_err(|error| Problem::Decode(error.to_string())),
            Err(unread) => Err(unread.into()),
        };
        match result {
            Ok(theirs) if is_behind(&theirs, self.version.as_deref()) => self.relist(),
            Ok(_) if token.is_some() => self.phase = Phase::List(token),
            Ok(_) => self.phase = Phase::Open,
            Err(problem) => self.failed(problem, Phase::Check(token)),
        }
    }

    /// A page of the list, the first one without a token.
    fn page(
        &self,
        token: Option<String>,
    ) -> impl Future<Output = Result<Bytes, Unread>> + Send + use<K> {
        self.get_page(ListParams {
            limit: Some(self.page_size),
            continue_token: token,
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            ..ListParams::default()
        })
    }

    fn get_page(
        &self,
        params: ListParams,
    ) -> impl Future<Output = Result<Bytes, Unread>> + Send + use<K> {
        let request = request::Request::new(self.collection.path());
        let built = if self.config.metadata_only {
            request.list_metadata(&params)
        } else {
            request.list(&params)
        };
        let client = self.client.clone();
        async move {
            let request = built.map_err(|error| Problem::Other(error.to_string()))?;
            in_time(async {
                let answer = send(&client, request).await?;
                let body = Limited::new(answer.into_body(), PAGE_MAX).collect().await;
                Ok(body.map_err(unread)?.to_bytes())
            })
            .await
        }
    }
}

/// How many objects the page after one has that was asked for `limit` of them.
fn next_page(limit: u32, objects: usize, bytes: usize, wanted: u32) -> u32 {
    let each = (bytes / objects.max(1)).max(1);
    let fitting = u32::try_from(wanted as usize / each).unwrap_or(u32::MAX);
    fitting.clamp(1, limit.saturating_mul(PAGE_STEP))
}

/// What is asked for after a page that goes on with a list did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Try {
    /// The first page: the list cannot be gone on with.
    Restart,
    /// Whether the server still has the list, then the page.
    Check,
    /// The page.
    Repeat,
}

/// `failures` are those of this page in a row. A server that knows nothing of a token, or of the version that it
/// stands for, does not say so in one way only.
fn next_try(problem: &Problem, failures: u32) -> Try {
    match problem.code() {
        Some(400) => Try::Restart,
        _ if is_gone(problem) => Try::Restart,
        // It is busy and has not looked at the token; to begin anew would be more work to it.
        Some(429) => Try::Repeat,
        Some(_) if failures >= PAGE_FAILURES_MAX => Try::Restart,
        _ => Try::Check,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_begun_anew_where_its_token_is_of_no_use() {
        let api = |code, message: &str| Problem::Api {
            code,
            reason: "x".to_owned(),
            message: message.to_owned(),
            retry_after: None,
        };
        let future = "required revision is a future revision";
        let too_large = "Too large resource version: 10, current: 3";
        let broken = Problem::Other("broken pipe".to_owned());
        for (problem, failures, expected) in [
            (api(410, "expired"), 1, Try::Restart),
            (api(504, too_large), 1, Try::Restart),
            (api(400, "continue key is not valid"), 1, Try::Restart),
            (api(500, future), 1, Try::Check),
            (api(500, future), 2, Try::Check),
            (api(500, future), 3, Try::Restart),
            (api(504, "timeout"), 2, Try::Check),
            (api(429, "too many requests"), 9, Try::Repeat),
            (broken, 9, Try::Check),
        ] {
            let next = next_try(&problem, failures);
            assert_eq!(next, expected, "{problem} {failures}");
        }
    }
}
