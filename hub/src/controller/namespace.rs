//! Gives members the namespaces that something is propagated into, or all of them.
//!
//! The Work of a namespace is made before anything can be placed there, and goes when nothing of it is left in the
//! member; what others keep in the namespace there, the agent leaves alone.

mod decide;
mod spaces;
#[cfg(test)]
mod tests;

use super::bindings::{Bindings, Error, version_of};
use crate::world::{self, Change, Index, ObjectName, TemplateName, Told, World};
use common::controller::{Controller, Reconcile, Requeue};
use common::gvk::{GroupKind, Gvk};
use common::names::{EXECUTION_PREFIX, work_name};
use common::queue::Queue;
use common::rest::{Call, MERGE_PATCH};
use decide::{Existing, Observed, Step, decide};
use futures::{FutureExt as _, StreamExt as _, stream};
use kube::Client;
pub use spaces::{NamespaceSync, Spaces};
use spaces::{kind, lives, namespace_of, places};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const API: &str = "/apis/work.karmada.io/v1alpha1";
/// Works of one namespace that are written at once.
const AT_ONCE: usize = 16;
/// How long to wait for the namespaces to be listed.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The controller.
pub struct Namespaces {
    client: Client,
    world: World,
    bindings: Bindings,
    spaces: Spaces,
    /// Works that no binding of a namespace wants, and that may bring one, by name.
    own: Index<Arc<str>>,
}

impl Namespaces {
    /// A controller that is woken by what the world tells.
    pub fn watching(
        client: Client,
        bindings: Bindings,
        spaces: Spaces,
        world: &World,
    ) -> Controller<Arc<Self>> {
        let views = &world.propagation;
        let namespaces = Self::new(client, bindings, spaces, world);
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
        if namespaces.spaces.are_all() {
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

    /// The same, with its index, woken by nobody.
    fn new(client: Client, bindings: Bindings, spaces: Spaces, world: &World) -> Arc<Self> {
        Arc::new(Self {
            client,
            world: world.clone(),
            bindings,
            spaces,
            own: world.works.index(|name, work| {
                let may_be = match &work.binding {
                    None => true,
                    Some(of) => of.namespace.is_empty() && namespace_of(&name.name).is_some(),
                };
                may_be.then(|| Arc::clone(&name.name)).into_iter().collect()
            }),
        })
    }

    /// A member that comes or goes wakes what it is to have.
    fn cluster_changed(&self, change: &Change<world::Cluster>, queue: &Queue<Arc<str>>) {
        if change.old.as_ref().map(lives) == change.new.as_ref().map(lives) {
            return;
        }
        let member = &change.name.name;
        self.for_each(|name| {
            if self.spaces.are_all() || self.spaces.count(&name, member) > 0 {
                queue.add(name);
            }
        });
    }

    /// Whether a member gets its first binding of the namespace, or loses its last one.
    fn is_first_or_last(&self, change: &Change<world::Binding>) -> bool {
        let (old, new) = (places(change.before()), places(change.after()));
        let count = |member: &String| self.spaces.count(&change.name.namespace, member);
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
            let about = match of(work).filter(|of| !of.is_empty()) {
                // Of what is propagated, only the last one that goes sets a namespace free.
                Some(of) => {
                    let is_held = self.spaces.is_held(&change.name.namespace, &of);
                    (!is_held).then_some(of)
                }
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
}

/// What somebody wants to be watched.
fn kinds(wanted: bool) -> BTreeSet<Gvk> {
    wanted.then(kind).flatten().into_iter().collect()
}

impl Reconcile for Namespaces {
    const NAME: &'static str = "namespace";
    type Key = Arc<str>;
    type Error = Error;

    async fn ready(&self) {
        self.world.synced().await;
    }

    async fn reconcile(&self, key: &Arc<str>) -> Result<Requeue, Error> {
        if self.spaces.are_not(key) {
            return Ok(Requeue::Never);
        }
        let work: Arc<str> = work_name("Namespace", None, key).into();
        let (mut existing, mut bound) = (BTreeMap::new(), BTreeSet::new());
        for name in self.own.names(&work) {
            let cluster = name.namespace.strip_prefix(EXECUTION_PREFIX);
            let (Some(held), Some(cluster)) = (self.world.works.get(&name), cluster) else {
                continue;
            };
            let (version, Some(work)) = (held.version, held.record) else {
                continue;
            };
            match work.binding {
                None => drop(existing.insert(cluster.to_owned(), Existing { version, work })),
                Some(_) => drop(bound.insert(cluster.to_owned())),
            }
        }
        let wanted = self.spaces.wanted(key);
        if existing.is_empty() && wanted.is_empty() {
            return Ok(Requeue::Never);
        }
        let kind = GroupKind {
            group: String::new(),
            kind: "Namespace".to_owned(),
        };
        let templates = &self.world.propagation.templates;
        if !templates.is_synced(&kind) {
            // An object of a list is told before the list is complete.
            return Ok(Requeue::After(LOOK_AGAIN));
        }
        let name = ObjectName::new(None, key);
        let template = templates.get(&TemplateName { kind, name });
        let occupied = existing.keys().filter(|cluster| {
            let space = format!("{EXECUTION_PREFIX}{cluster}");
            self.spaces.is_held(&space.into(), key)
        });
        if template.as_ref().is_some_and(|held| held.record.is_none()) {
            let text = format!("namespace {key} cannot be read, so it stays where it is");
            return Err(Error::Undecided(text));
        }
        let template = template.and_then(|held| held.record);
        let seen = Observed {
            occupied: occupied.cloned().collect(),
            wanted,
            clusters: self.spaces.living(),
            bound,
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
        let call = match &step {
            Step::Create(_, object) => Call::post(&collection, object),
            Step::Update(_, patch) => Call::patch(&uri, MERGE_PATCH, patch),
            Step::Delete(_, options) => Call::delete(&uri, options),
        };
        match call.metadata_only().send(&self.client).await {
            Ok(reply) => Ok(version_of(&reply)),
            // To hear of its end wakes the namespace. Where none can be made, the member is not finished, or goes.
            Err(error) if error.code() == Some(404) && !matches!(step, Step::Create(..)) => {
                Ok(None)
            }
            Err(error) => Err(Error::request(
                verb,
                "Work",
                &format!("{cluster}/{work}"),
                error,
            )),
        }
    }
}
