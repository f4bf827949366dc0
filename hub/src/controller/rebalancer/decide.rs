//! What a WorkloadRebalancer asks for, and what its status tells of that. Pure.
//!
//! Each workload is asked for once. What was found or not found stays so; a workload that leaves the list stays in
//! the status if its binding was told.

use crate::scheduler::rebalance;
use chrono::{DateTime, Utc};
use common::api::rebalancer::{
    BINDING_NOT_FOUND, ObservedWorkload, RebalanceResult, RebalancerSpec, RebalancerStatus,
    WorkloadReference,
};
use common::time::to_time;
use std::collections::BTreeMap;
use std::time::Duration;

/// What was seen.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// What is asked for.
    pub spec: RebalancerSpec,
    /// Counts its changes.
    pub generation: i64,
    /// What was told until now.
    pub status: RebalancerStatus,
    /// When it was made, in seconds.
    pub created: i64,
    /// Bindings of workloads that are there, at least those of the list, with the time that each of them was asked
    /// to be placed afresh, in seconds.
    pub bindings: BTreeMap<WorkloadReference, Option<i64>>,
}

/// What is to be done, in this order. At rest it is all empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// Workloads whose bindings get its time.
    pub asked: Vec<WorkloadReference>,
    /// Workloads of which no binding is known, as far as that was not said yet.
    pub absent: Vec<WorkloadReference>,
    /// The status as it is to be.
    pub status: Option<RebalancerStatus>,
    /// How long until it is to go, if it ever is.
    pub ends_in: Option<Duration>,
}

/// What is to be done about one WorkloadRebalancer.
pub fn decide(now: DateTime<Utc>, seen: &Observed) -> Decision {
    let known: BTreeMap<&WorkloadReference, &ObservedWorkload> = seen
        .status
        .observed_workloads
        .iter()
        .map(|it| (&it.workload, it))
        .collect();
    let is_told = |it: &&ObservedWorkload| it.result == Some(RebalanceResult::Successful);
    let mut workloads: BTreeMap<&WorkloadReference, ObservedWorkload> = known
        .iter()
        .filter(|(_, it)| is_told(it))
        .map(|(workload, it)| (*workload, (*it).clone()))
        .collect();
    let mut decision = Decision::default();
    for workload in &seen.spec.workloads {
        if workloads.contains_key(workload) {
            continue;
        }
        let settled = known.get(workload).filter(|it| it.result.is_some());
        let observed = match (settled, seen.bindings.get(workload)) {
            (Some(settled), _) => (*settled).clone(),
            (None, Some(asked)) => {
                if rebalance(*asked, seen.created).is_some() {
                    decision.asked.push(workload.clone());
                }
                observed(workload, RebalanceResult::Successful, None)
            }
            (None, None) => {
                decision.absent.push(workload.clone());
                observed(workload, RebalanceResult::Failed, Some(BINDING_NOT_FOUND))
            }
        };
        workloads.insert(workload, observed);
    }
    let is_same = seen.status.observed_generation == Some(seen.generation);
    let finished = seen.status.finish_time.clone().filter(|_| is_same);
    let status = RebalancerStatus {
        observed_workloads: workloads.into_values().collect(),
        observed_generation: Some(seen.generation),
        finish_time: Some(finished.unwrap_or_else(|| to_time(now))),
    };
    decision.ends_in = ends_in(now, seen, &status);
    decision.status = (status != seen.status).then_some(status);
    decision
}

fn observed(
    workload: &WorkloadReference,
    result: RebalanceResult,
    reason: Option<&str>,
) -> ObservedWorkload {
    ObservedWorkload {
        workload: workload.clone(),
        result: Some(result),
        reason: reason.map(str::to_owned),
    }
}

