//! Our objects in the member, as their watches tell.

use super::{Engine, lock};
use crate::execution::queue::Urgency;
use crate::execution::state::{LiveRecord, ObjectKey};
use crate::execution::wire::LiveMeta;
use crate::member::discovery::Resource;
use crate::work_status::has_no_status;
use common::labels::{MANAGED, MANAGED_VALUE};
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use serde_json::Value;
use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;

/// Metadata is small: bigger pages cost little memory and save round trips at a start.
const METADATA_PAGE: u32 = 200;

impl Engine {
    /// Watches our objects of one kind, until the member does not serve it any more.
    pub(super) async fn watch_kind(self: Arc<Self>, resource: Arc<Resource>) {
        let metadata_only = has_no_status(&resource.gvk);
        let mut config = WatchConfig {
            label_selector: Some(format!("{MANAGED}={MANAGED_VALUE}")),
            metadata_only,
            ..WatchConfig::default()
        };
        if metadata_only {
            config.page_size = METADATA_PAGE;
        }
        let collection = Collection::dynamic(&resource.api_resource(), None);
        let objects = watch::<Value>(self.member.clone(), collection, config);
        let mut objects = pin!(objects);
        let mut listing: Option<HashSet<Arc<ObjectKey>>> = None;
        while let Some(event) = objects.next().await {
            match event {
                Event::Restarted => listing = Some(HashSet::new()),
                Event::Applied(object) => {
                    let key = self.live_seen(&resource, &object);
                    if let Some(seen) = &mut listing {
                        seen.extend(key);
                    }
                }
                Event::Deleted(gone) => {
                    let key = ObjectKey {
                        kind: self.state().kind(&resource.gvk),
                        namespace: gone.namespace.unwrap_or_default().into(),
                        name: gone.name.into(),
                    };
                    self.live_gone(&key, Some(&gone.uid));
                }
                Event::Listed { .. } => {
                    if let Some(seen) = listing.take() {
                        self.sweep(&resource, &seen);
                    }
                    self.kinds.synced(&resource.gvk);
                }
                Event::Disconnected { problem, .. } => {
                    tracing::debug!(kind = %resource.gvk, %problem, "watch of the member broke off");
                    match problem.code() {
                        Some(404) => {
                            // Not served any more; a Work that names the kind brings it back.
                            self.discovery.forget(&resource.gvk);
                            self.kinds.forget(&resource.gvk);
                            self.sweep(&resource, &HashSet::new());
                            return;
                        }
                        // Without the right to watch, Works are judged by live reads.
                        Some(403) => self.kinds.synced(&resource.gvk),
                        _ => {}
                    }
                }
                Event::Undecodable(_) | Event::Resumed { .. } => {}
            }
        }
    }

    /// Takes in a live object; returns its key.
    fn live_seen(&self, resource: &Resource, object: &Value) -> Option<Arc<ObjectKey>> {
        let meta = LiveMeta::read(object);
        let place = object.get("metadata")?;
        let text = |key: &str| place.get(key).and_then(Value::as_str).unwrap_or_default();
        let mut state = self.state();
        let kind = state.kind(&resource.gvk);
        let key = state.key(kind, text("namespace"), text("name"));
        let mut live = LiveRecord::new(&resource.gvk, object, meta, &self.namespace, false);
        let before = state.live(&key);
        if before.is_some_and(|b| b.uid == live.uid && b.version >= live.version) {
            return Some(key);
        }
        if let Some(before) = before {
            live.inherit(before);
        }
        let to_do = live.needs_work(before);
        let to_tell = live.reports_differently(before);
        let urgent = before.is_none_or(|before| before.health != live.health);
        let mut works = state.interested(&key);
        if let Some((name, _)) = live
            .work
            .as_deref()
            .and_then(|w| state.works.get_key_value(w))
            && !works.contains(name)
        {
            works.push(name.clone());
        }
        state.set_live(&key, Some(live));
        drop(state);
        for work in &works {
            if to_do {
                self.enqueue(work, Urgency::Now);
            } else if to_tell {
                self.report_soon(work, urgent);
            }
        }
        Some(key)
    }

    /// Takes note that an object is gone, or not labelled ours any more.
    pub(super) fn live_gone(&self, key: &ObjectKey, uid: Option<&str>) {
        let mut state = self.state();
        let Some((key, record)) = state.objects.get_key_value(key) else {
            return;
        };
        let Some(live) = &record.live else {
            return;
        };
        if uid.is_some_and(|uid| *live.uid != *uid) {
            return;
        }
        let key = key.clone();
        let works = state.interested(&key);
        state.set_live(&key, None);
        drop(state);
        for work in &works {
            self.enqueue(work, Urgency::Now);
        }
    }

    /// After a list: what was known and is not in it is gone.
    fn sweep(&self, resource: &Resource, seen: &HashSet<Arc<ObjectKey>>) {
        let gone: Vec<Arc<ObjectKey>> = {
            let mut state = self.state();
            let kind = state.kind(&resource.gvk);
            state
                .objects
                .iter()
                .filter(|(key, record)| {
                    key.kind == kind && record.live.is_some() && !seen.contains(*key)
                })
                .map(|(key, _)| key.clone())
                .collect()
        };
        for key in gone {
            self.live_gone(&key, None);
        }
    }

    /// Whether nothing waits and nothing is worked on.
    pub fn is_idle(&self) -> bool {
        lock(&self.works).is_empty() && lock(&self.reports).is_empty()
    }
}
