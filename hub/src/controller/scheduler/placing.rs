//! Where bindings go, for whoever is about to write one: its placement is then written with the rest of it, and the
//! scheduler has only to say so in its status.

use super::decide::{self, Ahead, Said};
use super::is_ours;
use crate::controller::bindings::name_of;
use crate::propagation::Binding;
use crate::scheduler::Snapshot;
use crate::world::{self, Change, Cluster, ObjectName, World};
use chrono::{DateTime, Utc};
use common::lock::lock;
use common::queue::Queue;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Places bindings; clones share what they know.
#[derive(Clone)]
pub struct Placing(Arc<Shared>);

struct Shared {
    world: World,
    /// All clusters, until one changes.
    snapshot: Mutex<Option<Arc<Snapshot>>>,
    /// What was written and is not told yet, and on which clusters it was placed.
    ahead: Mutex<BTreeMap<ObjectName, (Ahead, Weak<Snapshot>)>>,
    /// Who is to look at a binding of which it is not known any more where it was placed.
    scheduler: OnceLock<Queue<ObjectName>>,
}

impl Placing {
    /// On the clusters that the world tells of.
    pub fn watching(world: &World) -> Self {
        let placing = Self(Arc::new(Shared {
            world: world.clone(),
            snapshot: Mutex::default(),
            ahead: Mutex::default(),
            scheduler: OnceLock::new(),
        }));
        let me = placing.clone();
        world.clusters.on_change(move |change| {
            if is_other(change) {
                lock(&me.0.snapshot).take();
            }
        });
        placing
    }

    /// A binding as it is to be written over what is `seen`: with its placement, if it can be placed at once.
    pub fn place(&self, wanted: &Binding, seen: Option<&world::Binding>) -> Binding {
        let known = self.0.world.clusters.is_synced() && self.unreadable(wanted).is_none();
        if !is_ours(wanted) || !known {
            return wanted.clone();
        }
        let snapshot = self.snapshot();
        let (placed, ahead) = decide::write_over(wanted, seen, &snapshot);
        if let Some(ahead) = ahead {
            let ahead = (ahead, Arc::downgrade(&snapshot));
            lock(&self.0.ahead).insert(name_of(&placed), ahead);
        }
        placed
    }

    /// A binding was placed on these clusters, and its status could not be written. What was written of it since counts
    /// more.
    pub(super) fn untold(&self, name: &ObjectName, ahead: Ahead, snapshot: &Arc<Snapshot>) {
        let mut all = lock(&self.0.ahead);
        let known = all.get(name);
        if known.is_none_or(|(known, _)| known.generation <= ahead.generation) {
            all.insert(name.clone(), (ahead, Arc::downgrade(snapshot)));
        }
    }

    /// Has the scheduler look at bindings that were taken for placed and may not be.
    pub(super) fn scheduled_by(&self, queue: Queue<ObjectName>) {
        // There is one scheduler.
        let _ = self.0.scheduler.set(queue);
    }

    /// Where a binding goes that was not written is not told. What was told of one that somebody else wrote under its
    /// name may have been taken for this one.
    pub fn noted<T, E>(&self, binding: &Binding, written: Result<T, E>) -> Result<T, E> {
        if written.is_err() {
            let name = name_of(binding);
            self.forget(&name);
            if let Some(queue) = self.0.scheduler.get() {
                queue.add(name);
            }
        }
        written
    }

    /// A binding was not written, or is gone.
    pub fn forget(&self, name: &ObjectName) {
        lock(&self.0.ahead).remove(name);
    }

    /// The placement that was written with a binding of this generation.
    pub(super) fn ahead(&self, name: &ObjectName, generation: i64) -> Option<Ahead> {
        let mut all = lock(&self.0.ahead);
        let (ahead, _) = all.get(name)?;
        if generation > ahead.generation + 1 {
            all.remove(name);
            return None;
        }
        (generation > ahead.generation).then(|| ahead.clone())
    }

    /// What the status of a binding that was written with its placement does not tell yet.
    pub fn said(
        &self,
        now: DateTime<Utc>,
        name: &ObjectName,
        held: &world::Binding,
    ) -> Option<Said> {
        let ahead = self.ahead(name, held.generation)?;
        decide::said(now, held, &ahead)
    }

    /// Whether no cluster has changed since a binding was placed. One that changes before the binding is known wakes
    /// nobody for it.
    pub(super) fn is_current(&self, name: &ObjectName) -> bool {
        let ahead = lock(&self.0.ahead);
        let snapshot = lock(&self.0.snapshot);
        let (Some((_, then)), Some(now)) = (ahead.get(name), snapshot.as_ref()) else {
            return false;
        };
        Weak::ptr_eq(then, &Arc::downgrade(now))
    }

    /// The status of a binding of this generation tells where it was placed.
    pub fn told(&self, name: &ObjectName, generation: i64) {
        let mut all = lock(&self.0.ahead);
        if all
            .get(name)
            .is_some_and(|(ahead, _)| generation > ahead.generation)
        {
            all.remove(name);
        }
    }

    /// A cluster that has a part of the binding, and of which nobody knows what it is: nothing moves for that.
    pub(super) fn unreadable<'b>(&self, binding: &'b Binding) -> Option<&'b str> {
        let mut names = binding.spec.clusters.iter().map(|it| it.name.as_str());
        names.find(|name| {
            let held = self.0.world.clusters.get(&ObjectName::new(None, name));
            held.is_some_and(|held| held.record.is_none_or(|it| it.placing.is_none()))
        })
    }

    /// Whether no cluster has changed since this was all of them.
    pub(super) fn is_snapshot(&self, then: &Arc<Snapshot>) -> bool {
        let snapshot = lock(&self.0.snapshot);
        snapshot.as_ref().is_some_and(|now| Arc::ptr_eq(now, then))
    }

    /// All clusters.
    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        let mut snapshot = lock(&self.0.snapshot);
        let all = snapshot.get_or_insert_with(|| {
            let clusters = &self.0.world.clusters;
            let mut all = Vec::with_capacity(clusters.len());
            clusters.for_each(|_, held| {
                all.extend(held.record.as_ref().and_then(|it| it.placing.clone()));
            });
            Arc::new(Snapshot::new(all))
        });
        Arc::clone(all)
    }
}

/// Whether placement sees a difference.
fn is_other(change: &Change<Cluster>) -> bool {
    let placing = |cluster: Option<&Cluster>| cluster.and_then(|it| it.placing.clone());
    placing(change.before()) != placing(change.after())
}
