//! Where the scheduler and the eviction have a binding go. Pure: the decisions are their own.

use super::Settling;
use crate::controller::eviction::brake::SETTLE;
use crate::controller::eviction::decide::{Around, Seen as Leaving};
use crate::controller::eviction::unhealthy::Since;
use crate::controller::eviction::{self, clusters_of, untainted};
use crate::controller::scheduler::decide::{self as placing, Seen};
use crate::controller::scheduler::is_ours;
use crate::propagation::Binding;
use crate::world::ObjectName;
use common::api::binding::TargetCluster;
use common::labels::APPLIED_PLACEMENT;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Settling<'_> {
    /// A cluster with a part of a binding, of which nobody knows what it is: nothing moves for that.
    fn is_blind(&self, binding: &Binding) -> bool {
        let mut names = binding.spec.clusters.iter().map(|it| &it.name);
        names.any(|name| {
            let held = self.state.clusters.get(name);
            held.is_some_and(|it| it.record.placing.is_none())
                || self
                    .state
                    .is_unreadable("Cluster", &ObjectName::new(None, name))
        })
    }

    pub(super) fn place_and_write(&mut self, key: &ObjectName, wanted: &Binding) {
        let held = self.state.bindings.get(key).cloned();
        if !is_ours(wanted) || self.is_blind(wanted) {
            return self.write(key, wanted.clone());
        }
        let (placed, ahead) = placing::write_over(wanted, held.as_deref(), &self.placing);
        self.write(key, placed);
        if let Some(ahead) = ahead {
            self.ahead.insert(key.clone(), ahead);
        }
    }

    pub(super) fn schedule(&mut self, key: &ObjectName) {
        let Some(held) = self.state.bindings.get(key).cloned() else {
            return;
        };
        if !is_ours(&held.binding) || self.is_blind(&held.binding) {
            return;
        }
        let ahead = self.ahead.remove(key);
        let ahead = ahead.filter(|ahead| held.generation == ahead.generation + 1);
        let seen = Seen {
            held: &held,
            snapshot: &self.placing,
            ahead: ahead.as_ref(),
        };
        let decision = placing::decide(self.now, &seen);
        let mut generation = None;
        if let Some(patch) = &decision.patch {
            let mut wanted = held.binding.clone();
            if let Some(clusters) = patch.pointer("/spec/clusters") {
                let clusters: Result<Vec<TargetCluster>, _> =
                    serde_json::from_value(clusters.clone());
                // It was made of such a list.
                wanted.spec.clusters = clusters.unwrap_or_default();
            }
            let annotations = patch.pointer("/metadata/annotations");
            let applied = annotations.and_then(|it| it.get(APPLIED_PLACEMENT)?.as_str());
            if let Some(applied) = applied {
                let annotations = &mut wanted.annotations;
                annotations.insert(APPLIED_PLACEMENT.to_owned(), applied.to_owned());
            }
            self.write(key, wanted);
            generation = self.state.bindings.get(key).map(|it| it.generation);
        }
        if let Some(mut status) = decision.status {
            if let (true, Some(generation)) = (decision.placed, generation) {
                status["schedulerObservedGeneration"] = generation.into();
            }
            self.say(key, &status);
        }
    }

    pub(super) fn evict(&mut self, key: &ObjectName) {
        let Some(held) = self.state.bindings.get(key).cloned() else {
            return;
        };
        self.timers.remove(key);
        let passed = (self.now - self.start).to_std().unwrap_or_default() + SETTLE;
        let mut clusters = BTreeMap::new();
        for name in clusters_of(&held) {
            let Some(cluster) = self.state.clusters.get(&*name) else {
                continue;
            };
            let mut around = Around {
                cluster: Arc::clone(&cluster.record),
                word: self.brake.word(passed, &name),
            };
            if !self.eviction.enabled {
                around = untainted(around);
            }
            clusters.insert(name.to_string(), around);
        }
        let options = eviction::decide::Options {
            purge_mode: self.eviction.purge_mode,
            timeout: self.eviction.timeout,
        };
        let seen = Leaving {
            held: &held,
            clusters: &clusters,
            // Only time shows what will not be healthy.
            unhealthy: &Since::new(),
            turn: true,
        };
        let decision = eviction::decide::decide(self.now, options, seen);
        self.held.extend(decision.held);
        if let Some(wait) = decision
            .again
            .and_then(|it| chrono::Duration::from_std(it).ok())
            && let Some(at) = self.now.checked_add_signed(wait)
        {
            self.timers.insert(key.clone(), at);
        }
        if let Some(wanted) = &decision.binding {
            self.place_and_write(key, wanted);
        }
    }
}
