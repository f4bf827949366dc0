//! Templates: objects of any kind that some policy selects or some binding refers to.
//!
//! Each kind is watched on its own, from when the first wants it until nobody does, in one version: of those that
//! are wanted the one that kubectl would prefer. A kind that the API server does not serve yet is looked for again
//! when a CustomResourceDefinition changes.

use super::held::{Object, ObjectName, Told};
use super::records::Marker;
use super::template::Template;
use super::view::View;
use super::watched;
use common::api::binding::ObjectReference;
use common::backoff::Backoff;
use common::chance::Chance;
use common::controller::Metrics;
use common::errors::chain;
use common::gvk::{GroupKind, Gvk};
use common::lock::lock;
use common::mapper::{Resource, RestMapper};
use common::signal;
use kube::Client;
use kube::core::Version;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};

/// First and longest delay after an API server did not say how a kind is served.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Which template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TemplateName {
    /// Its kind, in whatever version.
    pub kind: GroupKind,
    /// Its namespace and name.
    pub name: ObjectName,
}

impl TemplateName {
    /// What a binding refers to; none when its kind is no word.
    pub fn of(resource: &ObjectReference) -> Option<Self> {
        Some(Self {
            kind: Gvk::new(&resource.api_version, &resource.kind)?.group_kind(),
            name: ObjectName::new(resource.namespace.as_deref(), &resource.name),
        })
    }
}

impl fmt::Display for TemplateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

type Listener = Arc<dyn Fn(&GroupKind, &Told<Template>) + Send + Sync>;

/// The templates of every kind that is wanted; clones share them.
#[derive(Clone)]
pub struct Templates(Arc<Shared>);

struct Shared {
    client: Client,
    chance: Chance,
    mapper: RestMapper,
    kinds: Mutex<BTreeMap<GroupKind, Kind>>,
    /// Kinds that are wanted and not served.
    unserved: Mutex<BTreeSet<GroupKind>>,
    first: Mutex<Vec<Listener>>,
    listeners: Mutex<Vec<Listener>>,
    /// How many policies and bindings want a kind.
    wanted: signal::Sender<BTreeMap<Gvk, usize>>,
    /// Counts the times that all which is wanted was looked at, and is watched where it is served.
    begun: signal::Sender<u64>,
    /// Changes whenever a kind may have come.
    definitions: View<Marker>,
    defined: signal::Sender<u64>,
}

struct Kind {
    resource: Arc<Resource>,
    view: View<Template>,
    task: AbortHandle,
}

impl Templates {
    /// Nothing is wanted yet.
    pub(super) fn new(client: &Client, chance: &Chance, definitions: View<Marker>) -> Self {
        let templates = Self(Arc::new(Shared {
            client: client.clone(),
            chance: chance.clone(),
            mapper: RestMapper::default(),
            kinds: Mutex::default(),
            unserved: Mutex::default(),
            first: Mutex::default(),
            listeners: Mutex::default(),
            wanted: signal::Sender::default(),
            begun: signal::Sender::default(),
            definitions: definitions.clone(),
            defined: signal::Sender::default(),
        }));
        let defined = templates.0.defined.clone();
        definitions.listen(move |told| {
            if matches!(told, Told::Changed(change) if change.is_written()) {
                defined.send_modify(|count| *count += 1);
            }
        });
        templates
    }

    /// Calls a listener for everything told of any kind from now on; as [`View::listen_first`].
    pub fn listen_first(
        &self,
        listener: impl Fn(&GroupKind, &Told<Template>) + Send + Sync + 'static,
    ) {
        lock(&self.0.first).push(Arc::new(listener));
    }

    /// The same as [`View::listen`].
    pub fn listen(&self, listener: impl Fn(&GroupKind, &Told<Template>) + Send + Sync + 'static) {
        lock(&self.0.listeners).push(Arc::new(listener));
    }

    /// Somebody wants other kinds than before.
    pub fn want(&self, before: &BTreeSet<Gvk>, after: &BTreeSet<Gvk>) {
        if before == after {
            return;
        }
        self.0.wanted.send_modify(|wanted| {
            for kind in after {
                *wanted.entry(kind.clone()).or_default() += 1;
            }
            for kind in before {
                if let Some(count) = wanted.get_mut(kind) {
                    *count = count.saturating_sub(1);
                    if *count == 0 {
                        wanted.remove(kind);
                    }
                }
            }
        });
    }

