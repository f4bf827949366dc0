//! Publishes Kubernetes Events about objects, with the reference's reasons.
//!
//! An Event is a courtesy: one that cannot be written is logged and never fails what it tells of. The
//! same words about the same object are one Event that is counted, also across restarts of the hub.
//! (kube's own recorder counts different words as repetitions of the first.)

use common::errors::chain;
use common::time::{SharedClock, to_micro_time};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// Name under which the hub reports.
const CONTROLLER: &str = "towline-hub";
/// Longest note an Event can carry.
const NOTE_MAX: usize = 1024;
/// What an object's name may take of an Event's, which has 253 characters.
const NAME_MAX: usize = 253 - ".0123456789abcdef".len();
/// Where Events about objects without a namespace go.
const CLUSTER_SCOPED: &str = "default";

/// Publishes Events.
#[derive(Clone)]
pub struct Events {
    client: Client,
    clock: SharedClock,
    instance: String,
}

impl Events {
    /// Publishes through `client`; `instance` tells replicas apart.
    pub fn new(client: Client, clock: SharedClock, instance: &str) -> Self {
        let instance = instance.to_owned();
        Self {
            client,
            clock,
            instance,
        }
    }

    /// Something went as it should.
    pub async fn normal(&self, about: &ObjectReference, reason: &str, note: impl Into<String>) {
        self.publish(about, "Normal", reason, note.into()).await;
    }

    /// Something did not.
    pub async fn warning(&self, about: &ObjectReference, reason: &str, note: impl Into<String>) {
        self.publish(about, "Warning", reason, note.into()).await;
    }

    async fn publish(&self, about: &ObjectReference, type_: &str, reason: &str, note: String) {
        let namespace = about.namespace.as_deref().unwrap_or(CLUSTER_SCOPED);
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let event = self.event(about, type_, reason, cut(&note));
        let published = match events.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {
                self.count(&events, &event).await
            }
            other => other.map(drop),
        };
        if let Err(error) = published {
            tracing::debug!(reason, error = %chain(&error), "event not published");
        }
    }

    fn event(&self, about: &ObjectReference, type_: &str, reason: &str, note: String) -> Event {
        let namespace = about.namespace.as_deref().unwrap_or(CLUSTER_SCOPED);
        Event {
            metadata: ObjectMeta {
                name: Some(event_name(about, type_, reason, &note)),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            action: Some("Reconcile".to_owned()),
            event_time: Some(to_micro_time(self.clock.now())),
            note: Some(note),
            reason: Some(reason.to_owned()),
            regarding: Some(about.clone()),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            type_: Some(type_.to_owned()),
            ..Event::default()
        }
    }

    async fn count(&self, events: &Api<Event>, event: &Event) -> Result<(), kube::Error> {
        let name = event.metadata.name.as_deref().unwrap_or_default();
        let before = events
            .get(name)
            .await?
            .series
            .map_or(1, |series| series.count);
        let series = EventSeries {
            count: before.saturating_add(1),
            last_observed_time: to_micro_time(self.clock.now()),
        };
        let patch = Patch::Merge(serde_json::json!({"series": series}));
        events
            .patch(name, &PatchParams::default(), &patch)
            .await
            .map(drop)
    }
}

/// The same for the same words about the same object.
fn event_name(about: &ObjectReference, type_: &str, reason: &str, note: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (&about.uid, type_, reason, note).hash(&mut hasher);
    let name = about.name.as_deref().unwrap_or("unknown");
    // Names of roles have other characters, and some names leave no room.
    let fits = |c: char| match c {
        'a'..='z' | '0'..='9' | '.' | '-' => c,
        'A'..='Z' => c.to_ascii_lowercase(),
        _ => '-',
    };
    let name: String = name.chars().map(fits).take(NAME_MAX).collect();
    let name = name.trim_matches(['.', '-']);
    format!("{name}.{:016x}", hasher.finish())
}

/// A text as an Event can hold it.
pub(super) fn cut(note: &str) -> String {
    note[..note.floor_char_boundary(NOTE_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_words_are_another_event() {
        let about = ObjectReference {
            name: Some("m1".into()),
            ..ObjectReference::default()
        };
        let name = |note: &str| event_name(&about, "Normal", "R", note);
        assert_eq!(name("a"), name("a"));
        assert_ne!(name("a"), name("b"));
        assert!(name("a").starts_with("m1."));
        for (given, shown) in [("system:node", "system-node."), ("A_b-", "a-b.")] {
            let about = ObjectReference {
                name: Some(given.into()),
                ..ObjectReference::default()
            };
            let name = event_name(&about, "Normal", "R", "a");
            assert!(name.starts_with(shown), "{name}");
        }
        let long = ObjectReference {
            name: Some("n".repeat(253)),
            ..ObjectReference::default()
        };
        assert_eq!(event_name(&long, "Normal", "R", "a").len(), 253);
    }

    #[test]
    fn long_notes_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let cut = cut(&"ä".repeat(600));
        assert_eq!(cut.len(), 1024);
        assert!(cut.chars().all(|c| c == 'ä'));
    }
}
