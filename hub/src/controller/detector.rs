//! Gives every template that a policy selects its binding, and takes it away again.
//!
//! `skip` says what is never propagated, `choose` which policy holds a template, `claim` how a template shows it,
//! `content` what its binding says, and `decide` puts them together for one template, all pure. `keep` has a binding say
//! that objects stay before it goes, and `leaving` has it say so until its Works do. `wake` finds the templates that a
//! policy may concern, `policies` looks after what a policy itself carries (`marks`). A template is woken by its own
//! changes, by those of policies that may select it, of overrides that these wait for, of its binding, and of bindings
//! that it follows.

mod apply;
pub mod choose;
pub mod claim;
mod contenders;
pub mod content;
pub mod decide;
mod holdings;
pub mod keep;
mod leaving;
pub mod marks;
mod observe;
pub mod policies;
pub mod shown;
pub mod skip;
#[cfg(test)]
mod tests;
mod unsettled;
pub mod wake;

pub use decide::{Decision, Observed, Problem, Write, decide};
pub use holdings::Holdings;
pub use unsettled::Unsettled;

use super::bindings::{Bindings, Error, name_of};
use super::dependencies::parent;
use super::dependencies::sought::{self, Sought};
use super::scheduler::Placing;
use crate::propagation::{Binding, Notice, Policy, PolicyName, Template};
use crate::world::{Change, Index, ObjectName, TemplateName, Told, World};
use common::chance::{Chance, SharedStream};
use common::controller::{Controller, Reconcile, Requeue};
use common::gvk::{GroupKind, Gvk};
use common::lock::lock;
use common::queue::{Priority, Queue};
use common::uuid::random_uuid;
use contenders::{Contenders, binding_of};
use kube::Client;
use leaving::Leaving;
use skip::Skips;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wake::Edit;

/// How long to wait for what no watch tells of, as a PriorityClass.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The detector.
pub struct Detector {
    client: Client,
    world: World,
    bindings: Bindings,
    placing: Placing,
    skips: Skips,
    draws: SharedStream,
    /// Templates that their authors changed, and for which that was not carried out yet.
    edited: Mutex<BTreeMap<TemplateName, Edit>>,
    /// What was told of templates that do not get what their policies say.
    told: Mutex<BTreeMap<TemplateName, Vec<Notice>>>,
    contenders: Contenders,
    leaving: Leaving,
    holdings: Holdings,
    unsettled: Unsettled,
    policies_in: Index<Arc<str>>,
    seekers: Index<Sought>,
    /// Bindings by those whose end waits for them.
    required: Index<ObjectName>,
}

impl Detector {
    /// A detector that writes through `client`, woken by what the world tells.
    pub fn watching(
        client: Client,
        (bindings, placing): (Bindings, Placing),
        skips: Skips,
        (holdings, unsettled): (Holdings, Unsettled),
        chance: &Chance,
        world: &World,
    ) -> Controller<Arc<Self>> {
        let detector = Self::new(
            client,
            (bindings, placing),
            skips,
            (holdings, unsettled),
            chance,
            world,
        );
        let controller = Controller::new(Arc::clone(&detector));
        let queue = controller.queue();
        detector.listen(&queue);
        controller
    }

    /// The same, with its indexes, woken by nobody.
    fn new(
        client: Client,
        (bindings, placing): (Bindings, Placing),
        skips: Skips,
        (holdings, unsettled): (Holdings, Unsettled),
        chance: &Chance,
        world: &World,
    ) -> Arc<Self> {
        let views = &world.propagation;
        Arc::new(Self {
            client,
            world: world.clone(),
            bindings,
            placing,
            skips,
            draws: chance.shared_stream("detector"),
            edited: Mutex::default(),
            told: Mutex::default(),
            contenders: Contenders::default(),
            leaving: Leaving::default(),
            holdings,
            unsettled,
            policies_in: views
                .policies
                .index(|name, _| vec![Arc::clone(&name.namespace)]),
            seekers: views
                .bindings
                .index(|_, held| sought::keys_of_binding(&held.binding).into_iter().collect()),
            required: views
                .bindings
                .index(|_, held| parent::holds_up(&held.binding)),
        })
    }

