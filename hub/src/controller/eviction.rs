//! Moves what is placed on clusters with NoExecute taints, and what its policy does not leave where it is unhealthy; and
//! ends the copies that it leaves behind.
//!
//! A binding is looked at when it changes, when a cluster changes that it is placed on or leaves, and when a time has
//! come: of a toleration, of a task, of its turn. Where it goes instead is written with that, or the scheduler says it
//! later; the binding controller keeps its Works as long as tasks name their clusters.

pub mod brake;
pub mod decide;
mod metrics;
pub mod taints;
pub mod tasks;
#[cfg(test)]
mod tests;
pub mod turns;
pub mod unhealthy;

use super::bindings::{Bindings, Error, about, about_cluster, about_template_of};
use super::scheduler::Placing;
use crate::propagation::Notice;
use crate::scheduler::from_api;
use crate::world::{self, Change, Cluster, Index, ObjectName, Record as _, Told, World};
use brake::{Brake, Moment, Sight, Turn};
use common::api::policy::ClusterPurgeMode;
use common::controller::{Controller, Reconcile, Requeue};
use common::lock::lock;
use common::queue::{Priority, Queue};
use common::rest::{Call, JSON};
use common::time::SharedClock;
use decide::{Around, Decision, Seen, decide};
use kube::Client;
pub use metrics::Metrics;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use turns::Turns;
use unhealthy::Since;

const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

/// What the controller is told.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether NoExecute taints make anything leave.
    pub enabled: bool,
    /// How a copy goes whose binding does not say.
    pub purge_mode: ClusterPurgeMode,
    /// How many bindings leave clusters in a second.
    pub rate: f64,
    /// How long a task lasts that does not say.
    pub timeout: Duration,
    /// The share of the fleet that may be lost before nothing leaves it any more.
    pub lost_share: f64,
}

/// The controller.
pub struct Evictions {
    client: Client,
    world: World,
    bindings: Bindings,
    placing: Placing,
    clock: SharedClock,
    options: Options,
    metrics: Metrics,
    start: Instant,
    /// Bindings of both kinds, by the clusters that they are placed on or leave.
    about: [Index<Arc<str>>; 2],
    brake: Mutex<Brake>,
    /// Clusters of which it was told that they are held.
    told: Mutex<BTreeSet<String>>,
    turns: Mutex<Turns<ObjectName>>,
    /// Since when bindings are not healthy, those whose policies ask for it.
    unhealthy: Mutex<BTreeMap<ObjectName, Since>>,
    /// Somebody waits for a turn.
    waits: Notify,
}

impl Evictions {
    /// A controller that is woken by what the world tells.
    pub fn watching(
        client: Client,
        (bindings, placing): (Bindings, Placing),
        clock: SharedClock,
        options: Options,
        metrics: Metrics,
        world: &World,
    ) -> Controller<Arc<Self>> {
        let views = &world.propagation;
        let evictions = Arc::new(Self {
            client,
            world: world.clone(),
            bindings,
            placing,
            clock,
            options,
            metrics,
            start: Instant::now(),
            about: [&views.bindings, &views.cluster_bindings]
                .map(|view| view.index(|_, held| clusters_of(held))),
            brake: Mutex::new(Brake::new(options.lost_share)),
            told: Mutex::default(),
            turns: Mutex::new(Turns::new(options.rate)),
            unhealthy: Mutex::default(),
            waits: Notify::new(),
        });
        let controller = Controller::new(Arc::clone(&evictions));
        for view in [&views.bindings, &views.cluster_bindings] {
            let (me, queue) = (Arc::clone(&evictions), controller.queue());
            view.on_change(move |change| {
                me.binding_changed(change, &queue);
            });
        }
        let (me, queue) = (Arc::clone(&evictions), controller.queue());
        world.clusters.listen(move |told| match told {
            Told::Changed(change) => me.cluster_changed(change, &queue),
            Told::Complete { .. } => {
                let turn = lock(&me.brake).begin(me.now());
                me.turned(turn, &queue);
            }
            Told::Lost(_) => {}
        });
        controller.source(move |queue| Arc::clone(&evictions).give_turns(queue))
    }

    fn now(&self) -> Moment {
        self.start.elapsed()
    }