    /// What is held of a template.
    pub fn get(&self, name: &TemplateName) -> Option<Object<Template>> {
        self.view(&name.kind)?.get(&name.name)
    }

    /// Calls `each` for the name of every template of a kind, in their order.
    pub fn for_each_name(&self, kind: &GroupKind, each: impl FnMut(&ObjectName)) {
        if let Some(view) = self.view(kind) {
            view.for_each_name(each);
        }
    }

    /// How a kind is served; none while it is not watched.
    pub fn resource(&self, kind: &GroupKind) -> Option<Arc<Resource>> {
        let kinds = self.kinds();
        kinds.get(kind).map(|kind| Arc::clone(&kind.resource))
    }

    /// Whether all templates of a kind are known, or it is known that there can be none.
    pub fn is_synced(&self, kind: &GroupKind) -> bool {
        self.unserved().contains(kind) || self.view(kind).is_some_and(|view| view.is_synced())
    }

    /// Waits until the templates of each kind that is wanted now were listed once.
    pub async fn synced(&self) {
        let mut begun = self.0.begun.subscribe();
        loop {
            begun.mark_unchanged();
            let wanted = preferred(self.0.wanted.borrow().keys());
            let missing = wanted.keys().filter(|kind| !self.is_synced(kind));
            let views: Option<Vec<_>> = missing.map(|kind| self.view(kind)).collect();
            match views {
                Some(views) if views.is_empty() => return,
                Some(views) => {
                    for view in views {
                        view.synced().await;
                    }
                }
                None if begun.changed().await.is_err() => return,
                None => {}
            }
        }
    }

    /// Waits until a write of a template was seen that was answered with this resourceVersion; not where the kind is not
    /// watched.
    pub async fn caught_up(&self, kind: &GroupKind, version: u64) {
        if let Some(view) = self.view(kind) {
            view.caught_up(version).await;
        }
    }

    fn view(&self, kind: &GroupKind) -> Option<View<Template>> {
        self.kinds().get(kind).map(|kind| kind.view.clone())
    }

    /// Watches what is wanted, for ever.
    pub(super) async fn run(self, metrics: Metrics, chance: Chance) {
        let mut tasks = JoinSet::new();
        tasks.spawn(watched(&self.0.definitions, &metrics, &chance));
        let (mut wanted, mut defined) = (self.0.wanted.subscribe(), self.0.defined.subscribe());
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        let mut rng = chance.stream("templates");
        loop {
            let kinds = preferred(wanted.borrow_and_update().keys());
            defined.mark_unchanged();
            self.unserved().retain(|kind| kinds.contains_key(kind));
            self.end_others(&kinds);
            let mut failed = false;
            for kind in kinds.into_values() {
                failed |= !self.begin(&kind, &mut tasks, &metrics, &chance).await;
            }
            self.0.begun.send_modify(|count| *count += 1);
            let again = if failed {
                backoff.next(&mut rng)
            } else {
                backoff.reset();
                Duration::MAX
            };
            tokio::select! {
                biased;
                _ = wanted.changed() => {}
                _ = defined.changed() => {}
                () = tokio::time::sleep(again) => {}
            }
            while tasks.try_join_next().is_some() {}
        }
    }

    fn end_others(&self, wanted: &BTreeMap<GroupKind, Gvk>) {
        self.kinds().retain(|kind, watched| {
            let gvk = &watched.resource.gvk;
            let stays = wanted.get(kind) == Some(gvk);
            if !stays {
                tracing::debug!(%gvk, "nobody wants these templates any more");
                watched.task.abort();
                self.0.mapper.forget(gvk);
            }
            stays
        });
    }

