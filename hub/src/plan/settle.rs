//! Carries out what the hub's controllers decide, one after another, until nothing is left to do: at once, and then
//! as time passes. Pure: the decisions are the controllers' own.

use super::state::{Held, Placed, State, Touched};
use super::told::unplaced;
use crate::controller::bindings::required_by;
use crate::controller::dependencies::{attach, sought};
use crate::controller::detector::skip::Skips;
use crate::controller::detector::wake::{self, Edit};
use crate::controller::detector::{self, Observed, Problem, Write};
use crate::controller::eviction::brake::{Brake, SETTLE, Sight};
use crate::controller::eviction::decide::{Around, Seen as Leaving};
use crate::controller::eviction::unhealthy::Since;
use crate::controller::eviction::{self, clusters_of, untainted};
use crate::controller::scheduler::decide::{self as placing, Ahead, Seen};
use crate::controller::scheduler::is_ours;
use crate::propagation::{Binding, PolicyName, Template};
use crate::scheduler::{Cluster, Snapshot};
use crate::world::{self, ObjectName, TemplateName};
use chrono::{DateTime, Utc};
use common::api::binding::{ResourceBindingStatus, TargetCluster};
use common::gvk::{GroupKind, Gvk};
use common::labels::APPLIED_PLACEMENT;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Decisions about one binding or template; who needs more does not come to rest.
const ROUNDS: usize = 64;

/// A hub in which something is decided.
pub(super) struct Settling<'a> {
    pub state: State,
    skips: &'a Skips,
    eviction: &'a eviction::Options,
    start: DateTime<Utc>,
    now: DateTime<Utc>,
    placing: Arc<Snapshot>,
    brake: Brake,
    templates: BTreeSet<TemplateName>,
    bindings: BTreeSet<ObjectName>,
    /// Bindings that may leave clusters.
    leaving: BTreeSet<ObjectName>,
    edited: BTreeMap<TemplateName, Edit>,
    ahead: BTreeMap<ObjectName, Ahead>,
    timers: BTreeMap<ObjectName, DateTime<Utc>>,
    rounds: BTreeMap<ObjectName, usize>,
    version: u64,
    /// What waits, and for what.
    pub problems: BTreeMap<TemplateName, Problem>,
    /// Clusters that would be left, were not so many lost.
    pub held: BTreeSet<String>,
    /// When the placement of a binding changed last, of those that did after the first moment.
    pub moved_at: BTreeMap<ObjectName, DateTime<Utc>>,
    /// Since when bindings are placed on clusters that they came to.
    came: BTreeMap<(ObjectName, String), DateTime<Utc>>,
    /// Clusters that bindings left at the moment at which they came there.
    passed: BTreeSet<(ObjectName, String)>,
    /// Bindings that went, as they were then.
    ended: BTreeMap<ObjectName, Arc<world::Binding>>,
    /// Whether everything came to rest.
    pub rests: bool,
}

impl<'a> Settling<'a> {
    pub(super) fn new(
        state: State,
        skips: &'a Skips,
        eviction: &'a eviction::Options,
        now: DateTime<Utc>,
    ) -> Self {
        let mut settling = Self {
            placing: Arc::new(state.placing()),
            brake: Brake::new(eviction.lost_share),
            state,
            skips,
            eviction,
            start: now,
            now,
            templates: BTreeSet::new(),
            bindings: BTreeSet::new(),
            leaving: BTreeSet::new(),
            edited: BTreeMap::new(),
            ahead: BTreeMap::new(),
            timers: BTreeMap::new(),
            rounds: BTreeMap::new(),
            version: 0,
            problems: BTreeMap::new(),
            held: BTreeSet::new(),
            moved_at: BTreeMap::new(),
            came: BTreeMap::new(),
            passed: BTreeSet::new(),
            ended: BTreeMap::new(),
            rests: true,
        };
        settling.see_clusters();
        settling
    }

    /// When it began.
    pub(super) fn start(&self) -> DateTime<Utc> {
        self.start
    }

    /// Whether a binding left a cluster at the moment at which it came there.
    pub(super) fn passed(&self, key: &ObjectName, cluster: &str) -> bool {
        self.passed.contains(&(key.clone(), cluster.to_owned()))
    }

