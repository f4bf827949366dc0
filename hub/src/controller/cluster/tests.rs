//! Decisions about Clusters. What is shared lies here, with what a living one is given.

mod closing;
mod deep;
mod ending;
mod properties;
mod taints;

use super::check::check;
use super::decide::*;
use super::observe::*;
use chrono::{DateTime, Utc};
use common::api::cluster::{Taint, TaintEffect};
use common::controller::Requeue;
use common::labels::{CLUSTER_FINALIZER, TAINT_NOT_READY, TAINT_UNREACHABLE};
use common::names::ClusterName;
use common::time::to_time;
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

/// What was observed, of a Cluster that was seen being deleted for so many seconds.
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
    observed.leftovers.works = vec![work("w", true, false)];
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
