//! The end of namespaces: everything in them goes first.

use super::again::Again;
use super::follow::{Follow, News};
use super::{context, update, warn};
use crate::apiserver::error::ApiError;
use crate::apiserver::metadata::timestamp;
use crate::apiserver::registry::Registry;
use crate::apiserver::request::{DeleteOptions, ListOptions, Propagation};
use crate::apiserver::scheme::Resource;
use crate::apiserver::store::{Key, Kind, Stored};
use chrono::{DateTime, Utc};
use common::chance::Chance;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const NAMESPACES: &str = "/namespaces";
const FINALIZER: &str = "kubernetes";
const MANAGER: &str = "kube-controller-manager";
/// Namespaces that end are looked at so often.
const EVERY: Duration = Duration::from_millis(500);
/// Those that wait for finalizers, at the longest.
const WAITING: Duration = Duration::from_secs(5);
/// Who deletes a namespace sees it end: the real server waits longer.
const GRACE: Duration = Duration::from_secs(2);

pub(super) async fn run(registry: Registry) {
    let mut follow = Follow::new(&registry, NAMESPACES);
    let mut ending: BTreeMap<String, Ending> = BTreeMap::new();
    loop {
        let waits = !ending.is_empty();
        tokio::select! {
            biased;
            news = follow.next() => match news {
                None => return,
                Some(News::Anything(all)) => {
                    ending = all
                        .iter()
                        .filter(|stored| stored.deleting())
                        .map(|stored| (stored.name().to_owned(), Ending::at(Instant::now(), registry.chance())))
                        .collect();
                }
                Some(News::One(event)) => {
                    let name = event.object.name().to_owned();
                    if event.kind == Kind::Deleted {
                        ending.remove(&name);
                        continue;
                    }
                    if event.object.deleting() {
                        ending.entry(name).or_insert_with(|| Ending::at(Instant::now() + GRACE, registry.chance()));
                    }
                    continue;
                }
            },
            () = tokio::time::sleep(EVERY), if waits => {}
        }
        let now = Instant::now();
        let is_due = |one: &Ending| one.at <= now && one.waits.is_due() && one.failed.is_due();
        let due: Vec<String> = ending
            .iter()
            .filter(|(_, one)| is_due(one))
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            let ended = end(&registry, &name).await;
            let Some(one) = ending.get_mut(&name) else {
                continue;
            };
            match ended {
                Ok(true) => {
                    ending.remove(&name);
                }
                Ok(false) => {
                    one.failed.ended(false);
                    one.waits.ended(true);
                }
                Err(error) => one.failed.ended(warn("the end of a namespace", &error)),
            }
        }
    }
}

/// A namespace that ends.
struct Ending {
    /// Not before.
    at: Instant,
    /// Something in it has finalizers of others.
    waits: Again,
    /// It could not be worked on.
    failed: Again,
}

impl Ending {
    fn at(at: Instant, chance: &Chance) -> Self {
        Self {
            at,
            waits: Again::new(EVERY, WAITING, chance),
            failed: Again::usual(chance),
        }
    }
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

/// One step towards the end; whether it is reached as far as this controller goes.
async fn end(registry: &Registry, name: &str) -> Result<bool, ApiError> {
    let key = Key::cluster(name);
    let Some(stored) = registry.store().get(NAMESPACES, &key) else {
        return Ok(true);
    };
    let namespace = stored.value();
    let held = namespace["spec"]["finalizers"].as_array();
    let is_ours = held.is_some_and(|all| all.iter().any(|one| one == FINALIZER));
    if !stored.deleting() || !is_ours {
        return Ok(true);
    }
    let left = empty(registry, name).await;
    let Some(resource) = registry.scheme().resource("", "v1", "namespaces") else {
        return Ok(true);
    };
    let context = context(resource, "", name, MANAGER);
    let mut namespace = namespace;
    if set_conditions(&mut namespace, &left, registry.clock().now()) {
        let outcome = update(registry, &context, "status", &namespace).await?;
        namespace = serde_json::from_slice(&outcome.object).map_err(ApiError::internal)?;
    }
    if !left.objects.is_empty() || !left.failures.is_empty() {
        return Ok(false);
    }
    if let Some(finalizers) = namespace["spec"]["finalizers"].as_array_mut() {
        finalizers.retain(|one| one != FINALIZER);
    }
    update(registry, &context, "finalize", &namespace).await?;
    Ok(true)
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