    /// A binding that went, as it was then.
    pub(super) fn ended(&self, key: &ObjectName) -> Option<&Arc<world::Binding>> {
        self.ended.get(key)
    }

    /// Templates of which something waits, and for what: what was edited of them meanwhile only the hub remembers.
    pub(super) fn waiting(&self) -> BTreeMap<TemplateName, Problem> {
        let problem = |held: &Held| {
            let template = &held.identity;
            if self.skips.template(template) || self.is_undecided(template) {
                return None;
            }
            let seen = self.observed(template, &held.object, Some(Edit::Content));
            detector::decide(&seen).problem
        };
        let all = self.state.templates.iter();
        all.filter_map(|(name, held)| Some((name.clone(), problem(held)?)))
            .collect()
    }

    /// Templates that were edited before it began.
    pub(super) fn remember(&mut self, edited: &BTreeSet<TemplateName>) {
        let edited = edited.iter().map(|name| (name.clone(), Edit::Content));
        self.edited.extend(edited);
    }

    /// Something changed.
    pub(super) fn touch(&mut self, touched: Touched) {
        for (name, edit) in touched.edited {
            let known = self.edited.entry(name).or_insert(edit);
            *known = edit.max(*known);
        }
        self.templates.extend(touched.templates);
        if let Some(cluster) = touched.cluster {
            self.see_clusters();
            self.wake_placed(&cluster);
        }
    }

    /// Has looked at what the scheduler and the eviction look at when a cluster changes.
    fn wake_placed(&mut self, changed: &Placed) {
        let (old, new) = (changed.before.as_deref(), changed.after.as_deref());
        let looks =
            |cluster: Option<&Cluster>| cluster.map(|it| (Arc::clone(&it.shape), it.leaving));
        let other = looks(old) != looks(new);
        let gains = new.filter(|new| new.may_gain_over(old));
        for (key, held) in &self.state.bindings {
            let is_there = clusters_of(held).iter().any(|it| **it == *changed.name);
            let mut targets = held.binding.spec.clusters.iter();
            let is_placed = targets.any(|it| it.name == changed.name);
            let waits = unplaced(held).is_some();
            let may_come = gains.is_some_and(|cluster| {
                let placement = held.placement.as_ref();
                placement.is_some_and(|it| it.rules.concern(cluster, None))
            });
            if waits || other && (is_placed || may_come) {
                self.bindings.insert(key.clone());
            }
            if is_there {
                self.leaving.insert(key.clone());
            }
        }
    }

    fn see_clusters(&mut self) {
        self.placing = Arc::new(self.state.placing());
        self.brake = Brake::new(self.eviction.lost_share);
        for (name, cluster) in &self.state.clusters {
            let name = Arc::from(name.as_str());
            let sight = Sight::of(&cluster.record);
            self.brake.see(std::time::Duration::ZERO, &name, sight);
        }
        self.brake.begin(std::time::Duration::ZERO);
    }

    /// Decides until nothing changes any more at this moment.
    pub(super) fn settle(&mut self) {
        loop {
            if let Some(name) = self.templates.pop_first() {
                self.detect(&name);
            } else if let Some(name) = self.bindings.pop_first() {
                if self.may_go_on(&name) {
                    self.schedule(&name);
                    self.evict(&name);
                }
            } else if let Some(name) = self.leaving.pop_first() {
                self.evict(&name);
            } else {
                return;
            }
        }
    }

    /// Lets time pass until nothing waits for it.
    pub(super) fn pass(&mut self) {
        self.settle();
        while let Some(next) = self.timers.values().min().copied() {
            self.now = self.now.max(next);
            let due = self.timers.iter().filter(|(_, at)| **at <= self.now);
            let due: Vec<ObjectName> = due.map(|(name, _)| name.clone()).collect();
            for name in due {
                self.timers.remove(&name);
                self.leaving.insert(name);
            }
            self.settle();
        }
    }

    fn may_go_on(&mut self, name: &ObjectName) -> bool {
        let rounds = self.rounds.entry(name.clone()).or_default();
        *rounds += 1;
        let on = *rounds <= ROUNDS;
        self.rests &= on;
        on
    }

