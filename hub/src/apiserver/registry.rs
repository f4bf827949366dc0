//! The verbs of the API over the store: what a request does to an object, once it is known who asks and
//! that they may.
//!
//! One file under `registry/` for each verb; what is particular to a kind is in `strategies`. Bodies come
//! in as bytes with their media type, objects go out as encoded bytes; `http` only frames them.

mod access;
mod create;
pub(crate) mod decode;
mod delete;
mod delete_collection;
mod delete_options;
pub mod evict;
mod fresh;
mod get;
mod graceful;
mod history;
mod lifecycle;
mod list;
mod outcome;
mod patch;
mod scale;
mod selection;
mod token;
mod tracking;
mod update;
mod watch;
mod yaml;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use outcome::{Deleted, Effect, FrameKind, ListResult, Outcome, WatchFrame, WatchStream};
pub use token::{Continue, TokenError};

use crate::apiserver::request::Admission;
use crate::apiserver::scheme::Scheme;
use crate::apiserver::store::Store;
use common::chance::{Chance, SharedStream};
use common::env::Env;
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
    scheme: Scheme,
    env: Env,
    /// Names and UIDs of objects, and when watches end.
    draws: SharedStream,
    admission: Arc<dyn Admission>,
    /// Since when kinds have the schema that they have; older objects may lack its defaults.
    reshaped: RwLock<HashMap<Arc<str>, u64>>,
}

impl Registry {
    /// A registry over `store`, of the kinds in `scheme`; `admission` has the last word on every write.
    pub fn new(store: Store, scheme: Scheme, env: Env, admission: Arc<dyn Admission>) -> Self {
        Self {
            inner: Arc::new(Inner {
                store,
                scheme,
                draws: env.chance.shared_stream("registry"),
                env,
                admission,
                reshaped: RwLock::default(),
            }),
        }
    }

    /// The kinds that are served.
    pub fn scheme(&self) -> &Scheme {
        &self.inner.scheme
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    pub(crate) fn clock(&self) -> &SharedClock {
        &self.inner.env.clock
    }

    pub(crate) fn chance(&self) -> &Chance {
        &self.inner.env.chance
    }

    /// A stream that all requests draw from.
    pub(crate) fn draws(&self) -> &SharedStream {
        &self.inner.draws
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
