//! Events about Works: at most one per Work and state change, bounded, dropped first.

use super::Scope;
use super::conditions::{APPLIED, DISPATCHING, Verdict, cut};
use crate::hub::HubHandle;
use chrono::{DateTime, SecondsFormat, Utc};
use common::errors::chain;
use common::rest::Call;
use common::time::SharedClock;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Longest message the hub's admission lets through.
const MESSAGE_LIMIT: usize = 1024;
/// How long an Event waits while Works are worked on, and how often that is looked at.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);
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

/// What Events tell when the conditions of a Work that stand are to become `verdicts`.
pub fn news(
    scope: &Scope,
    work: &str,
    standing: &[Condition],
    verdicts: &[Verdict],
) -> Vec<(Kind, String)> {
    let cluster = &scope.cluster;
    let named = format!("work({}/{work})", scope.namespace);
    let mut news = Vec::new();
    for verdict in verdicts {
        let stands = common::conditions::get(standing, verdict.kind);
        let status = if verdict.status { "True" } else { "False" };
        if stands.is_some_and(|c| c.status == status && c.message == verdict.message) {
            continue;
        }
        let flips = stands.is_none_or(|c| c.status != status);
        match (verdict.kind, verdict.status) {
            (APPLIED, true) => news.push((
                Kind::Succeeded,
                format!("Sync {named} to cluster({cluster}) successful."),
            )),
            (APPLIED, false) => {
                let message = verdict.message.as_str();
                let error = message.split_once("): ").map_or(message, |(_, e)| e);
                news.push((
                    Kind::Failed,
                    format!("Failed to sync {named} to cluster({cluster}), err: {error}"),
                ));
                tracing::warn!(work, error, "failed to apply");
            }
            (DISPATCHING, _) if flips => news.push((Kind::Dispatching, verdict.message.clone())),
            _ => {}
        }
    }
    news
}

/// Names are DNS subdomains of at most 253 characters.
fn cut_name(work: &str) -> &str {
    let end = work.floor_char_boundary(230);
    work[..end].trim_end_matches(['.', '-'])
}

/// Events that wait to be written.
pub struct Events {
    clock: SharedClock,
    queue: Mutex<VecDeque<Event>>,
    more: Notify,
}

impl Events {
    /// None yet.
    pub fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            queue: Mutex::default(),
            more: Notify::new(),
        }
    }

    /// Adds one; an older one of the same Work and kind that still waits is replaced.
    pub fn add(&self, work: &str, uid: &str, kind: Kind, message: String) {
        let at = self.clock.now();
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

    /// Writes them to the hub for ever, while nothing else waits: `is_busy` says whether something does.
    pub async fn write(&self, hub: &HubHandle, namespace: &str, is_busy: impl Fn() -> bool) {
        loop {
            let event = self.next().await;
            // Events are the last thing a hub needs under load; what must wait too long is dropped.
            let patience = Instant::now() + PATIENCE;
            while is_busy() && Instant::now() < patience {
                tokio::time::sleep(PAUSE).await;
            }
            let body = event.body(namespace);
            let uri = format!("/api/v1/namespaces/{namespace}/events");
            if let Err(error) = Call::post(&uri, &body).send(&hub.client()).await {
                tracing::debug!(error = %chain(&error), "failed to write an Event");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::conditions::{applied, dispatching};
    use common::time::SimClock;
    use std::sync::Arc;

    #[tokio::test(start_paused = true)]
    async fn the_newest_of_a_kind_stands_and_the_oldest_goes() {
        let at = DateTime::from_timestamp(1_800_000_000, 0).expect("in range");
        let events = Events::new(Arc::new(SimClock::starting_at(at)));
        for i in 0..(QUEUE_LIMIT + 2) {
            events.add(&format!("w{i}"), "u", Kind::Succeeded, "x".repeat(2000));
        }
        events.add("w2", "u", Kind::Succeeded, "again".into());
        let first = events.next().await;
        assert_eq!(first.work, "w3");
        assert!(first.message.len() <= MESSAGE_LIMIT);
        let body = first.body("karmada-es-m1");
        assert_eq!(body["reason"], "SyncSucceed");
        assert_eq!(body["metadata"]["name"], "w3.18fae27693b40000");
    }

    #[test]
    fn only_what_a_condition_did_not_say_yet_is_news() {
        let scope = Scope {
            cluster: "m1".into(),
            namespace: "karmada-es-m1".into(),
        };
        let verdicts = [applied(2, &["no right".into()]), dispatching(false)];
        let told = news(&scope, "w", &[], &verdicts);
        let failed = "Failed to sync work(karmada-es-m1/w) to cluster(m1), err: no right";
        assert_eq!(told[0], (Kind::Failed, failed.to_owned()));
        assert_eq!(told[1].0, Kind::Dispatching);
        let now = DateTime::from_timestamp(1_800_000_000, 0).expect("in range");
        let standing =
            verdicts.map(|v| common::conditions::new(v.kind, v.status, v.reason, v.message, now));
        let verdicts = [applied(2, &["no right".into()]), dispatching(false)];
        assert_eq!(news(&scope, "w", &standing, &verdicts), []);
        let told = news(&scope, "w", &standing, &[applied(2, &[])]);
        assert_eq!(
            told[0].1,
            "Sync work(karmada-es-m1/w) to cluster(m1) successful."
        );
    }
}
