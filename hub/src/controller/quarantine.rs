//! Takes the rights of an agent that writes too much, before it fills the store for everybody.
//!
//! The hub sums what each agent writes: statuses of its Cluster and Works, Events in its execution
//! namespace. Whose a write is, its field manager says, and an agent may use no other's name (`writers`):
//! what an operator, a controller or the hub itself writes into the same objects counts for nobody. Over
//! the budget, the Cluster gets an annotation with the time, the bindings lose their
//! subjects, the watches that they opened end, and the condition `Quarantined` says why. The annotation decides, for
//! an agent cannot write it; removing it (`kubectl annotate cluster NAME towline.dev/quarantined-since-`) gives the
//! rights back.

mod ledger;
#[cfg(test)]
mod tests;

pub use ledger::Budget;

use crate::controller::registration::{self, Error, condition, withhold};
use crate::controller::rights;
use crate::epoch::Rounds;
use crate::permissions::{Grant, Registration};
use crate::world::writers::Version;
use crate::world::{Change, Cluster, Event, ObjectName, Status, Told, Work, World};
use common::api::cluster::{QUARANTINED, RESTORED, WROTE_TOO_MUCH};
use common::controller::{Controller, Reconcile, Requeue};
use common::errors::chain;
use common::labels::{HELD, HUB_FIELD_MANAGER, QUARANTINED_SINCE, WROTE_TOO_MUCH_SINCE};
use common::names::{ClusterName, EXECUTION_PREFIX};
use common::time::{SharedClock, to_time};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use ledger::Ledger;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

const REASON_BY_HAND: &str = "Annotated";
const REASON_LIFTED: &str = "Lifted";

/// Clusters found over their budget, until that is shown.
#[derive(Debug, Default)]
struct Over(Mutex<BTreeMap<String, Found>>);

/// What was done about one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    /// Nothing yet.
    Unmarked,
    /// Its annotation was written, with this value: whoever takes it off lets the agent in again.
    Marked(String),
}

/// The controller; its keys are names of Clusters.
pub struct Quarantine {
    client: Client,
    clock: SharedClock,
    budget: Budget,
    /// Who ends watches at the same time does so together.
    watches: Arc<Rounds>,
    over: Arc<Over>,
}

impl Quarantine {
    /// Makes the controller.
    pub fn new(client: Client, clock: SharedClock, budget: Budget, watches: Arc<Rounds>) -> Self {
        Self {
            client,
            clock,
            budget,
            watches,
            over: Arc::default(),
        }
    }

    /// Woken by clusters that are over their budget, or whose quarantine is not as their annotation says, and by what
    /// carries the rights of those that are quarantined.
    pub fn watching(self, world: &World) -> Controller<Self> {
        let over = Arc::clone(&self.over);
        let tally = Arc::new(Mutex::new(Tally {
            ledger: Ledger::new(self.budget),
            start: Instant::now(),
        }));
        let controller = Controller::new(self);
        let count = {
            let (queue, clusters) = (controller.queue(), world.clusters.clone());
            let tally = Arc::clone(&tally);
            move |name: &Arc<str>, bytes: u64| {
                let cluster = clusters.get(&ObjectName::new(None, name));
                let cluster = cluster.and_then(|cluster| cluster.record);
                let withheld = cluster.is_some_and(|cluster| cluster.withheld);
                if locked(&tally).write(name, bytes) && !withheld {
                    over.lock()
                        .entry(name.to_string())
                        .or_insert(Found::Unmarked);
                    queue.add(Arc::clone(name));
                }
            }
        };
        world.works.listen({
            let count = count.clone();
            move |told| {
                if let Some((change, bytes)) = agents_write(told, |work: &Work| &work.writers) {
                    of_namespace(&change.name, |cluster| count(cluster, bytes));
                }
            }
        });
        world.events.listen({
            let count = count.clone();
            move |told| {
                let made = |change: &Change<Event>| {
                    let made = change.old.is_none() && !change.listed;
                    made && change
                        .after()
                        .is_some_and(|event| event.writers.is_agents_alone())
                };
                match told {
                    // Events are new objects: what is listed was written before.
                    Told::Changed(change) if made(change) => {
                        let bytes = change.new.as_ref().map_or(0, |new| new.bytes);
                        of_namespace(&change.name, |cluster| count(cluster, bytes));
                    }
                    told => {
                        let write = agents_write(told, |event: &Event| &event.writers);
                        if let Some((change, bytes)) = write {
                            of_namespace(&change.name, |cluster| count(cluster, bytes));
                        }
                    }
                }
            }
        });
        let queue = controller.queue();
        world.clusters.listen(move |told| {
            let Told::Changed(change) = told else { return };
            let name = &change.name.name;
            // Whoever is let in again begins anew. What the condition says is no reason: an agent can write it.
            if change.new.is_none() || is_turned(change) {
                locked(&tally).ledger.forget(name);
            }
            if is_unsettled(change) {
                queue.add(Arc::clone(name));
            }
            if let Some((_, bytes)) = agents_write(told, |cluster: &Cluster| &cluster.writers) {
                count(name, bytes);
            }
        });
        for rights in &world.rights {
            let (queue, clusters) = (controller.queue(), world.clusters.clone());
            rights.listen(move |told| {
                for name in rights::concerned(told) {
                    let cluster = clusters.get(&ObjectName::new(None, &name));
                    let cluster = cluster.and_then(|cluster| cluster.record);
                    if cluster.is_some_and(|cluster| cluster.withheld) {
                        queue.add_after(name, rights::SETTLE);
                    }
                }
            });
        }
        controller
    }

