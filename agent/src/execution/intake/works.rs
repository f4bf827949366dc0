//! The hub's Works, as their watch tells.

use crate::context::ErrorReport;
use crate::execution::contact::Contact;
use crate::execution::events::{Events, Kind};
use crate::execution::persist::Persister;
use crate::execution::prune::orphans::Orphans;
use crate::execution::report::reporter::Reporter;
use crate::execution::state::{News, Shared};
use crate::execution::wire::WireWork;
use crate::hub::HubHandle;
use common::api::work::Work;
use common::chance::Chance;
use common::queue::{Priority, Queue};
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How long the hub may be silent after a start before the stored set alone counts.
const GRACE: Duration = Duration::from_secs(10);
/// The part's name in the agent's errors.
const PART: &str = "works";

/// Takes in the hub's Works.
pub struct WorkSource {
    pub(crate) state: Shared,
    pub(crate) queue: Queue<Arc<str>>,
    pub(crate) persister: Arc<Persister>,
    pub(crate) events: Arc<Events>,
    pub(crate) contact: Arc<Contact>,
    pub(crate) orphans: Arc<Orphans>,
    pub(crate) reporter: Arc<Reporter>,
    pub(crate) errors: ErrorReport,
    pub(crate) chance: Chance,
}

impl WorkSource {
    /// Watches the Works of `namespace` for ever, anew after every change of credentials or addresses.
    pub async fn run(&self, hub: &HubHandle, namespace: &str) {
        let mut generation = hub.generation();
        loop {
            generation.mark_unchanged();
            let works = watch::<WireWork>(
                hub.client(),
                Collection::of::<Work>(Some(namespace)),
                WatchConfig::new(&self.chance),
            );
            let mut works = pin!(works);
            loop {
                tokio::select! {
                    biased;
                    changed = generation.changed() => {
                        if changed.is_err() {
                            std::future::pending::<()>().await;
                        }
                        break;
                    }
                    event = works.next() => match event {
                        Some(event) => self.handle(event),
                        None => break,
                    },
                }
            }
        }
    }

    /// Goes by the stored set once the hub has been silent for a while; never ends.
    pub async fn await_hub(&self) {
        tokio::time::sleep(GRACE).await;
        self.stand_alone();
        std::future::pending::<()>().await;
    }

    /// The hub does not answer: Works of the stored set are worked on without it.
    fn stand_alone(&self) {
        if !self.contact.stand_alone() {
            return;
        }
        let unconfirmed: Vec<Arc<str>> = {
            let state = self.state.lock();
            let works = state.works.iter().filter(|(_, record)| !record.confirmed);
            works.map(|(name, _)| name.clone()).collect()
        };
        if !unconfirmed.is_empty() {
            let count = unconfirmed.len();
            tracing::warn!(count, "the hub does not answer: going by the stored Works");
        }
        for work in unconfirmed {
            self.queue.add_with(work, Priority::Backlog);
        }
    }

    fn handle(&self, event: Event<WireWork>) {
        match event {
            Event::Init => {
                self.contact.answered();
                self.state.lock().list_begins();
            }
            Event::Applied(wire) => self.work_seen(&wire),
            Event::Undecodable(broken) => {
                // It counts as there: what it brought before stays.
                self.state.lock().seen(&broken.key.name);
                tracing::warn!(
                    work = broken.key.name,
                    error = broken.error,
                    "a Work cannot be read"
                );
            }
            Event::Deleted(key) => self.work_gone(&key.name, &key.uid),
            Event::InitDone { .. } => {
                self.listed();
                self.errors.clear(PART);
            }
            Event::Disconnected { problem, .. } => {
                self.contact.lost();
                self.stand_alone();
                self.errors.report(PART, &problem);
            }
            Event::Resumed { .. } => {
                self.contact.answered();
                self.errors.clear(PART);
            }
        }
    }

    /// The list of our Works is complete.
    fn listed(&self) {
        let missing = self.state.lock().list_ends();
        if let Some(first) = missing.vanished.first() {
            tracing::warn!(
                count = missing.vanished.len(),
                %first,
                "Works are gone from the hub without having been deleted; their objects stay as orphans"
            );
        }
        for name in &missing.vanished {
            self.persister.touch(name);
        }
        let held = missing.held.into_iter();
        for name in missing
            .deleting
            .into_iter()
            .chain(missing.others)
            .chain(held)
        {
            self.queue.add(name);
        }
        self.contact.permit_alone();
        self.persister.healing_goes_on();
        self.contact.answered();
        self.orphans.look();
    }