    fn binding_changed(&self, change: &Change<world::Binding>, queue: &Queue<ObjectName>) {
        let Some(new) = change.after() else {
            lock(&self.unhealthy).remove(&change.name);
            return self.needs_no_turn(&change.name);
        };
        let old = change.before();
        let leaves = !new.binding.spec.graceful_eviction_tasks.is_empty();
        let other = |old: &world::Binding| {
            let failover = unhealthy::wanted(&new.binding.spec).is_some();
            old.generation != new.generation || failover && !old.has_answers_of(new)
        };
        if leaves || old.is_none_or(other) {
            queue.add_with(change.name.clone(), Priority::Backlog);
        }
    }

    fn cluster_changed(&self, change: &Change<Cluster>, queue: &Queue<ObjectName>) {
        let (old, new) = (change.before(), change.after());
        let name = &change.name.name;
        let looks =
            |cluster: Option<&Cluster>| cluster.map(|it| (it.taints.clone(), Sight::of(it)));
        if looks(old) == looks(new) {
            return;
        }
        let turn = lock(&self.brake).see(self.now(), name, new.and_then(Sight::of));
        self.turned(turn, queue);
        self.wake(name, queue);
    }

    /// Has everything looked at that is about a cluster.
    fn wake(&self, cluster: &Arc<str>, queue: &Queue<ObjectName>) {
        for index in &self.about {
            for name in index.names(cluster) {
                queue.add_with(name, Priority::Backlog);
            }
        }
    }

    fn turned(&self, turn: Turn, queue: &Queue<ObjectName>) {
        let brake = lock(&self.brake);
        let (clusters, lost) = brake.count();
        let waiting: Vec<Arc<str>> = match turn {
            Turn::Eases => brake.lost().cloned().collect(),
            Turn::None | Turn::Holds => Vec::new(),
        };
        self.metrics.fleet(lost, brake.holds());
        drop(brake);
        match turn {
            Turn::None => {}
            Turn::Holds => {
                tracing::warn!(
                    lost,
                    clusters,
                    "too many clusters are lost at once: nothing leaves them, for it may be the hub that is cut off"
                );
            }
            Turn::Eases => {
                tracing::info!(lost, clusters, "most clusters are heard again");
                lock(&self.told).clear();
            }
        }
        waiting.iter().for_each(|name| self.wake(name, queue));
    }

    /// Gives whoever waits its turn, for ever.
    async fn give_turns(self: Arc<Self>, queue: Queue<ObjectName>) {
        loop {
            let Some(next) = lock(&self.turns).next() else {
                self.waits.notified().await;
                continue;
            };
            sleep_until(self.start + next).await;
            let mut turns = lock(&self.turns);
            let given = turns.give(self.now());
            self.metrics.waiting(turns.waiting());
            drop(turns);
            if let Some(name) = given {
                queue.add_with(name, Priority::Urgent);
            }
        }
    }

    fn needs_no_turn(&self, key: &ObjectName) {
        let mut turns = lock(&self.turns);
        turns.done(key);
        self.metrics.waiting(turns.waiting());
    }

    /// Whether a binding has its turn.
    fn has_turn(&self, key: &ObjectName, held: &world::Binding) -> bool {
        let mut turns = lock(&self.turns);
        let has = turns.has(key, from_api::priority(&held.binding.spec));
        self.metrics.waiting(turns.waiting());
        drop(turns);
        if !has {
            self.waits.notify_one();
        }
        has
    }

    fn around(&self, name: &str, cluster: Arc<Cluster>) -> Around {
        let mut brake = lock(&self.brake);
        let word = brake.word(self.now(), name);
        self.metrics.fleet(brake.count().1, brake.holds());
        Around { cluster, word }
    }

    fn decide(
        &self,
        held: &world::Binding,
        clusters: &BTreeMap<String, Around>,
        unhealthy: &Since,
        turn: bool,
    ) -> Decision {
        let options = decide::Options {
            purge_mode: self.options.purge_mode,
            timeout: self.options.timeout,
        };
        let seen = Seen {
            held,
            clusters,
            unhealthy,
            turn,
        };
        decide(self.clock.now(), options, seen)
    }

    /// Since when a binding is not healthy in its members, with what they say now.
    fn unhealthy(&self, key: &ObjectName, held: &world::Binding) -> Since {
        let mut all = lock(&self.unhealthy);
        let before = all.remove(key).unwrap_or_default();
        let since = unhealthy::since(self.clock.now(), held, &before);
        if !since.is_empty() {
            all.insert(key.clone(), since.clone());
        }
        since
    }
}

