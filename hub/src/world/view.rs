//! One collection, watched once.

use super::held::{Change, Held, Object, ObjectName, Raw, Told};
use super::index::{Index, Indexing};
use super::kept::Keep;
use super::progress::Progress;
use common::gvk::Gvk;
use common::lock::lock;
use common::mapper::Resource;
use common::watch::{Collection, Event, WatchConfig, watch};
use futures::StreamExt as _;
use kube::Client;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// So many events of a collection wait, taken apart, to be taken in.
const AHEAD: usize = 64;

/// What may wait for a subscriber; then the view waits for it.
const SUBSCRIPTION: usize = 64;

/// What a view keeps of an object.
pub trait Record: Send + Sync + Sized + 'static {
    /// The kind, for logs.
    const KIND: &'static str;

    /// How it lies in memory.
    type Kept: Keep<Self>;

    /// Reads an object as it was sent; none when it is not one to hold. Nothing that an agent can write should
    /// be an error.
    fn read(object: &str) -> serde_json::Result<Option<Self>>;

    /// The same of an object of this kind, which the items of a list do not name.
    fn read_as(object: &str, _kind: Option<&Gvk>) -> serde_json::Result<Option<Self>> {
        Self::read(object)
    }
}

type Listener<R> = Box<dyn FnMut(&Told<R>) + Send>;

/// A collection; clones share it.
pub struct View<R: Record>(Arc<Shared<R>>);

struct Shared<R: Record> {
    name: &'static str,
    client: Client,
    collection: Collection,
    config: WatchConfig,
    held: Mutex<Held<R>>,
    indexes: Mutex<Vec<Box<dyn Indexing<R>>>>,
    first: Mutex<Vec<Listener<R>>>,
    listeners: Mutex<Vec<Listener<R>>>,
    subscribers: Mutex<Vec<mpsc::Sender<Told<R>>>>,
    progress: Progress,
}

impl<R: Record> Clone for View<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Record> fmt::Debug for View<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("name", &self.0.name)
            .finish_non_exhaustive()
    }
}

impl<R: Record> View<R> {
    /// A view that has seen nothing; `name` is the resource, for metrics.
    pub fn new(
        client: Client,
        name: &'static str,
        collection: Collection,
        config: WatchConfig,
    ) -> Self {
        Self(Arc::new(Shared {
            name,
            client,
            collection,
            config,
            held: Mutex::default(),
            indexes: Mutex::default(),
            first: Mutex::default(),
            listeners: Mutex::default(),
            subscribers: Mutex::default(),
            progress: Progress::default(),
        }))
    }

    /// The same of a kind that is known only now.
    pub(super) fn of_kind(
        client: Client,
        name: &'static str,
        resource: &Resource,
        config: WatchConfig,
    ) -> Self {
        let collection = Collection::dynamic(&resource.api_resource(), None);
        let view = Self::new(client, name, collection, config);
        view.held().kind = Some(resource.gvk.clone());
        view
    }

    /// Calls a listener for everything told from now on, before anybody finds it in the view. It must neither wait nor look
    /// into the view.
    pub fn listen_first(&self, listener: impl FnMut(&Told<R>) + Send + 'static) {
        lock(&self.0.first).push(Box::new(listener));
    }

    /// Calls a listener for everything told from now on. It runs on the view's task and must not wait.
    pub fn listen(&self, listener: impl FnMut(&Told<R>) + Send + 'static) {
        lock(&self.0.listeners).push(Box::new(listener));
    }

    /// The same for changes alone.
    pub fn on_change(&self, mut listener: impl FnMut(&Change<R>) + Send + 'static) {
        self.listen(move |told| {
            if let Told::Changed(change) = told {
                listener(change);
            }
        });
    }

    /// Everything told from now on, in order. A subscriber that does not read holds the view up.
    pub fn subscribe(&self) -> mpsc::Receiver<Told<R>> {
        let (sender, receiver) = mpsc::channel(SUBSCRIPTION);
        lock(&self.0.subscribers).push(sender);
        receiver
    }

