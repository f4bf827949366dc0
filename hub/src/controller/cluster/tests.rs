//! Tables for living and deleted Clusters, and properties that hold for all of them.

use super::check::check;
use super::decide::*;
use super::observe::*;
use chrono::{DateTime, Utc};
use common::api::cluster::{Taint, TaintEffect};
use common::controller::Requeue;
use common::labels::{CLUSTER_FINALIZER, TAINT_NOT_READY, TAINT_UNREACHABLE};
use common::names::ClusterName;
use common::time::to_time;
use common::unregister::Mode;
use proptest::prelude::*;
use std::time::Duration;

const OPTIONS: Options = Options {
    deletion_timeout: Duration::from_secs(300),
    failover_after: None,
};
const BASE: i64 = 1_700_000_000;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(BASE + seconds, 0).expect("in range")
}

fn living(ready: Option<&str>) -> Observed {
    Observed {
        name: ClusterName::parse("m1").expect("valid"),
        cluster: ClusterState {
            uid: "u".into(),
            resource_version: "7".into(),
            finalizers: vec![CLUSTER_FINALIZER.into()],
            pull: true,
            ready: ready.map(str::to_owned),
            ..ClusterState::default()
        },
        namespace: NamespaceState::Owned,
        leftovers: Leftovers::default(),
    }
}

fn taint(key: &str, effect: TaintEffect, added: Option<i64>) -> Taint {
    Taint {
        key: key.into(),
        value: None,
        effect,
        time_added: added.map(|seconds| to_time(at(seconds))),
    }
}

fn change(observed: &Observed) -> Option<ClusterChange> {
    let decision = decide(at(0), OPTIONS, observed);
    assert_eq!(check(observed, &decision), Vec::<&str>::new());
    decision
        .effects
        .into_iter()
        .find_map(|effect| match effect {
            Effect::UpdateCluster(change) => Some(*change),
            _ => None,
        })
}

#[test]
fn a_cluster_that_is_not_ready_for_long_is_left() {
    let of = |key: &str, effect, added| taint(key, effect, Some(added));
    let unreachable = |added| of(TAINT_UNREACHABLE, TaintEffect::NoSchedule, added);
    let not_ready = |added| of(TAINT_NOT_READY, TaintEffect::NoSchedule, added);
    let leave = |key: &str, added| of(key, TaintEffect::NoExecute, added);
    let users = || of("user", TaintEffect::NoExecute, -5);
    let options = Options {
        failover_after: Some(Duration::from_secs(60)),
        ..OPTIONS
    };
    let again = |seconds| Requeue::After(Duration::from_secs(seconds));
    let table = [
        (
            Some("Unknown"),
            vec![],
            Some(vec![unreachable(0)]),
            again(60),
        ),
        (Some("Unknown"), vec![unreachable(-50)], None, again(10)),
        (
            Some("Unknown"),
            vec![unreachable(-60)],
            Some(vec![unreachable(-60), leave(TAINT_UNREACHABLE, 0)]),
            Requeue::Never,
        ),
        (
            Some("Unknown"),
            vec![unreachable(-90), leave(TAINT_UNREACHABLE, -30)],
            None,
            Requeue::Never,
        ),
        (
            Some("False"),
            vec![not_ready(-60)],
            Some(vec![not_ready(-60), leave(TAINT_NOT_READY, 0)]),
            Requeue::Never,
        ),
        // It says something else now: the time begins anew.
        (
            Some("False"),
            vec![unreachable(-90), leave(TAINT_UNREACHABLE, -30)],
            Some(vec![not_ready(0)]),
            again(60),
        ),
        (
            Some("True"),
            vec![unreachable(-90), users(), leave(TAINT_UNREACHABLE, -30)],
            Some(vec![users()]),
            Requeue::Never,
        ),
        // One that never was ready is lost to nobody.
        (None, vec![not_ready(-90)], None, Requeue::Never),
        // A clock that went back.
        (Some("Unknown"), vec![unreachable(9)], None, again(60)),
    ];
    for (ready, before, after, requeue) in table {
        let mut observed = living(ready);
        observed.cluster.taints = before;
        let decision = decide(at(0), options, &observed);
        assert_eq!(decision.requeue, requeue, "{ready:?} {observed:?}");
        let changed = decision
            .effects
            .into_iter()
            .find_map(|effect| match effect {
                Effect::UpdateCluster(change) => change.taints,
                _ => None,
            });
        assert_eq!(changed, after, "{ready:?}");
    }
}

