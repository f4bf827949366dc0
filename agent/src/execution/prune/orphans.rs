//! What Works left behind: told to the hub, and deleted when an operator orders it.

use super::{Gone, Pruner};
use crate::execution::FIRST_LIST;
use crate::execution::persist::Persister;
use crate::execution::state::{ObjectKey, Shared};
use crate::member::api::Member;
use common::api::cluster::OrphanReport;
use common::errors::chain;
use common::gvk::Gvk;
use common::signal;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How often it is looked for what the hub should be told.
const LOOK: Duration = Duration::from_secs(3);
/// Every so many looks, what left nothing behind any more is forgotten.
const FORGET_EVERY: u32 = 10;

/// What Works left behind.
pub struct Orphans {
    member: Arc<Member>,
    state: Shared,
    persister: Arc<Persister>,
    pruner: Arc<Pruner>,
    /// What the hub is told of them.
    told: signal::Sender<Option<OrphanReport>>,
    changed: Notify,
}

impl Orphans {
    /// Tells `told` what there is.
    pub fn new(
        member: Arc<Member>,
        state: Shared,
        persister: Arc<Persister>,
        pruner: Arc<Pruner>,
        told: signal::Sender<Option<OrphanReport>>,
    ) -> Self {
        Self {
            member,
            state,
            persister,
            pruner,
            told,
            changed: Notify::new(),
        }
    }

    /// Has it looked whether there are new ones.
    pub fn look(&self) {
        self.changed.notify_one();
    }

    /// Keeps the report of orphans up to date, for ever.
    pub async fn run(&self) {
        let mut looks = 0_u32;
        loop {
            tokio::select! {
                biased;
                () = self.changed.notified() => self.watch_kinds().await,
                () = tokio::time::sleep(LOOK) => {}
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(FORGET_EVERY) {
                self.forget_settled().await;
            }
            if let Some(report) = self.state.lock().orphan_report() {
                self.told.send_if_modified(|told| {
                    let news = told.as_ref() != Some(&report);
                    if news {
                        *told = Some(report);
                    }
                    news
                });
            }
        }
    }

    /// Kinds of what may be orphaned have to be watched, though no Work names them.
    async fn watch_kinds(&self) {
        let kinds: BTreeSet<Gvk> = {
            let state = self.state.lock();
            let orphaned = state.orphaned.values().flat_map(|o| o.all_targets());
            let left = state.works.values().flat_map(|w| w.left.iter().cloned());
            orphaned.chain(left).map(|target| target.gvk).collect()
        };
        for kind in kinds {
            if let Ok(Some(_)) = self.pruner.served(&kind).await {
                self.member.kinds.wait_synced(&kind, FIRST_LIST).await;
            }
        }
    }

    /// Forgets vanished Works of which nothing is left in the member. Of a kind that it does not serve it has no objects.
    async fn forget_settled(&self) {
        let unsynced: BTreeSet<Gvk> = {
            let state = self.state.lock();
            let targets = state.orphaned.values().flat_map(|o| o.all_targets());
            let kinds = targets.map(|target| target.gvk);
            kinds
                .filter(|kind| !self.member.kinds.is_synced(kind))
                .collect()
        };
        let mut unserved = BTreeSet::new();
        for kind in unsynced {
            if let Ok(None) = self.pruner.served(&kind).await {
                unserved.insert(kind);
            }
        }
        let has_none = |kind: &Gvk| self.member.kinds.is_synced(kind) || unserved.contains(kind);
        let mut state = self.state.lock();
        let empty: Vec<Arc<str>> = state
            .orphaned
            .iter()
            .filter(|(name, orphaned)| {
                state.orphans_of(name).is_empty()
                    && (orphaned.all_targets().iter()).all(|t| has_none(&t.gvk))
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in empty {
            state.orphaned.remove(&name);
            self.persister.touch(&name);
        }
    }

    /// Deletes those orphans of a Work that the operator names. Returns whether something waits.
    pub async fn delete_ordered(&self, name: &Arc<str>) -> bool {
        let ordered: Vec<Arc<ObjectKey>> = {
            let state = self.state.lock();
            let Some(record) = state.works.get(name) else {
                return false;
            };
            state
                .orphans_of(name)
                .into_iter()
                .filter(|(_, uid)| record.order.delete.contains(uid))
                .map(|(key, _)| key)
                .collect()
        };
        let mut waits = false;
        for key in ordered {
            match self.pruner.delete_object(name, &key, false).await {
                Ok(Gone::Yes) => {
                    tracing::info!(work = %name, object = %key.name, "deleted by an operator's order");
                }
                Ok(Gone::Waits(_)) => waits = true,
                Err(error) => {
                    tracing::warn!(work = %name, error = %chain(&error), "failed to delete an orphan");
                    waits = true;
                }
            }
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::testing::{Handles, map, wire};
    use serde_json::json;

    #[tokio::test(start_paused = true)]
    async fn a_vanished_work_of_a_kind_that_is_not_served_is_forgotten() {
        let parts = Handles::alone().await;
        let orphans = Orphans::new(
            parts.member.clone(),
            parts.state.clone(),
            parts.persister.clone(),
            parts.pruner.clone(),
            signal::Sender::new(None),
        );
        let till = json!({"apiVersion": "shop.example.com/v1", "kind": "Till",
            "metadata": {"namespace": "n", "name": "t"}});
        for (name, manifest) in [("served", map("a")), ("unserved", till)] {
            let name = parts.knows(&wire(name, name, &[manifest]));
            parts.state.lock().vanish(&name);
        }
        orphans.forget_settled().await;
        let left = parts.state.lock();
        // What there is of the other's kind was not listed yet.
        let left: Vec<&str> = left.orphaned.keys().map(|name| &**name).collect();
        assert_eq!(left, ["served"]);
    }
}
