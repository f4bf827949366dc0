//! The end of namespaces: everything in them goes first.

use super::follow::{News, follow};
use super::{Failed, context, update};
use crate::apiserver::error::ApiError;
use crate::apiserver::metadata::timestamp;
use crate::apiserver::registry::Registry;
use crate::apiserver::request::{DeleteOptions, ListOptions, Propagation};
use crate::apiserver::scheme::Resource;
use crate::apiserver::store::{Key, Scope, Stored};
use chrono::{DateTime, Utc};
use common::controller::{Controller, Reconcile, Requeue};
use common::queue::Queue;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const NAMESPACES: &str = "/namespaces";
const FINALIZER: &str = "kubernetes";
const MANAGER: &str = "kube-controller-manager";
/// What ends is looked at again so soon at first, and ever more seldom.
const SOON: Duration = Duration::from_millis(500);
/// At the longest.
const WAITING: Duration = Duration::from_secs(5);
/// Who deletes a namespace sees it end: the real server waits longer.
const GRACE: Duration = Duration::from_secs(2);

/// Ends namespaces; its keys are their names.
pub(super) struct Namespaces(Registry);

pub(super) fn controller(registry: &Registry) -> Controller<Namespaces> {
    let watched = registry.clone();
    Controller::new(Namespaces(registry.clone()))
        .source(move |queue| source(watched.clone(), queue))
}

async fn source(registry: Registry, queue: Queue<Arc<str>>) {
    follow(&registry, NAMESPACES, Scope::All, |news| match news {
        News::Anything(all) => {
            let ending = all.iter().filter(|stored| stored.deleting());
            ending.for_each(|stored| queue.add(stored.name().into()));
        }
        News::One(event) => {
            let before = event.previous.as_ref();
            if event.object.deleting() && !before.is_some_and(|before| before.deleting()) {
                queue.add_after(event.object.name().into(), GRACE);
            }
        }
    })
    .await;
}

impl Reconcile for Namespaces {
    const NAME: &'static str = "namespace-controller";
    type Key = Arc<str>;
    type Error = Failed;

    async fn reconcile(&self, name: &Arc<str>) -> Result<Requeue, Failed> {
        let ended = end(&self.0, name).await;
        Ok(match ended.map_err(Failed::to("end a namespace"))? {
            End::Reached => Requeue::Never,
            End::Waits(since) => {
                let waited = self.0.clock().now() - since;
                let waited = waited.to_std().unwrap_or_default();
                Requeue::After((waited / 4).clamp(SOON, WAITING))
            }
        })
    }
}

/// How far the end of a namespace is.
enum End {
    /// As far as this controller goes.
    Reached,
    /// Something in it waits for others, since its deletion.
    Waits(DateTime<Utc>),
}

/// What is left in a namespace.
#[derive(Debug, Default, PartialEq, Eq)]
struct Left {
    /// How many objects of each kind, by `plural.group`.
    objects: BTreeMap<String, usize>,
    /// How many objects have each finalizer.
    finalizers: BTreeMap<String, usize>,
    /// What could not be deleted.
    failures: Vec<String>,
}

/// One step towards the end.
async fn end(registry: &Registry, name: &str) -> Result<End, ApiError> {
    let key = Key::cluster(name);
    let Some(stored) = registry.store().get(NAMESPACES, &key) else {
        return Ok(End::Reached);
    };
    let namespace = stored.value();
    let held = namespace["spec"]["finalizers"].as_array();
    let is_ours = held.is_some_and(|all| all.iter().any(|one| one == FINALIZER));
    if !stored.deleting() || !is_ours {
        return Ok(End::Reached);
    }
    let left = empty(registry, name).await;
    let Some(resource) = registry.scheme().resource("", "v1", "namespaces") else {
        return Ok(End::Reached);
    };
    let context = context(resource, "", name, MANAGER);
    let mut namespace = namespace;
    if set_conditions(&mut namespace, &left, registry.clock().now()) {
        let outcome = update(registry, &context, "status", &namespace).await?;
        namespace = serde_json::from_slice(&outcome.object).map_err(ApiError::internal)?;
    }
    if !left.objects.is_empty() || !left.failures.is_empty() {
        let since = namespace["metadata"]["deletionTimestamp"].as_str();
        let since = since.and_then(|since| DateTime::parse_from_rfc3339(since).ok());
        let now = registry.clock().now();
        return Ok(End::Waits(since.map_or(now, |since| since.to_utc())));
    }
    if let Some(finalizers) = namespace["spec"]["finalizers"].as_array_mut() {
        finalizers.retain(|one| one != FINALIZER);
    }
    update(registry, &context, "finalize", &namespace).await?;
    Ok(End::Reached)
}

