//! The garbage collector: what an object owns goes with it, stays behind, or goes before it.
//!
//! Owners are known by uid alone. Only objects that have owners are remembered.

mod decide;
mod graph;

use super::node::Node;
use super::{Busy, Failed, context};
use crate::apiserver::error::ApiError;
use crate::apiserver::metadata::{FOREGROUND, ORPHAN};
use crate::apiserver::registry::Registry;
use crate::apiserver::request::{DeleteOptions, PatchKind, Preconditions, Propagation};
use crate::apiserver::scheme::Resource;
use crate::apiserver::store::{Ended, Event, Kind, Scope, Stored, Watcher};
use bytes::Bytes;
use common::controller::{Controller, Reconcile, Requeue};
use common::queue::Queue;
use decide::{Fate, Owner};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream, SelectAll};
use graph::Graph;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::yield_now;
use tokio::time::timeout;

const MANAGER: &str = "kube-controller-manager";
/// An object is looked at so long after news of it: who writes an owner after what it owns has a moment.
const AFTER: Duration = Duration::from_millis(200);

type News = Result<(Arc<str>, Event), Ended>;

/// Nobody is busy with a start for longer than this.
const BUSY_FOR: Duration = Duration::from_secs(60);

/// Collects garbage; its keys are where objects lie.
pub(super) struct Collector {
    registry: Registry,
    graph: Mutex<Graph>,
}

/// Begins once `busy` is over.
pub(super) fn controller(registry: &Registry, busy: Option<Busy>) -> Controller<Arc<Collector>> {
    let collector = Arc::new(Collector {
        registry: registry.clone(),
        graph: Mutex::default(),
    });
    let heard = Arc::clone(&collector);
    Controller::new(collector).source(move |queue| source(Arc::clone(&heard), busy.clone(), queue))
}

async fn source(collector: Arc<Collector>, busy: Option<Busy>, queue: Queue<Node>) {
    if let Some(mut busy) = busy {
        // Whoever was busy may have ended.
        let over = busy.wait_for(|busy| !busy);
        let _ = timeout(BUSY_FOR, over).await;
    }
    // A round ends when a kind comes or goes, or history was missed: everything is looked at anew.
    while collector.round(&queue).await {}
    pending::<()>().await;
}

impl Reconcile for Collector {
    const NAME: &'static str = "garbage-collector-controller";
    type Key = Node;
    type Error = Failed;

    async fn reconcile(&self, node: &Node) -> Result<Requeue, Failed> {
        let done = self.one(node).await;
        Ok(match done.map_err(Failed::to("collect garbage"))? {
            true => Requeue::Never,
            false => Requeue::After(AFTER),
        })
    }
}

fn events(kind: Arc<str>, watcher: Watcher) -> BoxStream<'static, News> {
    stream::unfold(Some((kind, watcher)), |state| async {
        let (kind, mut watcher) = state?;
        match watcher.next().await {
            Ok(event) => Some((Ok((kind.clone(), event)), Some((kind, watcher)))),
            Err(ended) => Some((Err(ended), None)),
        }
    })
    .boxed()
}

/// Whether a change leaves owners and life as they were. Most do: renewals of Leases, statuses.
fn changes_nothing(event: &Event) -> bool {
    let (now, before) = (&event.object, event.previous.as_ref());
    event.kind == Kind::Modified
        && !now.deleting()
        && before.is_some_and(|before| !before.deleting() && now.owned_like(before))
}

impl Collector {
    fn graph(&self) -> MutexGuard<'_, Graph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads everything and follows it; whether to begin anew.
    async fn round(&self, queue: &Queue<Node>) -> bool {
        let mut changes = self.registry.scheme().changes();
        changes.borrow_and_update();
        let Some(mut news) = self.begin(|node| queue.add_after(node, AFTER)) else {
            yield_now().await;
            return true;
        };
        loop {
            tokio::select! {
                biased;
                changed = changes.changed() => return changed.is_ok(),
                event = news.next() => match event {
                    Some(Ok((kind, event))) => self.hear(&kind, &event, queue),
                    Some(Err(Ended::Gone)) => return true,
                    Some(Err(Ended::Closed)) | None => return false,
                },
            }
        }
    }

