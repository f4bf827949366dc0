//! Makes the Works of every binding, and takes them away again.
//!
//! A binding is looked at when it changes, when overrides do that may be about its template, and when somebody else
//! changes or deletes one of its Works (`wake`); at a start, and after its template changed, once the detector has
//! had its say about that. Many Works of one binding are written at once, and those of all
//! bindings in the order in which they come: one that goes to a thousand members keeps no other waiting (`deliver`).

mod deliver;
#[cfg(test)]
mod tests;
mod wake;

use super::condition;
use super::overrides::{self, Overrides};
use super::render::{self, Renderer};
use super::targets::{self, WorkName};
use crate::controller::bindings::{Bindings, Error, about, about_template, required_by};
use crate::controller::dependencies::parent;
use crate::controller::detector::{Unsettled, keep};
use crate::controller::namespace::Spaces;
use crate::propagation::{Binding, Notice};
use crate::world::{self, Index, ObjectName, TemplateName, World};
use common::api::binding::TargetCluster;
use common::controller::{Controller, Reconcile, Requeue};
use common::errors::chain;
use common::labels::{BINDING_FINALIZER, CLUSTER_BINDING_FINALIZER};
use common::lock::lock;
use common::names::EXECUTION_PREFIX;
use common::queue::Priority;
use common::time::SharedClock;
use deliver::{AT_ONCE, Fault, IN_ALL};
use futures::{FutureExt as _, StreamExt as _};
use kube::Client;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;
use wake::{Kind, binding_changed, clusters_of, kind_of};

/// The binding controller.
pub struct Sync {
    client: Client,
    world: World,
    bindings: Bindings,
    unsettled: Unsettled,
    spaces: Spaces,
    clock: SharedClock,
    /// Bindings by those whose end waits for them.
    required: Index<ObjectName>,
    /// Bindings by the kind of their templates.
    kinds: Index<Kind>,
    /// Bindings by the clusters that get their templates.
    placed: Index<Arc<str>>,
    /// Overrides of namespaces, by these.
    overrides_in: Index<Arc<str>>,
    /// What is being written into which Work: to hear of that is no news.
    written: Mutex<BTreeMap<ObjectName, u64>>,
    /// Bindings that are looked at, and those of which nothing can be made for a cluster as it is.
    stuck: Mutex<BTreeSet<ObjectName>>,
    /// Who has one writes a Work; they are given out in turn.
    turns: Semaphore,
}

impl Sync {
    /// A controller that is woken by what the world tells.
    pub fn watching(
        client: Client,
        bindings: Bindings,
        (unsettled, spaces): (Unsettled, Spaces),
        clock: SharedClock,
        world: &World,
    ) -> Controller<Arc<Self>> {
        let views = &world.propagation;
        let sync = Self::new(client, bindings, (unsettled, spaces), clock, world);
        let controller = Controller::new(Arc::clone(&sync));
        let queue = controller.queue();
        for view in [&views.bindings, &views.cluster_bindings] {
            let queue = queue.clone();
            view.on_change(move |change| {
                binding_changed(change, &queue);
            });
        }
        let (me, to) = (Arc::clone(&sync), queue.clone());
        world.works.on_change(move |change| {
            me.work_changed(change, &to);
        });
        let (me, to) = (Arc::clone(&sync), queue.clone());
        world.clusters.on_change(move |change| {
            me.cluster_changed(change, &to);
        });
        let to = queue.clone();
        views.on_templates_listed(move |binding| to.add_with(binding, Priority::Backlog));
        let to = queue.clone();
        views.on_kinds_changed(move |binding| to.add_with(binding, Priority::Backlog));
        let to = queue.clone();
        sync.unsettled.on_settled(move |binding, urgency| {
            to.add_with(binding, urgency);
        });
        let (me, to) = (Arc::clone(&sync), queue.clone());
        views.overrides.on_change(move |change| {
            me.override_changed(change, &to);
        });
        let (me, to) = (sync, queue);
        views.cluster_overrides.on_change(move |change| {
            me.override_changed(change, &to);
        });
        controller
    }

