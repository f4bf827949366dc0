//! What verbs answer.

use super::access::without_type;
use crate::apiserver::scheme::Resource;
use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use std::pin::Pin;

/// One object as it is now.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The object, encoded in the version of the request.
    pub object: Bytes,
    /// What the request did to it.
    pub effect: Effect,
}

/// What a request did to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Made it: 201 instead of 200.
    Created,
    /// Changed it.
    Changed,
    /// Said of a Lease that its holder is still there.
    Renewed,
    /// Left it as it was.
    Nothing,
}

/// The answer to a deletion.
#[derive(Debug, Clone)]
pub struct Deleted {
    /// 200, or 202 when the object will be gone later and the caller asked to wait for what it owns.
    pub code: u16,
    /// The object as it is now, or as it was last; or the `Status` that says that it is gone.
    pub body: Bytes,
    /// Whether `body` is a `Status`.
    pub is_status: bool,
}

/// A page of a list.
#[derive(Debug, Clone)]
pub struct ListResult {
    /// `metadata.resourceVersion`.
    pub resource_version: u64,
    /// `metadata.continue`; empty on the last page.
    pub continue_token: String,
    /// `metadata.remainingItemCount`.
    pub remaining: Option<u64>,
    /// The objects, each with its kind and apiVersion.
    pub items: Vec<Bytes>,
}

/// What a frame of a watch says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// The object is there.
    Added,
    /// The object changed.
    Modified,
    /// The object is gone, or no longer selected.
    Deleted,
    /// Everything up to a resourceVersion has been sent.
    Bookmark,
    /// The watch ends with a `Status`.
    Error,
}

impl FrameKind {
    /// The `type` of the frame.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

/// One frame of a watch.
#[derive(Debug, Clone)]
pub struct WatchFrame {
    /// What happened to the object.
    pub kind: FrameKind,
    /// Its object, encoded; all watchers of one event share it.
    pub object: Bytes,
}

/// A watch: it ends with its deadline, after an error, or when the server stops.
pub type WatchStream = Pin<Box<dyn Stream<Item = WatchFrame> + Send>>;

impl ListResult {
    /// The metadata of the list; lists of custom objects say also that there is no more.
    pub fn metadata(&self, custom: bool) -> Value {
        let mut metadata = json!({"resourceVersion": self.resource_version.to_string()});
        if custom || !self.continue_token.is_empty() {
            metadata["continue"] = json!(self.continue_token);
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        metadata
    }

    /// The list as it is answered: objects of built-in kinds stand in it without their kind and version.
    pub fn encode(&self, resource: &Resource) -> Bytes {
        let metadata = self.metadata(resource.is_custom());
        let size: usize = self.items.iter().map(|item| item.len() + 1).sum();
        let mut out = Vec::with_capacity(size + 256);
        let head = format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{metadata},\"items\":[",
            json!(*resource.list_kind),
            json!(resource.api_version())
        );
        out.extend_from_slice(head.as_bytes());
        for (index, item) in self.items.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let bare = if resource.is_custom() {
                None
            } else {
                without_type(item)
            };
            match bare {
                Some(bare) => out.extend_from_slice(&bare),
                None => out.extend_from_slice(item),
            }
        }
        out.extend_from_slice(b"]}\n");
        Bytes::from(out)
    }
}
