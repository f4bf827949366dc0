//! GET of a collection: a page of it, as it is now or as it was.

use super::selection::Selection;
use super::token::Continue;
use super::{ListResult, Registry, fresh};
use crate::apiserver::error::ApiError;
use crate::apiserver::request::{Context, EXACT, ListOptions};
use crate::apiserver::store::{Key, Snapshot, Stored, Table};
use std::sync::Arc;

const PAGE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
const LIST_EXPIRED: &str = "The resourceVersion for the provided list is too old.";

/// What a list is of: the state that it shows, and what is asked of that. Nothing of it was read yet.
pub(crate) struct Listing {
    selection: Selection,
    snapshot: Snapshot,
    token: Option<Continue>,
    limit: usize,
}

impl Listing {
    /// How many bytes the objects have that the list may be of; counted no further than to `enough`.
    pub(crate) fn size(&self, enough: usize) -> usize {
        size(&self.snapshot.table, &self.selection.namespace, enough)
    }
}

/// How many bytes the objects of a namespace have, or of all of them; counted no further than to `enough`.
pub(super) fn size(table: &Table, namespace: &str, enough: usize) -> usize {
    let mut size = 0;
    let add = |stored: &Arc<Stored>| {
        // Each costs something, however short.
        size += stored.json_len() + 64;
        size < enough
    };
    let _ = match namespace {
        "" => table.iter().all(add),
        namespace => table.namespace(namespace).all(add),
    };
    size
}

/// A page, before it is encoded.
pub(crate) struct Page {
    pub(super) revision: u64,
    pub(crate) objects: Vec<Arc<Stored>>,
    continue_token: String,
    remaining: Option<u64>,
}

impl Page {
    /// How many bytes its objects have.
    pub(crate) fn size(&self) -> usize {
        self.objects.iter().map(|stored| stored.json_len()).sum()
    }
}

impl Registry {
    /// A page of the objects of a kind.
    pub async fn list(
        &self,
        context: &Context,
        options: &ListOptions,
    ) -> Result<ListResult, ApiError> {
        let listing = self.listing(context, options).await?;
        Ok(self.listed(context, &listing))
    }

    /// What a list is of. All the waiting is here; what takes long is in [`Registry::listed`].
    pub(crate) async fn listing(
        &self,
        context: &Context,
        options: &ListOptions,
    ) -> Result<Listing, ApiError> {
        context.note_deprecation();
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
        Ok(Listing {
            selection,
            snapshot,
            token,
            limit,
        })
    }

    /// The list, put together.
    pub(crate) fn listed(&self, context: &Context, listing: &Listing) -> ListResult {
        let page = self.page(listing);
        let items = page.objects.iter();
        let resource = &context.resource;
        ListResult {
            resource_version: page.revision,
            continue_token: page.continue_token,
            remaining: page.remaining,
            items: items.map(|stored| self.shown(resource, stored)).collect(),
        }
    }

    /// What is selected, as it is stored.
    pub(crate) fn page(&self, listing: &Listing) -> Page {
        let Listing {
            selection,
            snapshot,
            token,
            limit,
        } = listing;
        self.fill(selection, snapshot, token.as_ref(), *limit)
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
