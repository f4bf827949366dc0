//! GET of a collection: a page of it, as it is now or as it was.

use super::selection::Selection;
use super::token::Continue;
use super::{ListResult, Registry, fresh};
use crate::apiserver::error::ApiError;
use crate::apiserver::request::{Context, EXACT, ListOptions};
use crate::apiserver::store::{Key, Snapshot, Stored};
use std::future::ready;
use std::sync::Arc;

const PAGE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
const LIST_EXPIRED: &str = "The resourceVersion for the provided list is too old.";

/// A page, before it is encoded.
pub(super) struct Page {
    pub(super) revision: u64,
    pub(super) objects: Vec<Arc<Stored>>,
    continue_token: String,
    remaining: Option<u64>,
}

impl Registry {
    /// A page of the objects of a kind.
    pub async fn list(
        &self,
        context: &Context,
        options: &ListOptions,
    ) -> Result<ListResult, ApiError> {
        let (list, ()) = self.list_at(context, options, ready(())).await?;
        Ok(list)
    }

    /// The same, of which nothing is put together before it is this one's `turn`; and what that gave.
    pub async fn list_at<T>(
        &self,
        context: &Context,
        options: &ListOptions,
        turn: impl Future<Output = T>,
    ) -> Result<(ListResult, T), ApiError> {
        context.note_deprecation();
        let (page, turn) = self.page(context, options, turn).await?;
        let items = page.objects.iter();
        let resource = &context.resource;
        let list = ListResult {
            resource_version: page.revision,
            continue_token: page.continue_token,
            remaining: page.remaining,
            items: items.map(|stored| self.shown(resource, stored)).collect(),
        };
        Ok((list, turn))
    }

    /// How many bytes the objects have that a list may be of; counted no further than to `enough`.
    pub(crate) fn size_of(&self, context: &Context, enough: usize) -> usize {
        let table = self
            .inner
            .store
            .snapshot(&context.resource.storage_key)
            .table;
        let mut size = 0;
        let add = |stored: &Arc<Stored>| {
            // Each costs something, however short.
            size += stored.json_len() + 64;
            size < enough
        };
        let _ = match context.namespace.as_str() {
            "" => table.iter().all(add),
            namespace => table.namespace(namespace).all(add),
        };
        size
    }

    pub(super) async fn page<T>(
        &self,
        context: &Context,
        options: &ListOptions,
        turn: impl Future<Output = T>,
    ) -> Result<(Page, T), ApiError> {
        options.validate(false)?;
        let selection = Selection::new(context, options)?;
        let asked = fresh::parse(&options.resource_version).map_err(|error| {
            ApiError::bad_request(format!("invalid resource version: {}", error.message))
        })?;
        let limit = match asked {
            // Any state will do, and the whole of it is at hand.
            Some(0) => 0,
            _ => usize::try_from(options.limit).unwrap_or_default(),
        };
        let token = match options.continue_token.as_str() {
            "" => None,
            token => Some(
                Continue::decode(token).map_err(|why| ApiError::bad_request(why.to_string()))?,
            ),
        };
        if token.is_some() && asked.is_some_and(|asked| asked != 0) {
            return Err(ApiError::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let (of, token_of) = (&selection.namespace, token.as_ref());
        let snapshot = self.as_of(context, of, options, asked, token_of).await?;
        let turn = turn.await;
        let page = self.fill(&selection, &snapshot, token.as_ref(), limit);
        Ok((page, turn))
    }

    /// The state that a list is of.
    async fn as_of(
        &self,
        context: &Context,
        namespace: &str,
        options: &ListOptions,
        asked: Option<u64>,
        token: Option<&Continue>,
    ) -> Result<Snapshot, ApiError> {
        let store = &self.inner.store;
        let kind = context.resource.storage_key.clone();
        let exact = match (token, asked) {
            (Some(token), _) => token.revision,
            (None, None | Some(0)) => None,
            (None, Some(asked)) => {
                let by_limit = options.resource_version_match.is_empty() && options.limit > 0;
                let is_exact = options.resource_version_match == EXACT || by_limit;
                self.not_older_than(asked).await?;
                is_exact.then_some(asked)
            }
        };
        let Some(revision) = exact else {
            return Ok(store.snapshot(&kind));
        };
        if revision > store.revision() {
            return Err(fresh::too_large(revision, store.revision()));
        }
        let then = self
            .history_of(namespace, revision)
            .and_then(|()| store.snapshot_at(&kind, revision));
        then.map_err(|_| match token {
            None => ApiError::expired(LIST_EXPIRED),
            Some(token) => {
                let anew = Continue {
                    revision: None,
                    start: token.start.clone(),
                };
                let mut error = ApiError::expired(PAGE_EXPIRED);
                error.continue_token = Some(anew.encode());
                error
            }
        })
    }

    fn fill(
        &self,
        selection: &Selection,
        snapshot: &Snapshot,
        token: Option<&Continue>,
        limit: usize,
    ) -> Page {
        let after = token.map(|token| start_key(selection, &token.start));
        let in_namespace = |stored: &&Arc<Stored>| {
            selection.namespace.is_empty() || stored.namespace() == selection.namespace
        };
        let mut rest: Box<dyn Iterator<Item = &Arc<Stored>> + Send> = match &after {
            Some(key) if selection.namespace.is_empty() => Box::new(snapshot.table.after(key)),
            Some(key) => {
                let begun = in_namespace;
                Box::new(
                    snapshot
                        .table
                        .after(key)
                        .skip_while(move |stored| !begun(stored))
                        .take_while(in_namespace),
                )
            }
            None if selection.namespace.is_empty() => Box::new(snapshot.table.iter()),
            None => Box::new(snapshot.table.namespace(&selection.namespace)),
        };
        let mut page = Page {
            revision: snapshot.revision,
            objects: Vec::new(),
            continue_token: String::new(),
            remaining: None,
        };
        for stored in rest.by_ref() {
            if !selection.matches(self, stored) {
                continue;
            }
            page.objects.push(stored.clone());
            if limit > 0 && page.objects.len() == limit {
                break;
            }
        }
        let left = rest.count();
        let Some(last) = page.objects.last().filter(|_| left > 0) else {
            return page;
        };
        let start = if selection.namespace.is_empty() {
            last.key().to_string()
        } else {
            last.name().to_owned()
        };
        page.continue_token = Continue {
            revision: Some(snapshot.revision),
            start,
        }
        .encode();
        page.remaining = selection
            .is_everything()
            .then(|| u64::try_from(left).unwrap_or_default());
        page
    }
}

/// The key that a page goes on after.
fn start_key(selection: &Selection, start: &str) -> Key {
    if !selection.namespace.is_empty() {
        return Key::new(&selection.namespace, start);
    }
    match start.split_once('/') {
        Some((namespace, name)) => Key::new(namespace, name),
        None => Key::cluster(start),
    }
}
