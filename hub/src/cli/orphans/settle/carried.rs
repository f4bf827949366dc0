//! What a Work says of orders: whether it was made for one, and what the agent tells in it. Pure.

use common::api::work::{DISPATCHING, Work};
use common::labels::{DELETE_ORPHANS, TELL_ORPHANS};
use kube::ResourceExt as _;
use serde_json::Value;

/// Group of Works, under which the agent tells of a Work itself.
const GROUP: &str = "work.karmada.io";

/// Whether a Work was made to carry an order, by this command or by one that was interrupted.
pub(super) fn was_made(work: &Work) -> bool {
    let ordered = [TELL_ORPHANS, DELETE_ORPHANS];
    let carries = ordered
        .iter()
        .any(|key| work.annotations().contains_key(*key));
    carries
        && work.spec.workload.manifests.is_empty()
        && work.spec.suspend_dispatching == Some(true)
}

/// Whether the agent has looked at a Work that carries an order: it says that it delivers nothing.
pub(super) fn is_told(work: &Work) -> bool {
    let conditions = work.status.as_ref().map(|status| &status.conditions);
    conditions.is_some_and(|all| {
        let condition = common::conditions::get(all, DISPATCHING);
        condition.is_some_and(|c| c.status == "False")
    })
}

/// The manifests that the agent tells of, in their order, and whether they were to outlive their Work;
/// none when one is missing.
pub(super) fn told(work: &Work) -> Option<(Vec<Value>, bool)> {
    let told = &work.status.as_ref()?.manifest_statuses;
    let (itself, told): (Vec<_>, Vec<_>) = told
        .iter()
        .partition(|one| one.identifier.kind == "Work" && one.identifier.group == GROUP);
    let preserve = itself.iter().any(|one| {
        let status = one.status.as_ref();
        status.is_some_and(|status| status["preserveResourcesOnDeletion"] == true)
    });
    let mut manifests: Vec<(i64, Value)> = told
        .into_iter()
        .map(|one| Some((one.identifier.ordinal, one.status.clone()?)))
        .collect::<Option<_>>()?;
    manifests.sort_by_key(|(ordinal, _)| *ordinal);
    (!manifests.is_empty()).then(|| (manifests.into_iter().map(|(_, m)| m).collect(), preserve))
}
