//! Makes the Works of every binding, and takes them away again.
//!
//! A binding is looked at when it changes, when overrides do that may be about its template, and when somebody else
//! changes or deletes one of its Works. Many Works of one binding are written at once.

use super::condition;
use super::overrides::Overrides;
use super::overrides::cluster::ClusterFacts;
use super::render::{self, RenderError, Renderer};
use super::targets::{self, WorkName};
use super::write;
use crate::controller::bindings::{Bindings, Error, about, about_template, required_by};
use crate::controller::dependencies::parent;
use crate::propagation::{Binding, Notice};
use crate::world::{self, Change, Index, ObjectName, TemplateName, Told, World};
use common::api::binding::TargetCluster;
use common::api::override_policy::OverrideSpec;
use common::api::work::Work;
use common::controller::{Controller, Reconcile, Requeue};
use common::errors::chain;
use common::labels::{BINDING_FINALIZER, CLUSTER_BINDING_FINALIZER};
use common::names::EXECUTION_PREFIX;
use common::queue::{Priority, Queue};
use common::rest::{Call, MERGE_PATCH};
use common::time::SharedClock;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const API: &str = "/apis/work.karmada.io/v1alpha1";
/// Works of one binding that are written at once.
const AT_ONCE: usize = 16;

/// The binding controller.
pub struct Sync {
    client: Client,
    world: World,
    bindings: Bindings,
    clock: SharedClock,
    /// Works by the binding that they name.
    works: Index<ObjectName>,
    /// Bindings by those that take them along.
    required: Index<ObjectName>,
}

impl Sync {
    /// A controller that is woken by what the world tells.
    pub fn watching(
        client: Client,
        bindings: Bindings,
        clock: SharedClock,
        world: &World,
    ) -> Controller<Arc<Self>> {
        let views = &world.propagation;
        let sync = Arc::new(Self {
            client,
            world: world.clone(),
            bindings,
            clock,
            works: world
                .works
                .index(|_, work| work.binding.iter().cloned().collect()),
            required: views.bindings.index(|_, held| required_by(&held.binding)),
        });
        let controller = Controller::new(Arc::clone(&sync));
        let queue = controller.queue();
        for view in [&views.bindings, &views.cluster_bindings] {
            let queue = queue.clone();
            view.listen(move |told| {
                if let Told::Changed(change) = told {
                    binding_changed(change, &queue);
                }
            });
        }
        let to = queue.clone();
        world.works.listen(move |told| {
            if let Told::Changed(change) = told {
                work_changed(change, &to);
            }
        });
        let (me, to) = (Arc::clone(&sync), queue.clone());
        views.overrides.listen(move |told| {
            if let Told::Changed(change) = told {
                me.override_changed(&change.name, &to);
            }
        });
        let (me, to) = (sync, queue);
        views.cluster_overrides.listen(move |told| {
            if let Told::Changed(change) = told {
                me.override_changed(&change.name, &to);
            }
        });
        controller
    }

    /// An override of a namespace is about the templates there; one of the hub about all.
    fn override_changed(&self, name: &ObjectName, queue: &Queue<ObjectName>) {
        let views = &self.world.propagation;
        let all = name.namespace.is_empty();
        views.bindings.for_each(|binding, _| {
            if all || binding.namespace == name.namespace {
                queue.add(binding.clone());
            }
        });
        if all {
            views
                .cluster_bindings
                .for_each(|binding, _| queue.add(binding.clone()));
        }
    }
}

fn binding_changed(change: &Change<world::Binding>, queue: &Queue<ObjectName>) {
    let (old, new) = (change.before(), change.after());
    let same = |old: &world::Binding, new: &world::Binding| {
        old.generation == new.generation
            && old.binding.deleting == new.binding.deleting
            && old.binding.finalizers == new.binding.finalizers
            && old.binding.id() == new.binding.id()
    };
    if !matches!((old, new), (Some(old), Some(new)) if same(old, new)) {
        let priority = if change.listed {
            Priority::Backlog
        } else {
            Priority::Normal
        };
        queue.add_with(change.name.clone(), priority);
    }
    // Whoever is taken along is what its parent's end waits for.
    for parent in old.into_iter().flat_map(|it| required_by(&it.binding)) {
        queue.add(parent);
    }
}

fn work_changed(change: &Change<world::Work>, queue: &Queue<ObjectName>) {
    let (old, new) = (change.before(), change.after());
    let looks =
        |work: Option<&world::Work>| work.map(|it| (it.binding.clone(), it.content, it.deleting));
    if looks(old) == looks(new) {
        return;
    }
    let bindings = [old, new].into_iter().flatten();
    bindings
        .filter_map(|it| it.binding.clone())
        .for_each(|name| queue.add_with(name, Priority::Backlog));
}

