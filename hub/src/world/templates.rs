//! Templates: objects of any kind that some policy selects or some binding refers to.
//!
//! Each kind is watched on its own, from when the first wants it until nobody does. A kind that the API server
//! does not serve yet is looked for again when a CustomResourceDefinition changes.

use super::held::{Object, ObjectName, Told};
use super::records::{Marker, Metadata};
use super::view::{Record, View};
use super::watched;
use common::backoff::Backoff;
use common::chance::Chance;
use common::controller::Metrics;
use common::errors::chain;
use common::gvk::Gvk;
use common::mapper::{Resource, RestMapper};
use common::signal;
use common::watch::{Collection, WatchConfig};
use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};

/// First and longest delay after an API server did not say how a kind is served.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// A template.
#[derive(Debug)]
pub struct Template {
    /// UID.
    pub uid: Box<str>,
    /// Counts changes of its spec; 0 for kinds that do not count.
    pub generation: i64,
    /// Whether it is being deleted.
    pub deleted: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Differs when anything but status, resourceVersion and managedFields differs.
    pub content: u64,
    /// The object without managedFields, as JSON.
    text: Box<str>,
}

impl Template {
    /// The object.
    pub fn object(&self) -> Value {
        // It was a Value when it was kept.
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

impl Record for Template {
    const KIND: &'static str = "template";

    fn read(object: &str) -> serde_json::Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Named {
            metadata: Metadata,
        }
        let Named { metadata } = serde_json::from_str(object)?;
        let mut object: Value = serde_json::from_str(object)?;
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let text = object.to_string().into_boxed_str();
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
        }
        let mut content = DefaultHasher::new();
        object.to_string().hash(&mut content);
        Ok(Some(Self {
            uid: metadata.uid.into(),
            generation: metadata.generation,
            deleted: metadata.deletion_timestamp.is_some(),
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            content: content.finish(),
            text,
        }))
    }
}

type Listener = Arc<dyn Fn(&Gvk, &Told<Template>) + Send + Sync>;

/// The templates of every kind that is wanted; clones share them.
#[derive(Clone)]
pub struct Templates(Arc<Shared>);

struct Shared {
    client: Client,
    chance: Chance,
    mapper: RestMapper,
    kinds: Mutex<BTreeMap<Gvk, Kind>>,
    listeners: Mutex<Vec<Listener>>,
    /// How many policies and bindings want a kind.
    wanted: signal::Sender<BTreeMap<Gvk, usize>>,
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
            listeners: Mutex::default(),
            wanted: signal::Sender::default(),
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

    /// Calls a listener for everything told of any kind from now on; as [`View::listen`].
    pub fn listen(&self, listener: impl Fn(&Gvk, &Told<Template>) + Send + Sync + 'static) {
        self.listeners().push(Arc::new(listener));
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
    pub fn get(&self, kind: &Gvk, name: &ObjectName) -> Option<Object<Template>> {
        self.view(kind)?.get(name)
    }

    /// Calls `each` for every template of a kind, in the order of their names.
    pub fn for_each(&self, kind: &Gvk, each: impl FnMut(&ObjectName, &Object<Template>)) {
        if let Some(view) = self.view(kind) {
            view.for_each(each);
        }
    }

    /// How a kind is served; none while it is not watched.
    pub fn resource(&self, kind: &Gvk) -> Option<Arc<Resource>> {
        let kinds = self.kinds();
        kinds.get(kind).map(|kind| Arc::clone(&kind.resource))
    }

    /// Whether all templates of a kind are known.
    pub fn is_synced(&self, kind: &Gvk) -> bool {
        self.view(kind).is_some_and(|view| view.is_synced())
    }

    fn view(&self, kind: &Gvk) -> Option<View<Template>> {
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
            let kinds: BTreeSet<Gvk> = wanted.borrow_and_update().keys().cloned().collect();
            defined.mark_unchanged();
            self.end_others(&kinds);
            let mut failed = false;
            for kind in kinds {
                failed |= !self.begin(&kind, &mut tasks, &metrics, &chance).await;
            }
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

    fn end_others(&self, wanted: &BTreeSet<Gvk>) {
        self.kinds().retain(|kind, watched| {
            let stays = wanted.contains(kind);
            if !stays {
                watched.task.abort();
                self.0.mapper.forget(kind);
            }
            stays
        });
    }

    /// Begins to watch a kind, if it is served; false when nobody said whether it is.
    async fn begin(
        &self,
        kind: &Gvk,
        tasks: &mut JoinSet<()>,
        metrics: &Metrics,
        chance: &Chance,
    ) -> bool {
        if self.kinds().contains_key(kind) {
            return true;
        }
        let resource = match self.0.mapper.resolve(&self.0.client, kind).await {
            Ok(Some(resource)) => resource,
            Ok(None) => return true,
            Err(error) => {
                let error = chain(&error);
                tracing::warn!(%kind, %error, "cannot tell how a kind is served");
                return false;
            }
        };
        let collection = Collection::dynamic(&resource.api_resource(), None);
        let config = WatchConfig::new(&self.0.chance);
        let view = View::new(self.0.client.clone(), "templates", collection, config);
        let (all, of) = (self.listeners().clone(), kind.clone());
        view.listen(move |told| all.iter().for_each(|listener| listener(&of, told)));
        let task = tasks.spawn(watched(&view, metrics, chance));
        let kind = kind.clone();
        let watched = Kind {
            resource,
            view,
            task,
        };
        self.kinds().insert(kind, watched);
        true
    }

    fn kinds(&self) -> MutexGuard<'_, BTreeMap<Gvk, Kind>> {
        self.0.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listeners(&self) -> MutexGuard<'_, Vec<Listener>> {
        let listeners = self.0.listeners.lock();
        listeners.unwrap_or_else(PoisonError::into_inner)
    }
}