    /// The same, with its indexes, woken by nobody.
    fn new(
        client: Client,
        bindings: Bindings,
        (unsettled, spaces): (Unsettled, Spaces),
        clock: SharedClock,
        world: &World,
    ) -> Arc<Self> {
        let views = &world.propagation;
        let (kinds, placed) = (Index::default(), Index::default());
        for view in [&views.bindings, &views.cluster_bindings] {
            view.index_too(&kinds, |_, held| vec![kind_of(&held.binding.spec)]);
            view.index_too(&placed, |_, held| clusters_of(&held.binding.spec));
        }
        Arc::new(Self {
            client,
            world: world.clone(),
            bindings,
            unsettled,
            spaces,
            clock,
            required: views
                .bindings
                .index(|_, held| parent::holds_up(&held.binding)),
            kinds,
            placed,
            overrides_in: views
                .overrides
                .index(|name, _| vec![Arc::clone(&name.namespace)]),
            written: Mutex::default(),
            stuck: Mutex::default(),
            turns: Semaphore::new(IN_ALL),
        })
    }
}

impl Reconcile for Sync {
    const NAME: &'static str = "binding";
    type Key = ObjectName;
    type Error = Error;

    async fn ready(&self) {
        self.world.synced().await;
    }

    async fn reconcile(&self, key: &ObjectName) -> Result<Requeue, Error> {
        // From before anything is read: a cluster that changes meanwhile wakes it too.
        lock(&self.stuck).insert(key.clone());
        let done = match self.world.propagation.binding(key) {
            Some(held) if held.binding.deleting => self.end(key, &held.binding).await,
            Some(_) => self.sync(key).await,
            None => self.sweep(key).await,
        };
        if !matches!(done, Err(Error::Impossible(_))) {
            lock(&self.stuck).remove(key);
        }
        done.map(|()| Requeue::Never)
    }
}

impl Sync {
    /// The Works that name a binding.
    fn works_of(&self, key: &ObjectName) -> BTreeMap<ObjectName, Arc<world::Work>> {
        let names = self.world.works_of.names(key).into_iter();
        let held = names.filter_map(|name| {
            let work = self.world.works.get(&name)?.record?;
            Some((name, work))
        });
        held.collect()
    }

    /// A binding that goes: its Works first, then what keeps it.
    async fn end(&self, key: &ObjectName, binding: &Binding) -> Result<(), Error> {
        let works = self.works_of(key);
        self.delete_all(staying(&works), self.preserves(binding))
            .await?;
        let seen = parent::Observed {
            binding: binding.clone(),
            dependencies: None,
            is_required: self.required.count(key) > 0,
        };
        let decision = parent::decide(&seen);
        let decision = decision.map_err(|error| Error::Form(binding.name.clone(), error))?;
        let mut wanted = decision.binding.unwrap_or_else(|| binding.clone());
        let ours = [BINDING_FINALIZER, CLUSTER_BINDING_FINALIZER];
        wanted.finalizers.retain(|it| !ours.contains(&it.as_str()));
        if wanted.finalizers == binding.finalizers {
            return Ok(());
        }
        let patch = json!({"metadata": {
            "resourceVersion": binding.resource_version,
            "finalizers": wanted.finalizers,
        }});
        self.bindings.end(binding, &patch).await
    }

    /// Whether the objects of a binding that goes stay in the members. Its policy may have said so too late for it to be
    /// written into the binding: the API server's garbage collector may have been first. What only follows others goes by
    /// what these say, which are there until its Works were deleted (see [`parent::holds_up`]).
    fn preserves(&self, binding: &Binding) -> bool {
        let says_so = |binding: &Binding| binding.spec.preserve_resources_on_deletion == Some(true);
        let parents_say_so = || {
            let mut parents = required_by(binding).into_iter();
            parents.any(|name| {
                let parent = self.world.propagation.binding(&name);
                parent.is_some_and(|held| says_so(&held.binding))
            })
        };
        says_so(binding)
            || keep::first_in(binding, &self.world).is_some()
            || binding.spec.placement.is_none() && parents_say_so()
    }

