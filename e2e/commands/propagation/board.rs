//! What a watch tells of all Works: of which template's namespace each is, how often its spec was written, and
//! whether it is to go.

use anyhow::{Result, bail, ensure};
use common::labels::BINDING_NAMESPACE;
use common::lock::lock;
use common::names::EXECUTION_PREFIX;
use futures::TryStreamExt as _;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind, ObjectMeta};
use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval};

/// For the slowest server, with the largest fleet.
const WITHIN: Duration = Duration::from_secs(1200);
/// How often the Works are counted; when one came is told by the watch.
const LOOK: Duration = Duration::from_millis(20);

/// One Work, as it was told last.
pub(super) struct Work {
    /// Where it is.
    pub(super) cluster: String,
    pub(super) generation: i64,
    /// It is deleted, or waits for its agent's finalizer.
    pub(super) leaving: bool,
    /// When it was told.
    at: Instant,
}

/// By the namespace of their templates, then by their own and their name.
type Works = HashMap<String, HashMap<(String, String), Work>>;

/// All Works that were ever seen.
pub(super) struct Board {
    works: Arc<Mutex<Works>>,
    task: JoinHandle<Result<()>>,
}

impl Drop for Board {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Board {
    /// Follows them from now on.
    pub(super) async fn follow(client: Client) -> Result<Self> {
        let all: Api<DynamicObject> = Api::all_with(client, &resource());
        let first = all.list_metadata(&ListParams::default().limit(1)).await?;
        let version = first.metadata.resource_version.unwrap_or_default();
        let works = Arc::<Mutex<Works>>::default();
        let task = tokio::spawn(follow(all, version, Arc::clone(&works)));
        Ok(Self { works, task })
    }

    /// Waits until so many Works of a namespace's templates are as wanted; says when the last of them came to be so.
    pub(super) async fn wait(
        &self,
        namespace: &str,
        what: &str,
        count: usize,
        wanted: impl Fn(&Work) -> bool,
    ) -> Result<Instant> {
        let deadline = Instant::now() + WITHIN;
        let mut looks = interval(LOOK);
        loop {
            looks.tick().await;
            let mut times = Vec::new();
            if let Some(works) = lock(&self.works).get(namespace) {
                times.extend(works.values().filter(|it| wanted(it)).map(|it| it.at));
            }
            times.sort_unstable();
            if let Some(last) = count.checked_sub(1).and_then(|last| times.get(last)) {
                return Ok(*last);
            }
            let there = times.len();
            ensure!(!self.task.is_finished(), "the watch of Works ended");
            ensure!(
                Instant::now() < deadline,
                "{there} of {count} Works are {what}"
            );
        }
    }
}

fn resource() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(
        "work.karmada.io",
        "v1alpha1",
        "Work",
    ))
}

/// Tells of every change from a version on.
async fn follow(
    works: Api<DynamicObject>,
    mut version: String,
    seen: Arc<Mutex<Works>>,
) -> Result<()> {
    let params = WatchParams::default();
    loop {
        let events = works.watch_metadata(&params, &version).await?;
        let mut events = pin!(events);
        while let Ok(Some(event)) = events.try_next().await {
            let (metadata, gone) = match event {
                WatchEvent::Added(it) | WatchEvent::Modified(it) => (it.metadata, false),
                WatchEvent::Deleted(it) => (it.metadata, true),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(error) => bail!("the watch of Works ended: {error}"),
            };
            version = metadata.resource_version.clone().unwrap_or_default();
            note(&seen, metadata, gone);
        }
    }
}

fn note(seen: &Mutex<Works>, metadata: ObjectMeta, gone: bool) {
    let place = metadata.namespace.unwrap_or_default();
    let annotations = metadata.annotations.unwrap_or_default();
    let Some(namespace) = annotations.get(BINDING_NAMESPACE) else {
        return;
    };
    let cluster = place.strip_prefix(EXECUTION_PREFIX).unwrap_or_default();
    let work = Work {
        cluster: cluster.to_owned(),
        generation: metadata.generation.unwrap_or_default(),
        leaving: gone || metadata.deletion_timestamp.is_some(),
        at: Instant::now(),
    };
    let key = (place, metadata.name.unwrap_or_default());
    let mut seen = lock(seen);
    seen.entry(namespace.clone()).or_default().insert(key, work);
}
