//! What is watched, how, and what the watch tells.

use super::{ObjectKey, WATCH_TIMEOUT};
use crate::chance::Chance;
use crate::client::Problem;
use kube::core::{ApiResource, DynamicObject};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::time::Instant;

/// What is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection(String);

impl Collection {
    pub(super) fn path(&self) -> &str {
        &self.0
    }

    /// A kind known at compile time; all namespaces without one.
    pub fn of<K: kube::Resource<DynamicType = ()>>(namespace: Option<&str>) -> Self {
        Self(K::url_path(&(), namespace))
    }

    /// A kind known at run time.
    pub fn dynamic(resource: &ApiResource, namespace: Option<&str>) -> Self {
        Self(<DynamicObject as kube::Resource>::url_path(
            resource, namespace,
        ))
    }
}

/// How it is watched.
#[derive(Debug, Clone)]
pub struct WatchConfig {
    /// Objects of one page of the list; of the first one, where `page_bytes` says how large the others are.
    pub page_size: u32,
    /// About so many bytes a page has, as far as can be told from the one before. An API server looks at all objects
    /// of a collection for each page of it, so that many small pages are much work to it.
    pub page_bytes: Option<u32>,
    /// The list is asked for as the beginning of a watch, where the server does that: it then comes from the server's
    /// memory, also where pages of it would be read from storage. Where it does not, by pages.
    pub streams: bool,
    /// Only objects with these labels.
    pub label_selector: Option<String>,
    /// Only objects with these fields.
    pub field_selector: Option<String>,
    /// Metadata only (`PartialObjectMetadata`).
    pub metadata_only: bool,
    /// How long one watch lasts; at most [`WATCH_TIMEOUT`].
    pub timeout: Duration,
    /// Spreads reconnects, and the ends of watches.
    pub chance: Chance,
}

impl WatchConfig {
    /// Everything of a collection.
    pub fn new(chance: &Chance) -> Self {
        Self {
            page_size: 50,
            page_bytes: None,
            streams: false,
            label_selector: None,
            field_selector: None,
            metadata_only: false,
            timeout: WATCH_TIMEOUT,
            chance: chance.clone(),
        }
    }
}

/// What is made of each object that a watch tells of.
pub trait Decode: Sized + Send + 'static {
    /// Reads an object's JSON. It may not have been looked into before.
    fn decode(object: &str) -> serde_json::Result<Self>;
}

impl<K: DeserializeOwned + Send + 'static> Decode for K {
    fn decode(object: &str) -> serde_json::Result<Self> {
        serde_json::from_str(object)
    }
}

/// An object that cannot be decoded; it counts as there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    /// Which object, as far as its metadata can be read.
    pub key: ObjectKey,
    /// Why.
    pub error: String,
}

/// What a watch tells.
#[derive(Debug, Clone, PartialEq)]
pub enum Event<K> {
    /// A list begins: what does not come before [`Event::InitDone`] is not there any more.
    Init,
    /// An object that is there, new, changed or merely listed.
    Applied(K),
    /// The same for an object that cannot be decoded.
    Undecodable(Undecodable),
    /// An object is gone, or no longer selected.
    Deleted(ObjectKey),
    /// The list is complete. What happened in between is lost when there is a gap; a first list has one only where it
    /// did not come at once.
    InitDone {
        /// For how long nothing was known.
        gap: Option<Duration>,
        /// At which version of the collection it is complete.
        version: String,
    },
    /// Nothing is known for now; comes again for every failed attempt.
    Disconnected {
        /// When something was heard last.
        since: Instant,
        /// What is wrong.
        problem: Problem,
    },
    /// The watch goes on where it broke off: everything of the gap follows, nothing was lost.
    Resumed {
        /// For how long nothing was heard.
        gap: Duration,
    },
}
