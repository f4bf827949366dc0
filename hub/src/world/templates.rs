//! Templates: objects of any kind that some policy selects or some binding refers to.
//!
//! Each kind is watched on its own, from when the first wants it until nobody does, in one version: of those that
//! are wanted and served the one that kubectl would prefer. A kind that the API server does not serve yet is looked
//! for again when a CustomResourceDefinition changes, and for a while after: kube-apiserver may tell of a definition
//! sooner than of its kind. Who names many kinds that nobody serves holds up none that is served (`answers`).

mod answers;
#[cfg(test)]
mod tests;

use super::held::{Object, ObjectName, Told};
use super::records::Marker;
use super::template::Template;
use super::view::View;
use super::watched;
use crate::propagation::Binding;
use answers::{Answers, Said, ask};
use common::api::binding::ObjectReference;
use common::chance::Chance;
use common::controller::Metrics;
use common::gvk::{GroupKind, Gvk};
use common::lock::lock;
use common::mapper::Resource;
use common::signal;
use futures::StreamExt as _;
use kube::Client;
use kube::core::Version;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

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

    /// The template of a binding, which lies where the binding does. One that names another place is nobody's: whoever may
    /// write a binding decides about its namespace, and neither about another one nor about the whole hub.
    pub fn of_binding(binding: &Binding) -> Option<Self> {
        let given = |namespace: &'_ Option<String>| namespace.clone().filter(|it| !it.is_empty());
        let of = &binding.spec.resource;
        let is_beside = given(&of.namespace) == given(&binding.namespace);
        is_beside.then(|| Self::of(of)).flatten()
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
            let wanted = by_preference(self.0.wanted.borrow().keys());
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
        let mut rng = chance.stream("templates");
        let mut answers = Answers::new(Instant::now());
        loop {
            let kinds = by_preference(wanted.borrow_and_update().keys());
            let definitions = *defined.borrow_and_update();
            answers.begin(Instant::now(), definitions);
            self.unserved().retain(|kind| kinds.contains_key(kind));
            self.end_others(&kinds);
            let looked = self.look(&kinds, &mut answers, &mut tasks, &metrics, &chance);
            let said = looked.await;
            self.0.begun.send_modify(|count| *count += 1);
            let due = answers.end(Instant::now(), said, &mut rng);
            tokio::select! {
                biased;
                _ = wanted.changed() => {}
                _ = defined.changed() => {}
                () = until(due) => {}
            }
            while tasks.try_join_next().is_some() {}
        }
    }

    /// Begins to watch what is wanted, each kind once it is known how it is served: first those of which it is known, then
    /// others as the API server answers, so that none waits for another. Tells the worst that was said of any.
    async fn look(
        &self,
        kinds: &BTreeMap<GroupKind, Vec<Gvk>>,
        answers: &mut Answers,
        tasks: &mut JoinSet<()>,
        metrics: &Metrics,
        chance: &Chance,
    ) -> Said {
        let mut said = Said::Served;
        let mut waiting: BTreeMap<String, Vec<(&GroupKind, &Vec<Gvk>)>> = BTreeMap::new();
        for (kind, versions) in kinds {
            let begun = self.begin(kind, versions, answers, tasks, metrics, chance);
            match begun.await {
                Ok(says) => said = said.max(says),
                Err(missing) => {
                    for api_version in missing {
                        let those = waiting.entry(api_version).or_default();
                        those.push((kind, versions));
                    }
                }
            }
        }
        let mut replies = ask(&self.0.client, waiting.keys());
        while let Some((api_version, found)) = replies.next().await {
            let those = waiting.remove(&api_version).unwrap_or_default();
            answers.take(Instant::now(), api_version, found);
            for (kind, versions) in those {
                let begun = self.begin(kind, versions, answers, tasks, metrics, chance);
                // One of which more is to be told is begun by what tells the rest.
                if let Ok(says) = begun.await {
                    said = said.max(says);
                }
            }
        }
        said
    }

    fn end_others(&self, wanted: &BTreeMap<GroupKind, Vec<Gvk>>) {
        let kinds = self.kinds();
        let others = kinds.keys().filter(|kind| !wanted.contains_key(*kind));
        let others: Vec<GroupKind> = others.cloned().collect();
        drop(kinds);
        for kind in others {
            self.end(&kind);
        }
    }

    fn end(&self, kind: &GroupKind) -> Option<Kind> {
        let watched = self.kinds().remove(kind)?;
        let gvk = &watched.resource.gvk;
        tracing::debug!(%gvk, "these templates are not watched any more");
        watched.task.abort();
        Some(watched)
    }

    /// Ends the watch of a kind, and when it has ended tells that its templates are gone: those of another version are
    /// told as new.
    async fn leave(&self, kind: &GroupKind, tasks: &mut JoinSet<()>) {
        let Some(watched) = self.end(kind) else {
            return;
        };
        while !watched.task.is_finished() && tasks.join_next().await.is_some() {}
        watched.view.give_up().await;
    }

    /// Begins to watch a kind in the first of these versions that is served, in the place of another one; as long as it is
    /// not known which that is tells the group versions that say so.
    async fn begin(
        &self,
        kind: &GroupKind,
        versions: &[Gvk],
        answers: &Answers,
        tasks: &mut JoinSet<()>,
        metrics: &Metrics,
        chance: &Chance,
    ) -> Result<Said, Vec<String>> {
        let watched = self.resource(kind);
        let (resource, said) = answers.choose(versions, watched.as_ref())?;
        match resource {
            Some(resource) if watched.as_ref() == Some(&resource) => {}
            Some(resource) => {
                self.leave(kind, tasks).await;
                self.watch(kind.clone(), resource, tasks, metrics, chance);
            }
            None if said == Said::NotServed => self.is_not_served(kind, versions),
            None => {}
        }
        Ok(said)
    }

    /// Nobody can have templates of a kind in a version that is wanted.
    fn is_not_served(&self, kind: &GroupKind, versions: &[Gvk]) {
        self.end(kind);
        let is_new = self.unserved().insert(kind.clone());
        if is_new {
            let versions: Vec<&str> = versions.iter().map(|it| it.version.as_str()).collect();
            let versions = versions.join(", ");
            tracing::info!(%kind, versions, "the API server does not serve what policies or bindings name");
        }
    }

    fn watch(
        &self,
        kind: GroupKind,
        resource: Arc<Resource>,
        tasks: &mut JoinSet<()>,
        metrics: &Metrics,
        chance: &Chance,
    ) {
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
        tracing::debug!(gvk = %resource.gvk, "watching templates");
        let task = tasks.spawn(watched(&view, metrics, chance));
        let watched = Kind {
            resource,
            view,
            task,
        };
        self.unserved().remove(&kind);
        self.kinds().insert(kind, watched);
    }

    fn kinds(&self) -> MutexGuard<'_, BTreeMap<GroupKind, Kind>> {
        lock(&self.0.kinds)
    }

    fn unserved(&self) -> MutexGuard<'_, BTreeSet<GroupKind>> {
        lock(&self.0.unserved)
    }
}

/// Waits until then; without it, for ever.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// The versions of each kind, first the one that is preferred.
fn by_preference<'a>(wanted: impl Iterator<Item = &'a Gvk>) -> BTreeMap<GroupKind, Vec<Gvk>> {
    let mut kinds: BTreeMap<GroupKind, Vec<Gvk>> = BTreeMap::new();
    for gvk in wanted {
        kinds.entry(gvk.group_kind()).or_default().push(gvk.clone());
    }
    for versions in kinds.values_mut() {
        versions.sort_by_key(|gvk| Reverse(Version::parse(&gvk.version).priority()));
    }
    kinds
}
