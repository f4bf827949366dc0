//! Takes the rights of an agent that writes too much, before it fills the store for everybody.
//!
//! The hub sums what each agent writes: statuses of its Cluster and Works, Events in its execution
//! namespace. Over the budget, the Cluster gets an annotation with the time, the bindings lose their
//! subjects, and the condition `Quarantined` says why. The annotation decides, for an agent cannot write
//! it; removing it (`kubectl annotate cluster NAME towline.dev/quarantined-since-`) gives the rights back.

mod ledger;
mod written;

pub use ledger::Budget;

use crate::controller::queue::Queue;
use crate::controller::registration::{self, condition};
use crate::controller::{Failure, Reconcile, Requeue};
use crate::permissions::{self, Registration};
use common::api::cluster::{Cluster, QUARANTINED};
use common::api::work::Work;
use common::labels::{HUB_FIELD_MANAGER, QUARANTINED_SINCE};
use common::names::ClusterName;
use common::time::{SharedClock, to_time};
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Event as CoreEvent;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use ledger::Ledger;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use written::{Generations, Written};

/// The component that agents name in their Events; the admission policy allows no other.
const AGENT_EVENTS: &str = "source=towline-agent";
const REASON_OVER: &str = "WroteTooMuch";
const REASON_LIFTED: &str = "Lifted";

/// Why a cluster could not be quarantined or released; it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Cluster could not be read or written.
    #[error(transparent)]
    Cluster(#[from] registration::Error),
    /// Its permissions could not be written.
    #[error(transparent)]
    Permissions(#[from] permissions::Error),
}

impl Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Cluster(error) => error.reason(),
            Self::Permissions(_) => "PermissionsFailed",
        }
    }

    fn is_conflict(&self) -> bool {
        match self {
            Self::Cluster(error) => error.is_conflict(),
            Self::Permissions(error) => error.status().is_some_and(|s| s.code == 409),
        }
    }
}

/// Clusters found over their budget, until they are dealt with.
#[derive(Debug, Default)]
struct Over(Mutex<BTreeSet<String>>);

/// The controller; its keys are names of Clusters.
pub struct Quarantine {
    client: Client,
    clock: SharedClock,
    budget: Budget,
    over: Arc<Over>,
}

impl Quarantine {
    /// Makes the controller.
    pub fn new(client: Client, clock: SharedClock, budget: Budget) -> Self {
        Self {
            client,
            clock,
            budget,
            over: Arc::default(),
        }
    }

    /// Watches what agents write and puts clusters into `queue` that are over their budget, or whose
    /// quarantine is not as their annotation says; never ends.
    pub fn feed(&self, queue: Queue) -> impl Future<Output = ()> + Send + use<> {
        feed(
            self.client.clone(),
            self.budget,
            Arc::clone(&self.over),
            queue,
        )
    }