    fn detect(&mut self, name: &TemplateName) {
        let Some(held) = self.state.templates.get(name).cloned() else {
            self.forget(name);
            return;
        };
        let template = &held.identity;
        if self.skips.template(template) || self.is_undecided(template) {
            return;
        }
        let key = State::binding_of(template);
        if !self.may_go_on(&key) {
            return;
        }
        let edited = self.edited.remove(name);
        let seen = self.observed(template, &held.object, edited);
        let mut decision = detector::decide(&seen);
        let required: BTreeSet<ObjectName> =
            self.state.all_bindings().flat_map(required_by).collect();
        let is_required = |it: &ObjectName| required.contains(it);
        // What has no form in JSON is no binding; the hub says so itself.
        let _ = detector::shown::add(
            &seen,
            Some(&held.object),
            &self.state.interpreter,
            is_required,
            &mut decision,
        );
        if let Some(claim) = &decision.claim {
            self.state.claim(name, claim);
        }
        let waits = matches!(decision.binding, Some(Write::Replace(_)));
        match decision.binding {
            Some(Write::Create(wanted)) => self.place_and_write(&key, &wanted),
            Some(Write::Update(wanted)) => self.place_and_write(&key, &wanted),
            Some(Write::Delete(_) | Write::Replace(_)) => self.remove(&key),
            None => {}
        }
        if waits || decision.goes_on || decision.problem.is_some() {
            edited.map(|edit| self.edited.insert(name.clone(), edit));
        }
        if waits {
            self.templates.insert(name.clone());
        }
        match decision.problem {
            Some(problem) => self.problems.insert(name.clone(), problem),
            None => self.problems.remove(name),
        };
    }

    /// Whether the policy that a template shows is there and cannot be read.
    fn is_undecided(&self, template: &Template) -> bool {
        wake::holder(template).is_some_and(|holder| {
            let kind = match holder.namespace {
                Some(_) => "PropagationPolicy",
                None => "ClusterPropagationPolicy",
            };
            let name = ObjectName::new(holder.namespace.as_deref(), &holder.name);
            self.state.is_unreadable(kind, &name)
        })
    }

    fn observed(&self, template: &Template, object: &Value, edited: Option<Edit>) -> Observed {
        let here =
            |name: &PolicyName| name.namespace.is_none() || name.namespace == template.namespace;
        let policies = self.state.policies.iter();
        let policies: Vec<_> = policies
            .filter(|(name, _)| here(name))
            .map(|(_, policy)| Arc::clone(policy))
            .collect();
        let wanted = policies.iter().flat_map(|it| wake::overrides_of(it));
        let overrides = wanted
            .filter(|it| self.state.overrides.contains_key(it))
            .collect();
        let kind = Gvk::new(&template.api_version, &template.kind);
        let replicas = kind.map(|kind| self.state.interpreter.replicas(&kind, object));
        let binding = self.state.bindings.get(&State::binding_of(template));
        Observed {
            edited,
            overrides,
            replicas: replicas.map_or(Ok(None), |it| it.map_err(|failed| failed.to_string())),
            priority_classes: self.state.priority_classes.clone(),
            binding: binding.map(|held| held.binding.clone()),
            dependents: attach::those_of(template, self.state.all_bindings()),
            fresh_id: format!("id of {}", template.binding_name()),
            template: template.clone(),
            policies,
        }
    }

    /// A template that is gone takes its binding along.
    fn forget(&mut self, name: &TemplateName) {
        let of = |kind: &GroupKind, binding: &Binding| {
            let owner = binding.owner.as_ref();
            owner.is_some_and(|owner| {
                let gvk = Gvk::new(&owner.api_version, &owner.kind);
                gvk.is_some_and(|it| it.group_kind() == *kind) && owner.name == *name.name.name
            })
        };
        let namespace = Some(&*name.name.namespace).filter(|it| !it.is_empty());
        let binding = common::names::binding_name(&name.kind.kind, &name.name.name);
        let key = ObjectName::new(namespace, &binding);
        let held = self.state.bindings.get(&key);
        if held.is_some_and(|held| of(&name.kind, &held.binding)) {
            self.remove(&key);
        }
        self.problems.remove(name);
    }

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

