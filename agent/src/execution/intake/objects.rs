//! Our objects in the member, as their watches tell.

use crate::execution::Scope;
use crate::execution::diagnosis::Diagnoser;
use crate::execution::interpret::{Interpreter, named_work};
use crate::execution::report::reporter::Reporter;
use crate::execution::state::{LiveRecord, ObjectKey, Shared};
use crate::execution::wire::LiveMeta;
use crate::member::api::Member;
use common::chance::Chance;
use common::controller::{Metrics, keep_up};
use common::interpreter::has_no_status;
use common::labels::{MANAGED, MANAGED_VALUE};
use common::mapper::Resource;
use common::queue::Queue;
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::ControlFlow::{self, Break, Continue};
use std::pin::pin;
use std::sync::Arc;
use tokio::task::JoinSet;
use tracing::Instrument as _;

/// Metadata is small: bigger pages cost little memory and save round trips at a start.
const METADATA_PAGE: u32 = 200;

/// Takes in our objects of the member.
pub struct ObjectSource {
    pub(crate) scope: Scope,
    pub(crate) member: Arc<Member>,
    pub(crate) state: Shared,
    pub(crate) queue: Queue<Arc<str>>,
    pub(crate) reporter: Arc<Reporter>,
    pub(crate) diagnoser: Arc<Diagnoser>,
    pub(crate) interpreter: Interpreter,
    pub(crate) metrics: Metrics,
    pub(crate) chance: Chance,
}

/// How far the history of a kind has come in the member, by its own lists and watches. What the agent wrote itself does
/// not count: a list may be older than that.
#[derive(Debug, Default)]
struct History(u64);

impl History {
    /// A watch told of something at this version.
    fn reached(&mut self, version: &str) {
        self.0 = self.0.max(version.parse().unwrap_or(0));
    }

    /// A list is complete at this version. It is `true` where more was told before: lists are asked for as of now, so only
    /// a member that was restored from a backup answers so. What is no number cannot be compared.
    fn went_back(&mut self, version: &str) -> bool {
        let Ok(version) = version.parse::<u64>() else {
            return false;
        };
        version < std::mem::replace(&mut self.0, version)
    }
}