    /// Takes the label off a Cluster that was confirmed.
    async fn let_go(&self, name: &str) -> Result<(), Error> {
        let patch = json!({"metadata": {"labels": {HELD: null}}});
        let params = PatchParams {
            field_manager: Some(HUB_FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patched = registration::clusters(&self.client)
            .patch_metadata(name, &params, &Patch::Merge(patch))
            .await;
        patched
            .map(drop)
            .map_err(Error::request("confirm Cluster", name))
    }

    /// Marks a Cluster that is over its budget; the annotation is what everything else follows. Why goes into the same
    /// write: a hub that is started before the condition is shown knows nothing of what the agent wrote.
    async fn mark(&self, cluster: &ClusterName) -> Result<(), Error> {
        let name = cluster.as_str();
        let since = json!(to_time(self.clock.now()));
        let since = since.as_str().unwrap_or_default().to_owned();
        let patch = json!({"metadata": {"annotations": {
            QUARANTINED_SINCE: since,
            WROTE_TOO_MUCH_SINCE: since,
        }}});
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
            .map_err(Error::request("quarantine Cluster", name))?;
        // What follows may fail; when it is tried again, one whose annotation is gone was let in meanwhile.
        self.over
            .lock()
            .insert(name.to_owned(), Found::Marked(since));
        tracing::warn!(%cluster, "quarantined: the agent wrote too much");
        Ok(())
    }

    async fn read(&self, name: &str) -> Result<Option<DynamicObject>, Error> {
        let read = registration::clusters(&self.client).get_opt(name).await;
        read.map_err(Error::request("read Cluster", name))
    }

    /// Reason and message of the condition of a Cluster, by since when it is quarantined, if it is.
    fn words(
        &self,
        name: &str,
        since: Option<&String>,
        held: bool,
        over: bool,
    ) -> (&'static str, String) {
        let Some(since) = since else {
            return (REASON_LIFTED, "the annotation was removed".to_owned());
        };
        let (reason, why) = if held {
            let why = "its registration comes from a backup, and may have been removed after that";
            (RESTORED, format!(": {why}"))
        } else if over {
            let Budget { bytes, window } = self.budget;
            let limit = format!("{} in {window:?}", mebibytes(bytes));
            (WROTE_TOO_MUCH, format!(": it wrote more than {limit}"))
        } else {
            let why = format!(", as the annotation {QUARANTINED_SINCE} of its Cluster says");
            (REASON_BY_HAND, why)
        };
        let message = format!(
            "since {since} the agent may read and write nothing{why}. To let it in again: kubectl annotate cluster \
             {name} {QUARANTINED_SINCE}-"
        );
        (reason, message)
    }
}

impl Reconcile for Quarantine {
    const NAME: &'static str = "quarantine";
    type Key = Arc<str>;
    type Error = Error;

    async fn reconcile(&self, name: &Arc<str>) -> Result<Requeue, Error> {
        let Ok(cluster) = ClusterName::parse(name) else {
            return Ok(Requeue::Never);
        };
        let Some(mut live) = self.read(name).await? else {
            self.over.lock().remove(&**name);
            return Ok(Requeue::Never);
        };
        let found = self.over.lock().get(&**name).cloned();
        if found == Some(Found::Unmarked) && since(&live.metadata).is_none() {
            self.mark(&cluster).await?;
            let Some(marked) = self.read(name).await? else {
                self.over.lock().remove(&**name);
                return Ok(Requeue::Never);
            };
            live = marked;
        }
        // What waits for the condition must not wait for a right that another binding gives.
        let mut left = None;
        if live.metadata.deletion_timestamp.is_none()
            && let Some(registration) = Registration::of_cluster(&live.metadata)
        {
            let (client, cluster) = (&self.client, &live.metadata);
            match registration.grant {
                Grant::InForce(_) => {
                    let given = withhold::give(client, cluster, &registration).await;
                    given.map(drop)?;
                }
                Grant::Suspended => {
                    match withhold::take(client, &self.watches, cluster, &registration).await {
                        Err(error @ Error::Watches(_)) => left = Some(error),
                        taken => taken?,
                    }
                }
            }
        }
        let held = live.metadata.labels.as_ref();
        let held = held.is_some_and(|all| all.contains_key(HELD));
        let since = since(&live.metadata);
        if held && since.is_none() {
            self.let_go(name).await?;
        }
        let over = match &found {
            None => says_over(&live),
            Some(Found::Unmarked) => true,
            Some(Found::Marked(at)) => since == Some(at) || says_over(&live),
        };
        let over = over || is_marked_over(&live.metadata);
        let (reason, mut message) = self.words(name, since, held, over);
        if let Some(error) = &left {
            message = format!(
                "{message}; its rights are not all gone yet: {}",
                chain(error)
            );
        }
        let shown = condition::Shown {
            type_: QUARANTINED,
            status: since.is_some(),
            reason,
            message: &message,
        };
        condition::show(&self.client, self.clock.now(), &cluster, shown).await?;
        if let Some(error) = left {
            return Err(error);
        }
        self.over.lock().remove(&**name);
        Ok(Requeue::Never)
    }
}

impl Over {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Since when a Cluster is quarantined, if it is.
fn since(cluster: &ObjectMeta) -> Option<&String> {
    cluster.annotations.as_ref()?.get(QUARANTINED_SINCE)
}

/// Whether a Cluster is quarantined, and was marked for what its agent wrote; what is left of an earlier mark does not
/// count.
fn is_marked_over(cluster: &ObjectMeta) -> bool {
    let marked = cluster.annotations.as_ref();
    let marked = marked.and_then(|all| all.get(WROTE_TOO_MUCH_SINCE));
    marked.is_some() && marked == since(cluster)
}

/// Whether a Cluster says already that it is quarantined for what its agent wrote; what it wrote is not known to a hub
/// that was started since.
fn says_over(cluster: &DynamicObject) -> bool {
    let conditions = cluster.data["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|condition| {
        condition["type"] == QUARANTINED
            && condition["status"] == "True"
            && condition["reason"] == WROTE_TOO_MUCH
    })
}

/// What agents have written so far.
struct Tally {
    ledger: Ledger,
    start: Instant,
}

impl Tally {
    fn write(&mut self, cluster: &str, bytes: u64) -> bool {
        self.ledger.write(cluster, bytes, self.start.elapsed())
    }
}

fn locked(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the annotation of a Cluster came or went: the hub withholds the rights now, or gives them back.
fn is_turned(change: &Change<Cluster>) -> bool {
    let was = change.before().is_some_and(|cluster| cluster.withheld);
    change
        .after()
        .is_some_and(|cluster| cluster.withheld != was)
}

/// Whether the annotation of a Cluster came, went, or is not what its condition says.
fn is_unsettled(change: &Change<Cluster>) -> bool {
    let differs = change.after().is_some_and(|cluster| {
        let shown = cluster.lifecycle.quarantined == Some(Status::True);
        cluster.withheld != shown
    });
    differs || is_turned(change)
}

/// A write of an agent, with the size of the whole object: that is what the store keeps of it. A list does not tell
/// whose the last write was.
fn agents_write<R>(told: &Told<R>, writers: impl Fn(&R) -> &Version) -> Option<(&Change<R>, u64)> {
    let Told::Changed(change) = told else {
        return None;
    };
    if change.listed || !change.is_written() {
        return None;
    }
    let wrote = writers(change.after()?).is_agents_over(writers(change.before()?));
    wrote.then_some((change, change.new.as_ref()?.bytes))
}

/// Calls `with` for the cluster whose execution namespace an object is in.
fn of_namespace(name: &ObjectName, with: impl FnOnce(&Arc<str>)) {
    if let Some(cluster) = name.namespace.strip_prefix(EXECUTION_PREFIX) {
        with(&cluster.into());
    }
}

fn mebibytes(bytes: u64) -> String {
    let tenths = bytes.saturating_mul(10) / (1024 * 1024);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}