    fn place_and_write(&mut self, key: &ObjectName, wanted: &Binding) {
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

    fn schedule(&mut self, key: &ObjectName) {
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

    /// Has a binding's status say something.
    fn say(&mut self, key: &ObjectName, patch: &Value) {
        let Some(held) = self.state.bindings.get(key) else {
            return;
        };
        let mut status = serde_json::to_value(held.whole_status()).unwrap_or_default();
        for (field, value) in patch.as_object().into_iter().flatten() {
            status[field] = value.clone();
        }
        let status: ResourceBindingStatus = serde_json::from_value(status).unwrap_or_default();
        let mut next = world::Binding::new(held.binding.clone(), held.generation, status);
        next.applied.clone_from(&held.applied);
        self.state.bindings.insert(key.clone(), Arc::new(next));
    }

    fn evict(&mut self, key: &ObjectName) {
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

    /// Writes a binding, as an API server does it.
    fn write(&mut self, key: &ObjectName, mut wanted: Binding) {
        let known = self.state.bindings.get(key).cloned();
        self.version += 1;
        wanted.resource_version = format!("planned {}", self.version);
        if wanted.uid.is_empty() {
            wanted.uid = format!("uid of {key}");
        }
        let generation = known.as_ref().map_or(1, |known| {
            known.generation + i64::from(known.binding.spec != wanted.spec)
        });
        let moves = known
            .as_ref()
            .is_none_or(|known| known.binding.spec.clusters != wanted.spec.clusters);
        if moves && self.now > self.start {
            self.moved_at.insert(key.clone(), self.now);
        }
        let before = known
            .as_ref()
            .map_or(&[][..], |it| &it.binding.spec.clusters);
        self.note_moves(key, before, &wanted.spec.clusters);
        let status = known.as_ref().map(|known| known.whole_status());
        let mut next = world::Binding::new(wanted, generation, status.unwrap_or_default());
        if next.applied.is_none() {
            next.applied = known.as_ref().and_then(|known| known.applied.clone());
        }
        let next = Arc::new(next);
        self.state.bindings.insert(key.clone(), Arc::clone(&next));
        self.bindings.insert(key.clone());
        self.wake_around(known.iter().chain([&next]));
    }

    fn note_moves(&mut self, key: &ObjectName, before: &[TargetCluster], after: &[TargetCluster]) {
        let has = |all: &[TargetCluster], name: &str| all.iter().any(|it| it.name == name);
        for one in after.iter().filter(|it| !has(before, &it.name)) {
            let place = (key.clone(), one.name.clone());
            self.passed.remove(&place);
            self.came.insert(place, self.now);
        }
        for one in before.iter().filter(|it| !has(after, &it.name)) {
            let place = (key.clone(), one.name.clone());
            if self.came.remove(&place) == Some(self.now) {
                self.passed.insert(place);
            }
        }
    }

    fn remove(&mut self, key: &ObjectName) {
        let known = self.state.bindings.remove(key);
        self.ahead.remove(key);
        self.timers.remove(key);
        self.bindings.remove(key);
        self.leaving.remove(key);
        self.wake_around(known.iter());
        self.ended.extend(known.map(|known| (key.clone(), known)));
    }

    /// What a change of a binding wakes: its template, those that it takes along, and those that took it along.
    fn wake_around<'b>(&mut self, bindings: impl Iterator<Item = &'b Arc<world::Binding>>) {
        let mut woken = BTreeSet::new();
        for held in bindings {
            let binding = &held.binding;
            woken.extend(TemplateName::of(&binding.spec.resource));
            for parent in required_by(binding) {
                let parent = self.state.bindings.get(&parent);
                woken.extend(parent.and_then(|it| TemplateName::of(&it.binding.spec.resource)));
            }
            for key in sought::keys_of_binding(binding) {
                let meant = self.state.templates.keys().filter(|name| {
                    name.kind.group == key.group
                        && name.kind.kind == key.kind
                        && *name.name.namespace == *key.namespace
                        && key.name.as_ref().is_none_or(|it| **it == *name.name.name)
                });
                woken.extend(meant.cloned());
            }
        }
        self.templates.extend(woken);
    }
}
