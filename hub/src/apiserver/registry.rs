//! The verbs of the API over the store: what a request does to an object, once it is known who asks and
//! that they may.
//!
//! One file under `registry/` for each verb; what is particular to a kind is in `strategies`. Bodies come
//! in as bytes with their media type, objects go out as encoded bytes; `http` only frames them.

mod access;
mod body;
mod context;
mod create;
pub(crate) mod decode;
mod delete;
mod delete_collection;
mod fresh;
mod get;
pub(crate) mod go_json;
pub(crate) mod graceful;
mod lifecycle;
mod list;
pub(crate) mod metadata;
pub(crate) mod names;
mod options;
mod outcome;
mod patch;
mod scale;
mod selection;
mod selector;
pub(crate) mod strict;
mod token;
mod tracking;
mod update;
pub(crate) mod value;
mod watch;
mod yaml;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use body::{Body, MediaType};
pub use context::{Admission, AdmissionFuture, Context, FieldValidation, Operation, Warnings};
pub use options::{DeleteOptions, ListOptions, PatchKind, Preconditions, Propagation};
pub use outcome::{Deleted, Effect, FrameKind, ListResult, Outcome, WatchFrame, WatchStream};
pub use selector::{FieldSelector, LabelSelector};
pub use token::{Continue, TokenError};

use crate::apiserver::catalogue::Catalogue;
use crate::apiserver::store::Store;
use common::time::SharedClock;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The verbs over one store. Cheap to clone.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    catalogue: Catalogue,
    clock: SharedClock,
    admission: Arc<dyn Admission>,
    /// Since when kinds have the schema that they have; older objects may lack its defaults.
    reshaped: RwLock<HashMap<Arc<str>, u64>>,
}

impl Registry {
    /// A registry over `store`, of the kinds in `catalogue`; `admission` has the last word on every write.
    pub fn new(
        store: Store,
        catalogue: Catalogue,
        clock: SharedClock,
        admission: Arc<dyn Admission>,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                store,
                catalogue,
                clock,
                admission,
                reshaped: RwLock::default(),
            }),
        }
    }

    /// The kinds that are served.
    pub fn catalogue(&self) -> &Catalogue {
        &self.inner.catalogue
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn clock(&self) -> &SharedClock {
        &self.inner.clock
    }

    /// Says since when a kind has its schema.
    pub(crate) fn set_reshaped(&self, storage_key: Arc<str>, revision: u64) {
        self.inner
            .reshaped
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(storage_key, revision);
    }

    fn reshaped(&self, storage_key: &str) -> Option<u64> {
        self.inner
            .reshaped
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(storage_key)
            .copied()
    }
}
