//! Properties that hold for all Clusters.

use super::*;
use common::unregister::Mode;
use proptest::prelude::*;

fn any_observed() -> impl Strategy<Value = Observed> {
    let ready = prop_oneof![
        Just(None),
        Just(Some("True")),
        Just(Some("False")),
        Just(Some("Unknown")),
    ];
    let mode = prop_oneof![
        Just(None),
        Just(Some(Mode::RemoveWorkloads)),
        Just(Some(Mode::KeepWorkloads)),
        Just(Some(Mode::Force)),
    ];
    let namespace = prop_oneof![
        Just(NamespaceState::Absent),
        Just(NamespaceState::Owned),
        Just(NamespaceState::Unowned),
        Just(NamespaceState::Terminating),
    ];
    let taints = proptest::sample::subsequence(
        vec![
            taint(TAINT_NOT_READY, TaintEffect::NoSchedule, Some(-9)),
            taint(TAINT_UNREACHABLE, TaintEffect::NoSchedule, Some(-9)),
            taint("user", TaintEffect::NoExecute, None),
        ],
        0..=3,
    );
    let works = proptest::collection::vec((any::<bool>(), any::<bool>()), 0..4);
    let flags = any::<[bool; 9]>();
    (ready, mode, namespace, taints, works, flags).prop_map(
        |(
            ready,
            mode,
            namespace,
            taints,
            works,
            [gone, ack, ours, bound, held, pull, zone, towlines, noted],
        )| {
            let mut observed = living(ready);
            observed.cluster.leaving_for = gone.then_some(Duration::ZERO);
            observed.cluster.mode = mode;
            observed.cluster.acknowledged = ack;
            observed.cluster.acknowledges = towlines;
            observed.cluster.pull = pull;
            observed.cluster.taints = taints;
            observed.cluster.closing_watches = noted.then(|| "unknown".to_owned());
            observed.cluster.zone = zone.then(|| "z".to_owned());
            if !ours {
                observed.cluster.finalizers.clear();
            }
            observed.namespace = namespace;
            if gone {
                let works = works
                    .iter()
                    .map(|&(deleting, held)| work("w", deleting, held));
                observed.leftovers = Leftovers {
                    works: works.collect(),
                    bound,
                    // What is not there holds nothing.
                    held: held && namespace != NamespaceState::Absent,
                };
            }
            observed
        },
    )
}

/// The world after the effects.
fn model(mut observed: Observed, decision: &Decision) -> Option<Observed> {
    for effect in &decision.effects {
        match effect {
            Effect::EnsureNamespace => observed.namespace = NamespaceState::Owned,
            Effect::UpdateCluster(change) => {
                let cluster = &mut observed.cluster;
                cluster.finalizers = change
                    .finalizers
                    .clone()
                    .unwrap_or(cluster.finalizers.clone());
                cluster.taints = change.taints.clone().unwrap_or(cluster.taints.clone());
                if let Some(key) = &change.failover_taint {
                    cluster.failover_taint.clone_from(key);
                }
                if let Some(zones) = &change.zones {
                    cluster.zone = None;
                    cluster.zones.clone_from(zones);
                }
            }
            // What else holds it is not the hub's.
            Effect::ReleaseBinding => observed.namespace = NamespaceState::Absent,
            Effect::ShowNamespace { terminating } => {
                observed.cluster.namespace_terminating = *terminating;
            }
            Effect::DeleteWorks => {
                observed
                    .leftovers
                    .works
                    .retain(|work| work.other_finalizers.is_some());
                observed
                    .leftovers
                    .works
                    .iter_mut()
                    .for_each(|work| work.deleting = true);
            }
            Effect::ReleaseWork { .. } => {
                observed
                    .leftovers
                    .works
                    .iter_mut()
                    .for_each(|work| work.other_finalizers = None);
                observed.leftovers.works.retain(|work| !work.deleting);
            }
            Effect::RemoveRights => {
                observed.leftovers.bound = false;
                observed.leftovers.held = false;
            }
            Effect::NoteWatches { registration } => {
                observed.cluster.closing_watches = Some(registration.clone());
            }
            Effect::CloseWatches { .. } => observed.cluster.closing_watches = None,
            Effect::DeleteLease => {}
            Effect::DeleteNamespace => observed.namespace = NamespaceState::Terminating,
            Effect::ReleaseCluster { finalizers, .. } if finalizers.is_empty() => return None,
            Effect::ReleaseCluster { finalizers, .. } => {
                observed.cluster.finalizers.clone_from(finalizers);
            }
        }
    }
    Some(observed)
}