impl ObjectSource {
    /// Watches every kind that a Work names, for ever.
    pub async fn run(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                resource = self.member.kinds.next_new() => {
                    let source = self.clone();
                    // After a panic it begins anew, from a list.
                    let watch = move || source.clone().watch_kind(resource.clone()).map(Break);
                    let (metrics, rng) = (self.metrics.clone(), self.chance.stream("objects"));
                    tasks.spawn(keep_up("objects", metrics, rng, watch).in_current_span());
                }
                Some(_) = tasks.join_next() => {}
            }
        }
    }

    /// Watches our objects of one kind, until the member does not serve it any more.
    async fn watch_kind(self: Arc<Self>, resource: Arc<Resource>) {
        let mut history = History::default();
        while self.follow(&resource, &mut history).await.is_continue() {}
    }

    /// The same, until the member's history went back: then everything has to be listed again, for by the versions that
    /// are known what was listed is old.
    async fn follow(&self, resource: &Resource, history: &mut History) -> ControlFlow<()> {
        let metadata_only = has_no_status(&resource.gvk);
        let mut config = WatchConfig {
            label_selector: Some(format!("{MANAGED}={MANAGED_VALUE}")),
            metadata_only,
            ..WatchConfig::new(&self.chance)
        };
        if metadata_only {
            config.page_size = METADATA_PAGE;
        }
        let collection = Collection::dynamic(&resource.api_resource(), None);
        let objects = watch::<Value>(self.member.client(), collection, config);
        let mut objects = pin!(objects);
        let mut listing: Option<BTreeSet<Arc<ObjectKey>>> = None;
        while let Some(event) = objects.next().await {
            match event {
                Event::Init => listing = Some(BTreeSet::new()),
                Event::Applied(object) => {
                    let key = self.live_seen(resource, &object).await;
                    match &mut listing {
                        Some(seen) => {
                            seen.extend(key);
                            self.member.kinds.lists(&resource.gvk);
                        }
                        None => history.reached(version(&object)),
                    }
                }
                Event::Deleted(gone) => {
                    if listing.is_none() {
                        history.reached(&gone.resource_version);
                    }
                    let key = ObjectKey {
                        kind: self.state.lock().kind(&resource.gvk),
                        namespace: gone.namespace.unwrap_or_default().into(),
                        name: gone.name.into(),
                    };
                    self.live_gone(&key, Some(&gone.uid));
                }
                Event::InitDone { version, .. } if history.went_back(&version) => {
                    tracing::warn!(
                        kind = %resource.gvk,
                        version,
                        "the member has gone back to an earlier version, as after a restore from a backup: its objects are read anew"
                    );
                    self.forget_versions(resource);
                    return Continue(());
                }
                Event::InitDone { gap, version } => {
                    if let Some(seen) = listing.take() {
                        // Of what this server made after its first list the watch has yet to tell.
                        let newest = match gap {
                            None => version.parse().unwrap_or(u64::MAX),
                            Some(_) => u64::MAX,
                        };
                        self.sweep(resource, &seen, newest);
                    }
                    self.member.kinds.synced(&resource.gvk);
                }
                Event::Disconnected { problem, .. } => {
                    tracing::debug!(kind = %resource.gvk, %problem, "watch of the member broke off");
                    match problem.code() {
                        Some(404) => {
                            // Not served any more; a Work that names the kind brings it back.
                            self.member.forget(&resource.gvk);
                            self.sweep(resource, &BTreeSet::new(), u64::MAX);
                            return Break(());
                        }
                        // Without the right to watch, Works are judged by live reads.
                        Some(403) => self.member.kinds.synced(&resource.gvk),
                        _ => {}
                    }
                }
                Event::Undecodable(_) | Event::Resumed { .. } => {}
            }
        }
        Break(())
    }

    /// Has whatever is listed next of a kind be news.
    fn forget_versions(&self, resource: &Resource) {
        let mut state = self.state.lock();
        let kind = state.kind(&resource.gvk);
        for (key, record) in &mut state.objects {
            if key.kind == kind
                && let Some(live) = &mut record.live
            {
                live.version = 0;
            }
        }
    }

    /// Takes in a live object; returns its key.
    async fn live_seen(&self, resource: &Resource, object: &Value) -> Option<Arc<ObjectKey>> {
        let meta = LiveMeta::read(object);
        let place = object.get("metadata")?;
        let text = |key: &str| place.get(key).and_then(Value::as_str).unwrap_or_default();
        let is_old = |live: &LiveRecord, meta: &LiveMeta| {
            *live.uid == *meta.uid && live.version >= meta.version
        };
        let (key, scripts) = {
            let mut state = self.state.lock();
            let kind = state.served(&resource.gvk);
            let key = state.key(kind, text("namespace"), text("name"));
            if state.live(&key).is_some_and(|live| is_old(live, &meta)) {
                return Some(key);
            }
            let work = named_work(&meta, &self.scope.namespace);
            (key, state.scripts_of(work))
        };
        let shown = self
            .interpreter
            .show(scripts.as_deref(), &resource.gvk, object);
        let shown = shown.await;
        let mut state = self.state.lock();
        let before = state.live(&key);
        if before.is_some_and(|before| is_old(before, &meta)) {
            return Some(key);
        }
        let mut live = LiveRecord::new(shown, meta, &self.scope.namespace, false);
        if let Some(before) = before {
            live.inherit(before);
        }
        live.bound(state.is_wanted(&key));
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
        let health = live.health;
        state.set_live(&key, Some(live));
        drop(state);
        for work in works {
            if to_tell {
                self.diagnoser.changed(&work, health);
            }
            if to_do {
                self.queue.add(work);
            } else if to_tell {
                self.reporter.report_soon(&work, urgent);
            }
        }
        Some(key)
    }

    /// Takes note that an object is gone, or not labelled ours any more.
    fn live_gone(&self, key: &ObjectKey, uid: Option<&str>) {
        let mut state = self.state.lock();
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
        for work in works {
            self.queue.add(work);
        }
    }

    /// After a list: what was known and is not in it is gone, unless it is newer than this version.
    fn sweep(&self, resource: &Resource, seen: &BTreeSet<Arc<ObjectKey>>, newest: u64) {
        let gone: Vec<Arc<ObjectKey>> = {
            let mut state = self.state.lock();
            let kind = state.kind(&resource.gvk);
            state
                .objects
                .iter()
                .filter(|(key, record)| {
                    let live = record.live.as_ref();
                    key.kind == kind
                        && live.is_some_and(|live| live.version <= newest)
                        && !seen.contains(*key)
                })
                .map(|(key, _)| key.clone())
                .collect()
        };
        for key in gone {
            self.live_gone(&key, None);
        }
    }
}

/// At which version an object was told; empty where it does not say.
fn version(object: &Value) -> &str {
    let version = object.pointer("/metadata/resourceVersion");
    version.and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