    fn listen(self: &Arc<Self>, queue: &Queue<TemplateName>) {
        let views = &self.world.propagation;
        // Before anybody finds it changed: a binding of before would go with it.
        let unsettled = self.unsettled.clone();
        views.templates.listen_first(move |kind, told| {
            if let Told::Changed(change) = told
                && let Some(new) = change.after()
                && wake::edit(change.before().map(|it| &it.identity), &new.identity).is_some()
            {
                let (kind, name) = (kind.clone(), change.name.clone());
                unsettled.changed(&TemplateName { kind, name });
            }
        });
        let (me, to) = (Arc::clone(self), queue.clone());
        views.templates.listen(move |kind, told| {
            if let Told::Changed(change) = told {
                me.template_changed(kind, change, &to);
            }
        });
        for policies in [&views.policies, &views.cluster_policies] {
            let (me, to) = (Arc::clone(self), queue.clone());
            policies.on_change(move |change| {
                let (old, new) = (change.before(), change.after());
                let (old, new) = (old.map(|it| &*it.policy), new.map(|it| &*it.policy));
                me.policy_changed(old, new, &to, wake::haste(change.listed));
            });
        }
        let (templates, to) = (views.templates.clone(), queue.clone());
        views.kinds.on_change(move |kind| {
            templates.for_each_name(kind, |name| {
                let (kind, name) = (kind.clone(), name.clone());
                to.add_with(TemplateName { kind, name }, Priority::Backlog);
            });
        });
        for bindings in [&views.bindings, &views.cluster_bindings] {
            let (me, to) = (Arc::clone(self), queue.clone());
            bindings.on_change(move |change| {
                let (old, new) = (change.before(), change.after());
                let (old, new) = (old.map(|it| &it.binding), new.map(|it| &it.binding));
                me.binding_changed(old, new, &to, wake::haste(change.listed));
            });
        }
        let (me, to) = (Arc::clone(self), queue.clone());
        let works = &self.world.works;
        works.on_change(move |change| me.work_changed(change, &to));
        let (me, to) = (Arc::clone(self), queue.clone());
        views
            .overrides
            .listen(move |told| me.override_told(told, &to));
        let (me, to) = (Arc::clone(self), queue.clone());
        views
            .cluster_overrides
            .listen(move |told| me.override_told(told, &to));
    }

    fn template_changed(
        &self,
        kind: &GroupKind,
        change: &Change<crate::world::Template>,
        queue: &Queue<TemplateName>,
    ) {
        let name = TemplateName {
            kind: kind.clone(),
            name: change.name.clone(),
        };
        let (old, new) = (change.before(), change.after());
        let (old, new) = (old.map(|it| &it.identity), new.map(|it| &it.identity));
        // What is passed over is never released, so no policy waits for it.
        let holder = |template: Option<&Template>| {
            wake::holder(template.filter(|it| !self.skips.template(it))?)
        };
        self.holdings.changed(&name, holder(old), holder(new));
        let held_kind = |template: Option<&Template>| -> BTreeSet<Gvk> {
            let held = template.filter(|it| holder(Some(*it)).is_some());
            let kind = held.and_then(|it| Gvk::new(&it.api_version, &it.kind));
            kind.into_iter().collect()
        };
        // Watched until it is released, though no policy selects its kind any more.
        let templates = &self.world.propagation.templates;
        templates.want(&held_kind(old), &held_kind(new));
        let Some(new) = new else {
            self.edited().remove(&name);
            queue.add(name);
            return;
        };
        let Some(urgency) = wake::urgency(old, new, change.listed) else {
            return;
        };
        if urgency == Priority::Urgent {
            self.note_edit(&name, wake::edit(old, new));
        }
        queue.add_with(name, urgency);
    }

