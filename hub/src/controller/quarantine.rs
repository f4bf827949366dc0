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

use crate::controller::registration::{self, Claims, Error, condition, withhold};
use crate::controller::rights;
use crate::epoch::Rounds;
use crate::permissions::{Grant, Registration};
use crate::world::writers::Version;
use crate::world::{Change, Cluster, Event, ObjectName, Status, Told, Work, World};
use chrono::{DateTime, SecondsFormat, Utc};
use common::api::cluster::{QUARANTINED, RESTORED, WROTE_TOO_MUCH};
use common::controller::{Controller, Reconcile, Requeue};
use common::errors::chain;
use common::labels::{HELD, HUB_FIELD_MANAGER, QUARANTINED_SINCE, WROTE_TOO_MUCH_SINCE};
use common::names::{ClusterName, EXECUTION_PREFIX};
use common::time::SharedClock;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Patch, PatchParams};
use ledger::Ledger;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const REASON_BY_HAND: &str = "Annotated";
const REASON_LIFTED: &str = "Lifted";

/// Clusters found over their budget that were not marked for it yet, with the value that their annotation gets: where an
/// answer is lost, it tells whether they were.
#[derive(Debug, Default)]
struct Over(Mutex<BTreeMap<String, String>>);

/// The controller; its keys are names of Clusters.
pub struct Quarantine {
    client: Client,
    clock: SharedClock,
    budget: Budget,
    claims: Claims,
    /// Who ends watches at the same time does so together.
    watches: Arc<Rounds>,
    tally: Arc<Mutex<Tally>>,
    over: Arc<Over>,
}

impl Quarantine {
    /// Makes the controller; it gives or takes the rights of a cluster while nobody else has it claimed.
    pub(crate) fn new(
        client: Client,
        clock: SharedClock,
        budget: Budget,
        (claims, watches): (Claims, Arc<Rounds>),
    ) -> Self {
        let tally = Tally {
            ledger: Ledger::new(budget),
            start: Instant::now(),
        };
        Self {
            client,
            clock,
            budget,
            claims,
            watches,
            tally: Arc::new(Mutex::new(tally)),
            over: Arc::default(),
        }
    }

    /// Woken by clusters that are over their budget, or whose quarantine is not as their annotation says, and by what
    /// carries the rights of those that are quarantined.
    pub fn watching(self, world: &World) -> Controller<Self> {
        let (over, tally) = (Arc::clone(&self.over), Arc::clone(&self.tally));
        let clock = self.clock.clone();
        let controller = Controller::new(self);
        let count = {
            let (queue, clusters) = (controller.queue(), world.clusters.clone());
            let (over, tally) = (Arc::clone(&over), Arc::clone(&tally));
            move |name: &Arc<str>, bytes: u64| {
                let cluster = clusters.get(&ObjectName::new(None, name));
                let cluster = cluster.and_then(|cluster| cluster.record);
                let withheld = cluster.is_some_and(|cluster| cluster.withheld);
                if locked(&tally).write(name, bytes) && !withheld {
                    let since = || rfc3339(clock.now());
                    over.lock().entry(name.to_string()).or_insert_with(since);
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
                over.lock().remove(&**name);
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

    /// Marks a Cluster that is over its budget since then, and returns it; the annotation is what everything else
    /// follows. Why goes into the same write: a hub that is started before the condition is shown knows nothing of what
    /// the agent wrote. It stays when the Cluster is let in, and tells then that this was marked.
    async fn mark(&self, cluster: &ObjectMeta, since: &str) -> Result<ObjectMeta, Error> {
        let name = cluster.name.as_deref().unwrap_or_default();
        let patch = json!({"metadata": {
            "uid": cluster.uid,
            "annotations": {QUARANTINED_SINCE: since, WROTE_TOO_MUCH_SINCE: since},
        }});
        let params = PatchParams {
            field_manager: Some(HUB_FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let clusters = registration::clusters(&self.client);
        let patched = clusters
            .patch_metadata(name, &params, &Patch::Merge(patch))
            .await;
        let patched = patched.map_err(Error::request("quarantine Cluster", name))?;
        tracing::warn!(cluster = name, "quarantined: the agent wrote too much");
        Ok(patched.metadata)
    }

    async fn read(&self, name: &str) -> Result<Option<ObjectMeta>, Error> {
        let read = registration::clusters(&self.client)
            .get_metadata_opt(name)
            .await;
        let read = read.map_err(Error::request("read Cluster", name))?;
        Ok(read.map(|read| read.metadata))
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
        let claim = self.claims.cluster(&cluster).await;
        let Some(mut live) = self.read(name).await? else {
            self.over.lock().remove(&**name);
            return Ok(Requeue::Never);
        };
        let found = self.over.lock().get(&**name).cloned();
        if let Some(at) = found {
            // One that was marked by a write whose answer was lost, and let in since, is not marked again.
            if since(&live).is_none() && marked_since(&live) != Some(&at) {
                live = self.mark(&live, &at).await?;
            }
            // Whoever is let in begins anew, whether or not the view shows it quarantined in between.
            locked(&self.tally).ledger.forget(name);
            self.over.lock().remove(&**name);
        }
        // What waits for the condition must not wait for a right that another binding gives.
        let mut left = None;
        let mut stays = None;
        if let Some(registration) = Registration::of_cluster(&live) {
            let client = &self.client;
            match registration.grant {
                // Its agent needs them to leave the member.
                _ if live.deletion_timestamp.is_some() => {
                    let withheld = registration.grant == Grant::Suspended;
                    stays = withheld
                        .then(|| "the Cluster is being deleted, and they go with it".to_owned());
                }
                Grant::InForce(_) => {
                    let given = withhold::give(client, &live, &registration).await;
                    given.map(drop)?;
                }
                Grant::Suspended => {
                    let watches = &self.watches;
                    match withhold::take(client, watches, claim, &live, &registration).await {
                        Ok(true) => {}
                        // Nothing is to be shown of a quarantine that is over.
                        Ok(false) => return Ok(Requeue::After(Duration::ZERO)),
                        Err(error @ Error::Watches(_)) => {
                            stays = Some(chain(&error).to_string());
                            left = Some(error);
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
        let held = live.labels.as_ref();
        let held = held.is_some_and(|all| all.contains_key(HELD));
        let since = since(&live);
        if held && since.is_none() {
            self.let_go(name).await?;
        }
        let over = since.is_some() && marked_since(&live) == since;
        let (reason, mut message) = self.words(name, since, held, over);
        if let Some(why) = &stays {
            message = format!("{message}; its rights are not all gone yet: {why}");
        }
        let shown = condition::Shown {
            type_: QUARANTINED,
            status: since.is_some(),
            reason,
            message: &message,
        };
        condition::show(&self.client, self.clock.now(), &cluster, shown).await?;
        left.map_or(Ok(Requeue::Never), Err)
    }
}

impl Over {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Since when a Cluster is quarantined, if it is.
fn since(cluster: &ObjectMeta) -> Option<&String> {
    cluster.annotations.as_ref()?.get(QUARANTINED_SINCE)
}

/// Since when a Cluster is quarantined that was marked for what its agent wrote; with any other value than that of the
/// quarantine it is left from an earlier one.
fn marked_since(cluster: &ObjectMeta) -> Option<&String> {
    cluster.annotations.as_ref()?.get(WROTE_TOO_MUCH_SINCE)
}

/// A time as it is written in an annotation.
fn rfc3339(now: DateTime<Utc>) -> String {
    now.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// What agents have written so far.
#[derive(Debug)]
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