/// What failover put on a Cluster goes when that is ready again, also when failover was turned off meanwhile; what
/// others put on stays then.
#[test]
fn a_taint_of_failover_is_taken_off_by_who_put_it_on() {
    type Case = (
        Option<Duration>,
        &'static str,
        Vec<Taint>,
        Option<&'static str>,
        Option<Vec<Taint>>,
        Option<Option<String>>,
    );
    let seen = || taint(TAINT_UNREACHABLE, TaintEffect::NoSchedule, Some(-90));
    let leave = |added| taint(TAINT_UNREACHABLE, TaintEffect::NoExecute, Some(added));
    let (on, off) = (Some(Duration::from_secs(60)), None);
    let own = Some(TAINT_UNREACHABLE);
    let noted = || Some(Some(TAINT_UNREACHABLE.to_owned()));
    let cases: [Case; 9] = [
        // It is put on, and that is noted in the same write.
        (
            on,
            "Unknown",
            vec![seen()],
            None,
            Some(vec![seen(), leave(0)]),
            noted(),
        ),
        // Somebody else's is there before.
        (on, "Unknown", vec![seen(), leave(-5)], None, None, None),
        (on, "Unknown", vec![seen(), leave(-5)], own, None, None),
        (on, "True", vec![leave(-5)], own, Some(vec![]), Some(None)),
        (on, "True", vec![leave(-5)], None, Some(vec![]), None),
        // Turned off since.
        (off, "Unknown", vec![seen(), leave(-5)], own, None, None),
        (off, "True", vec![leave(-5)], own, Some(vec![]), Some(None)),
        (off, "True", vec![leave(-5)], None, None, None),
        // Somebody took it off: what is put on later is not the hub's.
        (off, "True", vec![], own, None, Some(None)),
    ];
    for (number, case) in cases.into_iter().enumerate() {
        let (failover_after, ready, before, own, taints, failover_taint) = case;
        let options = Options {
            failover_after,
            ..OPTIONS
        };
        let mut observed = living(Some(ready));
        observed.cluster.taints = before;
        observed.cluster.failover_taint = own.map(str::to_owned);
        let decision = decide(at(0), options, &observed);
        assert_eq!(check(&observed, &decision), Vec::<&str>::new());
        let mut changes = decision.effects.iter().map(|effect| match effect {
            Effect::UpdateCluster(change) => (change.taints.clone(), change.failover_taint.clone()),
            other => unreachable!("{other:?}"),
        });
        let change = changes.next().unwrap_or_default();
        assert_eq!(change, (taints, failover_taint), "case {number}");
    }
}

#[test]
fn taints_follow_ready() {
    let not_ready = || taint(TAINT_NOT_READY, TaintEffect::NoSchedule, Some(0));
    let unreachable = || taint(TAINT_UNREACHABLE, TaintEffect::NoSchedule, Some(0));
    let users = || taint(TAINT_UNREACHABLE, TaintEffect::NoExecute, Some(-5));
    let table = [
        (None, vec![], Some(vec![not_ready()])),
        (None, vec![unreachable()], Some(vec![not_ready()])),
        (Some("False"), vec![unreachable()], Some(vec![not_ready()])),
        (
            Some("Unknown"),
            vec![not_ready()],
            Some(vec![unreachable()]),
        ),
        (Some("True"), vec![not_ready(), unreachable()], Some(vec![])),
        (Some("True"), vec![users()], None),
        (
            Some("Unknown"),
            vec![users()],
            Some(vec![users(), unreachable()]),
        ),
        (Some("False"), vec![not_ready()], None),
        (
            Some("True"),
            vec![taint("a", TaintEffect::NoExecute, None)],
            Some(vec![taint("a", TaintEffect::NoExecute, Some(0))]),
        ),
    ];
    for (ready, before, after) in table {
        let mut observed = living(ready);
        observed.cluster.taints = before;
        assert_eq!(
            change(&observed).and_then(|change| change.taints),
            after,
            "{ready:?}"
        );
    }
}