fn ends_in(now: DateTime<Utc>, seen: &Observed, status: &RebalancerStatus) -> Option<Duration> {
    let after = u64::try_from(seen.spec.ttl_seconds_after_finished?).unwrap_or(0);
    let finished = status.finish_time.as_ref()?.0.as_second();
    let passed = u64::try_from(now.timestamp().saturating_sub(finished)).unwrap_or(0);
    Some(Duration::from_secs(after.saturating_sub(passed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(name: &str) -> WorkloadReference {
        WorkloadReference {
            api_version: "apps/v1".to_owned(),
            kind: "Deployment".to_owned(),
            namespace: Some("n".to_owned()),
            name: name.to_owned(),
        }
    }

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).expect("a time")
    }

    /// Made in second 100, of these workloads, with bindings asked for before at these times.
    fn seen(workloads: &[&str], bindings: &[(&str, Option<i64>)]) -> Observed {
        Observed {
            spec: RebalancerSpec {
                workloads: workloads.iter().map(|name| workload(name)).collect(),
                ..RebalancerSpec::default()
            },
            generation: 1,
            created: 100,
            bindings: bindings
                .iter()
                .map(|(name, asked)| (workload(name), *asked))
                .collect(),
            ..Observed::default()
        }
    }

    fn results(status: &RebalancerStatus) -> Vec<(&str, Option<RebalanceResult>, Option<&str>)> {
        let each = status.observed_workloads.iter();
        each.map(|it| (it.workload.name.as_str(), it.result, it.reason.as_deref()))
            .collect()
    }

    #[test]
    fn each_is_asked_for_once_and_what_is_missing_is_told() {
        let bindings = [("old", Some(99)), ("new", Some(100)), ("never", None)];
        let mut seen = seen(&["old", "absent", "new", "never", "old"], &bindings);
        let first = decide(at(103), &seen);
        let names = |all: &[WorkloadReference]| -> Vec<String> {
            all.iter().map(|it| it.name.clone()).collect()
        };
        assert_eq!(names(&first.asked), ["old", "never"]);
        assert_eq!(names(&first.absent), ["absent"]);
        let status = first.status.expect("to be told");
        let (told, failed) = (
            Some(RebalanceResult::Successful),
            Some(RebalanceResult::Failed),
        );
        assert_eq!(
            results(&status),
            [
                ("absent", failed, Some(BINDING_NOT_FOUND)),
                ("never", told, None),
                ("new", told, None),
                ("old", told, None),
            ]
        );
        assert_eq!(status.finish_time, Some(to_time(at(103))));
        // At rest nothing is done, also when what was missing comes later.
        seen.status = status;
        seen.bindings.insert(workload("absent"), None);
        assert_eq!(decide(at(200), &seen), Decision::default());
    }

    #[test]
    fn what_leaves_the_list_stays_if_it_was_told_and_what_joins_is_asked_for() {
        let mut seen = seen(&["a", "absent"], &[("a", None), ("b", None)]);
        seen.status = decide(at(103), &seen).status.expect("to be told");
        seen.spec.workloads = vec![workload("b")];
        seen.generation = 2;
        let second = decide(at(110), &seen);
        assert_eq!(second.asked, [workload("b")]);
        let status = second.status.expect("to be told");
        let told = Some(RebalanceResult::Successful);
        assert_eq!(results(&status), [("a", told, None), ("b", told, None)]);
        assert_eq!(status.finish_time, Some(to_time(at(110))));
        assert_eq!(status.observed_generation, Some(2));
    }

    #[test]
    fn it_goes_so_long_after_its_end() {
        let mut seen = seen(&["a"], &[("a", None)]);
        assert_eq!(decide(at(103), &seen).ends_in, None);
        seen.spec.ttl_seconds_after_finished = Some(10);
        let first = decide(at(103), &seen);
        assert_eq!(first.ends_in, Some(Duration::from_secs(10)));
        seen.status = first.status.expect("to be told");
        let left = |second| decide(at(second), &seen).ends_in.map(|it| it.as_secs());
        assert_eq!(
            [left(109), left(113), left(500)],
            [Some(4), Some(0), Some(0)]
        );
    }
}