    /// Begins to watch a kind, if it is served; false when nobody said whether it is.
    async fn begin(
        &self,
        gvk: &Gvk,
        tasks: &mut JoinSet<()>,
        metrics: &Metrics,
        chance: &Chance,
    ) -> bool {
        let kind = gvk.group_kind();
        if self.kinds().contains_key(&kind) {
            return true;
        }
        let resource = match self.0.mapper.resolve(&self.0.client, gvk).await {
            Ok(Some(resource)) => resource,
            Ok(None) => {
                self.unserved().insert(kind);
                return true;
            }
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(%gvk, %error, "cannot tell how a kind is served");
                return false;
            }
        };
        let config = super::pages(&self.0.chance);
        let view = View::of_kind(self.0.client.clone(), "templates", &resource, config);
        let (first, of) = (lock(&self.0.first).clone(), kind.clone());
        view.listen_first(move |told| first.iter().for_each(|listener| listener(&of, told)));
        let (all, of) = (lock(&self.0.listeners).clone(), kind.clone());
        view.listen(move |told| {
            if let Told::Lost(problem) = told {
                tracing::debug!(kind = %of, ?problem, "nothing is heard of templates");
            }
            all.iter().for_each(|listener| listener(&of, told));
        });
        tracing::debug!(%gvk, "watching templates");
        let task = tasks.spawn(watched(&view, metrics, chance));
        let watched = Kind {
            resource,
            view,
            task,
        };
        self.unserved().remove(&kind);
        self.kinds().insert(kind, watched);
        true
    }

    fn kinds(&self) -> MutexGuard<'_, BTreeMap<GroupKind, Kind>> {
        lock(&self.0.kinds)
    }

    fn unserved(&self) -> MutexGuard<'_, BTreeSet<GroupKind>> {
        lock(&self.0.unserved)
    }
}

/// One version of each kind.
fn preferred<'a>(wanted: impl Iterator<Item = &'a Gvk>) -> BTreeMap<GroupKind, Gvk> {
    let mut chosen: BTreeMap<GroupKind, Gvk> = BTreeMap::new();
    for gvk in wanted {
        let priority = |gvk: &Gvk| Version::parse(&gvk.version).priority();
        match chosen.entry(gvk.group_kind()) {
            Entry::Vacant(first) => {
                first.insert(gvk.clone());
            }
            Entry::Occupied(mut other) => {
                if priority(gvk) > priority(other.get()) {
                    other.insert(gvk.clone());
                }
            }
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::super::testing::{nobody, unreachable};
    use super::*;
    use common::watch::WatchConfig;
    use futures::FutureExt as _;

    fn gvk(api_version: &str) -> Gvk {
        Gvk::new(api_version, "Thing").expect("a kind")
    }

    #[test]
    fn of_the_versions_that_are_wanted_one_is_watched() {
        let wanted = [
            "x.org/v1beta2",
            "x.org/v1",
            "x.org/v2alpha1",
            "y.org/v1alpha1",
        ]
        .map(gvk);
        let chosen: Vec<Gvk> = preferred(wanted.iter()).into_values().collect();
        assert_eq!(chosen, [gvk("x.org/v1"), gvk("y.org/v1alpha1")]);
        let backwards = preferred(wanted.iter().rev());
        assert!(backwards.into_values().eq(chosen));
    }

    /// A kind that is watched, by a watch that a test speaks for.
    fn begin(templates: &Templates, gvk: &Gvk) -> View<Template> {
        let resource = Arc::new(Resource {
            gvk: gvk.clone(),
            plural: "things".into(),
            namespaced: true,
        });
        let config = WatchConfig::new(&templates.0.chance);
        let view = View::of_kind(nobody(), "templates", &resource, config);
        let kind = Kind {
            resource,
            view: view.clone(),
            task: tokio::spawn(std::future::ready(())).abort_handle(),
        };
        templates.kinds().insert(gvk.group_kind(), kind);
        view
    }

    #[tokio::test]
    async fn templates_are_known_when_each_kind_that_is_served_was_listed() {
        let templates = unreachable().propagation.templates;
        templates.synced().await;
        let wanted = ["x.org/v1", "y.org/v1"].map(gvk);
        templates.want(&BTreeSet::new(), &wanted.clone().into());
        let mut synced = Box::pin(templates.synced());
        assert_eq!(synced.as_mut().now_or_never(), None, "nobody looked");
        let view = begin(&templates, &wanted[0]);
        templates.unserved().insert(wanted[1].group_kind());
        templates.0.begun.send_modify(|count| *count += 1);
        assert_eq!(synced.as_mut().now_or_never(), None, "nothing was listed");
        view.listed(&[]).await;
        synced.await;
    }
}