    /// Marks a Cluster that is over its budget; the annotation is what everything else follows.
    async fn mark(&self, cluster: &ClusterName) -> Result<(), Error> {
        let name = cluster.as_str();
        let since = serde_json::to_value(to_time(self.clock.now())).unwrap_or_default();
        let patch = json!({"metadata": {"annotations": {QUARANTINED_SINCE: since}}});
        let params = PatchParams {
            field_manager: Some(HUB_FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let clusters = registration::clusters(&self.client);
        let patched = clusters
            .patch_metadata(name, &params, &Patch::Merge(patch))
            .await;
        patched
            .map(drop)
            .map_err(registration::Error::request("quarantine Cluster", name))?;
        tracing::warn!(%cluster, "quarantined: the agent wrote too much");
        Ok(())
    }
}

impl Reconcile for Quarantine {
    const NAME: &'static str = "quarantine";
    type Error = Error;

    async fn reconcile(&self, name: &str) -> Result<Requeue, Error> {
        let Ok(cluster) = ClusterName::parse(name) else {
            return Ok(Requeue::Never);
        };
        let over = self.over.lock().contains(name);
        let clusters: Api<_> = registration::clusters(&self.client);
        let read = || async {
            let read = clusters.get_metadata_opt(name).await;
            read.map_err(registration::Error::request("read Cluster", name))
        };
        let Some(mut live) = read().await? else {
            self.over.lock().remove(name);
            return Ok(Requeue::Never);
        };
        let is_marked = |annotations: Option<&BTreeMap<String, String>>| {
            annotations.is_some_and(|all| all.contains_key(QUARANTINED_SINCE))
        };
        if over && !is_marked(live.metadata.annotations.as_ref()) {
            self.mark(&cluster).await?;
            let Some(marked) = read().await? else {
                return Ok(Requeue::Never);
            };
            live = marked;
        }
        if live.metadata.deletion_timestamp.is_none()
            && let Some(registration) = Registration::of_cluster(&live.metadata)
        {
            permissions::ensure(&self.client, &registration).await?;
        }
        let limit = format!(
            "{} in {:?}",
            mebibytes(self.budget.bytes),
            self.budget.window
        );
        let since = live
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(QUARANTINED_SINCE));
        let (status, reason, message) = match since {
            Some(since) => (
                true,
                REASON_OVER,
                format!(
                    "since {since} the agent may read and write nothing: it wrote more than {limit}. To \
                     let it in again: kubectl annotate cluster {name} {QUARANTINED_SINCE}-"
                ),
            ),
            None => (
                false,
                REASON_LIFTED,
                "the annotation was removed".to_owned(),
            ),
        };
        let shown = condition::Shown {
            type_: QUARANTINED,
            status,
            reason,
            message: &message,
        };
        condition::show(&self.client, self.clock.now(), &cluster, shown).await?;
        self.over.lock().remove(name);
        Ok(Requeue::Never)
    }
}

impl Over {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn feed(client: Client, budget: Budget, over: Arc<Over>, queue: Queue) {
    let events = WatchConfig {
        field_selector: Some(AGENT_EVENTS.to_owned()),
        ..config()
    };
    let mut works = pin!(watch::<Written>(
        client.clone(),
        Collection::of::<Work>(None),
        config()
    ));
    let mut clusters = pin!(watch::<Written>(
        client.clone(),
        Collection::of::<Cluster>(None),
        config()
    ));
    let mut events = pin!(watch::<Written>(
        client,
        Collection::of::<CoreEvent>(None),
        events
    ));
    let start = Instant::now();
    let mut ledger = Ledger::new(budget);
    let (mut works_seen, mut clusters_seen) = (Generations::default(), Generations::default());
    // Events are new objects: what is listed was written before.
    let mut events_listed = false;
    let mut withheld = HashSet::new();
    loop {
        let write = tokio::select! {
            Some(event) = works.next() => agents_write(event, &mut works_seen),
            Some(event) = events.next() => match event {
                Event::Restarted => { events_listed = false; None }
                Event::Listed { .. } => { events_listed = true; None }
                Event::Applied(object) if events_listed => Some(object),
                _ => None,
            },
            Some(event) = clusters.next() => {
                match &event {
                    Event::Deleted(key) => {
                        ledger.forget(&key.name);
                        withheld.remove(&key.name);
                    }
                    Event::Applied(object) => {
                        if let Some(name) = object.cluster() {
                            let was = if object.withheld {
                                !withheld.insert(name.to_owned())
                            } else {
                                withheld.remove(name)
                            };
                            if object.withheld != was || object.withheld != object.shown {
                                // Whoever is let in again begins anew.
                                ledger.forget(name);
                                queue.add(name);
                            }
                        }
                    }
                    _ => {}
                }
                agents_write(event, &mut clusters_seen)
            }
        };
        let Some(write) = write else { continue };
        let Some(cluster) = write.cluster() else {
            continue;
        };
        if ledger.write(cluster, write.bytes, start.elapsed()) && !withheld.contains(cluster) {
            over.lock().insert(cluster.to_owned());
            queue.add(cluster);
        }
    }
}

/// The object, when the event is a write of an agent.
fn agents_write(event: Event<Written>, seen: &mut Generations) -> Option<Written> {
    match event {
        Event::Restarted => seen.clear(),
        Event::Deleted(key) => seen.forget(key.namespace.as_deref(), &key.name),
        Event::Applied(object) => return seen.is_agents(&object).then_some(object),
        _ => {}
    }
    None
}

fn config() -> WatchConfig {
    WatchConfig::default()
}

fn mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) / (1024 * 1024);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}
