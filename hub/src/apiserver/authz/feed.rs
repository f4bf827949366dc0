//! Keeps the authorizer's roles and bindings as they are in the store.

use super::Authorizer;
use super::index::{Kind, RBAC};
use crate::apiserver::store::{Ended, Kind as Change, Scope, Snapshot, Store};
use std::sync::Arc;
use tokio::task::JoinSet;

fn storage(kind: Kind) -> String {
    format!("{RBAC}/{}", kind.plural())
}

impl Authorizer {
    /// Takes what the store holds now; the task keeps it so, and ends with the store.
    pub fn follow(self: &Arc<Self>, store: &Store) -> impl Future<Output = ()> + Send + use<> {
        let begun = Kind::ALL.map(|kind| {
            let snapshot = store.snapshot(&storage(kind));
            self.take(kind, &snapshot);
            (kind, snapshot.revision)
        });
        let (following, store) = (self.clone(), store.clone());
        async move {
            let mut tasks = JoinSet::new();
            for (kind, revision) in begun {
                let (authorizer, store) = (following.clone(), store.clone());
                tasks.spawn(async move { authorizer.follow_kind(kind, &store, revision).await });
            }
            while tasks.join_next().await.is_some() {}
        }
    }

    /// Holds of a kind exactly what a snapshot has.
    fn take(&self, kind: Kind, snapshot: &Snapshot) {
        self.write(|index| {
            index.clear(kind);
            for object in snapshot.table.iter() {
                index.put(kind, object.namespace(), object.name(), &object.value());
            }
        });
    }

    async fn follow_kind(&self, kind: Kind, store: &Store, mut since: u64) {
        let resource = storage(kind);
        loop {
            let Ok(mut watcher) = store.watch(&resource, Scope::All, since) else {
                let snapshot = store.snapshot(&resource);
                since = snapshot.revision;
                self.take(kind, &snapshot);
                continue;
            };
            let ended = loop {
                match watcher.next().await {
                    Ok(event) => {
                        let object = &event.object;
                        let (namespace, name) = (object.namespace(), object.name());
                        self.write(|index| match event.kind {
                            Change::Deleted => index.remove(kind, namespace, name),
                            Change::Added | Change::Modified => {
                                index.put(kind, namespace, name, &object.value());
                            }
                        });
                    }
                    Err(ended) => break ended,
                }
            };
            match ended {
                Ended::Closed => return,
                Ended::Gone => {
                    let snapshot = store.snapshot(&resource);
                    since = snapshot.revision;
                    self.take(kind, &snapshot);
                }
            }
        }
    }
}