/// The clusters that a binding is placed on, and those that it leaves.
pub(crate) fn clusters_of(held: &world::Binding) -> Vec<Arc<str>> {
    let spec = &held.binding.spec;
    let leaving = spec.graceful_eviction_tasks.iter();
    let all: BTreeSet<&str> = spec
        .clusters
        .iter()
        .map(|it| it.name.as_str())
        .chain(leaving.map(|it| it.from_cluster.as_str()))
        .collect();
    all.into_iter().map(Into::into).collect()
}

impl Reconcile for Evictions {
    const NAME: &'static str = "eviction";
    type Key = ObjectName;
    type Error = Error;

    async fn ready(&self) {
        self.world.synced().await;
    }

    async fn reconcile(&self, key: &ObjectName) -> Result<Requeue, Error> {
        let Some(held) = self.world.propagation.binding(key) else {
            return Ok(Requeue::Never);
        };
        let mut clusters = BTreeMap::new();
        for name in clusters_of(&held) {
            let found = self.world.clusters.get(&ObjectName::new(None, &name));
            if let Some(cluster) = found.and_then(|it| it.record) {
                let mut around = self.around(&name, cluster);
                if !self.options.enabled {
                    around = untainted(around);
                }
                clusters.insert(name.to_string(), around);
            }
        }
        let unhealthy = self.unhealthy(key, &held);
        let mut decision = self.decide(&held, &clusters, &unhealthy, false);
        if decision.wants_turn {
            if !self.has_turn(key, &held) {
                // Its tasks may end all the same.
                self.apply(&held, &decision).await?;
                return Ok(requeue(&decision));
            }
            for around in &mut clusters {
                self.look(around).await?;
            }
            decision = self.decide(&held, &clusters, &unhealthy, true);
        }
        self.tell_held(&decision);
        self.apply(&held, &decision).await?;
        self.needs_no_turn(key);
        Ok(requeue(&decision))
    }
}

/// A cluster as it counts where its taints make nothing leave.
pub(crate) fn untainted(around: Around) -> Around {
    if !around.cluster.taints.iter().any(taints::evicts) {
        return around;
    }
    let mut cluster = Cluster::clone(&around.cluster);
    cluster.taints.retain(|it| !taints::evicts(it));
    Around {
        cluster: Arc::new(cluster),
        ..around
    }
}

fn requeue(decision: &Decision) -> Requeue {
    decision.again.map_or(Requeue::Never, Requeue::After)
}

impl Evictions {
    /// Reads a cluster live: nothing leaves by what a view believes.
    async fn look(&self, (name, around): (&String, &mut Around)) -> Result<(), Error> {
        if !around.cluster.taints.iter().any(taints::evicts) {
            return Ok(());
        }
        let uri = format!("{CLUSTERS}/{name}");
        let failed = |error| Error::request("read", "Cluster", name, error);
        let reply = Call::get(&uri, JSON)
            .send(&self.client)
            .await
            .map_err(failed)?;
        let text = std::str::from_utf8(&reply.body).unwrap_or_default();
        match Cluster::read(text) {
            Ok(Some(cluster)) => around.cluster = Arc::new(cluster),
            Ok(None) | Err(_) => {
                return Err(Error::Undecided(format!("Cluster {name:?} cannot be read")));
            }
        }
        Ok(())
    }

    async fn apply(&self, held: &world::Binding, decision: &Decision) -> Result<(), Error> {
        self.bindings.tell(&about(&held.binding), &decision.blocked);
        let Some(wanted) = &decision.binding else {
            return Ok(());
        };
        let placed = self.placing.place(wanted, Some(held));
        let updated = self.bindings.update(&held.binding, &placed).await;
        self.placing.noted(wanted, updated)?;
        self.metrics.evicted(wanted.kind(), decision.left.len());
        self.bindings.tell(&about(wanted), &decision.events);
        let template = about_template_of(wanted);
        self.bindings.tell(&template, &decision.events);
        Ok(())
    }

    /// Says, once for each cluster, that what is there stays there.
    fn tell_held(&self, decision: &Decision) {
        for name in &decision.held {
            if !lock(&self.told).insert(name.clone()) {
                continue;
            }
            let (clusters, lost) = lock(&self.brake).count();
            let text = format!(
                "{lost} of {clusters} clusters are lost at once: nothing leaves them, for it may be the hub that is cut off."
            );
            let found = self.world.clusters.get(&ObjectName::new(None, name));
            let found = found.and_then(|it| it.record);
            let uid = found.as_ref().map_or("", |it| &it.lifecycle.uid);
            let about = about_cluster(name, uid);
            let notice = Notice::warning("EvictionHeld", text);
            self.bindings.tell(&about, &[notice]);
        }
    }
}
