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
use std::ops::ControlFlow::Break;
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
                    let key = self.live_seen(&resource, &object).await;
                    if let Some(seen) = &mut listing {
                        seen.extend(key);
                    }
                }
                Event::Deleted(gone) => {
                    let key = ObjectKey {
                        kind: self.state.lock().kind(&resource.gvk),
                        namespace: gone.namespace.unwrap_or_default().into(),
                        name: gone.name.into(),
                    };
                    self.live_gone(&key, Some(&gone.uid));
                }
                Event::InitDone { gap, version } => {
                    if let Some(seen) = listing.take() {
                        // Of what this server made after its first list the watch has yet to tell.
                        let newest = match gap {
                            None => version.parse().unwrap_or(u64::MAX),
                            Some(_) => u64::MAX,
                        };
                        self.sweep(&resource, &seen, newest);
                    }
                    self.member.kinds.synced(&resource.gvk);
                }
                Event::Disconnected { problem, .. } => {
                    tracing::debug!(kind = %resource.gvk, %problem, "watch of the member broke off");
                    match problem.code() {
                        Some(404) => {
                            // Not served any more; a Work that names the kind brings it back.
                            self.member.forget(&resource.gvk);
                            self.sweep(&resource, &BTreeSet::new(), u64::MAX);
                            return;
                        }
                        // Without the right to watch, Works are judged by live reads.
                        Some(403) => self.member.kinds.synced(&resource.gvk),
                        _ => {}
                    }
                }
                Event::Undecodable(_) | Event::Resumed { .. } => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::interpret::Shown;
    use crate::execution::testing::{Handles, map, marked, wire};
    use common::gvk::Gvk;
    use serde_json::json;

    fn source(parts: &Handles) -> ObjectSource {
        ObjectSource {
            scope: parts.scope.clone(),
            member: parts.member.clone(),
            state: parts.state.clone(),
            queue: parts.queue.clone(),
            reporter: parts.reporter.clone(),
            diagnoser: Arc::new(Diagnoser::new(
                parts.member.clone(),
                parts.state.clone(),
                parts.reporter.clone(),
            )),
            interpreter: Interpreter::default(),
            metrics: Metrics::unread(),
            chance: Chance::seeded(1),
        }
    }

    fn maps() -> Resource {
        Resource {
            gvk: Gvk::new("v1", "ConfigMap").expect("sound"),
            plural: "configmaps".into(),
            namespaced: true,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_came_changed_or_went_is_work_for_who_wants_it() {
        let parts = Handles::alone().await;
        let source = source(&parts);
        let name = parts.knows(&wire("w", "1", &[map("a")]));
        let took = || {
            let queued = parts.queued();
            parts.queue.done(&name);
            queued
        };
        let object = marked("a", "o", "w");
        let key = source.live_seen(&maps(), &object).await;
        let key = key.expect("it has a name");
        assert_eq!(took(), ["w"]);
        // What is known already is no news.
        source.live_seen(&maps(), &object).await;
        assert_eq!(took(), [""; 0]);
        source.live_gone(&key, Some("another uid"));
        assert_eq!(took(), [""; 0]);
        source.live_gone(&key, Some("o"));
        assert_eq!(took(), ["w"]);
        // A list that lacks it says the same.
        source.live_seen(&maps(), &object).await;
        took();
        let version = LiveMeta::read(&object).version;
        source.sweep(&maps(), &BTreeSet::from([key.clone()]), u64::MAX);
        assert_eq!(took(), [""; 0]);
        source.sweep(&maps(), &BTreeSet::new(), version - 1);
        assert_eq!(took(), [""; 0], "the list is older than the object");
        source.sweep(&maps(), &BTreeSet::new(), version);
        assert_eq!(took(), ["w"]);
        assert!(parts.state.lock().live(&key).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_changed_is_reported_after_it_was_gathered() {
        let parts = Handles::alone().await;
        let source = source(&parts);
        let deployments = Resource {
            gvk: Gvk::new("apps/v1", "Deployment").expect("sound"),
            plural: "deployments".into(),
            namespaced: true,
        };
        let mut manifest = map("a");
        manifest["apiVersion"] = "apps/v1".into();
        manifest["kind"] = "Deployment".into();
        let name = parts.knows(&wire("w", "1", &[manifest]));
        let mut object = marked("a", "o", "w");
        let (gvk, meta) = (&deployments.gvk, LiveMeta::read(&object));
        // As the answer to its apply left it.
        let live = LiveRecord::new(Shown::built_in(gvk, &object), meta, "karmada-es-m1", true);
        let kind = parts.state.lock().kind(gvk);
        let key = parts.state.lock().key(kind, "n", "a");
        parts.state.lock().set_live(&key, Some(live));
        object["metadata"]["resourceVersion"] = "10".into();
        object["status"] = json!({"replicas": 1, "observedGeneration": 1});
        source.live_seen(&deployments, &object).await;
        assert_eq!(parts.queued(), [""; 0]);
        assert_eq!(parts.reporter.queue.try_next(), None);
        let reported = parts.reporter.queue.next().await;
        assert_eq!(reported, name);
    }
}
