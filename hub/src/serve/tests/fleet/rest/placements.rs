//! Where bindings are, and what they left.

use super::read;
use crate::scheduler::from_api::{self, Observed};
use crate::scheduler::{Interner, Need, Snapshot, needed, same_targets, schedule};
use crate::serve::tests::fleet::books::{Books, is_going, number, says, text};
use crate::serve::tests::fleet::filters::{self, Leaves};
use crate::serve::tests::fleet::steps::{is_divided, leaving, own};
use common::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use common::api::cluster::Cluster;
use common::labels::APPLIED_PLACEMENT;
use std::sync::Arc;

/// Each binding is where the scheduler puts it now, and where filters let it.
pub(super) fn open(books: &Books, open: &mut Vec<String>) {
    let mut interner = Interner::default();
    let clusters = books.all("Cluster").map(|(_, it)| {
        let cluster: Cluster = read(it);
        Arc::new(from_api::cluster(&cluster, &mut interner))
    });
    let snapshot = Snapshot::new(clusters.collect::<Vec<_>>());
    for (key, binding) in books.bindings() {
        let spec: ResourceBindingSpec = read(&binding["spec"]);
        let status: ResourceBindingStatus =
            read::<Option<_>>(&binding["status"]).unwrap_or_default();
        let applied = binding["metadata"]["annotations"][APPLIED_PLACEMENT].as_str();
        let observed = Observed {
            generation: number(binding, "/metadata/generation"),
            deleting: is_going(binding),
            applied,
            status: Some(&status),
        };
        let leaving = |name: &str| snapshot.get(name).is_some_and(|it| it.leaving);
        let standing = from_api::standing(&spec, observed, leaving);
        let need = needed(&standing);
        if need == Need::Note {
            open.push(format!(
                "placements: {key} was not looked at since it changed"
            ));
        }
        let Need::Place(why) = need else { continue };
        let rules = from_api::rules(&spec.placement.clone().unwrap_or_default());
        let demand = from_api::demand(&spec, Arc::new(rules));
        let previous = from_api::previous(&spec, observed);
        let current = from_api::targets(&spec.clusters);
        let wanted = match schedule(&snapshot, &demand, Some(&previous)) {
            Ok(placement) => placement.targets,
            Err(unplaceable) => unplaceable.kept,
        };
        if !same_targets(&wanted, &current) {
            open.push(format!(
                "placements: {key} is at {current:?}, and belongs ({why:?}) to {wanted:?}"
            ));
        }
    }
    whole(books, open);
    left(books, open);
}

/// Nothing is in a cluster that it has to leave, and what it left is kept only for want of another place, or for as
/// long as a taint that it tolerates for a while would make it leave again.
fn left(books: &Books, open: &mut Vec<String>) {
    for (key, binding) in books.bindings().filter(|(_, it)| !is_going(it)) {
        let placement = &binding["spec"]["placement"];
        if placement.is_null() {
            continue;
        }
        let leaves = |name: &str| filters::leaves(placement, books.cluster(name)?);
        let clusters = binding["spec"]["clusters"].as_array();
        for target in clusters.into_iter().flatten() {
            let name = text(target, "/name");
            if leaves(name).is_some() {
                open.push(format!("evictions: {key} is still in {name}"));
            }
        }
        for (name, directly) in leaving(binding) {
            let is_placed = says(binding, "Scheduled") == Some("True");
            let stays = match leaves(name) {
                Some(Leaves::Later) => true,
                Some(Leaves::Now) => !is_placed && !directly,
                None => false,
            };
            if !stays || books.cluster(name).is_none() {
                open.push(format!(
                    "evictions: {key} has not left {name} for good: {}",
                    binding["spec"]["gracefulEvictionTasks"]
                ));
            }
        }
    }
}

/// What is given whole and to everybody is with everybody who may have it, by our own count. A Deployment here asks for
/// room, and without replicas such a one is nowhere.
fn whole(books: &Books, open: &mut Vec<String>) {
    for (key, binding) in books.bindings().filter(|(_, it)| !is_going(it)) {
        let placement = &binding["spec"]["placement"];
        let spread = placement["spreadConstraints"]
            .as_array()
            .is_some_and(|it| !it.is_empty());
        let idle = binding["spec"]["resource"]["kind"] == "Deployment"
            && number(binding, "/spec/replicas") == 0;
        if placement.is_null() || spread || idle || is_divided(binding) {
            continue;
        }
        let here = own(Some(binding));
        // What fits nowhere stays where it is.
        let is_placed = says(binding, "Scheduled") == Some("True");
        for (cluster, object) in books.all("Cluster") {
            let left = leaving(binding).any(|(name, _)| name == cluster.name);
            let may = !left && filters::admit(binding, object);
            let is = here.contains_key(&cluster.name);
            if may && !is {
                open.push(format!(
                    "placements: {key} is not in {}, which may have it",
                    cluster.name
                ));
            }
            if is && is_placed && !filters::is_chosen(&placement["clusterAffinity"], object) {
                open.push(format!(
                    "placements: {key} is in {}, which its policy does not name",
                    cluster.name
                ));
            }
        }
    }
}
