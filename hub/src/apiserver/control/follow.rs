//! Following the objects of a kind, through gaps.

use crate::apiserver::registry::Registry;
use crate::apiserver::store::{Ended, Event, Scope, Stored, Watcher};
use std::sync::Arc;

/// What happened.
pub(super) enum News {
    /// Anything may have: look at all objects.
    Anything(Vec<Arc<Stored>>),
    /// This did.
    One(Event),
}

/// The news of one kind.
pub(super) struct Follow {
    registry: Registry,
    kind: Arc<str>,
    scope: Scope,
    watcher: Option<Watcher>,
}

impl Follow {
    pub(super) fn new(registry: &Registry, kind: &str) -> Self {
        Self::part(registry, kind, Scope::All)
    }

    pub(super) fn part(registry: &Registry, kind: &str, scope: Scope) -> Self {
        Self {
            registry: registry.clone(),
            kind: kind.into(),
            scope,
            watcher: None,
        }
    }

    /// The next news; `None` when the store closes. Can be dropped while it waits.
    pub(super) async fn next(&mut self) -> Option<News> {
        loop {
            let Some(watcher) = &mut self.watcher else {
                let snapshot = self.registry.store().snapshot(&self.kind);
                let store = self.registry.store();
                // A revision that was read just now is never too old; if it is, look again.
                self.watcher = store
                    .watch(&self.kind, self.scope.clone(), snapshot.revision)
                    .ok();
                let selected = |stored: &&Arc<Stored>| match &self.scope {
                    Scope::All => true,
                    Scope::Namespace(namespace) => stored.namespace() == namespace.as_ref(),
                    Scope::Object(key) => stored.key() == *key,
                };
                let all = snapshot.table.iter().filter(selected).cloned().collect();
                return Some(News::Anything(all));
            };
            match watcher.next().await {
                Ok(event) => return Some(News::One(event)),
                Err(Ended::Gone) => self.watcher = None,
                Err(Ended::Closed) => return None,
            }
        }
    }
}
