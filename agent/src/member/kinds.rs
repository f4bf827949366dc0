//! Which kinds of the member are watched.

use common::gvk::Gvk;
use common::mapper::Resource;
use common::signal;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The kinds in use, by group and kind: one version of each is watched.
#[derive(Debug, Default)]
pub struct Kinds {
    inner: Mutex<Inner>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    watched: HashMap<(String, String), signal::Sender<bool>>,
    new: VecDeque<Arc<Resource>>,
}

fn key(gvk: &Gvk) -> (String, String) {
    (gvk.group.clone(), gvk.kind.clone())
}

impl Kinds {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a kind watched from now on.
    pub fn ensure(&self, resource: &Arc<Resource>) {
        let mut inner = self.lock();
        if let Entry::Vacant(vacant) = inner.watched.entry(key(&resource.gvk)) {
            vacant.insert(signal::Sender::new(false));
            inner.new.push_back(resource.clone());
            self.more.notify_one();
        }
    }

    /// The next kind that nobody watches yet.
    pub async fn next_new(&self) -> Arc<Resource> {
        loop {
            let next = self.lock().new.pop_front();
            if let Some(resource) = next {
                return resource;
            }
            self.more.notified().await;
        }
    }

    /// The first list of a kind is complete.
    pub fn synced(&self, gvk: &Gvk) {
        if let Some(sender) = self.lock().watched.get(&key(gvk)) {
            sender.send_replace(true);
        }
    }

    /// Whether the first list of a kind is complete.
    pub fn is_synced(&self, gvk: &Gvk) -> bool {
        let inner = self.lock();
        inner
            .watched
            .get(&key(gvk))
            .is_some_and(|synced| *synced.borrow())
    }

    /// A kind is not watched any more.
    pub fn forget(&self, gvk: &Gvk) {
        self.lock().watched.remove(&key(gvk));
    }

    /// Waits until a kind's first list is complete, or for `limit`.
    pub async fn wait_synced(&self, gvk: &Gvk, limit: Duration) {
        let receiver = self
            .lock()
            .watched
            .get(&key(gvk))
            .map(signal::Sender::subscribe);
        if let Some(mut receiver) = receiver {
            // Too late or forgotten: live reads do as well.
            let _ = tokio::time::timeout(limit, receiver.wait_for(|synced| *synced)).await;
        }
    }
}
