//! When a task of eviction ends, and with it the copy that it keeps. Pure.

use super::unhealthy::APPLICATION_FAILURE;
use chrono::{DateTime, Utc};
use common::api::binding::{
    AggregatedStatusItem, GracefulEvictionTask, ResourceBindingSpec, ResourceBindingStatus,
    SCHEDULED, TargetCluster,
};
use common::api::policy::PurgeMode;
use common::api::work::ResourceHealth;
use common::conditions;
use common::gvk::Gvk;
use common::interpreter::replicas;
use common::time::from_time;
use std::collections::BTreeMap;
use std::time::Duration;

/// Reason of a task that a taint made.
pub const TAINT_UNTOLERATED: &str = "TaintUntolerated";
/// Producer of such a task.
pub const TAINT_MANAGER: &str = "TaintManager";

/// What becomes of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It stays; where only time ends it, until then.
    Stays(Option<DateTime<Utc>>),
    /// It stays, and is given the time from which it counts.
    Begins,
    /// It ends: what it kept goes.
    Ends,
    /// It ends, and what it kept belongs there again.
    Returns,
}

/// What a binding says about what replaces the copies that leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replacement {
    /// The scheduler has placed what is asked for now.
    pub placed: bool,
    /// The scheduler found no place for it, when it looked last.
    pub unplaceable: bool,
    /// It found none for what is asked for now.
    pub nowhere_else: bool,
    /// Every member that it is placed in says that it is healthy there, with as many replicas as it was given.
    pub healthy: bool,
    /// It is placed somewhere.
    pub somewhere: bool,
}

impl Replacement {
    /// As a binding says it.
    pub fn of(spec: &ResourceBindingSpec, status: &ResourceBindingStatus, generation: i64) -> Self {
        let scheduled = conditions::get(&status.conditions, SCHEDULED);
        let says = |what: &str| scheduled.is_some_and(|it| it.status == what);
        let items = status.aggregated_status.iter();
        let items: BTreeMap<&str, &AggregatedStatusItem> = items
            .map(|item| (item.cluster_name.as_str(), item))
            .collect();
        let kind = Gvk::new(&spec.resource.api_version, &spec.resource.kind);
        let is_healthy = |target: &TargetCluster| {
            let item = items.get(target.name.as_str());
            item.is_some_and(|item| serves(kind.as_ref(), target, item))
        };
        // Once it is placed, the former answer is still there for a while. Karmada's scheduler does not say of which
        // generation it speaks.
        let answered = scheduled.and_then(|it| it.observed_generation);
        Self {
            placed: says("True") && status.scheduler_observed_generation == Some(generation),
            unplaceable: says("False"),
            nowhere_else: says("False") && answered.is_none_or(|it| it == generation),
            healthy: spec.clusters.iter().all(is_healthy),
            somewhere: !spec.clusters.is_empty(),
        }
    }
}

/// Whether a member says that it runs its share. That it is healthy may have been said of a smaller share, before the
/// replicas came that another member had; numbers tell, where the kind has them and the member shows them.
fn serves(kind: Option<&Gvk>, target: &TargetCluster, item: &AggregatedStatusItem) -> bool {
    let share = i64::from(target.replicas.unwrap_or(0));
    let available = kind
        .zip(item.status.as_ref())
        .and_then(|(kind, status)| replicas::available(kind, status));
    item.health == Some(ResourceHealth::Healthy) && available.is_none_or(|it| it >= share)
}