/// Deletes what there is, and tells what stays.
async fn empty(registry: &Registry, name: &str) -> Left {
    let mut left = Left::default();
    let mut seen: BTreeSet<Arc<str>> = BTreeSet::new();
    for resource in registry.scheme().all() {
        let can = |verb: &str| resource.verbs.iter().any(|one| one.as_ref() == verb);
        let fits = resource.namespaced && can("delete") && can("list");
        if !fits || !seen.insert(resource.storage_key.clone()) {
            continue;
        }
        let of = registry.store().snapshot(&resource.storage_key);
        if of.table.namespace(name).next().is_none() {
            continue;
        }
        if let Err(error) = delete_all(registry, &resource, name).await {
            left.failures.push(error.message);
        }
        let of = registry.store().snapshot(&resource.storage_key);
        let rest: Vec<&Arc<Stored>> = of.table.namespace(name).collect();
        if rest.is_empty() {
            continue;
        }
        let shown = format!("{}.{}", resource.plural, resource.group);
        left.objects.insert(shown, rest.len());
        for stored in rest {
            let metadata = stored.metadata();
            for finalizer in metadata["finalizers"].as_array().into_iter().flatten() {
                let finalizer = finalizer.as_str().unwrap_or_default().to_owned();
                *left.finalizers.entry(finalizer).or_default() += 1;
            }
        }
    }
    left
}

async fn delete_all(
    registry: &Registry,
    resource: &Arc<Resource>,
    namespace: &str,
) -> Result<(), ApiError> {
    let context = context(resource.clone(), namespace, "", MANAGER);
    let pods = resource.group.is_empty() && &*resource.plural == "pods";
    let options = DeleteOptions {
        propagation: Some(Propagation::Background),
        // Nobody runs them here, so nobody would say that they ended.
        grace_period_seconds: pods.then_some(0),
        ..DeleteOptions::default()
    };
    registry
        .delete_collection(&context, options, &ListOptions::default())
        .await
        .map(|_| ())
}

/// Says what is left in the conditions of a namespace; whether that changes them.
fn set_conditions(namespace: &mut Value, left: &Left, now: DateTime<Utc>) -> bool {
    let counted = |counts: &BTreeMap<String, usize>, between: &str| {
        let parts: Vec<String> = counts
            .iter()
            .map(|(what, count)| format!("{what}{between}{count} resource instances"))
            .collect();
        parts.join(", ")
    };
    let yes_no = |bad: bool| if bad { "True" } else { "False" };
    let wanted = [
        (
            "NamespaceDeletionDiscoveryFailure",
            false,
            "ResourcesDiscovered",
            "All resources successfully discovered".to_owned(),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".to_owned(),
        ),
        if left.failures.is_empty() {
            (
                "NamespaceDeletionContentFailure",
                false,
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization".to_owned(),
            )
        } else {
            (
                "NamespaceDeletionContentFailure",
                true,
                "ContentDeletionFailed",
                format!(
                    "Failed to delete all resource types, {} remaining: {}",
                    left.failures.len(),
                    left.failures.join(", ")
                ),
            )
        },
        if left.objects.is_empty() {
            (
                "NamespaceContentRemaining",
                false,
                "ContentRemoved",
                "All content successfully removed".to_owned(),
            )
        } else {
            (
                "NamespaceContentRemaining",
                true,
                "SomeResourcesRemain",
                format!(
                    "Some resources are remaining: {}",
                    counted(&left.objects, " has ")
                ),
            )
        },
        if left.finalizers.is_empty() {
            (
                "NamespaceFinalizersRemaining",
                false,
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished".to_owned(),
            )
        } else {
            (
                "NamespaceFinalizersRemaining",
                true,
                "SomeFinalizersRemain",
                format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    counted(&left.finalizers, " in ")
                ),
            )
        },
    ];
    let mut conditions: Vec<Value> = namespace["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let mut changed = false;
    for (kind, bad, reason, message) in wanted {
        let mut new = json!({
            "type": kind,
            "status": yes_no(bad),
            "lastTransitionTime": timestamp(now),
            "reason": reason,
            "message": message,
        });
        match conditions.iter_mut().find(|one| one["type"] == kind) {
            None => conditions.push(new),
            Some(before) => {
                let same = |field: &str| before[field] == new[field];
                if same("status") && same("message") && same("reason") {
                    continue;
                }
                if same("status") {
                    new["lastTransitionTime"] = before["lastTransitionTime"].clone();
                }
                *before = new;
            }
        }
        changed = true;
    }
    if changed {
        namespace["status"]["conditions"] = json!(conditions);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_tell_what_is_left() {
        let mut namespace = json!({"status": {"phase": "Terminating"}});
        let now = DateTime::UNIX_EPOCH;
        let left = Left {
            objects: BTreeMap::from([("configmaps.".to_owned(), 2)]),
            finalizers: BTreeMap::from([("x.y/1".to_owned(), 2)]),
            failures: Vec::new(),
        };
        assert!(set_conditions(&mut namespace, &left, now));
        assert!(!set_conditions(&mut namespace, &left, now));
        let message = |namespace: &Value, index: usize| {
            namespace["status"]["conditions"][index]["message"].clone()
        };
        assert_eq!(
            message(&namespace, 3),
            "Some resources are remaining: configmaps. has 2 resource instances"
        );
        assert_eq!(
            message(&namespace, 4),
            "Some content in the namespace has finalizers remaining: x.y/1 in 2 resource instances"
        );
        assert!(set_conditions(&mut namespace, &Left::default(), now));
        assert_eq!(message(&namespace, 3), "All content successfully removed");
    }
}
