//! Gives members the namespaces that something is propagated into, or all of them.
//!
//! The Work of a namespace is made before anything can be placed there, and goes when nothing of it is left in the
//! member; what others keep in the namespace there, the agent leaves alone.

mod decide;
#[cfg(test)]
mod tests;

use super::bindings::{Bindings, Error, version_of};
use super::detector::skip::Skips;
use crate::world::{self, Change, Index, ObjectName, TemplateName, Told, World};
use common::controller::{Controller, Reconcile, Requeue};
use common::gvk::{GroupKind, Gvk};
use common::names::{EXECUTION_PREFIX, work_name};
use common::queue::Queue;
use common::rest::{Call, MERGE_PATCH};
use decide::{Observed, Step, decide};
use futures::{FutureExt as _, StreamExt as _, stream};
use kube::Client;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const API: &str = "/apis/work.karmada.io/v1alpha1";
/// Works of one namespace that are written at once.
const AT_ONCE: usize = 16;
/// How long to wait for the namespaces to be listed.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Which namespaces members get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum NamespaceSync {
    /// Those that something is propagated into.
    #[default]
    Needed,
    /// All that are not reserved, as Karmada does it.
    All,
}

/// The controller.
pub struct Namespaces {
    client: Client,
    world: World,
    bindings: Bindings,
    skips: Skips,
    mode: NamespaceSync,
    /// Bindings by their namespace.
    placed: Index<Arc<str>>,
    /// The same by their namespace and each member where they are.
    wanted: Index<(Arc<str>, Arc<str>)>,
    /// Works that no binding wants, by name.
    own: Index<Arc<str>>,
    /// Works that follow from bindings, by member and by the namespace that they are about.
    content: Index<(Arc<str>, Arc<str>)>,
}

impl Namespaces {
    /// A controller that is woken by what the world tells.
    pub fn watching(
        client: Client,
        bindings: Bindings,
        skips: Skips,
        mode: NamespaceSync,
        world: &World,
    ) -> Controller<Arc<Self>> {
        let views = &world.propagation;
        let namespaces = Arc::new(Self {
            client,
            world: world.clone(),
            bindings,
            skips,
            mode,
            placed: views
                .bindings
                .index(|name, _| vec![Arc::clone(&name.namespace)]),
            wanted: views.bindings.index(|name, held| {
                let members = places(Some(held)).into_iter();
                let under = |member: String| (Arc::clone(&name.namespace), member.into());
                members.map(under).collect()
            }),
            own: world.works.index(|name, work| {
                let own = work.binding.is_none().then(|| Arc::clone(&name.name));
                own.into_iter().collect()
            }),
            content: world.works.index(|name, work| {
                let of = work.binding.as_ref().map(|it| Arc::clone(&it.namespace));
                let of = of.filter(|it| !it.is_empty());
                of.into_iter()
                    .map(|of| (Arc::clone(&name.namespace), of))
                    .collect()
            }),
        });
        let controller = Controller::new(Arc::clone(&namespaces));
        let queue = controller.queue();
        let to = queue.clone();
        let (me, templates) = (Arc::clone(&namespaces), views.templates.clone());
        views.bindings.on_change(move |change| {
            // Watched from the first binding on, until the last Work is gone.
            templates.want(&kinds(change.old.is_some()), &kinds(change.new.is_some()));
            if me.is_first_or_last(change) {
                to.add(Arc::clone(&change.name.namespace));
            }
        });
        if mode == NamespaceSync::All {
            views
                .templates
                .want(&BTreeSet::new(), &kind().into_iter().collect());
        }
        let to = queue.clone();
        views.templates.listen(move |of, told| {
            if let Told::Changed(change) = told
                && kind().is_some_and(|kind| kind.group_kind() == *of)
            {
                to.add(Arc::clone(&change.name.name));
            }
        });
        let (to, templates) = (queue.clone(), views.templates.clone());
        let me = Arc::clone(&namespaces);
        world.works.on_change(move |change| {
            let is_own = |work: Option<&world::Work>| {
                let free = work.is_some_and(|it| it.binding.is_none());
                free && namespace_of(&change.name.name).is_some()
            };
            let (old, new) = (is_own(change.before()), is_own(change.after()));
            templates.want(&kinds(old), &kinds(new));
            me.work_changed(change, &to);
        });
        let (me, to) = (namespaces, queue);
        world.clusters.on_change(move |change| {
            me.cluster_changed(change, &to);
        });
        controller
    }

    fn cluster_changed(&self, change: &Change<world::Cluster>, queue: &Queue<Arc<str>>) {
        if self.mode == NamespaceSync::All && change.old.is_none() != change.new.is_none() {
            self.for_each(|name| queue.add(name));
        }
    }

    /// Whether a member gets its first binding of the namespace, or loses its last one.
    fn is_first_or_last(&self, change: &Change<world::Binding>) -> bool {
        let (old, new) = (places(change.before()), places(change.after()));
        let count = |member: &String| {
            let namespace = Arc::clone(&change.name.namespace);
            self.wanted.count(&(namespace, member.as_str().into()))
        };
        new.difference(&old).any(|member| count(member) == 1)
            || old.difference(&new).any(|member| count(member) == 0)
    }

    fn work_changed(&self, change: &Change<world::Work>, queue: &Queue<Arc<str>>) {
        let (old, new) = (change.before(), change.after());
        let looks = |work: Option<&world::Work>| work.map(|it| (it.content, it.deleting));
        if looks(old) == looks(new) {
            return;
        }
        let of = |work: &world::Work| Some(Arc::clone(&work.binding.as_ref()?.namespace));
        for work in [old, new].into_iter().flatten() {
            let about = match of(work) {
                // Of what is propagated, only the last one that goes sets a namespace free.
                Some(of) => Some(of).filter(|of| {
                    let under = (Arc::clone(&change.name.namespace), Arc::clone(of));
                    !of.is_empty() && self.content.count(&under) == 0
                }),
                None => namespace_of(&change.name.name),
            };
            about.into_iter().for_each(|namespace| queue.add(namespace));
        }
    }

