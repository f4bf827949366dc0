//! The hub's Works, as their watch tells.

use super::Engine;
use crate::execution::events::Kind;
use crate::execution::queue::Urgency;
use crate::execution::state::News;
use crate::execution::wire::WireWork;
use common::api::work::Work;
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use std::pin::pin;
use std::sync::Arc;

impl Engine {
    /// Watches our Works, anew after every change of credentials or addresses.
    pub(super) async fn watch_hub(self: Arc<Self>) {
        let mut generation = self.hub.generation();
        loop {
            generation.mark_unchanged();
            let works = watch::<WireWork>(
                self.hub.client(),
                Collection::of::<Work>(Some(&self.namespace)),
                WatchConfig::default(),
            );
            let mut works = pin!(works);
            loop {
                tokio::select! {
                    event = works.next() => match event {
                        Some(event) => self.hub_says(event),
                        None => break,
                    },
                    changed = generation.changed() => {
                        if changed.is_err() {
                            std::future::pending::<()>().await;
                        }
                        break;
                    }
                }
            }
        }
    }

    fn hub_says(&self, event: Event<WireWork>) {
        match event {
            Event::Restarted => {
                self.hub_answers();
                self.state().list_begins();
            }
            Event::Applied(wire) => self.work_seen(&wire),
            Event::Undecodable(broken) => {
                // It counts as there: what it brought before stays.
                self.state().seen(&broken.key.name);
                tracing::warn!(
                    work = broken.key.name,
                    error = broken.error,
                    "a Work cannot be read"
                );
            }
            Event::Deleted(key) => self.work_gone(&key.name, &key.uid),
            Event::Listed { .. } => {
                self.listed();
                self.errors.clear("works");
            }
            Event::Disconnected { problem, .. } => {
                self.contact.lost();
                self.stand_alone();
                self.errors.report("works", &problem);
            }
            Event::Resumed { .. } => {
                self.hub_answers();
                self.errors.clear("works");
            }
        }
    }

    /// The list of our Works is complete.
    fn listed(&self) {
        let missing = self.state().list_ends();
        if let Some(first) = missing.vanished.first() {
            tracing::warn!(
                count = missing.vanished.len(),
                %first,
                "Works are gone from the hub without having been deleted; their objects stay as orphans"
            );
        }
        for name in &missing.vanished {
            self.keep_work(name);
        }
        for name in missing.deleting.iter().chain(&missing.others) {
            self.enqueue(name, Urgency::Now);
        }
        self.hub_lists();
        self.hub_answers();
        self.orphans_changed.notify_one();
    }

    fn work_seen(&self, wire: &WireWork) {
        let (name, news, first) = {
            let mut state = self.state();
            let first = state.is_listing() && !state.listed;
            let (name, news) = state.upsert(wire);
            (name, news, first)
        };
        match news {
            News::Nothing => {}
            News::Changed if first => self.enqueue(&name, Urgency::Backlog),
            News::Changed => self.enqueue(&name, Urgency::Now),
            News::Restored => {
                let generation = wire.metadata.generation;
                tracing::warn!(work = %name, generation, "the hub went back in time: it was restored");
                let message = format!(
                    "The hub went back to generation {generation} of this Work, as a restored one does. \
                     It is followed; objects that the Work does not name any more stay as orphans."
                );
                self.emit(&name, &wire.metadata.uid, Kind::WentBack, message);
                self.enqueue(&name, Urgency::Now);
                self.orphans_changed.notify_one();
            }
        }
        if news != News::Nothing {
            if wire.metadata.deletion_timestamp.is_some() {
                self.keep_deletion(&name);
            } else {
                self.keep_work(&name);
            }
        }
    }

    fn work_gone(&self, name: &str, uid: &str) {
        let mut state = self.state();
        let Some(record) = state.works.get(name).filter(|r| *r.uid == *uid) else {
            return;
        };
        if record.deleting && record.has_finalizer() {
            // Someone took our finalizer off. The hub's word to delete stands.
            tracing::warn!(work = name, "the Work is gone before its objects");
            return;
        }
        let Some((name, _)) = state.works.get_key_value(name) else {
            return;
        };
        let name = name.clone();
        let others = state.vanish(&name);
        drop(state);
        tracing::warn!(work = %name, "a Work is gone without having been deleted; its objects stay as orphans");
        self.keep_work(&name);
        self.orphans_changed.notify_one();
        for other in others {
            self.enqueue(&other, Urgency::Now);
        }
    }
}