    /// An index, kept from now on: each object is found under what `under` says of it.
    pub fn index<I: Ord + Clone + Send + 'static>(
        &self,
        under: impl Fn(&ObjectName, &R) -> Vec<I> + Send + 'static,
    ) -> Index<I> {
        let index = Index::default();
        self.index_too(&index, under);
        index
    }

    /// Fills an index that others fill too.
    pub fn index_too<I: Ord + Clone + Send + 'static>(
        &self,
        index: &Index<I>,
        under: impl Fn(&ObjectName, &R) -> Vec<I> + Send + 'static,
    ) {
        lock(&self.0.indexes).push(index.filled_by(under));
    }

    /// Watches for ever. One task takes apart what comes and another takes it in: a list of tens of thousands is what a
    /// start waits for, and may be all there. Both give others their turn, by what lies between them.
    pub async fn run(&self) {
        let Shared {
            client,
            collection,
            config,
            ..
        } = &*self.0;
        let events = watch::<Raw>(client.clone(), collection.clone(), config.clone());
        let (sender, mut receiver) = mpsc::channel(AHEAD);
        let _reading = AbortOnDropHandle::new(tokio::spawn(async move {
            let mut events = pin!(events);
            while let Some(event) = events.next().await {
                if sender.send(event).await.is_err() {
                    return;
                }
            }
        }));
        while let Some(event) = receiver.recv().await {
            self.take(event).await;
        }
    }

    async fn take(&self, event: Event<Raw>) {
        let (told, complete, position) = {
            let mut held = self.held();
            let told = held.take(event, Instant::now());
            for listener in lock(&self.0.first).iter_mut() {
                told.iter().for_each(&mut *listener);
            }
            (told, held.complete, held.position)
        };
        for told in told {
            self.tell(told).await;
        }
        // After the listeners: whoever waits finds their queues filled.
        self.0.progress.advance(complete, position);
    }

    /// Tells that all objects are gone, once nothing is watched any more.
    pub(super) async fn give_up(&self) {
        let told = self.held().give_up();
        for told in told {
            self.tell(told).await;
        }
    }

    /// Takes objects in as if a watch had sent them.
    #[cfg(test)]
    pub(crate) async fn sent(&self, objects: &[serde_json::Value]) {
        use common::watch::Decode as _;
        for object in objects {
            let object = Raw::decode(&object.to_string()).expect("an object");
            self.take(Event::Applied(object)).await;
        }
    }

    /// Takes a list in that has these objects and no other.
    #[cfg(test)]
    pub(crate) async fn listed(&self, objects: &[serde_json::Value]) {
        self.listed_after(None, objects).await;
    }

    /// The same after nothing was known for so long.
    #[cfg(test)]
    pub(crate) async fn listed_after(&self, gap: Option<Duration>, objects: &[serde_json::Value]) {
        self.take(Event::Init).await;
        self.sent(objects).await;
        let version = "1".to_owned();
        self.take(Event::InitDone { gap, version }).await;
    }

    async fn tell(&self, told: Told<R>) {
        if let Told::Changed(change) = &told {
            for index in lock(&self.0.indexes).iter_mut() {
                index.changed(change);
            }
        }
        for listener in lock(&self.0.listeners).iter_mut() {
            listener(&told);
        }
        let subscribers = lock(&self.0.subscribers).clone();
        for subscriber in subscribers {
            // One that is gone wants nothing any more.
            let _ = subscriber.send(told.clone()).await;
        }
    }

    /// Waits until the collection was listed once.
    pub async fn synced(&self) {
        self.0.progress.reaches(0).await;
    }

    /// Whether the collection was listed once.
    pub fn is_synced(&self) -> bool {
        self.0.progress.is_complete()
    }

    /// Waits until the view has seen a write to its collection that was answered with this resourceVersion.
    pub async fn caught_up(&self, version: u64) {
        self.0.progress.reaches(version).await;
    }

    /// What is held of an object.
    pub fn get(&self, name: &ObjectName) -> Option<Object<R>> {
        self.held().get(name)
    }

    /// Calls `each` for every object, in the order of their names.
    pub fn for_each(&self, mut each: impl FnMut(&ObjectName, &Object<R>)) {
        self.held().for_each(&mut each);
    }

    /// The same where only their names are asked for.
    pub fn for_each_name(&self, each: impl FnMut(&ObjectName)) {
        self.held().objects.keys().for_each(each);
    }

    /// The resource.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// How many objects are held.
    pub fn len(&self) -> usize {
        self.held().objects.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size of all objects, as they were sent.
    pub fn bytes(&self) -> u64 {
        self.held().bytes
    }

    /// For how long nothing was heard; none before the first event.
    pub fn silent_for(&self) -> Option<Duration> {
        self.held().heard.map(|heard| heard.elapsed())
    }

    fn held(&self) -> MutexGuard<'_, Held<R>> {
        lock(&self.0.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::testing::unreachable;
    use serde_json::json;

    #[tokio::test]
    async fn who_is_told_first_is_told_before_anybody_finds_the_change() {
        let view = unreachable().works;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (me, told) = (view.clone(), Arc::clone(&seen));
        view.listen_first(move |_| lock(&told).push(me.0.held.try_lock().is_ok()));
        let work = json!({"metadata": {"namespace": "karmada-es-m1", "name": "a", "resourceVersion": "1"}});
        view.sent(&[work]).await;
        assert_eq!(*lock(&seen), [false], "somebody may look already");
        assert_eq!(view.len(), 1, "and finds it then");
    }
}
