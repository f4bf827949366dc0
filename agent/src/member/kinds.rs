//! Which kinds of the member are watched.

use common::gvk::Gvk;
use common::mapper::Resource;
use common::signal;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// The kinds in use, by group and kind: one version of each is watched.
#[derive(Debug, Default)]
pub struct Kinds {
    inner: Mutex<Inner>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    watched: HashMap<(String, String), Watched>,
    new: VecDeque<Arc<Resource>>,
}

#[derive(Debug)]
struct Watched {
    /// When it was begun to watch it, or when its first list went on last.
    since: Instant,
    synced: signal::Sender<bool>,
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
            vacant.insert(Watched {
                since: Instant::now(),
                synced: signal::Sender::new(false),
            });
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
        if let Some(watched) = self.lock().watched.get(&key(gvk)) {
            watched.synced.send_replace(true);
        }
    }

    /// The first list of a kind goes on.
    pub fn lists(&self, gvk: &Gvk) {
        if let Some(watched) = self.lock().watched.get_mut(&key(gvk)) {
            watched.since = Instant::now();
        }
    }

    /// Whether the first list of a kind is complete.
    pub fn is_synced(&self, gvk: &Gvk) -> bool {
        let inner = self.lock();
        inner
            .watched
            .get(&key(gvk))
            .is_some_and(|watched| *watched.synced.borrow())
    }

    /// A kind is not watched any more.
    pub fn forget(&self, gvk: &Gvk) {
        self.lock().watched.remove(&key(gvk));
    }

    /// Waits until a kind's first list is complete, or until it did not go on for `limit`: nobody waits anew for one
    /// that cannot be listed.
    pub async fn wait_synced(&self, gvk: &Gvk, limit: Duration) {
        loop {
            let receiver = {
                let inner = self.lock();
                let watched = inner.watched.get(&key(gvk));
                watched.map(|it| (it.since + limit, it.synced.subscribe()))
            };
            // Too late or forgotten: live reads do as well.
            let Some((until, mut receiver)) = receiver else {
                return;
            };
            let waited = timeout_at(until, receiver.wait_for(|synced| *synced)).await;
            if waited.is_ok() || !self.goes_on_after(gvk, until - limit) {
                return;
            }
        }
    }

    fn goes_on_after(&self, gvk: &Gvk, since: Instant) -> bool {
        let inner = self.lock();
        let watched = inner.watched.get(&key(gvk));
        watched.is_some_and(|it| it.since > since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_listed_is_waited_for_once() {
        let kinds = Kinds::default();
        let resource = Arc::new(Resource {
            gvk: Gvk::new("example.org/v1", "Odd").expect("sound"),
            plural: "odds".to_owned(),
            namespaced: true,
        });
        let limit = Duration::from_secs(10);
        kinds.ensure(&resource);
        let start = Instant::now();
        for _ in 0..300 {
            kinds.ensure(&resource);
            kinds.wait_synced(&resource.gvk, limit).await;
        }
        assert_eq!(start.elapsed(), limit);
        assert!(!kinds.is_synced(&resource.gvk));
        // One that is long goes on.
        let waits = kinds.wait_synced(&resource.gvk, limit);
        kinds.lists(&resource.gvk);
        let goes_on = async {
            tokio::time::sleep(limit / 2).await;
            kinds.lists(&resource.gvk);
        };
        let start = Instant::now();
        tokio::join!(waits, goes_on);
        assert_eq!(start.elapsed(), limit / 2 + limit);
        kinds.synced(&resource.gvk);
        assert!(kinds.is_synced(&resource.gvk));
    }
}