    fn for_each(&self, mut each: impl FnMut(Arc<str>)) {
        if let Some(kind) = kind() {
            let templates = &self.world.propagation.templates;
            templates.for_each_name(&kind.group_kind(), |name| each(Arc::clone(&name.name)));
        }
    }

    /// Members that something of a namespace is placed in.
    fn needed(&self, namespace: &Arc<str>) -> BTreeSet<String> {
        let mut clusters = BTreeSet::new();
        for name in self.placed.names(namespace) {
            if let Some(held) = self.world.propagation.binding(&name) {
                clusters.extend(places(Some(&held)));
            }
        }
        clusters
    }

    fn all(&self) -> BTreeSet<String> {
        let mut clusters = BTreeSet::new();
        self.world.clusters.for_each_name(|name| {
            clusters.insert(name.name.to_string());
        });
        clusters
    }
}

/// What somebody wants to be watched.
fn kinds(wanted: bool) -> BTreeSet<Gvk> {
    wanted.then(kind).flatten().into_iter().collect()
}

fn kind() -> Option<Gvk> {
    Gvk::new("v1", "Namespace")
}

/// Where a binding places something.
fn places(held: Option<&world::Binding>) -> BTreeSet<String> {
    let spec = held
        .filter(|it| !it.binding.deleting)
        .map(|it| &it.binding.spec);
    let clusters = spec.into_iter().flat_map(|spec| {
        let required = spec.required_by.iter().flat_map(|it| &it.clusters);
        spec.clusters
            .iter()
            .chain(required)
            .map(|it| it.name.clone())
    });
    clusters.collect()
}

/// The namespace that a Work of this name would bring.
fn namespace_of(work: &str) -> Option<Arc<str>> {
    let (namespace, _) = work.rsplit_once('-')?;
    (work_name("Namespace", None, namespace) == work).then(|| namespace.into())
}

impl Reconcile for Namespaces {
    const NAME: &'static str = "namespace";
    type Key = Arc<str>;
    type Error = Error;

    async fn ready(&self) {
        self.world.synced().await;
    }

    async fn reconcile(&self, key: &Arc<str>) -> Result<Requeue, Error> {
        if decide::is_reserved(key) || self.skips.namespace(key) {
            return Ok(Requeue::Never);
        }
        let kind = GroupKind {
            group: String::new(),
            kind: "Namespace".to_owned(),
        };
        if !self.world.propagation.templates.is_synced(&kind) {
            // An object of a list is told before the list is complete.
            return Ok(Requeue::After(LOOK_AGAIN));
        }
        let name = ObjectName::new(None, key);
        let template = self
            .world
            .propagation
            .templates
            .get(&TemplateName { kind, name });
        let work: Arc<str> = work_name("Namespace", None, key).into();
        let mut existing = BTreeMap::new();
        for name in self.own.names(&work) {
            let held = self.world.works.get(&name).and_then(|held| held.record);
            let cluster = name.namespace.strip_prefix(EXECUTION_PREFIX);
            if let (Some(held), Some(cluster)) = (held, cluster) {
                existing.insert(cluster.to_owned(), held);
            }
        }
        let occupied = existing.keys().filter(|cluster| {
            let space: Arc<str> = format!("{EXECUTION_PREFIX}{cluster}").into();
            self.content.count(&(space, Arc::clone(key))) > 0
        });
        let template = template.and_then(|held| held.record);
        let seen = Observed {
            occupied: occupied.cloned().collect(),
            wanted: match self.mode {
                NamespaceSync::Needed => self.needed(key),
                NamespaceSync::All => self.all(),
            },
            clusters: self.all(),
            template: template.as_ref().map(|it| it.object()),
            name: work.to_string(),
            existing: &existing,
        };
        let steps = decide(&seen).into_iter();
        let steps: Vec<_> = steps.map(|step| self.apply(&work, step).boxed()).collect();
        let steps = stream::iter(steps).buffer_unordered(AT_ONCE);
        let done: Vec<Result<Option<u64>, Error>> = steps.collect().await;
        let done: Vec<Option<u64>> = done.into_iter().collect::<Result<_, _>>()?;
        if let Some(version) = done.into_iter().flatten().max() {
            self.bindings.await_works(version).await;
        }
        Ok(Requeue::Never)
    }
}

impl Namespaces {
    /// One step; the version that was written.
    async fn apply(&self, work: &str, step: Step) -> Result<Option<u64>, Error> {
        let (verb, cluster) = (step.verb(), step.cluster().to_owned());
        let collection = format!("{API}/namespaces/{EXECUTION_PREFIX}{cluster}/works");
        let uri = format!("{collection}/{work}");
        let none = json!({});
        let call = match &step {
            Step::Create(_, object) => Call::post(&collection, object),
            Step::Update(_, patch) => Call::patch(&uri, MERGE_PATCH, patch),
            Step::Delete(_) => Call::delete(&uri, &none),
        };
        match call.metadata_only().send(&self.client).await {
            Ok(reply) => Ok(version_of(&reply)),
            // The member is going, or was never finished.
            Err(error) if error.code() == Some(404) => Ok(None),
            Err(error) => Err(Error::request(
                verb,
                "Work",
                &format!("{cluster}/{work}"),
                error,
            )),
        }
    }
}
