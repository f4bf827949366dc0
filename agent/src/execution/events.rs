//! Events about Works: at most one per Work and state change, bounded, dropped first.

use super::conditions::cut;
use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

/// Longest message the hub's admission lets through.
const MESSAGE_LIMIT: usize = 1024;
/// Events that wait; beyond that the oldest goes.
const QUEUE_LIMIT: usize = 512;

/// What an Event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All manifests were applied.
    Succeeded,
    /// Some were not.
    Failed,
    /// Delivery was resumed or suspended.
    Dispatching,
    /// An object that should go was kept.
    Kept,
    /// The hub went back in time.
    WentBack,
}

impl Kind {
    fn reason(self) -> &'static str {
        match self {
            Self::Succeeded => "SyncSucceed",
            Self::Failed => "SyncFailed",
            Self::Dispatching => "WorkDispatching",
            Self::Kept => "ResourceKept",
            Self::WentBack => "HubWentBack",
        }
    }

    fn severity(self) -> &'static str {
        match self {
            Self::Succeeded | Self::Dispatching => "Normal",
            Self::Failed | Self::Kept | Self::WentBack => "Warning",
        }
    }
}

/// An Event to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    work: String,
    uid: String,
    kind: Kind,
    message: String,
    at: DateTime<Utc>,
}

impl Event {
    /// The core/v1 Event.
    pub fn body(&self, namespace: &str) -> Value {
        let seconds = self.at.to_rfc3339_opts(SecondsFormat::Secs, true);
        // As client-go names them: the object, then the time in hexadecimal.
        // Two of one moment differ by their kind.
        let stamp = self.at.timestamp_micros() * 1000 + self.kind as i64;
        let name = format!("{}.{stamp:x}", cut_name(&self.work));
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
                "namespace": namespace, "name": self.work, "uid": self.uid},
            "reason": self.kind.reason(), "type": self.kind.severity(), "message": self.message,
            "source": {"component": "towline-agent"}, "reportingComponent": "towline-agent",
            "firstTimestamp": seconds, "lastTimestamp": seconds, "count": 1,
        })
    }
}

/// Names are DNS subdomains of at most 253 characters.
fn cut_name(work: &str) -> &str {
    let end = work.floor_char_boundary(230);
    work[..end].trim_end_matches(['.', '-'])
}

/// Events that wait to be written.
#[derive(Debug, Default)]
pub struct Events {
    queue: Mutex<VecDeque<Event>>,
    more: Notify,
}

impl Events {
    /// Adds one; an older one of the same Work and kind that still waits is replaced.
    pub fn add(&self, work: &str, uid: &str, kind: Kind, message: String, at: DateTime<Utc>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.retain(|e| e.work != work || e.kind != kind);
        if queue.len() >= QUEUE_LIMIT {
            queue.pop_front();
        }
        queue.push_back(Event {
            work: work.to_owned(),
            uid: uid.to_owned(),
            kind,
            message: cut(message, MESSAGE_LIMIT),
            at,
        });
        drop(queue);
        self.more.notify_one();
    }

    /// Waits for the next one.
    pub async fn next(&self) -> Event {
        loop {
            let first = self
                .queue
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front();
            if let Some(event) = first {
                return event;
            }
            self.more.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_newest_of_a_kind_stands_and_the_oldest_goes() {
        let events = Events::default();
        let at = DateTime::from_timestamp(1_800_000_000, 0).expect("in range");
        for i in 0..(QUEUE_LIMIT + 2) {
            events.add(&format!("w{i}"), "u", Kind::Succeeded, "x".repeat(2000), at);
        }
        events.add("w2", "u", Kind::Succeeded, "again".into(), at);
        let first = events.next().await;
        assert_eq!(first.work, "w3");
        assert!(first.message.len() <= MESSAGE_LIMIT);
        let body = first.body("karmada-es-m1");
        assert_eq!(body["reason"], "SyncSucceed");
        assert_eq!(body["metadata"]["name"], "w3.18fae27693b40000");
    }
}
