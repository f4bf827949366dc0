//! Places bindings: asks [`crate::scheduler`] where each goes, and writes down what it says.
//!
//! A binding is looked at when its spec changes, when a cluster where it is changes in what filters look at, when one
//! comes that it would go to, and, if it could not be placed, by the rules of `waiting`.
//! [`crate::scheduler::needed`] says whether that moves it.

pub(crate) mod decide;
mod placing;
#[cfg(test)]
mod tests;
mod waiting;

pub use decide::Said;
pub use placing::Placing;

use super::bindings::{Bindings, Error, about, about_template_of};
use crate::propagation::{self, Notice};
use crate::scheduler::{self, Snapshot, from_api};
use crate::world::{Binding, Change, Cluster, Index, ObjectName, SharedPlacement, World};
use common::controller::{Controller, Reconcile, Requeue};
use common::labels::{CLUSTER_POLICY_PERMANENT_ID, MANAGED_BINDING, POLICY_PERMANENT_ID};
use common::lock::lock;
use common::queue::{Priority, Queue};
use common::time::SharedClock;
use decide::{Ahead, Decision, Seen, decide};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use waiting::Waiting;

/// The scheduler of this hub, as policies name it.
pub const NAME: &str = common::api::policy::DEFAULT_SCHEDULER;

/// The scheduler's controller.
pub struct Scheduler {
    world: World,
    bindings: Bindings,
    placing: Placing,
    clock: SharedClock,
    /// Bindings by the clusters where they are.
    placed: Index<Arc<str>>,
    /// Bindings by what says where they go.
    placements: Index<Arc<SharedPlacement>>,
    /// Bindings that could not be placed.
    waiting: Mutex<Waiting>,
    queue: Queue<ObjectName>,
}

impl Scheduler {
    /// A scheduler that is woken by what the world tells.
    pub fn watching(
        bindings: Bindings,
        placing: Placing,
        clock: SharedClock,
        world: &World,
    ) -> Controller<Arc<Self>> {
        Self::wired(bindings, placing, clock, world).1
    }

    fn wired(
        bindings: Bindings,
        placing: Placing,
        clock: SharedClock,
        world: &World,
    ) -> (Arc<Self>, Controller<Arc<Self>>) {
        let views = &world.propagation;
        let (placed, placements) = (Index::default(), Index::default());
        for view in [&views.bindings, &views.cluster_bindings] {
            view.index_too(&placed, |_, held| {
                let targets = held.binding.spec.clusters.iter();
                targets.map(|it| Arc::from(it.name.as_str())).collect()
            });
            view.index_too(&placements, |_, held| {
                held.placement.iter().cloned().collect()
            });
        }
        let scheduler = Arc::new(Self {
            world: world.clone(),
            bindings,
            placing,
            clock,
            placed,
            placements,
            waiting: Mutex::default(),
            queue: Queue::new(),
        });
        let queue = scheduler.queue.clone();
        let controller = Controller::over(queue.clone(), Arc::clone(&scheduler));
        scheduler.placing.scheduled_by(queue);
        for view in [&views.bindings, &views.cluster_bindings] {
            let me = Arc::clone(&scheduler);
            view.on_change(move |change| me.binding_changed(change));
        }
        let me = Arc::clone(&scheduler);
        world
            .clusters
            .on_change(move |change| me.cluster_changed(change));
        (scheduler, controller)
    }

    fn binding_changed(&self, change: &Change<Binding>) {
        let Some(new) = change.after() else {
            self.forget(&change.name);
            return;
        };
        let old = change.before();
        let same = |old: &Binding| {
            old.generation == new.generation && old.binding.labels == new.binding.labels
        };
        if old.is_some_and(same) {
            return;
        }
        lock(&self.waiting).changed(&change.name);
        // Where it was written with its placement is told with what members say of that.
        let now = self.clock.now();
        let is_told = self.placing.said(now, &change.name, new).is_some();
        if !is_told || !self.placing.is_current(&change.name) {
            let priority = if change.listed {
                Priority::Backlog
            } else {
                Priority::Normal
            };
            let rank = from_api::priority(&new.binding.spec);
            self.queue.add_ranked(change.name.clone(), priority, rank);
        }
    }

    fn cluster_changed(&self, change: &Change<Cluster>) {
        let (old, new) = (change.before(), change.after());
        let (old, new) = (
            old.and_then(|it| it.placing.as_deref()),
            new.and_then(|it| it.placing.as_deref()),
        );
        if old == new {
            return;
        }
        let looks = |cluster: &scheduler::Cluster| (Arc::clone(&cluster.shape), cluster.leaving);
        let now = Instant::now();
        let woken = match (old, new) {
            (Some(old), Some(new)) if looks(old) == looks(new) => {
                lock(&self.waiting).has_other_room(old, new, now)
            }
            _ => {
                self.wake(&change.name.name, old, new);
                lock(&self.waiting).looks_other(old, new, now)
            }
        };
        for (name, at) in woken {
            self.queue.add_at(name, at, Priority::Backlog);
        }
    }

