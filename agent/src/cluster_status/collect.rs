//! Watches nodes and pods and folds them into the ledger; health never waits for it.

use super::decide;
use super::resources::{Ledger, Node};
use crate::context::AgentContext;
use common::interpreter::requests::Pod;
use common::watch::{Collection, Event, ObjectKey, WatchConfig, watch};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1;
use serde::de::DeserializeOwned;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long the first lists may take before the condition says that they are late.
const SYNC_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a watch may fail before the sums count as old.
const FAILING: Duration = Duration::from_secs(30);

/// One of the two watches.
#[derive(Debug, Default)]
pub(super) struct Feed {
    listed: bool,
    failing: Option<(Duration, String)>,
}

impl Feed {
    /// A first list is complete.
    pub(super) fn listed(&mut self) {
        self.listed = true;
        self.failing = None;
    }

    /// The watch delivers.
    pub(super) fn works(&mut self) {
        self.failing = None;
    }

    /// The watch failed at `now`; the first of several failures dates it.
    pub(super) fn failed(&mut self, now: Duration, error: String) {
        let since = self.failing.take().map_or(now, |(since, _)| since);
        self.failing = Some((since, error));
    }

    /// Why the sums cannot be believed at `now`, if so.
    fn late(&self, now: Duration) -> Option<&str> {
        match &self.failing {
            Some((since, error)) if now.saturating_sub(*since) >= FAILING => Some(error),
            _ if !self.listed && now >= SYNC_TIMEOUT => Some("the list is not complete yet"),
            _ => None,
        }
    }
}

/// What the two watches have brought.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// Nodes.
    pub(super) nodes: Feed,
    /// Pods.
    pub(super) pods: Feed,
    /// The fold.
    pub(super) ledger: Ledger,
}

impl Collected {
    /// How the sums stand at `now`.
    pub(super) fn sums(&self, now: Duration) -> decide::Sums<'_> {
        if let Some(why) = self.nodes.late(now).or_else(|| self.pods.late(now)) {
            return decide::Sums::Late(why);
        }
        if self.nodes.listed && self.pods.listed {
            return decide::Sums::Known(&self.ledger);
        }
        decide::Sums::Syncing
    }
}

/// A kind that is folded: where its feed is, and what its events do to the ledger.
trait Folded: DeserializeOwned + Send + 'static {
    fn feed(collected: &mut Collected) -> &mut Feed;
    fn restart(ledger: &mut Ledger);
    fn listed(ledger: &mut Ledger);
    fn apply(&self, ledger: &mut Ledger);
    /// It is there, but cannot be read: what is known of it stays.
    fn keep(ledger: &mut Ledger, namespace: &str, name: &str);
    fn delete(ledger: &mut Ledger, namespace: &str, name: &str);
}

impl Folded for Node {
    fn feed(collected: &mut Collected) -> &mut Feed {
        &mut collected.nodes
    }
    fn restart(ledger: &mut Ledger) {
        ledger.nodes_restart();
    }
    fn listed(ledger: &mut Ledger) {
        ledger.nodes_listed();
    }
    fn apply(&self, ledger: &mut Ledger) {
        ledger.node(self);
    }
    fn keep(ledger: &mut Ledger, _: &str, name: &str) {
        ledger.node_kept(name);
    }
    fn delete(ledger: &mut Ledger, _: &str, name: &str) {
        ledger.node_deleted(name);
    }
}

impl Folded for Pod {
    fn feed(collected: &mut Collected) -> &mut Feed {
        &mut collected.pods
    }
    fn restart(ledger: &mut Ledger) {
        ledger.pods_restart();
    }
    fn listed(ledger: &mut Ledger) {
        ledger.pods_listed();
    }
    fn apply(&self, ledger: &mut Ledger) {
        ledger.pod(self);
    }
    fn keep(ledger: &mut Ledger, namespace: &str, name: &str) {
        ledger.pod_kept(namespace, name);
    }
    fn delete(ledger: &mut Ledger, namespace: &str, name: &str) {
        ledger.pod_deleted(namespace, name);
    }
}

