//! A list by pages: where a server sends none as the beginning of a watch, and where it costs it no more.

use super::ask::{PAGE_MAX, Unread, in_time, send, unread};
use super::wire::{Page, decode};
use super::{Decode, Event, Phase, Watcher, is_behind};
use crate::client::Problem;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use kube::core::params::ListParams;
use kube::core::request;

/// By how much fewer objects a page is asked for that was too long; and one has at most so many times as many as the one
/// before.
const PAGE_STEP: u32 = 4;

impl<K: Decode> Watcher<K> {
    pub(super) async fn list(&mut self, token: Option<String>) {
        let bytes = match self.page(token.clone()).await {
            Ok(bytes) => bytes,
            Err(Unread::TooLong) if self.page_size > 1 => {
                self.page_size = (self.page_size / PAGE_STEP).max(1);
                self.phase = Phase::List(token);
                return;
            }
            Err(Unread::Problem(problem)) if token.is_some() && problem.code() == Some(410) => {
                // The pages no longer belong together: from the beginning.
                self.phase = Phase::Wait(
                    self.backoff.next(&mut self.rng),
                    Box::new(Phase::List(None)),
                );
                return;
            }
            Err(unread) => return self.failed(unread.into(), Phase::List(token)),
        };
        let page = match Page::parse(&bytes) {
            Ok(page) => page,
            Err(error) => {
                return self.failed(Problem::Decode(error.to_string()), Phase::List(token));
            }
        };
        if token.is_none() {
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

    /// After an outage the server may be one that was restored from a backup: a watch from a version
    /// it has not reached yet would stay silent until it has.
    pub(super) async fn check(&mut self) {
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
            Ok(_) => self.phase = Phase::Open,
            Err(problem) => self.failed(problem, Phase::Check),
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