impl Reconcile for Sync {
    const NAME: &'static str = "binding";
    type Key = ObjectName;
    type Error = Error;

    async fn reconcile(&self, key: &ObjectName) -> Result<Requeue, Error> {
        self.world.propagation.synced().await;
        self.world.works.synced().await;
        self.world.clusters.synced().await;
        match self.world.propagation.binding(key) {
            Some(held) if held.binding.deleting => self.end(key, &held.binding).await?,
            Some(held) => self.sync(key, &held).await?,
            None => self.sweep(key).await?,
        }
        Ok(Requeue::Never)
    }
}

impl Sync {
    /// The Works that name a binding.
    fn works_of(&self, key: &ObjectName) -> BTreeMap<ObjectName, Arc<world::Work>> {
        let names = self.works.names(key).into_iter();
        let held = names.filter_map(|name| {
            let work = self.world.works.get(&name)?.record?;
            Some((name, work))
        });
        held.collect()
    }

    /// A binding that goes: its Works first, then what keeps it.
    async fn end(&self, key: &ObjectName, binding: &Binding) -> Result<(), Error> {
        let works = self.works_of(key);
        self.delete_all(staying(&works)).await?;
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

    /// Works whose binding is gone, without having been ended: it was forced.
    async fn sweep(&self, key: &ObjectName) -> Result<(), Error> {
        let works = self.works_of(key);
        if works.is_empty() || self.bindings.exists(key).await? {
            return Ok(());
        }
        self.delete_all(staying(&works)).await
    }

    async fn sync(&self, key: &ObjectName, held: &world::Binding) -> Result<(), Error> {
        let binding = &held.binding;
        let Some(template) = self.template(binding) else {
            return Ok(());
        };
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
            views.overrides.for_each(|name, held| {
                if name.namespace == key.namespace {
                    of_namespace.extend(held.record.clone());
                }
            });
        }
        let object = template.object();
        let overrides = Overrides::of(
            &object,
            of_hub.iter().map(parts),
            of_namespace.iter().map(parts),
        );
        let id = if binding.id().is_empty() {
            &binding.uid
        } else {
            binding.id()
        };
        let of = render::Binding {
            namespace: binding.namespace.as_deref(),
            name: &binding.name,
            id,
            spec: &binding.spec,
        };
        let renderer = match Renderer::new(&object, of, &overrides) {
            Ok(renderer) => renderer,
            Err(error) => {
                let text = chain(&error).to_string();
                return self.failed(held, vec![text]).await;
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
        let removed = self.delete_all(orphans).await;
        if decision.waits {
            return removed;
        }
        let mut writes = Vec::with_capacity(decision.targets.len());
        for target in decision.targets {
            let namespace = format!("{EXECUTION_PREFIX}{}", target.name);
            let name = ObjectName::new(Some(&namespace), renderer.work_name());
            writes.push(self.write(target, &renderer, name, key).boxed());
        }
        let writes = futures::stream::iter(writes).buffer_unordered(AT_ONCE);
        let written: Vec<Result<bool, String>> = writes.collect().await;
        removed?;
        let mut problems: Vec<String> = written.iter().filter_map(|it| it.clone().err()).collect();
        if !problems.is_empty() {
            problems.sort();
            return self.failed(held, problems).await;
        }
        self.note(held, None).await?;
        if are_orphans || written.contains(&Ok(true)) {
            let kind = binding.kind();
            let message = format!("Sync work of {kind}({key}) successful.");
            self.tell(binding, &[Notice::normal("SyncWorkSucceed", message)])
                .await;
        }
        Ok(())
    }

    /// One Work; whether anything was written.
    async fn write(
        &self,
        target: &TargetCluster,
        renderer: &Renderer<'_>,
        name: ObjectName,
        of: &ObjectName,
    ) -> Result<bool, String> {
        let cluster = ObjectName::new(None, &target.name);
        let held = self
            .world
            .clusters
            .get(&cluster)
            .and_then(|held| held.record);
        let Some(cluster) = held.as_ref().and_then(|it| it.placing.as_ref()) else {
            return Err(format!("there is no Cluster {:?}", target.name));
        };
        let facts = Facts::of(cluster);
        let existing = self.world.works.get(&name).and_then(|held| held.record);
        if let Some(existing) = &existing {
            if existing.binding.as_ref() != Some(of) {
                return Err(format!(
                    "Work {name} is not of this binding; delete it, or rename the template"
                ));
            }
            if existing.deleting {
                // Its end wakes this binding.
                return Ok(false);
            }
        }
        let id = existing.as_ref().and_then(|it| it.id.as_deref());
        let work = renderer.render(target, &facts.borrowed(), id);
        let work = work.map_err(|error: RenderError| chain(&error).to_string())?;
        let failed = |verb: &str, why: String| format!("failed to {verb} Work {name}: {why}");
        let namespace = &name.namespace;
        let collection = format!("{API}/namespaces/{namespace}/works");
        let reply = match &existing {
            None => {
                let body = object_of(&work).map_err(|error| failed("write", error.to_string()))?;
                let sent = Call::post(&collection, &body)
                    .metadata_only()
                    .send(&self.client);
                sent.await
                    .map_err(|error| failed("create", chain(&error).to_string()))?
            }
            Some(existing) => {
                let patch = write::patch(existing.content, &work);
                let Some(patch) = patch.map_err(|error| failed("write", error.to_string()))? else {
                    return Ok(false);
                };
                let uri = format!("{collection}/{}", name.name);
                let call = Call::patch(&uri, MERGE_PATCH, &patch).metadata_only();
                call.send(&self.client)
                    .await
                    .map_err(|error| failed("update", chain(&error).to_string()))?
            }
        };
        self.bindings.await_work(&reply).await;
        Ok(true)
    }

    fn template(&self, binding: &Binding) -> Option<Arc<world::Template>> {
        let name = TemplateName::of(&binding.spec.resource)?;
        self.world.propagation.templates.get(&name)?.record
    }

    async fn delete_all(&self, names: Vec<ObjectName>) -> Result<(), Error> {
        let mut deletions = Vec::with_capacity(names.len());
        for name in names {
            deletions.push(self.delete(name).boxed());
        }
        let deletions = futures::stream::iter(deletions).buffer_unordered(AT_ONCE);
        let deleted: Vec<Result<(), Error>> = deletions.collect().await;
        deleted.into_iter().collect()
    }

    async fn delete(&self, name: ObjectName) -> Result<(), Error> {
        let uri = format!("{API}/namespaces/{}/works/{}", name.namespace, name.name);
        match Call::delete(&uri, &json!({}))
            .metadata_only()
            .send(&self.client)
            .await
        {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some(404) => Ok(()),
            Err(error) => Err(Error::request("delete", "Work", &name.to_string(), error)),
        }
    }

    /// Says what went wrong, and has it tried again.
    async fn failed(&self, held: &world::Binding, problems: Vec<String>) -> Result<(), Error> {
        let text = problems.join("; ");
        let notice = Notice::warning(condition::REASON, text.clone());
        self.tell(&held.binding, &[notice]).await;
        self.note(held, Some(&text)).await?;
        Err(Error::Undecided(text))
    }

    /// Has the binding show what is wrong, as long as something is.
    async fn note(&self, held: &world::Binding, problem: Option<&str>) -> Result<(), Error> {
        let before = &held.status.conditions;
        let Some(conditions) = condition::decide(self.clock.now(), before, problem) else {
            return Ok(());
        };
        let patch = json!({ "conditions": conditions });
        self.bindings.patch_status(&held.binding, &patch).await?;
        Ok(())
    }

    async fn tell(&self, binding: &Binding, notices: &[Notice]) {
        self.bindings.tell(&about(binding), notices).await;
        if let Some(template) = self.template(binding) {
            self.bindings
                .tell(&about_template(&template.identity), notices)
                .await;
        }
    }
}

/// A policy as rendering takes it.
fn parts(policy: &Arc<world::Override>) -> (&ObjectMeta, &OverrideSpec) {
    (&policy.metadata, &policy.spec)
}

/// Works that nobody deletes yet.
fn staying(works: &BTreeMap<ObjectName, Arc<world::Work>>) -> Vec<ObjectName> {
    let staying = works.iter().filter(|(_, work)| !work.deleting);
    staying.map(|(name, _)| name.clone()).collect()
}

/// A Work as it is created.
fn object_of(work: &Work) -> Result<Value, serde_json::Error> {
    let mut object = serde_json::to_value(work)?;
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    Ok(object)
}

/// What overrides see of a cluster.
struct Facts {
    name: Arc<str>,
    labels: BTreeMap<String, String>,
    provider: Option<Arc<str>>,
    region: Option<Arc<str>>,
    zones: Vec<String>,
}

impl Facts {
    fn of(cluster: &crate::scheduler::Cluster) -> Self {
        let shape = &cluster.shape;
        let labels = shape.labels.iter();
        Self {
            name: Arc::clone(&cluster.name),
            labels: labels
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .collect(),
            provider: shape.provider.clone(),
            region: shape.region.clone(),
            zones: shape.zones.iter().map(ToString::to_string).collect(),
        }
    }

    fn borrowed(&self) -> ClusterFacts<'_> {
        ClusterFacts {
            name: &self.name,
            labels: Some(&self.labels),
            provider: self.provider.as_deref(),
            region: self.region.as_deref(),
            zones: &self.zones,
        }
    }
}