/// What becomes of a task. `timeout` is how long it lasts when it does not say; `welcome` whether what it keeps might
/// stay where it is, were it to be decided now.
///
/// Time alone ends no task before something else runs the workload, and none that is never to end by itself. What failed
/// in every cluster that it may be in goes on there after that time: as long as a task names a cluster nothing is placed
/// in it, and nothing new is delivered to it.
pub fn fate(
    now: DateTime<Utc>,
    task: &GracefulEvictionTask,
    replacement: Replacement,
    timeout: Duration,
    welcome: bool,
) -> Fate {
    let mode = task.purge_mode.unwrap_or_default();
    let by_taint = task.reason == TAINT_UNTOLERATED && mode != PurgeMode::Directly;
    if by_taint && welcome && replacement.nowhere_else {
        return Fate::Returns;
    }
    let Some(created) = task.creation_timestamp.as_ref().and_then(from_time) else {
        return Fate::Begins;
    };
    match task.suppress_deletion {
        Some(true) => return Fate::Stays(None),
        Some(false) => return Fate::Ends,
        None if mode == PurgeMode::Never => return Fate::Stays(None),
        None => {}
    }
    if replacement.placed && replacement.healthy {
        return Fate::Ends;
    }
    let seconds = task
        .grace_period_seconds
        .map(|it| u64::from(it.max(0).unsigned_abs()));
    let grace = seconds.map_or(timeout, Duration::from_secs);
    let grace = chrono::Duration::from_std(grace).ok();
    let Some(end) = grace.and_then(|it| created.checked_add_signed(it)) else {
        return Fate::Stays(None);
    };
    // What goes directly is gone already.
    let ends = mode == PurgeMode::Directly || replacement.somewhere && !replacement.unplaceable;
    let returns = task.reason == APPLICATION_FAILURE
        && mode == PurgeMode::Gracefully
        && welcome
        && replacement.nowhere_else;
    match now > end {
        _ if !ends && !returns => Fate::Stays(None),
        false => Fate::Stays(Some(end)),
        true if returns => Fate::Returns,
        true => Fate::Ends,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::time::to_time;
    use serde_json::json;

    const TIMEOUT: Duration = Duration::from_secs(600);

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000 + seconds, 0).expect("in range")
    }

    fn task() -> GracefulEvictionTask {
        GracefulEvictionTask {
            from_cluster: "m1".to_owned(),
            purge_mode: Some(PurgeMode::Gracefully),
            reason: TAINT_UNTOLERATED.to_owned(),
            producer: TAINT_MANAGER.to_owned(),
            creation_timestamp: Some(to_time(at(0))),
            ..GracefulEvictionTask::default()
        }
    }

    const WAITING: Replacement = Replacement {
        placed: true,
        unplaceable: false,
        nowhere_else: false,
        healthy: false,
        somewhere: true,
    };
    const HEALTHY: Replacement = Replacement {
        healthy: true,
        ..WAITING
    };
    const NOWHERE: Replacement = Replacement {
        placed: false,
        unplaceable: true,
        nowhere_else: true,
        healthy: true,
        somewhere: false,
    };
    /// Some replicas run elsewhere, for the others there is no room.
    const PARTLY: Replacement = Replacement {
        placed: false,
        unplaceable: true,
        nowhere_else: true,
        healthy: true,
        somewhere: true,
    };
    /// Placed just now, which the scheduler has not said yet.
    const OUTDATED: Replacement = Replacement {
        nowhere_else: false,
        ..PARTLY
    };
    /// Scaled to nothing.
    const EMPTY: Replacement = Replacement {
        placed: true,
        unplaceable: false,
        nowhere_else: false,
        healthy: true,
        somewhere: false,
    };

    #[test]
    fn a_task_ends_when_its_replacement_is_healthy_or_time_is_up() {
        let given = |change: fn(&mut GracefulEvictionTask)| {
            let mut task = task();
            change(&mut task);
            task
        };
        let failed = || given(|it| it.reason = APPLICATION_FAILURE.to_owned());
        let stays = |seconds| Fate::Stays(Some(at(seconds)));
        let for_good = Fate::Stays(None);
        let cases = [
            (
                "new",
                given(|it| it.creation_timestamp = None),
                0,
                WAITING,
                false,
                Fate::Begins,
            ),
            ("waits", task(), 1, WAITING, false, stays(600)),
            ("at the end", task(), 600, WAITING, false, stays(600)),
            ("after it", task(), 601, WAITING, false, Fate::Ends),
            ("healthy", task(), 1, HEALTHY, false, Fate::Ends),
            (
                "healthy before it was placed",
                task(),
                1,
                Replacement {
                    placed: false,
                    ..HEALTHY
                },
                false,
                stays(600),
            ),
            (
                "its own time",
                given(|it| it.grace_period_seconds = Some(5)),
                6,
                WAITING,
                false,
                Fate::Ends,
            ),
            (
                "not up",
                given(|it| it.grace_period_seconds = Some(5)),
                4,
                WAITING,
                false,
                stays(5),
            ),
            (
                "kept",
                given(|it| it.suppress_deletion = Some(true)),
                9999,
                HEALTHY,
                false,
                for_good,
            ),
            (
                "let go",
                given(|it| it.suppress_deletion = Some(false)),
                1,
                WAITING,
                false,
                Fate::Ends,
            ),
            (
                "never",
                given(|it| it.purge_mode = Some(PurgeMode::Never)),
                9999,
                HEALTHY,
                false,
                for_good,
            ),
            ("the last copy", task(), 9999, NOWHERE, false, for_good),
            ("some of it", task(), 9999, PARTLY, false, for_good),
            ("scaled to nothing", task(), 1, EMPTY, false, Fate::Ends),
            (
                "gone already",
                given(|it| it.purge_mode = Some(PurgeMode::Directly)),
                601,
                NOWHERE,
                false,
                Fate::Ends,
            ),
            (
                "welcome again, replaced",
                task(),
                1,
                WAITING,
                true,
                stays(600),
            ),
            (
                "welcome again, nowhere else",
                task(),
                1,
                NOWHERE,
                true,
                Fate::Returns,
            ),
            (
                "welcome again, some of it",
                task(),
                1,
                PARTLY,
                true,
                Fate::Returns,
            ),
            (
                "welcome again, placed just now",
                task(),
                1,
                OUTDATED,
                true,
                for_good,
            ),
            (
                "failed, placed just now",
                failed(),
                601,
                OUTDATED,
                true,
                for_good,
            ),
            (
                "welcome, but gone",
                given(|it| it.purge_mode = Some(PurgeMode::Directly)),
                1,
                NOWHERE,
                true,
                stays(600),
            ),
            // Whoever else made a task knows why it leaves.
            (
                "welcome, by another reason",
                given(|it| it.reason = "Moved".to_owned()),
                9999,
                NOWHERE,
                true,
                for_good,
            ),
            // Nothing heals a cluster that is well: only time says that no other takes what failed there.
            (
                "failed, and waits",
                failed(),
                600,
                NOWHERE,
                true,
                stays(600),
            ),
            (
                "failed everywhere",
                failed(),
                601,
                NOWHERE,
                true,
                Fate::Returns,
            ),
            (
                "failed, no room for it",
                failed(),
                601,
                PARTLY,
                true,
                Fate::Returns,
            ),
            (
                "failed, not welcome",
                failed(),
                601,
                NOWHERE,
                false,
                for_good,
            ),
            ("failed, replaced", failed(), 601, WAITING, true, Fate::Ends),
            (
                "failed, kept",
                given(|it| {
                    it.reason = APPLICATION_FAILURE.to_owned();
                    it.suppress_deletion = Some(true);
                }),
                601,
                NOWHERE,
                true,
                for_good,
            ),
            (
                "failed, gone already",
                given(|it| {
                    it.reason = APPLICATION_FAILURE.to_owned();
                    it.purge_mode = Some(PurgeMode::Directly);
                }),
                601,
                NOWHERE,
                true,
                Fate::Ends,
            ),
        ];
        for (name, task, seconds, replacement, welcome, want) in cases {
            let found = fate(at(seconds), &task, replacement, TIMEOUT, welcome);
            assert_eq!(found, want, "{name}");
        }
    }

    #[test]
    fn a_replacement_is_read_off_the_binding() {
        let spec = |clusters| {
            let spec = json!({"resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": "c"}, "clusters": clusters});
            serde_json::from_value::<ResourceBindingSpec>(spec).expect("a spec")
        };
        let status = |scheduled: &str, observed: i64, health: &str| {
            // Only a placement moves the generation that the scheduler observed.
            let placed = if scheduled == "True" { observed } else { 1 };
            let status = json!({
                "schedulerObservedGeneration": placed,
                "conditions": [{"type": "Scheduled", "status": scheduled, "reason": "R", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": observed}],
                "aggregatedStatus": [{"clusterName": "m2", "health": health}],
            });
            serde_json::from_value::<ResourceBindingStatus>(status).expect("a status")
        };
        let one = json!([{"name": "m2"}]);
        let two = json!([{"name": "m2"}, {"name": "m3"}]);
        let cases = [
            (&one, "True", 3, "Healthy", HEALTHY),
            (&one, "True", 3, "Unhealthy", WAITING),
            (
                &one,
                "True",
                2,
                "Healthy",
                Replacement {
                    placed: false,
                    ..HEALTHY
                },
            ),
            (&two, "True", 3, "Healthy", WAITING),
            (&json!([]), "False", 3, "Healthy", NOWHERE),
            (
                &one,
                "False",
                2,
                "Unhealthy",
                Replacement {
                    healthy: false,
                    ..OUTDATED
                },
            ),
            (&one, "False", 3, "Healthy", PARTLY),
        ];
        for (clusters, scheduled, observed, health, want) in cases {
            let found = Replacement::of(&spec(clusters), &status(scheduled, observed, health), 3);
            assert_eq!(found, want, "{clusters} {scheduled} {observed} {health}");
        }
        let mut of_others = status("False", 2, "Healthy");
        of_others.conditions[0].observed_generation = None;
        assert_eq!(Replacement::of(&spec(&one), &of_others, 3), PARTLY);
    }

    #[test]
    fn a_member_serves_when_it_says_so_of_what_it_was_given() {
        let numbers = |available: u32| json!({"replicas": 4, "availableReplicas": available});
        // Kind, share, what is reflected, health, whether that will do.
        let cases = [
            ("apps/v1 Deployment", 4, numbers(4), "Healthy", true),
            ("apps/v1 Deployment", 4, numbers(2), "Healthy", false),
            ("apps/v1 Deployment", 4, numbers(4), "Unhealthy", false),
            ("apps/v1 Deployment", 2, numbers(4), "Healthy", true),
            ("apps/v1 Deployment", 1, json!({}), "Healthy", false),
            ("apps/v1 Deployment", 0, json!({}), "Healthy", true),
            ("apps/v1 Deployment", 4, json!(null), "Healthy", true),
            ("apps/v1 StatefulSet", 4, numbers(3), "Healthy", false),
            ("apps/v1 ReplicaSet", 4, numbers(3), "Healthy", false),
            ("batch/v1 Job", 4, json!({"active": 1}), "Healthy", true),
            ("example.org/v1 Widget", 4, numbers(1), "Healthy", true),
            ("example.org/v1 Widget", 4, numbers(4), "Unknown", false),
        ];
        for (kind, share, reflected, health, want) in cases {
            let (version, name) = kind.split_once(' ').expect("two words");
            let target = json!({"name": "m2", "replicas": share});
            let target = serde_json::from_value(target).expect("a target");
            let item = json!({"clusterName": "m2", "health": health, "status": reflected});
            let item = serde_json::from_value(item).expect("an item");
            let found = serves(Gvk::new(version, name).as_ref(), &target, &item);
            assert_eq!(found, want, "{kind} {share} {reflected} {health}");
        }
    }
}