    /// Reads every kind and follows it, and has what was found looked at; `None` if history was missed meanwhile.
    fn begin(&self, look_at: impl FnMut(Node)) -> Option<SelectAll<BoxStream<'static, News>>> {
        let mut graph = Graph::default();
        let mut found = Vec::new();
        let mut all = SelectAll::new();
        let mut seen: BTreeSet<Arc<str>> = BTreeSet::new();
        for resource in self.registry.scheme().all() {
            let kind = resource.storage_key.clone();
            let can_delete = resource.verbs.iter().any(|verb| verb.as_ref() == "delete");
            if !can_delete || !seen.insert(kind.clone()) {
                continue;
            }
            let store = self.registry.store();
            let snapshot = store.snapshot(&kind);
            let watcher = store.watch(&kind, Scope::All, snapshot.revision).ok()?;
            // What has no owner, and does not go, is nothing to a graph that is empty.
            let concerned = |stored: &&Arc<Stored>| stored.owned() || stored.deleting();
            for stored in snapshot.table.iter().filter(concerned) {
                found.extend(see(&mut graph, &kind, stored));
            }
            all.push(events(kind, watcher));
        }
        // The graph comes first: to whoever looks before it is whole, an owner seems to own nothing, and is let go
        // without what it was to leave behind or to wait for.
        *self.graph() = graph;
        found.into_iter().for_each(look_at);
        Some(all)
    }

    fn hear(&self, kind: &Arc<str>, event: &Event, queue: &Queue<Node>) {
        if changes_nothing(event) {
            return;
        }
        let mut graph = self.graph();
        if event.kind != Kind::Deleted {
            if let Some(node) = see(&mut graph, kind, &event.object) {
                queue.add_after(node, AFTER);
            }
            return;
        }
        graph.remove(&Node::of(kind, &event.object));
        let owned = graph.owned_by(event.object.uid()).into_iter();
        // An owner that waits for its dependents waits for one less.
        let owners = owners(&event.object).into_iter();
        let owners = owners.filter_map(|owner| self.owner_node(&event.object, &owner));
        owned
            .chain(owners)
            .for_each(|node| queue.add_after(node, AFTER));
    }

    fn owned_by(&self, uid: &str) -> Vec<Node> {
        self.graph().owned_by(uid)
    }

    /// The place of an owner, if it is stored there.
    fn owner_node(&self, of: &Stored, owner: &Owner) -> Option<Node> {
        let resource = self.owner_kind(owner)?;
        let namespace = if resource.namespaced {
            of.namespace()
        } else {
            ""
        };
        Some(Node::new(&resource.storage_key, namespace, &owner.name))
    }

    fn owner_kind(&self, owner: &Owner) -> Option<Arc<Resource>> {
        let version = owner.api_version.as_str();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let snapshot = self.registry.scheme().snapshot();
        snapshot.kind(group, version, &owner.kind)
    }

    /// Looks at one object; whether nothing is left to do until something changes.
    async fn one(&self, node: &Node) -> Result<bool, ApiError> {
        let Some(stored) = self.stored(node) else {
            return Ok(true);
        };
        let Some(resource) = self.resource(&node.kind) else {
            return Ok(true);
        };
        let has = |finalizer: &str| has_finalizer(&stored, finalizer);
        if stored.deleting() && has(ORPHAN) {
            return self.orphan(&resource, &stored).await;
        }
        if stored.deleting() && has(FOREGROUND) {
            return self.foreground(&resource, &stored).await;
        }
        if !stored.owned() || stored.deleting() {
            return Ok(true);
        }
        let owners = owners(&stored);
        let standing = |owner: &Owner| self.standing(&stored, &resource, owner);
        let has_dependents = !self.owned_by(stored.uid()).is_empty();
        let below = || propagation(has(ORPHAN), has(FOREGROUND));
        match decide::fate(&owners, standing, has_dependents, below) {
            Fate::Stays => Ok(true),
            Fate::Loses(gone) => {
                self.drop_owners(&resource, &stored, &gone).await?;
                Ok(true)
            }
            Fate::Goes(propagation) => {
                let context = context_at(resource, &stored);
                let options = DeleteOptions {
                    preconditions: Preconditions {
                        uid: Some(stored.uid().to_owned()),
                        resource_version: Some(stored.revision().to_string()),
                    },
                    propagation: Some(propagation),
                    ..DeleteOptions::default()
                };
                self.registry.delete(&context, options).await?;
                Ok(true)
            }
        }
    }

    fn standing(&self, of: &Stored, resource: &Resource, owner: &Owner) -> decide::Standing {
        use decide::Standing;
        let Some(kind) = self.owner_kind(owner) else {
            // A kind that is not known now may be known later.
            return Standing::Unknown;
        };
        if kind.namespaced && !resource.namespaced {
            return Standing::Unknown;
        }
        let there = self
            .owner_node(of, owner)
            .and_then(|node| self.stored(&node));
        match there.filter(|there| there.uid() == owner.uid) {
            None => Standing::Absent,
            Some(there) if there.deleting() && has_finalizer(&there, FOREGROUND) => {
                Standing::Waiting
            }
            Some(_) => Standing::Solid,
        }
    }

    /// Everything that is owned loses its owner, who then goes.
    async fn orphan(&self, resource: &Arc<Resource>, stored: &Stored) -> Result<bool, ApiError> {
        let gone = BTreeSet::from([stored.uid().to_owned()]);
        for node in self.owned_by(stored.uid()) {
            let Some(dependent) = self.stored(&node) else {
                continue;
            };
            let Some(kind) = self.resource(&node.kind) else {
                continue;
            };
            self.drop_owners(&kind, &dependent, &gone).await?;
        }
        self.drop_finalizer(resource, stored, ORPHAN).await?;
        Ok(true)
    }

    /// Everything that is owned is asked to go; when nothing blocks any more, the owner goes.
    async fn foreground(
        &self,
        resource: &Arc<Resource>,
        stored: &Stored,
    ) -> Result<bool, ApiError> {
        let mut blocked = false;
        for node in self.owned_by(stored.uid()) {
            let Some(dependent) = self.stored(&node) else {
                continue;
            };
            let blocks = owners(&dependent)
                .iter()
                .any(|owner| owner.uid == stored.uid() && owner.blocks);
            blocked |= blocks;
            if !dependent.deleting() {
                Box::pin(self.one(&node)).await?;
                blocked |= blocks && self.stored(&node).is_some();
            }
        }
        let still = self.owned_by(stored.uid()).into_iter().any(|node| {
            self.stored(&node).is_some_and(|dependent| {
                owners(&dependent)
                    .iter()
                    .any(|owner| owner.uid == stored.uid() && owner.blocks)
            })
        });
        if blocked && still {
            self.break_circle(stored).await?;
            return Ok(false);
        }
        self.drop_finalizer(resource, stored, FOREGROUND).await?;
        Ok(true)
    }

    /// Objects that own each other would wait for each other for ever: one of those that wait for their
    /// owners no longer holds it up, and the next look finds it so.
    async fn break_circle(&self, stored: &Stored) -> Result<(), ApiError> {
        let waits_for = |owner: &str| {
            let nodes = self.owned_by(owner).into_iter();
            let held = nodes.filter(|node| {
                self.stored(node).is_some_and(|dependent| {
                    let blocks = |one: &Owner| one.uid == owner && one.blocks;
                    has_finalizer(&dependent, FOREGROUND) && owners(&dependent).iter().any(blocks)
                })
            });
            held.filter_map(|node| Some((self.stored(&node)?.uid().to_owned(), node)))
                .collect()
        };
        let Some(node) = decide::in_circle(stored.uid(), waits_for) else {
            return Ok(());
        };
        let (Some(dependent), Some(kind)) = (self.stored(&node), self.resource(&node.kind)) else {
            return Ok(());
        };
        let mut rest = dependent.owners();
        for owner in &mut rest {
            if owner["blockOwnerDeletion"] == true {
                owner["blockOwnerDeletion"] = json!(false);
            }
        }
        self.patch(&kind, &dependent, "ownerReferences", &rest)
            .await
    }

    async fn drop_owners(
        &self,
        resource: &Arc<Resource>,
        stored: &Stored,
        gone: &BTreeSet<String>,
    ) -> Result<(), ApiError> {
        let rest = decide::without(stored.owners(), gone);
        self.patch(resource, stored, "ownerReferences", &rest).await
    }

    async fn drop_finalizer(
        &self,
        resource: &Arc<Resource>,
        stored: &Stored,
        finalizer: &str,
    ) -> Result<(), ApiError> {
        let metadata = stored.metadata();
        let all = metadata["finalizers"].as_array().cloned();
        let rest: Vec<Value> = all
            .unwrap_or_default()
            .into_iter()
            .filter(|one| one != finalizer)
            .collect();
        self.patch(resource, stored, "finalizers", &rest).await
    }

    async fn patch(
        &self,
        resource: &Arc<Resource>,
        stored: &Stored,
        field: &str,
        rest: &[Value],
    ) -> Result<(), ApiError> {
        let rest = if rest.is_empty() {
            Value::Null
        } else {
            json!(rest)
        };
        let patch = json!({"metadata": {
            "uid": stored.uid(),
            "resourceVersion": stored.revision().to_string(),
            field: rest,
        }});
        let context = context_at(resource.clone(), stored);
        let bytes = Bytes::from(patch.to_string());
        let done = self.registry.patch(&context, PatchKind::Merge, bytes, None);
        done.await.map(|_| ())
    }

    fn stored(&self, node: &Node) -> Option<Arc<Stored>> {
        self.registry.store().get(&node.kind, &node.key)
    }

    /// A kind by what it is stored under.
    fn resource(&self, kind: &str) -> Option<Arc<Resource>> {
        let snapshot = self.registry.scheme().snapshot();
        let mut all = snapshot.all().iter();
        all.find(|resource| resource.storage_key.as_ref() == kind)
            .cloned()
    }
}