    /// Works whose binding is gone, without having been ended: it was forced.
    async fn sweep(&self, key: &ObjectName) -> Result<(), Error> {
        let works = self.works_of(key);
        if works.is_empty() || self.bindings.exists(key).await? {
            return Ok(());
        }
        // Nobody knows any more what it said, but the Works themselves.
        self.delete_all(staying(&works), false).await
    }

    async fn sync(&self, key: &ObjectName) -> Result<(), Error> {
        let Some((held, template)) = self.settled(key) else {
            return self.unless_beside(key).await;
        };
        let (held, binding) = (&*held, &held.binding);
        // What it is about changed since it was placed: the detector is about to say so.
        if template.identity.uid != binding.spec.resource.uid.clone().unwrap_or_default() {
            return Ok(());
        }
        let (mut of_hub, mut of_namespace) = (Vec::new(), Vec::new());
        let views = &self.world.propagation;
        views
            .cluster_overrides
            .for_each(|_, held| of_hub.extend(held.record.clone()));
        if binding.namespace.is_some() {
            for name in self.overrides_in.names(&key.namespace) {
                of_namespace.extend(views.overrides.get(&name).and_then(|held| held.record));
            }
        }
        let object = template.object();
        let overrides = Overrides::of(
            &object,
            of_hub.iter().map(parts),
            of_namespace.iter().map(parts),
        );
        let interpreter = views.kinds.interpreter();
        let of = render::Binding::of(binding);
        let renderer = match Renderer::new(&object, of, &overrides, &interpreter) {
            Ok(renderer) => renderer,
            Err(error) => {
                let text = chain(&error).to_string();
                return self.failed(held, &[Fault::Lasting(text)]).await;
            }
        };
        let existing = self.works_of(key);
        let names = existing.keys().map(|name| WorkName {
            namespace: &name.namespace,
            name: &name.name,
        });
        let decision = targets::decide(&binding.spec, renderer.work_name(), names);
        let orphans: Vec<ObjectName> = decision
            .orphans
            .iter()
            .map(|it| ObjectName::new(Some(it.namespace), it.name))
            .filter(|name| existing.get(name).is_some_and(|work| !work.deleting))
            .collect();
        let are_orphans = !orphans.is_empty();
        let preserve = binding.spec.preserve_resources_on_deletion == Some(true);
        let removed = self.delete_all(orphans, preserve).await;
        if decision.waits {
            return removed;
        }
        let name_in = |target: &TargetCluster| {
            let namespace = format!("{EXECUTION_PREFIX}{}", target.name);
            ObjectName::new(Some(&namespace), renderer.work_name())
        };
        let mut writes = Vec::with_capacity(decision.targets.len());
        for target in &decision.targets {
            let name = name_in(target);
            writes.push(self.write(target, &renderer, name, key).boxed());
        }
        let writes = futures::stream::iter(writes).buffer_unordered(AT_ONCE);
        let written: Vec<Result<Option<u64>, Fault>> = writes.collect().await;
        // Those of one collection are told in order: with the last of them all are known.
        let last = written.iter().filter_map(|it| *it.as_ref().ok()?).max();
        if let Some(version) = last {
            self.bindings.await_works(version).await;
        }
        self.heard_of(decision.targets.into_iter().map(name_in));
        removed?;
        let faults: Vec<Fault> = written.into_iter().filter_map(Result::err).collect();
        if !faults.is_empty() {
            return self.failed(held, &faults).await;
        }
        let unread = condition::unread(&interpreter, &object, &binding.spec);
        let unread = unread.as_deref().map(|text| (condition::SCRIPT, text));
        self.note(held, unread).await?;
        if are_orphans || last.is_some() {
            let kind = binding.kind();
            let message = format!("Sync work of {kind}({key}) successful.");
            self.tell(binding, &[Notice::normal("SyncWorkSucceed", message)]);
        }
        Ok(())
    }

