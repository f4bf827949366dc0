//! What Works left behind: told to the hub, and deleted when an operator orders it.

use super::deletion::Gone;
use super::{Engine, FIRST_LIST};
use crate::execution::manifest::Gvk;
use crate::execution::state::ObjectKey;
use crate::execution::wire::LiveMeta;
use crate::member::rest::{Call, Error, METADATA_LIST};
use common::errors::chain;
use common::labels::{MANAGED, MANAGED_VALUE};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How often it is looked for what the hub should be told.
const LOOK: Duration = Duration::from_secs(3);
/// Every so many looks, what left nothing behind any more is forgotten.
const FORGET_EVERY: u32 = 10;

/// Objects of a page when everything that is ours is looked for.
const PAGE: u32 = 200;
/// How long that may take when the agent leaves.
const RELEASE_WITHIN: Duration = Duration::from_secs(120);

impl Engine {
    /// Keeps the report of orphans up to date, for ever.
    pub(super) async fn tell_orphans(self: Arc<Self>) {
        let mut looks = 0_u32;
        loop {
            tokio::select! {
                () = self.orphans_changed.notified() => self.watch_orphans().await,
                () = tokio::time::sleep(LOOK) => {}
            }
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(FORGET_EVERY) {
                self.forget_settled();
            }
            if let Some(report) = self.state().orphan_report() {
                self.orphans.send_if_modified(|told| {
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
    async fn watch_orphans(&self) {
        let kinds: BTreeSet<Gvk> = {
            let state = self.state();
            let orphaned = state.orphaned.values().flat_map(|o| o.all_targets());
            let left = state.works.values().flat_map(|w| w.left.iter().cloned());
            orphaned.chain(left).map(|target| target.gvk).collect()
        };
        for kind in kinds {
            if let Ok(Some(resource)) = self.resolve(&kind).await {
                self.kinds.ensure(&resource);
                self.kinds.wait_synced(&kind, FIRST_LIST).await;
            }
        }
    }

    /// Forgets vanished Works of which nothing is left in the member.
    fn forget_settled(&self) {
        let mut state = self.state();
        let empty: Vec<Arc<str>> = state
            .orphaned
            .iter()
            .filter(|(name, orphaned)| {
                state.orphans_of(name).is_empty()
                    && (orphaned.all_targets().iter()).all(|t| self.kinds.is_synced(&t.gvk))
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in empty {
            state.orphaned.remove(&name);
            self.keep_work(&name);
        }
    }

    /// Takes our marks off whatever still carries them, also of Works that are gone already: the cluster
    /// is unregistered and everything in it stays.
    pub async fn release_rest(&self) {
        match timeout(RELEASE_WITHIN, self.release_all()).await {
            Ok(Ok(0)) => {}
            Ok(Ok(count)) => tracing::info!(count, "objects of vanished Works lost our marks"),
            Ok(Err(error)) => {
                tracing::warn!(error = %chain(&error), "some objects may still carry our marks");
            }
            Err(_) => tracing::warn!("some objects may still carry our marks: it took too long"),
        }
    }

    async fn release_all(&self) -> Result<usize, Error> {
        let mut count = 0;
        for resource in self.all_kinds().await? {
            let selector = format!("labelSelector={MANAGED}%3D{MANAGED_VALUE}&limit={PAGE}");
            let mut token = String::new();
            loop {
                let uri = format!("{}?{selector}&continue={token}", resource.collection());
                let list: Value = match self.ask_member(Call::get(&uri, METADATA_LIST)).await {
                    Ok(reply) => reply.json()?,
                    // What we may not see we have not made.
                    Err(error) if matches!(error.code(), Some(403..=405)) => break,
                    Err(error) => return Err(error),
                };
                for item in list["items"].as_array().into_iter().flatten() {
                    let ours = |meta: &LiveMeta| {
                        meta.managed
                            && meta
                                .work
                                .as_ref()
                                .is_some_and(|(ns, _)| *ns == self.namespace)
                    };
                    if !ours(&LiveMeta::read(item)) {
                        continue;
                    }
                    let text = |key: &str| item["metadata"][key].as_str().unwrap_or_default();
                    let uri = resource.object(text("namespace"), text("name"));
                    self.release_at(&uri, ours).await?;
                    count += 1;
                }
                let next = list["metadata"]["continue"].as_str().unwrap_or_default();
                if next.is_empty() {
                    break;
                }
                // A token is base64; only these of its characters mean something in a query.
                next.clone_into(&mut token);
                token = token.replace('+', "%2B").replace('=', "%3D");
            }
        }
        Ok(count)
    }

    /// Deletes those orphans of a Work that the operator names. Returns whether something waits.
    pub(super) async fn delete_orphans(&self, name: &Arc<str>) -> bool {
        let ordered: Vec<Arc<ObjectKey>> = {
            let state = self.state();
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
            match self.delete_object(name, &key, false).await {
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