proptest! {
    #[test]
    fn every_decision_keeps_the_rules(observed in any_observed(), seconds in 0_u64..1000) {
        let observed = after(&observed, seconds);
        let decision = decide(at(0), OPTIONS, &observed);
        prop_assert_eq!(check(&observed, &decision), Vec::<&str>::new());
    }

    #[test]
    fn a_living_cluster_is_settled_by_one_round(observed in any_observed(), later in 0_i64..1000) {
        prop_assume!(observed.cluster.leaving_for.is_none());
        prop_assume!(observed.namespace != NamespaceState::Terminating);
        let decision = decide(at(0), OPTIONS, &observed);
        let after = model(observed, &decision).expect("it lives");
        prop_assert_eq!(decide(at(later), OPTIONS, &after).effects, vec![]);
    }

    #[test]
    fn a_deleted_cluster_is_gone_in_bounded_time(observed in any_observed()) {
        prop_assume!(observed.cluster.leaving_for.is_some());
        prop_assume!(observed.cluster.finalizers == [CLUSTER_FINALIZER]);
        let mut observed = observed;
        // Nobody helps: no agent, and a namespace goes as soon as nothing holds it.
        for _ in 0..10 {
            let decision = decide(at(0), OPTIONS, &after(&observed, 1000));
            let Some(mut next) = model(observed, &decision) else { return Ok(()) };
            next.leftovers.works.retain(|work| !work.deleting || work.other_finalizers.is_some());
            let left = &next.leftovers;
            if next.namespace == NamespaceState::Terminating && !left.held && left.works.is_empty() {
                next.namespace = NamespaceState::Absent;
            }
            observed = next;
        }
        prop_assert!(false, "still there: {:?}", observed);
    }

    /// Whichever effect fails, and whatever others delete meanwhile, no watch that the agent opened is left when its
    /// Cluster goes.
    #[test]
    fn no_watch_outlives_its_cluster(
        observed in any_observed(),
        rounds in proptest::collection::vec((0_usize..6, any::<[bool; 2]>()), 12),
    ) {
        prop_assume!(observed.cluster.leaving_for.is_some());
        prop_assume!(observed.cluster.finalizers == [CLUSTER_FINALIZER]);
        let mut observed = observed;
        let mut open = observed.leftovers.rights() || observed.cluster.closing_watches.is_some();
        for (fails, [deletes, unbinds]) in rounds {
            let mut decision = decide(at(0), OPTIONS, &after(&observed, 1000));
            decision.effects.truncate(fails);
            for effect in &decision.effects {
                let closes = matches!(effect, Effect::CloseWatches { .. });
                let one = Decision { effects: vec![effect.clone()], requeue: Requeue::Never };
                let next = model(observed.clone(), &one);
                let is_let_go = |next: &Observed| next.cluster.finalizers.is_empty();
                if next.as_ref().is_none_or(is_let_go) {
                    prop_assert!(!open, "let go: {:?}", observed);
                    return Ok(());
                }
                observed = next.expect("it is there");
                // Who has rights opens others.
                open = (open && !closes) || observed.leftovers.rights();
            }
            observed.leftovers.works.retain(|work| !work.deleting || work.other_finalizers.is_some());
            if deletes && observed.namespace == NamespaceState::Owned {
                observed.namespace = NamespaceState::Terminating;
            }
            let left = &mut observed.leftovers;
            // A deletion in the foreground begins with what has no finalizer.
            left.bound &= !(unbinds && left.held);
            if observed.namespace == NamespaceState::Terminating && !left.held && left.works.is_empty() {
                observed.namespace = NamespaceState::Absent;
            }
        }
    }
}