    /// What is placed on a cluster, and what would go there now if it could.
    fn wake(
        &self,
        name: &Arc<str>,
        old: Option<&scheduler::Cluster>,
        new: Option<&scheduler::Cluster>,
    ) {
        let mut woken: BTreeSet<ObjectName> = self.placed.names(name).into_iter().collect();
        if let Some(cluster) = new.filter(|new| new.may_gain_over(old)) {
            let placements = self.placements.keys().into_iter();
            let concerned = placements.filter(|it| it.rules.concern(cluster, None));
            woken.extend(concerned.flat_map(|it| self.placements.names(&it)));
        }
        for name in woken {
            self.queue.add_with(name, Priority::Backlog);
        }
    }

    fn forget(&self, name: &ObjectName) {
        lock(&self.waiting).forget(name);
        self.placing.forget(name);
    }
}

/// Whether a binding is this scheduler's to place.
pub(crate) fn is_ours(binding: &propagation::Binding) -> bool {
    let scheduler = binding.spec.scheduler_name.as_deref().unwrap_or_default();
    let labels = [
        POLICY_PERMANENT_ID,
        CLUSTER_POLICY_PERMANENT_ID,
        MANAGED_BINDING,
    ];
    (scheduler.is_empty() || scheduler == NAME)
        && labels
            .iter()
            .any(|label| binding.labels.contains_key(*label))
}

impl Reconcile for Scheduler {
    const NAME: &'static str = "scheduler";
    type Key = ObjectName;
    type Error = Error;

    async fn ready(&self) {
        self.world.placing_synced().await;
    }

    async fn reconcile(&self, key: &ObjectName) -> Result<Requeue, Error> {
        let is_news = lock(&self.waiting).begin(key);
        let done = self.place(key, is_news).await;
        if done.is_err() {
            // What was to be said was not.
            lock(&self.waiting).changed(key);
        }
        done
    }
}

impl Scheduler {
    /// `is_news` says whether it is looked at for something else than room.
    async fn place(&self, key: &ObjectName, is_news: bool) -> Result<Requeue, Error> {
        let Some(held) = self.world.propagation.binding(key) else {
            self.forget(key);
            return Ok(Requeue::Never);
        };
        if !is_ours(&held.binding) {
            lock(&self.waiting).forget(key);
            return Ok(Requeue::Never);
        }
        if let Some(cluster) = self.placing.unreadable(&held.binding) {
            return Err(Error::Undecided(format!(
                "Cluster {cluster:?} cannot be read, so what is placed there stays as it is; write it anew as its kind describes it"
            )));
        }
        let snapshot = self.placing.snapshot();
        let ahead = self.placing.ahead(key, held.generation);
        let seen = Seen {
            held: &held,
            snapshot: &snapshot,
            ahead: ahead.as_ref(),
        };
        let mut decision = decide(self.clock.now(), &seen);
        let noted = lock(&self.waiting).note(key, &held, &decision, is_news, Instant::now());
        if noted.held_back {
            decision.hold_back();
        }
        if let Some(at) = noted.again {
            self.queue.add_at(key.clone(), at, Priority::Backlog);
        }
        // A cluster that changed before it was noted wakes nobody for it.
        let missed = decision.waits_for.is_some() && !self.placing.is_snapshot(&snapshot);
        self.apply(key, &held.binding, &decision, &snapshot).await?;
        self.placing.told(key, held.generation);
        Ok(if missed {
            Requeue::After(Duration::ZERO)
        } else {
            Requeue::Never
        })
    }

    async fn apply(
        &self,
        key: &ObjectName,
        binding: &propagation::Binding,
        decision: &Decision,
        snapshot: &Arc<Snapshot>,
    ) -> Result<(), Error> {
        let mut binding = binding.clone();
        let mut generation = None;
        let mut status = decision.status.clone();
        if let Some(status) = status.take_if(|_| !decision.placed) {
            // Nobody looks again at a placement that was answered, unless it is said that it goes nowhere.
            let written = self.bindings.patch_status(&binding, &status).await?;
            binding.resource_version = written.version;
            self.tell(&binding, &decision.events);
        }
        if let Some(mut patch) = decision.patch.clone() {
            patch["metadata"]["resourceVersion"] = json!(binding.resource_version);
            let written = self.bindings.patch(&binding, &patch).await?;
            binding.resource_version = written.version;
            generation = Some(written.generation);
        }
        if let Some(mut status) = status {
            if let Some(generation) = generation {
                status["schedulerObservedGeneration"] = json!(generation);
            }
            let told = self.bindings.patch_status(&binding, &status).await;
            if let (Err(_), Some(ahead), Some(written)) = (&told, &decision.ahead, generation) {
                let ahead = Ahead {
                    generation: written - 1,
                    ..ahead.clone()
                };
                self.placing.untold(key, ahead, snapshot);
            }
            told?;
        }
        if decision.placed {
            self.tell(&binding, &decision.events);
        }
        Ok(())
    }

    fn tell(&self, binding: &propagation::Binding, events: &[Notice]) {
        self.bindings.tell(&about(binding), events);
        self.bindings.tell(&about_template_of(binding), events);
    }
}
