//! What must hold of every decision about a Cluster, whatever was observed. Pure.

use super::decide::{Decision, Effect};
use super::observe::{NamespaceState, Observed};
use common::api::cluster::TaintEffect;
use common::labels::{TAINT_NOT_READY, TAINT_UNREACHABLE};

/// The rules that a decision breaks.
pub fn check(observed: &Observed, decision: &Decision) -> Vec<&'static str> {
    let mut broken = Vec::new();
    let effects = &decision.effects;
    let deleted = observed.cluster.leaving_for.is_some();
    let position = |wanted: fn(&Effect) -> bool| effects.iter().position(wanted);
    let destroys = |effect: &Effect| {
        !matches!(
            effect,
            Effect::EnsureNamespace
                | Effect::UpdateCluster(_)
                | Effect::ReleaseBinding
                | Effect::ShowNamespace { .. }
        )
    };
    if !deleted && effects.iter().any(destroys) {
        broken.push("a living Cluster loses something");
    }
    if deleted && effects.iter().any(|effect| !destroys(effect)) {
        broken.push("a deleted Cluster gets something");
    }
    let released = position(|effect| matches!(effect, Effect::ReleaseBinding));
    if released.is_some() && !observed.leftovers.works.is_empty() {
        broken.push("the agent loses its rights before its Works are gone");
    }
    let note = position(|effect| matches!(effect, Effect::NoteWatches { .. }));
    let rights = position(|effect| matches!(effect, Effect::RemoveRights));
    let close = position(|effect| matches!(effect, Effect::CloseWatches { .. }));
    let namespace = position(|effect| matches!(effect, Effect::DeleteNamespace));
    let release = position(|effect| matches!(effect, Effect::ReleaseCluster { .. }));
    if close.is_some() != rights.is_some() || close < rights {
        broken.push("rights end and watches stay open");
    }
    let noted = observed.cluster.closing_watches.is_some();
    if rights.is_some() && !noted && (note.is_none() || note > rights) {
        broken.push("rights end and nothing tells of the watches to close");
    }
    if namespace.is_some() && (close.is_none() || namespace < close) {
        broken.push("the namespace goes before the watches on it");
    }
    if (namespace.is_some() || release.is_some()) && !observed.leftovers.works.is_empty() {
        broken.push("Works are left behind");
    }
    if release.is_some() {
        let gone = matches!(
            observed.namespace,
            NamespaceState::Absent | NamespaceState::Unowned
        );
        if !gone {
            broken.push("the Cluster goes before its namespace");
        }
        if observed.leftovers.rights() {
            broken.push("the Cluster goes before its agent's rights");
        }
        if noted {
            broken.push("the Cluster goes before the watches on its Works");
        }
    }
    for effect in effects {
        if let Effect::UpdateCluster(change) = effect
            && let Some(taints) = &change.taints
        {
            let ours = taints.iter().filter(|taint| {
                let key = [TAINT_NOT_READY, TAINT_UNREACHABLE].contains(&taint.key.as_str());
                key && taint.effect == TaintEffect::NoSchedule
            });
            if ours.count() > 1 {
                broken.push("a Cluster is both not ready and unreachable");
            }
        }
    }
    broken
}