    fn policy_changed(
        &self,
        old: Option<&Policy>,
        new: Option<&Policy>,
        queue: &Queue<TemplateName>,
        haste: Priority,
    ) {
        let kinds = |policy: Option<&Policy>| -> BTreeSet<Gvk> {
            let selectors = policy.iter().flat_map(|it| &it.spec.resource_selectors);
            let kinds = selectors.filter_map(|it| Gvk::new(&it.api_version, &it.kind));
            kinds
                .filter(|it| !self.skips.kind(&it.api_version(), &it.kind))
                .collect()
        };
        let templates = &self.world.propagation.templates;
        templates.want(&kinds(old), &kinds(new));
        self.wake(&wake::woken(old, new), queue, haste);
    }

    fn wake(&self, woken: &wake::Woken, queue: &Queue<TemplateName>, haste: Priority) {
        let templates = &self.world.propagation.templates;
        for selected in &woken.selected {
            let kind = GroupKind {
                group: selected.group.clone(),
                kind: selected.kind.clone(),
            };
            let fits =
                |given: &Option<String>, is: &str| given.as_deref().is_none_or(|it| it == is);
            templates.for_each_name(&kind, |name| {
                if fits(&selected.namespace, &name.namespace) && fits(&selected.name, &name.name) {
                    let kind = kind.clone();
                    let name = name.clone();
                    queue.add_with(TemplateName { kind, name }, haste);
                }
            });
        }
        if let Some(policy) = &woken.held_by {
            self.holdings
                .of(policy)
                .into_iter()
                .for_each(|name| queue.add_with(name, haste));
        }
    }

    fn binding_changed(
        &self,
        old: Option<&Binding>,
        new: Option<&Binding>,
        queue: &Queue<TemplateName>,
        haste: Priority,
    ) {
        let kinds = |binding: Option<&Binding>| -> BTreeSet<Gvk> {
            let known = binding.into_iter();
            known
                .flat_map(|it| {
                    let own = &it.spec.resource;
                    let own = Gvk::new(&own.api_version, &own.kind);
                    let follows = it.spec.propagate_deps == Some(true);
                    let sought = follows.then(|| sought::recorded(it)).into_iter().flatten();
                    let sought = sought.filter_map(|it| Gvk::new(&it.api_version, &it.kind));
                    // Whoever may write a binding does not have the hub watch what is never propagated.
                    let sought = sought.filter(|it| !self.skips.kind(&it.api_version(), &it.kind));
                    own.into_iter().chain(sought).collect::<Vec<_>>()
                })
                .collect()
        };
        let same = |one: &Binding, other: &Binding| {
            one.labels == other.labels
                && one.annotations == other.annotations
                && one.finalizers == other.finalizers
                && one.deleting == other.deleting
                && one.spec == other.spec
        };
        if matches!((old, new), (Some(old), Some(new)) if same(old, new)) {
            return;
        }
        let templates = &self.world.propagation.templates;
        templates.want(&kinds(old), &kinds(new));
        if let (Some(old), None) = (old, new) {
            let woken = self.contenders.woken(&name_of(old)).into_iter();
            woken.for_each(|name| queue.add(name));
        }
        // One that follows nothing any more gives up its finalizer.
        let parents = parent::let_go(old, new).into_iter();
        let parents = parents.filter_map(|name| self.world.propagation.binding(&name));
        for held in parents {
            let name = TemplateName::of_binding(&held.binding);
            name.into_iter().for_each(|name| queue.add(name));
        }
        for binding in old.into_iter().chain(new) {
            let name = TemplateName::of_binding(binding);
            name.into_iter()
                .for_each(|name| queue.add_with(name, haste));
            for key in sought::keys_of_binding(binding) {
                self.wake_sought(&key, queue, haste);
            }
        }
    }

    fn wake_sought(&self, key: &Sought, queue: &Queue<TemplateName>, haste: Priority) {
        let kind = GroupKind {
            group: key.group.clone(),
            kind: key.kind.clone(),
        };
        if let Some(name) = &key.name {
            let name = ObjectName::new(Some(&key.namespace), name);
            queue.add_with(TemplateName { kind, name }, haste);
            return;
        }
        let templates = &self.world.propagation.templates;
        templates.for_each_name(&kind, |name| {
            if *name.namespace == *key.namespace {
                let kind = kind.clone();
                let name = name.clone();
                queue.add_with(TemplateName { kind, name }, haste);
            }
        });
    }