    /// A binding and its template, the one as the detector left it when it had seen the other; none where something else
    /// wakes the binding.
    fn settled(&self, key: &ObjectName) -> Option<(Arc<world::Binding>, Arc<world::Template>)> {
        let known = || {
            let held = self.world.propagation.binding(key);
            held.filter(|held| !held.binding.deleting)
        };
        let mut held = known()?;
        loop {
            // Of a kind that is not listed yet the list wakes it.
            let template = self.template(&held.binding)?;
            let name = TemplateName::of_binding(&held.binding)?;
            if self.unsettled.holds_up(&name, key) {
                return None;
            }
            // Read in this order: a template that was settled meanwhile is not taken along with what it was before, and
            // neither the other way round.
            held = known()?;
            let now = self.template(&held.binding)?;
            if now.identity.resource_version == template.identity.resource_version {
                return Some((held, template));
            }
        }
    }

    /// A binding that names a template elsewhere says so: it gets none, whatever is there.
    async fn unless_beside(&self, key: &ObjectName) -> Result<(), Error> {
        let held = self.world.propagation.binding(key);
        let Some(held) = held.filter(|held| !held.binding.deleting) else {
            return Ok(());
        };
        let namespace = held.binding.spec.resource.namespace.as_deref();
        let namespace = namespace.filter(|it| !it.is_empty());
        match render::Binding::of(&held.binding).leads_to(namespace) {
            Ok(()) => Ok(()),
            Err(error) => {
                let text = chain(&error).to_string();
                self.failed(&held, &[Fault::Lasting(text)]).await
            }
        }
    }

    /// Whatever is told of these Works from now on is news.
    fn heard_of(&self, works: impl Iterator<Item = ObjectName>) {
        let mut written = lock(&self.written);
        for work in works {
            written.remove(&work);
        }
    }

    fn template(&self, binding: &Binding) -> Option<Arc<world::Template>> {
        let name = TemplateName::of_binding(binding)?;
        self.world.propagation.templates.get(&name)?.record
    }

    /// Says what went wrong, unless the binding says so already, and has it tried again where that may help.
    async fn failed(&self, held: &world::Binding, faults: &[Fault]) -> Result<(), Error> {
        let mut texts: Vec<&str> = faults.iter().map(Fault::text).collect();
        texts.sort_unstable();
        // What is wrong in every cluster is told once.
        texts.dedup();
        let mut text = texts.join("; ");
        text.truncate(text.floor_char_boundary(condition::MESSAGE));
        let lasts = faults.iter().all(|it| matches!(it, Fault::Lasting(_)));
        if self.note(held, Some((condition::REASON, &text))).await? {
            let notice = Notice::warning(condition::REASON, text.clone());
            self.tell(&held.binding, &[notice]);
        }
        Err(match lasts {
            true => Error::Impossible(text),
            false => Error::Undecided(text),
        })
    }

    /// Has the binding show what is wrong, as long as something is; whether it did not yet.
    async fn note(
        &self,
        held: &world::Binding,
        problem: Option<(&str, &str)>,
    ) -> Result<bool, Error> {
        let before = &held.status.conditions;
        let Some(conditions) = condition::decide(self.clock.now(), before, problem) else {
            return Ok(false);
        };
        let patch = json!({ "conditions": conditions });
        self.bindings.patch_status(&held.binding, &patch).await?;
        Ok(true)
    }

    fn tell(&self, binding: &Binding, notices: &[Notice]) {
        self.bindings.tell(&about(binding), notices);
        if let Some(template) = self.template(binding) {
            let about = about_template(&template.identity);
            self.bindings.tell(&about, notices);
        }
    }
}

/// A policy as rendering takes it.
fn parts(policy: &Arc<world::Override>) -> overrides::Policy<'_> {
    (&policy.metadata, &policy.spec, policy.problem.as_deref())
}

/// Works that nobody deletes yet.
fn staying(works: &BTreeMap<ObjectName, Arc<world::Work>>) -> Vec<ObjectName> {
    let staying = works.iter().filter(|(_, work)| !work.deleting);
    staying.map(|(name, _)| name.clone()).collect()
}
