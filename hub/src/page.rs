//! A page of a list as an API server sends it, of which each object is read by itself: one that cannot be read hides no
//! other.

use serde::Deserialize;
use serde_json::value::RawValue;

/// A page of a list.
#[derive(Deserialize)]
pub(crate) struct Page<'a> {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(borrow, default)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
struct PageMetadata {
    #[serde(default, rename = "continue")]
    more: Option<String>,
    #[serde(default, rename = "remainingItemCount")]
    remaining: Option<i64>,
}

impl<'a> Page<'a> {
    /// Its objects, each to be read by itself.
    pub(crate) fn items(&self) -> impl Iterator<Item = &'a str> {
        self.items.iter().flatten().map(|it| it.get())
    }

    /// How many objects the pages after it have; none where the server does not say.
    pub(crate) fn remaining(&self) -> usize {
        let remaining = self.metadata.remaining.unwrap_or(0);
        usize::try_from(remaining).unwrap_or(0)
    }

    /// What the next page is asked for with.
    pub(crate) fn next(self) -> Option<String> {
        self.metadata.more.filter(|token| !token.is_empty())
    }
}
