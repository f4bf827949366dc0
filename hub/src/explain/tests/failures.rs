//! What is said of each failure: the link, the cause, and the commands.

mod delivery;
mod member;
mod placement;
mod policy;

use super::seeds::{cluster, condition, healthy, unplaced};
use crate::explain::template::{Seen, explain};
use crate::explain::{Cause, Stage, State};
use serde_json::{Value, json};

/// A failure: what it is called, how the hub looks, and what is to be said of it.
pub(super) struct Failure {
    pub(super) name: &'static str,
    pub(super) seen: Seen,
    pub(super) stage: Stage,
    pub(super) cause: Cause,
    /// Where its mend is carried out; on the hub when it is none.
    pub(super) member: Option<&'static str>,
    /// What the first command of the mend has in it.
    pub(super) command: &'static str,
}

impl Failure {
    fn of(
        name: &'static str,
        seen: Seen,
        stage: Stage,
        cause: Cause,
        member: Option<&'static str>,
        command: &'static str,
    ) -> Self {
        Self {
            name,
            seen,
            stage,
            cause,
            member,
            command,
        }
    }
}

fn edited(mut seen: Seen, edit: impl FnOnce(&mut Seen)) -> Seen {
    edit(&mut seen);
    seen
}

fn every_cluster(seen: &mut Seen, changes: &Value) {
    let names: Vec<String> = seen
        .clusters
        .iter()
        .filter_map(|it| it.metadata.name.clone())
        .collect();
    seen.clusters = names.iter().map(|it| cluster(it, changes)).collect();
}

/// Changes of a cluster whose agent fell silent.
fn silent() -> Value {
    json!({"status": {"conditions": [
        condition("Ready", "Unknown", "ClusterStatusUnknown", "Cluster status controller stopped posting.")]}})
}

/// Everything that can be broken.
pub(super) fn failures() -> Vec<Failure> {
    [
        policy::failures(),
        placement::failures(),
        delivery::failures(),
        member::failures(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[test]
fn the_first_broken_link_is_named_with_what_mends_it() {
    let mut told = 0;
    for failure in failures() {
        let Failure {
            name,
            seen,
            stage,
            cause,
            member,
            command,
        } = failure;
        let report = explain(&seen);
        assert!(!report.well, "{name}");
        let broken = report
            .broken
            .as_ref()
            .unwrap_or_else(|| panic!("{name}: nothing is broken"));
        assert_eq!(
            (broken.stage, broken.cause),
            (stage, cause),
            "{name}: {broken:?}"
        );
        assert_eq!(broken.mend.member.as_deref(), member, "{name}");
        let first = broken
            .mend
            .commands
            .first()
            .unwrap_or_else(|| panic!("{name}: no command"));
        assert!(first.contains(command), "{name}: {first}");
        // It is the last of the links, and the only one that does not hold.
        let (last, before) = report.links.split_last().expect("links");
        assert_eq!(last.stage, stage, "{name}");
        assert!(
            before.iter().all(|it| it.state == State::Ok),
            "{name}: {before:?}"
        );
        told += 1;
    }
    assert!(told > 34, "only {told}");
}

#[test]
fn every_cluster_is_chosen_or_refused_by_a_filter() {
    let mut seen = unplaced(&json!({"clusterAffinity": {"clusterNames": ["m1", "m2"]}}));
    seen.clusters[0] = cluster(
        "m1",
        &json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}}),
    );
    seen.clusters[1] = cluster("m2", &json!({"status": {"apiEnablements": []}}));
    let report = explain(&seen);
    let last = report.links.last().expect("a link");
    let told: Vec<String> = last
        .details
        .iter()
        .map(|it| format!("{} {}", it.of, it.what))
        .collect();
    assert_eq!(
        told,
        [
            "m1 refused by TaintToleration: taint k=v:NoExecute is not tolerated",
            "m2 refused by APIEnablement: it does not serve the kind",
            "m3 refused by ClusterAffinity: the policy does not mean it",
        ]
    );
    let mut gone = healthy();
    gone.clusters.push(cluster("m4", &json!({})));
    let bound = gone.binding.as_mut().expect("there");
    bound.spec.clusters[1].name = "m4".to_owned();
    let report = explain(&gone);
    let of = |stage| report.links.iter().find(move |it| it.stage == stage);
    let told = of(Stage::Placement).and_then(|it| it.details.last());
    assert_eq!(
        told.map(|it| &*it.what),
        Some(
            "chosen, with 2 replicas; now refused by ClusterAffinity: the policy does not mean it"
        )
    );
    let report = explain(&healthy());
    let placement = report
        .links
        .iter()
        .find(|it| it.stage == Stage::Placement)
        .expect("a link");
    let told: Vec<&str> = placement
        .details
        .iter()
        .map(|it| it.what.as_str())
        .collect();
    assert_eq!(told[0], "chosen, with 4 replicas");
    assert_eq!(
        told[2],
        "refused by ClusterAffinity: the policy does not mean it"
    );
}