#[test]
fn a_cluster_whose_namespace_goes_is_not_ready_for_works() {
    let mut observed = living(Some("True"));
    observed.namespace = NamespaceState::Terminating;
    let effects = decide(at(0), OPTIONS, &observed).effects;
    assert!(effects.contains(&Effect::ShowNamespace { terminating: true }));
    let taints = change(&observed).and_then(|change| change.taints);
    let not_ready = taint(TAINT_NOT_READY, TaintEffect::NoSchedule, Some(0));
    assert_eq!(taints, Some(vec![not_ready.clone()]));
    observed.cluster.taints = vec![not_ready];
    observed.cluster.namespace_terminating = true;
    let effects = decide(at(0), OPTIONS, &observed).effects;
    assert_eq!(effects, [Effect::ReleaseBinding], "nothing else holds it");
    observed.leftovers.works = vec![WorkState {
        name: "w".into(),
        resource_version: "7".into(),
        deleting: true,
        other_finalizers: None,
    }];
    assert_eq!(decide(at(0), OPTIONS, &observed).effects, []);
    observed.leftovers.works.clear();
    observed.namespace = NamespaceState::Absent;
    let effects = decide(at(0), OPTIONS, &observed).effects;
    assert_eq!(effects[0], Effect::EnsureNamespace);
    assert!(effects.contains(&Effect::ShowNamespace { terminating: false }));
}

#[test]
fn a_new_cluster_gets_everything_in_one_write() {
    let mut observed = living(None);
    observed.cluster.finalizers = vec!["other".into()];
    observed.cluster.zone = Some("z".into());
    observed.namespace = NamespaceState::Absent;
    let decision = decide(at(0), OPTIONS, &observed);
    assert_eq!(decision.effects.len(), 2);
    assert_eq!(decision.effects[0], Effect::EnsureNamespace);
    let change = change(&observed).expect("a write");
    assert_eq!(
        change.finalizers,
        Some(vec!["other".into(), CLUSTER_FINALIZER.into()])
    );
    assert_eq!(change.zones, Some(vec!["z".into()]));
    assert_eq!(change.taints.expect("one").len(), 1);
}

fn deleted(mode: Option<Mode>, ready: Option<&str>, acknowledged: bool) -> Observed {
    let mut observed = living(ready);
    observed.cluster.leaving_for = Some(Duration::ZERO);
    observed.cluster.mode = mode;
    observed.cluster.acknowledged = acknowledged;
    observed.cluster.acknowledges = true;
    observed.leftovers = Leftovers {
        works: vec![work("w", false, true)],
        bound: true,
        held: true,
    };
    observed
}

/// The same, seen being deleted for so many seconds.
fn after(observed: &Observed, seconds: u64) -> Observed {
    let mut observed = observed.clone();
    let leaving_for = &mut observed.cluster.leaving_for;
    *leaving_for = leaving_for.map(|_| Duration::from_secs(seconds));
    observed
}

fn work(name: &str, deleting: bool, held: bool) -> WorkState {
    WorkState {
        name: name.into(),
        resource_version: "3".into(),
        deleting,
        other_finalizers: held.then(Vec::new),
    }
}

/// The effects as one word each.
fn words(observed: &Observed, seconds: u64) -> Vec<&'static str> {
    let observed = after(observed, seconds);
    let decision = decide(at(0), OPTIONS, &observed);
    assert_eq!(check(&observed, &decision), Vec::<&str>::new());
    let word = |effect: &Effect| match effect {
        Effect::EnsureNamespace => "namespace",
        Effect::UpdateCluster(_) => "update",
        Effect::ReleaseBinding => "release-binding",
        Effect::ShowNamespace { .. } => "show-namespace",
        Effect::DeleteWorks => "delete-works",
        Effect::ReleaseWork { .. } => "release-work",
        Effect::RemoveRights => "remove-rights",
        Effect::CloseWatches => "close-watches",
        Effect::DeleteNamespace => "delete-namespace",
        Effect::DeleteLease => "delete-lease",
        Effect::ReleaseCluster { .. } => "release-cluster",
    };
    decision.effects.iter().map(word).collect()
}

/// Karmada's agent acknowledges nothing, and is there all the same: it finishes the Works.
#[test]
fn an_agent_that_never_acknowledges_is_not_waited_for() {
    let mut observed = deleted(Some(Mode::RemoveWorkloads), Some("True"), false);
    assert_eq!(words(&observed, 0), Vec::<&str>::new());
    observed.cluster.acknowledges = false;
    assert_eq!(words(&observed, 0), ["delete-works"]);
    assert_eq!(words(&observed, 299), ["delete-works"]);
}