    fn override_told<R>(&self, told: &Told<R>, queue: &Queue<TemplateName>) {
        if let Told::Changed(change) = told
            && change.old.is_none() != change.new.is_none()
        {
            self.override_changed(&change.name, queue, wake::haste(change.listed));
        }
    }

    /// What waits for an override is woken by it, and so is whoever lost one.
    fn override_changed(&self, name: &ObjectName, queue: &Queue<TemplateName>, haste: Priority) {
        let namespace = Some(name.namespace.to_string()).filter(|it| !it.is_empty());
        let name = PolicyName {
            namespace,
            name: name.name.to_string(),
        };
        let policies = self.policies_beside(name.namespace.as_deref());
        for policy in &policies {
            if wake::overrides_of(policy).contains(&name) {
                self.wake(&wake::woken(None, Some(policy)), queue, haste);
            }
        }
    }

    /// Something is to be carried out that an author did.
    fn note_edit(&self, name: &TemplateName, edit: Option<Edit>) {
        if let Some(edit) = edit {
            let mut edited = self.edited();
            let known = edited.entry(name.clone()).or_insert(edit);
            *known = edit.max(*known);
        }
    }

    fn edited(&self) -> MutexGuard<'_, BTreeMap<TemplateName, Edit>> {
        self.edited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh_id(&self) -> String {
        self.draws.draw(random_uuid)
    }
}

impl Reconcile for Detector {
    const NAME: &'static str = "detector";
    type Key = TemplateName;
    type Error = Error;

    async fn ready(&self) {
        self.world.placing_synced().await;
    }

    async fn reconcile(&self, key: &TemplateName) -> Result<Requeue, Error> {
        let change = self.unsettled.begin(key);
        let edited = self.edited().remove(key);
        let done = self.settle(key, edited).await;
        if done.is_err() {
            self.note_edit(key, edited);
        }
        let said = done.as_ref().err().is_none_or(|error| !error.passes());
        if let Some(change) = change.filter(|_| said) {
            let urgency = match edited {
                Some(_) => Priority::Urgent,
                None => Priority::Backlog,
            };
            self.unsettled.settled(key, change, urgency);
        }
        done
    }
}

impl Detector {
    async fn settle(&self, key: &TemplateName, edited: Option<Edit>) -> Result<Requeue, Error> {
        let Some(seen) = self.observe(key, edited).await? else {
            lock(&self.told).remove(key);
            self.contenders.done(key);
            self.leaving.done(key);
            return self.forget(key).await;
        };
        let mut decision = decide(&seen);
        let wait = self.say_until_told(key, &seen, &mut decision);
        self.add_dependencies(key, &seen, &mut decision)?;
        let failed = decision.problem.as_ref().map(|_| decision.events.clone());
        if failed.is_some() && lock(&self.told).get(key) == failed.as_ref() {
            decision.events.clear();
        }
        self.apply(&seen, &decision).await?;
        match failed {
            Some(events) => lock(&self.told).insert(key.clone(), events),
            None => lock(&self.told).remove(key),
        };
        let replaced = matches!(decision.binding, Some(Write::Replace(_)));
        if replaced || decision.goes_on || decision.problem.is_some() {
            self.note_edit(key, edited);
        }
        let again = self.again(key, decision.problem.as_ref());
        Ok(wait.map_or(again, Requeue::After))
    }

    /// When a template is looked at again that nothing may wake.
    fn again(&self, key: &TemplateName, problem: Option<&Problem>) -> Requeue {
        let Some(Problem::NameTaken { .. } | Problem::Deleting(_)) = problem else {
            self.contenders.done(key);
            return match problem {
                Some(Problem::PriorityClass(_)) => Requeue::After(LOOK_AGAIN),
                // Whatever it waits for wakes it.
                _ => Requeue::Never,
            };
        };
        self.contenders.wait(key);
        // The name may have been given up before anybody waited for it.
        match self.world.propagation.binding(&binding_of(key)) {
            Some(_) => Requeue::Never,
            None => Requeue::After(Duration::ZERO),
        }
    }
}