/// Starts both watches; they end when the agent shuts down, or with the set.
pub(super) fn start(
    context: &AgentContext,
    started: Instant,
    collected: &Arc<Mutex<Collected>>,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    // Ended pods ask for nothing, and a member may keep very many of them.
    let running = "status.phase!=Succeeded,status.phase!=Failed";
    let pods = WatchConfig {
        field_selector: Some(running.to_owned()),
        ..WatchConfig::new(&context.chance)
    };
    let nodes = Collection::of::<v1::Node>(None);
    tasks.spawn(follow::<Node>(
        context.clone(),
        nodes,
        WatchConfig::new(&context.chance),
        started,
        collected.clone(),
    ));
    let all = Collection::of::<v1::Pod>(None);
    tasks.spawn(follow::<Pod>(
        context.clone(),
        all,
        pods,
        started,
        collected.clone(),
    ));
    tasks
}

async fn follow<K: Folded>(
    context: AgentContext,
    collection: Collection,
    config: WatchConfig,
    started: Instant,
    collected: Arc<Mutex<Collected>>,
) {
    let events = watch::<K>(context.member.clone(), collection, config);
    let mut events = std::pin::pin!(events);
    loop {
        let event = tokio::select! {
            biased;
            () = context.shutdown.cancelled() => return,
            event = events.next() => event,
        };
        let Some(event) = event else { return };
        let mut collected = collected.lock().unwrap_or_else(PoisonError::into_inner);
        fold(&mut collected, started.elapsed(), event);
    }
}

fn fold<K: Folded>(collected: &mut Collected, now: Duration, event: Event<K>) {
    let ledger = &mut collected.ledger;
    match event {
        Event::Init => K::restart(ledger),
        Event::Applied(object) => object.apply(ledger),
        Event::Undecodable(broken) => {
            tracing::warn!(object = ?broken.key, error = broken.error, "an object cannot be read");
            K::keep(ledger, namespace(&broken.key), &broken.key.name);
        }
        Event::Deleted(key) => K::delete(ledger, namespace(&key), &key.name),
        Event::InitDone { .. } => {
            K::listed(ledger);
            K::feed(collected).listed();
        }
        Event::Resumed { .. } => K::feed(collected).works(),
        Event::Disconnected { problem, .. } => K::feed(collected).failed(now, problem.to_string()),
    }
}

fn namespace(key: &ObjectKey) -> &str {
    key.namespace.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(collected: &Collected, second: u64) -> &'static str {
        match collected.sums(Duration::from_secs(second)) {
            decide::Sums::Off => "off",
            decide::Sums::Syncing => "syncing",
            decide::Sums::Late(_) => "late",
            decide::Sums::Known(_) => "known",
        }
    }

    #[test]
    fn sums_are_known_once_both_lists_are_whole() {
        let mut collected = Collected::default();
        assert_eq!(state(&collected, 0), "syncing");
        assert_eq!(state(&collected, 119), "syncing");
        assert_eq!(state(&collected, 120), "late");
        collected.nodes.listed();
        assert_eq!(state(&collected, 1), "syncing");
        collected.pods.listed();
        assert_eq!(state(&collected, 121), "known");
    }

    #[test]
    fn a_watch_that_keeps_failing_makes_them_late() {
        let mut collected = Collected::default();
        collected.nodes.listed();
        collected.pods.listed();
        collected
            .pods
            .failed(Duration::from_secs(10), "forbidden".into());
        collected
            .pods
            .failed(Duration::from_secs(35), "forbidden".into());
        assert_eq!(state(&collected, 39), "known");
        assert_eq!(state(&collected, 40), "late");
        collected.pods.works();
        assert_eq!(state(&collected, 41), "known");
    }
}