/// Notes an object, and says where it is if it has to be looked at.
fn see(graph: &mut Graph, kind: &Arc<str>, stored: &Stored) -> Option<Node> {
    let node = Node::of(kind, stored);
    let owners: Vec<String> = if stored.owned() {
        let owners = owners(stored).into_iter();
        owners.map(|owner| owner.uid).collect()
    } else {
        Vec::new()
    };
    let concerned = !owners.is_empty() || stored.deleting();
    let found = concerned.then(|| node.clone());
    graph.put(node, owners);
    found
}

fn context_at(resource: Arc<Resource>, stored: &Stored) -> crate::apiserver::request::Context {
    context(resource, stored.namespace(), stored.name(), MANAGER)
}

fn has_finalizer(stored: &Stored, finalizer: &str) -> bool {
    let metadata = stored.metadata();
    let all = metadata["finalizers"].as_array();
    all.is_some_and(|all| all.iter().any(|one| one == finalizer))
}

fn owners(stored: &Stored) -> Vec<Owner> {
    stored.owners().iter().map(Owner::read).collect()
}

/// How a deletion goes on below an object.
fn propagation(orphan: bool, foreground: bool) -> Propagation {
    match (orphan, foreground) {
        (true, _) => Propagation::Orphan,
        (false, true) => Propagation::Foreground,
        (false, false) => Propagation::Background,
    }
}

#[cfg(test)]
mod tests;
