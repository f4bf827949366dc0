//! Takes the rights of an agent that writes too much, before it fills the store for everybody.
//!
//! The hub sums what each agent writes: statuses of its Cluster and Works, Events in its execution
//! namespace. Whose a write is, its field manager says, and an agent may use no other's name (`writers`):
//! what an operator, a controller or the hub itself writes into the same objects counts for nobody. Over
//! the budget, the Cluster gets an annotation with the time, the bindings lose their
//! subjects, and the condition `Quarantined` says why. The annotation decides, for an agent cannot write
//! it; removing it (`kubectl annotate cluster NAME towline.dev/quarantined-since-`) gives the rights back.

mod ledger;
#[cfg(test)]
mod tests;

pub use ledger::Budget;

use crate::controller::registration::{self, condition};
use crate::controller::rights::Error;
use crate::permissions::{self, Registration};
use crate::world::writers::Version;
use crate::world::{Change, Cluster, Event, ObjectName, Status, Told, Work, World};
use common::api::cluster::{QUARANTINED, RESTORED, WROTE_TOO_MUCH};
use common::controller::{Controller, Reconcile, Requeue};
use common::labels::{HELD, HUB_FIELD_MANAGER, QUARANTINED_SINCE};
use common::names::{ClusterName, EXECUTION_PREFIX};
use common::time::{SharedClock, to_time};
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use ledger::Ledger;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

const REASON_BY_HAND: &str = "Annotated";
const REASON_LIFTED: &str = "Lifted";

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

    /// Woken by clusters that are over their budget, or whose quarantine is not as their annotation says.
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
                    over.lock().insert(name.to_string());
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
            .map_err(|error| registration::Error::request("confirm Cluster", name)(error).into())
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
    type Key = Arc<str>;
    type Error = Error;

    async fn reconcile(&self, name: &Arc<str>) -> Result<Requeue, Error> {
        let Ok(cluster) = ClusterName::parse(name) else {
            return Ok(Requeue::Never);
        };
        let over = self.over.lock().contains(&**name);
        let clusters: Api<_> = registration::clusters(&self.client);
        let read = || async {
            let read = clusters.get_opt(name).await;
            read.map_err(registration::Error::request("read Cluster", name))
        };
        let Some(mut live) = read().await? else {
            self.over.lock().remove(&**name);
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
        let held = live.metadata.labels.as_ref();
        let held = held.and_then(|all| all.get(HELD));
        if held.is_some() && since.is_none() {
            self.let_go(name).await?;
        }
        let again =
            format!("To let it in again: kubectl annotate cluster {name} {QUARANTINED_SINCE}-");
        let (status, reason, message) = match since {
            Some(since) if held.is_some() => (
                true,
                RESTORED,
                format!(
                    "since {since} the agent may read and write nothing: its registration comes from a backup, \
                     and may have been removed after that. {again}"
                ),
            ),
            Some(since) if over || says_over(&live) => (
                true,
                WROTE_TOO_MUCH,
                format!(
                    "since {since} the agent may read and write nothing: it wrote more than {limit}. {again}"
                ),
            ),
            Some(since) => (
                true,
                REASON_BY_HAND,
                format!(
                    "since {since} the agent may read and write nothing, as the annotation {QUARANTINED_SINCE} \
                     of its Cluster says. {again}"
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
        self.over.lock().remove(&**name);
        Ok(Requeue::Never)
    }
}

impl Over {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
