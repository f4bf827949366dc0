//! One item of a binding's status for each of its Works.
//!
//! Pure. Which member an item is about comes from where its Work lies, never from what was reported.

use super::bound::{bound_each, is_shown};
use crate::controller::binding::targets::targets;
use common::api::binding::{AggregatedStatusItem, ObjectReference, ResourceBindingSpec};
use common::api::work::{APPLIED, ManifestStatus, ResourceHealth, WorkStatus};
use common::conditions;
use std::collections::{BTreeMap, BTreeSet};

/// A Work of a binding, and what its member says of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Work {
    /// The member, by its execution namespace.
    pub cluster: String,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// What the member reported.
    pub status: WorkStatus,
}

impl Work {
    /// Whether the member has said anything.
    pub fn is_reported(&self) -> bool {
        !self.status.conditions.is_empty() || !self.status.manifest_statuses.is_empty()
    }
}

/// The items of all Works that are not going, by the names of their members, as they say it. How much of each a binding
/// and a template's status can hold is for who writes these to say (see [`super::bound`]).
pub fn collect(resource: &ObjectReference, works: &[Work]) -> Vec<AggregatedStatusItem> {
    let staying = works.iter().filter(|work| !work.deleting);
    let items = staying.map(|work| (work.cluster.as_str(), item(resource, work)));
    let by_name: BTreeMap<&str, AggregatedStatusItem> = items.collect();
    by_name.into_values().collect()
}

/// What a template's own status is made of: the items, and an empty one for each member that is to get the template
/// and has no Work of it yet. Not everybody has observed, or ended, what some have not been given. One member's story
/// does not push out what the others say.
pub fn expected(
    spec: &ResourceBindingSpec,
    items: &[AggregatedStatusItem],
) -> Vec<AggregatedStatusItem> {
    let known: BTreeSet<&str> = items.iter().map(|it| it.cluster_name.as_str()).collect();
    let missing = targets(spec).into_iter();
    let missing = missing.filter(|target| !known.contains(target.name.as_str()));
    let empty = missing.map(|target| AggregatedStatusItem {
        cluster_name: target.name.clone(),
        ..AggregatedStatusItem::default()
    });
    let mut all: Vec<_> = items.iter().cloned().chain(empty).collect();
    bound_each(&mut all);
    all
}

fn item(resource: &ObjectReference, work: &Work) -> AggregatedStatusItem {
    let cluster_name = work.cluster.clone();
    let applied = conditions::get(&work.status.conditions, APPLIED);
    if applied.is_none_or(|condition| condition.status != "True") {
        let message = applied.map(|condition| condition.message.clone());
        return AggregatedStatusItem {
            cluster_name,
            applied_message: message.filter(|message| !message.is_empty()),
            health: Some(ResourceHealth::Unknown),
            ..AggregatedStatusItem::default()
        };
    }
    let mut reported = work.status.manifest_statuses.iter();
    let about = reported.find(|it| is_about(it, resource));
    let status = about.and_then(|it| it.status.as_ref());
    AggregatedStatusItem {
        cluster_name,
        status: status.filter(|it| is_shown(it)).cloned(),
        applied: Some(true),
        applied_message: None,
        health: Some(about.and_then(|it| it.health).unwrap_or_default()),
    }
}

fn is_about(reported: &ManifestStatus, resource: &ObjectReference) -> bool {
    let it = &reported.identifier;
    let (group, version) = match resource.api_version.split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", resource.api_version.as_str()),
    };
    (it.group.as_str(), it.version.as_str(), &it.kind) == (group, version, &resource.kind)
        && it.namespace == resource.namespace.as_deref().unwrap_or_default()
        && it.name == resource.name
}