    fn work_seen(&self, wire: &WireWork) {
        let (name, news, first) = {
            let mut state = self.state.lock();
            let first = state.is_listing() && !state.listed;
            let (name, news) = state.upsert(wire);
            // Before anybody works on it: what is to go waits for the stored set.
            if !matches!(news, News::Nothing | News::Restated) {
                if wire.metadata.deletion_timestamp.is_some() {
                    self.persister.touch_deletion(&mut state, &name);
                } else {
                    self.persister.touch_changed(&mut state, &name);
                }
            }
            (name, news, first)
        };
        match news {
            News::Nothing => {}
            // It compares first: the echo of what is being written is nothing to write.
            News::Restated => self.reporter.report_soon(&name, false),
            News::Changed if first => self.queue.add_with(name.clone(), Priority::Backlog),
            News::Changed => self.queue.add(name.clone()),
            News::Restored => {
                let generation = wire.metadata.generation;
                tracing::warn!(work = %name, generation, "the hub went back in time: it was restored");
                let message = format!(
                    "The hub went back to generation {generation} of this Work, as a restored one does. \
                     It is followed; objects that the Work does not name any more stay as orphans."
                );
                let uid = &wire.metadata.uid;
                self.events.add(&name, uid, Kind::WentBack, message);
                self.queue.add(name.clone());
                self.orphans.look();
            }
        }
    }