#[test]
fn works_are_left_to_an_agent_that_is_there_and_time_is_bounded() {
    const DELETE: &[&str] = &["delete-works"];
    const BOTH: &[&str] = &["delete-works", "release-work"];
    let remove = Some(Mode::RemoveWorkloads);
    let table: [(&str, Observed, u64, &[&str]); 12] = [
        (
            "waits for the agent to notice",
            deleted(remove, Some("True"), false),
            10,
            &[],
        ),
        (
            "not longer than a minute",
            deleted(remove, Some("True"), false),
            60,
            DELETE,
        ),
        (
            "it noticed",
            deleted(remove, Some("True"), true),
            10,
            DELETE,
        ),
        (
            "it noticed, its member is down",
            deleted(remove, Some("False"), true),
            10,
            DELETE,
        ),
        (
            "it noticed, too slow",
            deleted(remove, Some("True"), true),
            300,
            BOTH,
        ),
        ("silent", deleted(remove, Some("Unknown"), false), 0, BOTH),
        ("never heard", deleted(remove, None, false), 0, BOTH),
        (
            "its member is down, and it has not noticed yet",
            deleted(remove, Some("False"), false),
            10,
            &[],
        ),
        (
            "kubectl delete, its member is down",
            deleted(None, Some("False"), false),
            10,
            DELETE,
        ),
        (
            "forced",
            deleted(Some(Mode::Force), Some("True"), false),
            0,
            BOTH,
        ),
        (
            "kubectl delete, not ready",
            deleted(None, None, false),
            0,
            BOTH,
        ),
        (
            "kubectl delete, ready",
            deleted(None, Some("True"), false),
            0,
            DELETE,
        ),
    ];
    for (name, observed, seconds, want) in table {
        assert_eq!(words(&observed, seconds), want, "{name}");
    }
}

#[test]
fn a_clusters_end_has_an_order() {
    let mut observed = deleted(Some(Mode::Force), Some("True"), false);
    observed.leftovers.works = vec![work("w", true, true), work("theirs", true, false)];
    assert_eq!(words(&observed, 0), ["release-work"]);
    observed.leftovers.works.clear();
    assert_eq!(
        words(&observed, 0),
        ["remove-rights", "close-watches", "delete-namespace"]
    );
    observed.namespace = NamespaceState::Terminating;
    assert_eq!(words(&observed, 0), ["remove-rights", "close-watches"]);
    // Deleted in the foreground, the binding without a finalizer is gone before.
    observed.leftovers.bound = false;
    assert_eq!(words(&observed, 0), ["remove-rights", "close-watches"]);
    observed.leftovers.held = false;
    assert_eq!(words(&observed, 0), Vec::<&str>::new());
    observed.namespace = NamespaceState::Absent;
    assert_eq!(words(&observed, 0), ["delete-lease", "release-cluster"]);
    observed.cluster.finalizers = vec!["theirs".into()];
    assert_eq!(words(&observed, 0), Vec::<&str>::new());
}

#[test]
fn a_wait_ends_by_itself() {
    let observed = deleted(Some(Mode::KeepWorkloads), Some("True"), false);
    // What the hub's clock says is of no moment.
    for now in [-3600, 0, 90_000] {
        let decision = decide(at(now), OPTIONS, &after(&observed, 20));
        assert_eq!(decision.requeue, Requeue::After(Duration::from_secs(40)));
    }
}

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
    let flags = any::<[bool; 8]>();
    (ready, mode, namespace, taints, works, flags).prop_map(
        |(
            ready,
            mode,
            namespace,
            taints,
            works,
            [gone, ack, ours, bound, held, pull, zone, towlines],
        )| {
            let mut observed = living(ready);
            observed.cluster.leaving_for = gone.then_some(Duration::ZERO);
            observed.cluster.mode = mode;
            observed.cluster.acknowledged = ack;
            observed.cluster.acknowledges = towlines;
            observed.cluster.pull = pull;
            observed.cluster.taints = taints;
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
            Effect::CloseWatches | Effect::DeleteLease => {}
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
}
