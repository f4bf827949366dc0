//! Following the objects of a kind, through gaps.

use crate::apiserver::registry::Registry;
use crate::apiserver::store::{Ended, Event, Scope, Stored};
use std::future::pending;
use std::sync::Arc;
use tokio::task::yield_now;

/// What happened.
pub(super) enum News {
    /// Anything may have: look at all objects.
    Anything(Vec<Arc<Stored>>),
    /// This did.
    One(Event),
}

/// Tells of what there is of a kind and of each change, for ever; of nothing any more once the store is closed.
pub(super) async fn follow(registry: &Registry, kind: &str, scope: Scope, tell: impl Fn(News)) {
    let store = registry.store();
    loop {
        let snapshot = store.snapshot(kind);
        let Ok(mut watcher) = store.watch(kind, scope.clone(), snapshot.revision) else {
            // It fell out of the history just now.
            yield_now().await;
            continue;
        };
        let selected = |stored: &&Arc<Stored>| match &scope {
            Scope::All => true,
            Scope::Namespace(namespace) => stored.namespace() == namespace.as_ref(),
            Scope::Object(key) => stored.key() == *key,
        };
        tell(News::Anything(
            snapshot.table.iter().filter(selected).cloned().collect(),
        ));
        drop(snapshot);
        let ended = loop {
            match watcher.next().await {
                Ok(event) => tell(News::One(event)),
                Err(ended) => break ended,
            }
        };
        if ended == Ended::Closed {
            return pending().await;
        }
    }
}