    fn work_gone(&self, name: &str, uid: &str) {
        let mut state = self.state.lock();
        let name: Arc<str> = name.into();
        let Some(record) = state.works.get_mut(&name).filter(|r| *r.uid == *uid) else {
            return;
        };
        if record.deleting {
            // Either we let it go, and its end comes before the answer or others kept it longer, or someone took our
            // finalizer off. The hub's word to delete stands: it is forgotten once its objects are gone.
            record.ended();
            let is_released = !record.has_finalizer();
            drop(state);
            tracing::debug!(work = %name, "the Work is gone while it is being deleted");
            if is_released {
                self.queue.add(name);
            }
            return;
        }
        let others = state.vanish(&name);
        drop(state);
        tracing::warn!(work = %name, "a Work is gone without having been deleted; its objects stay as orphans");
        self.persister.touch(&name);
        self.orphans.look();
        for other in others {
            self.queue.add(other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::testing::{Handles, map, wire};
    use common::client::Problem;
    use common::signal::Sender;
    use common::watch::ObjectKey;
    use serde_json::json;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::time::Instant;

    fn source(parts: &Handles) -> WorkSource {
        let orphans = Orphans::new(
            parts.member.clone(),
            parts.state.clone(),
            parts.persister.clone(),
            parts.pruner.clone(),
            Sender::new(None),
        );
        WorkSource {
            state: parts.state.clone(),
            queue: parts.queue.clone(),
            persister: parts.persister.clone(),
            events: parts.events.clone(),
            contact: parts.contact.clone(),
            orphans: Arc::new(orphans),
            reporter: parts.reporter.clone(),
            errors: parts.errors.clone(),
            chance: Chance::seeded(1),
        }
    }

    fn key(name: &str, uid: &str) -> ObjectKey {
        ObjectKey {
            namespace: None,
            name: name.into(),
            uid: uid.into(),
            resource_version: "9".into(),
        }
    }

    fn cut_off() -> Event<WireWork> {
        Event::Disconnected {
            since: Instant::now(),
            problem: Problem::Api {
                code: 503,
                reason: "ServiceUnavailable".into(),
                message: "away".into(),
                retry_after: None,
            },
        }
    }

    #[tokio::test(start_paused = true)]
    async fn news_go_before_the_backlog_of_a_start() {
        let parts = Handles::alone().await;
        let source = source(&parts);
        source.handle(Event::Init);
        source.handle(Event::Applied(wire("old", "1", &[map("a")])));
        source.handle(Event::InitDone {
            gap: None,
            version: "1".to_owned(),
        });
        source.handle(Event::Applied(wire("new", "2", &[map("b")])));
        // An echo is no news.
        source.handle(Event::Applied(wire("new", "2", &[map("b")])));
        assert_eq!(parts.queued(), ["new", "old"]);
        assert!(parts.contact.is_alone());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_to_go_waits_for_the_end_of_the_list() {
        let parts = Handles::alone().await;
        let source = source(&parts);
        source.handle(Event::Init);
        let mut going = wire("w", "1", &[map("a")]);
        going.metadata.deletion_timestamp = Some("2030-01-01T00:00:00Z".into());
        source.handle(Event::Applied(going));
        assert_eq!(parts.queued(), ["w"]);
        parts.queue.done(&"w".into());
        source.handle(Event::InitDone {
            gap: None,
            version: "1".to_owned(),
        });
        assert_eq!(parts.queued(), ["w"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_leaves_a_stored_work_waits_for_the_store() {
        let parts = Handles::alone().await;
        let source = source(&parts);
        source.handle(Event::Applied(wire("w", "1", &[map("a"), map("b")])));
        parts.persister.flush_at_end().await;
        for (generation, maps, waits) in [(2, &["a", "b", "c"][..], false), (3, &["a", "c"], true)]
        {
            let manifests: Vec<_> = maps.iter().map(|name| map(name)).collect();
            let mut news = wire("w", "1", &manifests);
            news.metadata.generation = generation;
            news.metadata.resource_version = (generation + 10).to_string();
            source.handle(Event::Applied(news));
            let leaves_at = parts.state.lock().works["w"].leaves_at;
            assert_eq!(leaves_at > 0, waits, "{maps:?}");
        }
    }

    /// A worker may look at a Work as soon as its news are taken in.
    #[tokio::test(start_paused = true)]
    async fn nobody_sees_that_something_leaves_without_what_it_waits_for() {
        let parts = Handles::alone().await;
        let source = source(&parts);
        let (all, some) = ([map("a"), map("b")], [map("a")]);
        source.handle(Event::Applied(wire("w", "1", &all)));
        parts.persister.flush_at_end().await;
        let (state, ended) = (parts.state.clone(), AtomicBool::new(false));
        let (seen, early) = std::thread::scope(|threads| {
            let worker = threads.spawn(|| {
                let (mut seen, mut early) = (0, 0);
                while !ended.load(Ordering::Relaxed) {
                    let state = state.lock();
                    let work = &state.works["w"];
                    seen += u32::from(!work.leaving.is_empty());
                    early += u32::from(!work.leaving.is_empty() && work.leaves_at == 0);
                }
                (seen, early)
            });
            for generation in 2..1000 {
                let mut news = match generation % 2 {
                    0 => wire("w", "1", &some),
                    _ => wire("w", "1", &all),
                };
                news.metadata.generation = generation;
                news.metadata.resource_version = (generation + 10).to_string();
                source.handle(Event::Applied(news));
                if let Some(work) = parts.state.lock().works.get_mut("w")
                    && work.leaving.is_empty()
                {
                    work.leaves_at = 0;
                }
            }
            ended.store(true, Ordering::Relaxed);
            worker.join().expect("it does not panic")
        });
        assert_eq!(early, 0, "of {seen}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_somebody_else_wrote_is_looked_at() {
        let parts = Handles::alone().await;
        let source = source(&parts);
        source.handle(Event::Applied(wire("w", "1", &[map("a")])));
        parts.queued();
        assert!(parts.reporter.queue.is_idle());
        let restored = json!({
            "metadata": {"name": "w", "uid": "1", "resourceVersion": "6", "generation": 1,
                "finalizers": [common::labels::WORK_FINALIZER]},
            "spec": {"workload": {"manifests": [map("a")]}},
            "status": {"conditions": [{"type": "Applied", "status": "False", "reason": "AppliedFailed",
                "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z"}]}});
        let restored = serde_json::from_value(restored).expect("decodes");
        source.handle(Event::Applied(restored));
        assert!(!parts.reporter.queue.is_idle());
        assert_eq!(parts.queued(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_gone_without_a_word_is_orphaned_and_what_wants_the_same_is_told() {
        let parts = Handles::alone().await;
        let source = source(&parts);
        for (name, uid) in [("w", "1"), ("other", "2")] {
            source.handle(Event::Applied(wire(name, uid, &[map("a")])));
        }
        parts.queued();
        for name in ["w", "other"] {
            parts.queue.done(&name.into());
        }
        source.handle(Event::Deleted(key("w", "another uid")));
        assert_eq!(parts.queued(), [""; 0]);
        source.handle(Event::Deleted(key("w", "1")));
        assert_eq!(parts.queued(), ["other"]);
        let state = parts.state.lock();
        assert!(state.orphaned.contains_key("w") && !state.works.contains_key("w"));
    }

    /// Others' finalizers kept it after our own was taken off.
    #[tokio::test(start_paused = true)]
    async fn a_deleted_work_that_others_kept_is_looked_at_once_more_and_orphans_nothing() {
        let parts = Handles::alone().await;
        let source = source(&parts);
        source.handle(Event::Applied(wire("w", "1", &[map("a")])));
        let mut going = wire("w", "1", &[map("a")]);
        going.metadata.resource_version = "6".into();
        going.metadata.deletion_timestamp = Some("2030-01-01T00:00:00Z".into());
        going.metadata.finalizers = vec!["foregroundDeletion".into()];
        source.handle(Event::Applied(going));
        assert_eq!(parts.queued(), ["w"]);
        parts.queue.done(&"w".into());
        source.handle(Event::Deleted(key("w", "1")));
        assert_eq!(parts.queued(), ["w"]);
        let state = parts.state.lock();
        assert!(state.orphaned.is_empty());
        assert!(state.works["w"].finalizers.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_hub_the_stored_works_are_worked_on_once() {
        let parts = Handles::alone().await;
        let name = parts.knows(&wire("w", "1", &[map("a")]));
        if let Some(record) = parts.state.lock().works.get_mut(&name) {
            record.confirmed = false;
        }
        let source = source(&parts);
        source.handle(cut_off());
        assert_eq!(parts.queued(), ["w"]);
        parts.queue.done(&name);
        assert!(parts.contact.rests_until().is_some());
        assert!(parts.errors.text().is_some());
        source.handle(cut_off());
        assert_eq!(parts.queued(), [""; 0]);
        source.handle(Event::Resumed {
            gap: Duration::from_secs(9),
        });
        assert!(parts.contact.rests_until().is_none());
        assert_eq!(parts.errors.text(), None);
    }
}
