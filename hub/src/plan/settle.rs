//! Carries out what the hub's controllers decide, one after another, until nothing is left to do: at once, and then
//! as time passes. Pure: the decisions are the controllers' own.

mod place;
mod works;
mod write;

use super::looks;
use super::state::{Change, Edited, Placed, State, Touched, within};
use super::stirred::Stirred;
use super::templates::Held;
use super::told::unplaced;
use crate::controller::dependencies::attach;
use crate::controller::detector::skip::Skips;
use crate::controller::detector::wake::{self, Edit};
use crate::controller::detector::{self, Observed, Problem, Write};
use crate::controller::eviction::brake::{Brake, Sight};
use crate::controller::eviction::{self, clusters_of};
use crate::controller::scheduler::decide::Ahead;
use crate::propagation::{Binding, Template};
use crate::scheduler::{Cluster, Snapshot};
use crate::world::{self, ObjectName, TemplateName};
use chrono::{DateTime, Utc};
use common::gvk::{GroupKind, Gvk};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

/// Writes of one binding; one that needs more does not come to rest.
const WRITES: usize = 64;

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
    /// Bindings whose Works are to be made.
    works: BTreeSet<ObjectName>,
    /// What Works are made of became this, while nothing could be made of these templates.
    stirred: Vec<(Stirred, BTreeSet<TemplateName>)>,
    /// Templates that were edited and of which no Works were made since, as the Works have them; of those that may have been
    /// edited before it began nobody knows that.
    unwritten: BTreeMap<TemplateName, Option<Arc<Held>>>,
    edited: BTreeMap<TemplateName, Edit>,
    ahead: BTreeMap<ObjectName, Ahead>,
    timers: BTreeMap<ObjectName, DateTime<Utc>>,
    /// How many times bindings were written, or went, and the most that took one along meanwhile.
    written: BTreeMap<ObjectName, (usize, usize)>,
    version: u64,
    /// What waits, and for what.
    pub problems: BTreeMap<TemplateName, Problem>,
    /// What waited when it was looked at, or when its Works were made.
    looked: BTreeSet<TemplateName>,
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
            works: BTreeSet::new(),
            stirred: Vec::new(),
            unwritten: BTreeMap::new(),
            edited: BTreeMap::new(),
            ahead: BTreeMap::new(),
            timers: BTreeMap::new(),
            written: BTreeMap::new(),
            version: 0,
            problems: BTreeMap::new(),
            looked: BTreeSet::new(),
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

    /// Templates that waited before it began, and those of them that were edited meanwhile.
    pub(super) fn remember(
        &mut self,
        waited: &BTreeMap<TemplateName, Problem>,
        edited: &BTreeSet<TemplateName>,
    ) {
        self.problems.clone_from(waited);
        let unknown = waited.keys().map(|name| (name.clone(), None));
        self.unwritten.extend(unknown);
        let edited = edited.iter().map(|name| (name.clone(), Edit::Content));
        self.edited.extend(edited);
    }

    /// Makes a change; `odd` says of which parity the UID of a new template is. The error says why an object cannot be
    /// meant.
    pub(super) fn change(&mut self, change: &Change, odd: bool) -> Result<(), String> {
        let stuck = self.stuck_before(change);
        let touched = self.state.change(change, self.now, odd)?;
        self.touch(touched, stuck);
        Ok(())
    }

    /// Has a cluster be deleted, as it is until it is gone.
    pub(super) fn begin_to_leave(&mut self, cluster: &str) {
        let touched = self.state.begin_to_leave(cluster, self.now);
        // To overrides it is what it was.
        self.touch(touched, BTreeSet::new());
    }

    /// Something changed; of the templates that are `stuck` nothing could be made before.
    fn touch(&mut self, touched: Touched, stuck: BTreeSet<TemplateName>) {
        let stirred = touched.stirred.map(|it| (it, stuck));
        self.stirred.extend(stirred);
        if let Some(Edited { name, edit, was }) = touched.edited {
            self.unwritten.entry(name.clone()).or_insert(was);
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
        for (key, held) in self.state.bindings.iter() {
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

    /// Decides until nothing changes any more at this moment. In waves: what a thousand others wake is looked at once for
    /// all of them, and not a thousand times.
    pub(super) fn settle(&mut self) {
        loop {
            if !self.templates.is_empty() {
                for name in mem::take(&mut self.templates) {
                    self.detect(&name);
                }
            } else if !self.bindings.is_empty() {
                for name in mem::take(&mut self.bindings) {
                    if self.may_go_on(&name) {
                        self.schedule(&name);
                        self.evict(&name);
                    }
                }
            } else if !self.leaving.is_empty() {
                for name in mem::take(&mut self.leaving) {
                    self.evict(&name);
                }
            } else if !self.works.is_empty() {
                for name in mem::take(&mut self.works) {
                    self.make_works(&name);
                }
            } else if !self.stirred.is_empty() {
                self.wake_stirred();
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

    /// Whether a binding was not written so often yet that nothing comes of it. What goes along with others is written for
    /// each of them, also of those that are gone by now.
    fn may_go_on(&mut self, name: &ObjectName) -> bool {
        looks::one();
        let held = self.state.bindings.get(name);
        let parents = held.map_or(0, |held| held.binding.spec.required_by.len());
        let (written, most) = self.written.get(name).copied().unwrap_or_default();
        let on = written < WRITES.saturating_mul(parents.max(most) + 1);
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
        // What has no form in JSON is no binding; the hub says so itself.
        let _ = detector::shown::add(
            &seen,
            Some(&held.object),
            &self.state.interpreter,
            |it| self.state.bindings.is_required(it),
            &mut decision,
        );
        if let Some(claim) = &decision.claim {
            self.state.templates.claim(name, claim);
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
            Some(problem) => {
                self.problems.insert(name.clone(), problem);
                self.looked.insert(name.clone());
            }
            None => {
                self.problems.remove(name);
            }
        }
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
        let of_hub = within(&self.state.policies, None);
        let namespace = template.namespace.as_deref().into_iter();
        let here = namespace.flat_map(|it| within(&self.state.policies, Some(it)));
        let policies: Vec<_> = of_hub.chain(here).cloned().collect();
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
            dependents: attach::those_of(template, self.state.bindings.seekers(template)),
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
        let key = State::binding_of_name(name);
        let held = self.state.bindings.get(&key);
        if held.is_some_and(|held| of(&name.kind, &held.binding)) {
            self.remove(&key);
        }
        self.problems.remove(name);
        self.unwritten.remove(name);
    }
}
