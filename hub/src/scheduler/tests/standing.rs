//! Whether a binding is placed again, from what it says.

use super::*;
use common::api::binding::{ResourceBindingSpec, ResourceBindingStatus};
use serde_json::{Value, json};

fn duplicated() -> Value {
    json!({"clusterAffinity": {"clusterNames": ["A"]}})
}

fn aggregated() -> Value {
    json!({
        "clusterAffinity": {"clusterNames": ["A"]},
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
    })
}

fn grouped(second: &str) -> Value {
    json!({
        "clusterAffinities": [
            {"affinityName": "one", "clusterNames": ["A"]},
            {"affinityName": "two", "clusterNames": [second]},
        ],
        "replicaScheduling": {"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"},
    })
}

/// A binding of 3 replicas on A that was placed by `placement`, is at rest, and is then changed.
fn need(placement: Value, change: impl FnOnce(&mut Value)) -> Need {
    let mut binding = json!({
        "generation": 2,
        "applied": placement.to_string(),
        "spec": {
            "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "replicas": 3,
            "clusters": [{"name": "A", "replicas": 3}],
            "placement": placement,
        },
        "status": {
            "schedulerObservedGeneration": 2,
            "lastScheduledTime": "2026-01-01T00:00:10Z",
            "conditions": [{
                "type": "Scheduled", "status": "True", "reason": "Success", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:10Z",
            }],
        },
    });
    change(&mut binding);
    let spec: ResourceBindingSpec = serde_json::from_value(binding["spec"].clone()).expect("spec");
    let status: Option<ResourceBindingStatus> =
        serde_json::from_value(binding["status"].clone()).expect("status");
    let observed = from_api::Observed {
        generation: binding["generation"].as_i64().expect("generation"),
        deleting: binding["deleting"] == true,
        applied: binding["applied"].as_str(),
        status: status.as_ref(),
    };
    let leaving = |name: &str| binding["leaving"] == name;
    needed(&from_api::standing(&spec, observed, leaving))
}

#[test]
fn a_binding_is_placed_again_for_these_reasons_alone() {
    type Change = fn(&mut Value);
    let asked = |binding: &mut Value, second: u8| {
        let time = format!("2026-01-01T00:00:{second}Z");
        binding["spec"]["rescheduleTriggeredAt"] = json!(time);
    };
    assert_eq!(
        need(aggregated(), |b| asked(b, 11)),
        Need::Place(Why::Triggered)
    );
    assert_eq!(need(aggregated(), |b| asked(b, 10)), Need::Nothing);
    let cases: [(&str, Value, Change, Need); 31] = [
        ("at rest", aggregated(), |_| {}, Need::Nothing),
        (
            "new",
            aggregated(),
            |b| b["applied"] = Value::Null,
            Need::Place(Why::Placement),
        ),
        (
            "unreadable",
            aggregated(),
            |b| b["applied"] = json!("{"),
            Need::Nothing,
        ),
        (
            "affinity",
            aggregated(),
            |b| {
                b["spec"]["placement"]["clusterAffinity"]["clusterNames"] = json!(["B"]);
            },
            Need::Place(Why::Placement),
        ),
        (
            "toleration",
            aggregated(),
            |b| {
                b["spec"]["placement"]["clusterTolerations"] = json!([{"operator": "Exists"}]);
            },
            Need::Place(Why::Placement),
        ),
        (
            "spread",
            aggregated(),
            |b| {
                b["spec"]["placement"]["spreadConstraints"] = json!([{"spreadByField": "cluster"}]);
            },
            Need::Place(Why::Placement),
        ),
        (
            "strategy",
            aggregated(),
            |b| {
                b["spec"]["placement"]["replicaScheduling"]["replicaDivisionPreference"] =
                    json!("Weighted");
            },
            Need::Place(Why::Placement),
        ),
        (
            "absent and empty are the same",
            aggregated(),
            |b| {
                b["spec"]["placement"]["clusterTolerations"] = json!([]);
            },
            Need::Nothing,
        ),
        (
            "a group, nothing observed",
            grouped("B"),
            |b| {
                b["spec"]["placement"] = grouped("C");
            },
            Need::Place(Why::Placement),
        ),
        (
            "another group than observed",
            grouped("B"),
            |b| {
                b["spec"]["placement"] = grouped("C");
                b["status"]["schedulerObservingAffinityName"] = json!("one");
            },
            Need::Nothing,
        ),
        (
            "the observed group",
            grouped("B"),
            |b| {
                b["spec"]["placement"] = grouped("C");
                b["status"]["schedulerObservingAffinityName"] = json!("two");
            },
            Need::Place(Why::Placement),
        ),
        (
            "the observed group is gone",
            grouped("B"),
            |b| {
                b["spec"]["placement"]["clusterAffinities"][1]["affinityName"] = json!("due");
                b["status"]["schedulerObservingAffinityName"] = json!("two");
            },
            Need::Place(Why::Placement),
        ),
        (
            "a group that neither knows",
            grouped("B"),
            |b| {
                b["spec"]["placement"] = grouped("C");
                b["status"]["schedulerObservingAffinityName"] = json!("tres");
            },
            Need::Place(Why::Placement),
        ),
        (
            "several parts",
            aggregated(),
            |b| {
                b["spec"]["replicas"] = json!(7);
                b["spec"]["components"] =
                    json!([{"name": "a", "replicas": 3}, {"name": "b", "replicas": 4}]);
            },
            Need::Nothing,
        ),
        (
            "several parts, nowhere yet",
            aggregated(),
            |b| {
                b["spec"]["components"] =
                    json!([{"name": "a", "replicas": 3}, {"name": "b", "replicas": 4}]);
                b["spec"]["clusters"] = json!([]);
            },
            Need::Place(Why::Replicas),
        ),
        (
            "more replicas",
            aggregated(),
            |b| b["spec"]["replicas"] = json!(4),
            Need::Place(Why::Replicas),
        ),
        (
            "fewer replicas",
            aggregated(),
            |b| b["spec"]["replicas"] = json!(2),
            Need::Place(Why::Replicas),
        ),
        (
            "none left",
            aggregated(),
            |b| b["spec"]["clusters"] = json!([]),
            Need::Place(Why::Replicas),
        ),
        (
            "other requests",
            aggregated(),
            |b| {
                b["spec"]["replicaRequirements"] = json!({"resourceRequest": {"cpu": "2"}});
                b["generation"] = json!(3);
            },
            Need::Note,
        ),
        (
            "never placed but asked",
            aggregated(),
            |b| {
                b["spec"]["rescheduleTriggeredAt"] = json!("2026-01-01T00:00:11Z");
                b["status"]["lastScheduledTime"] = Value::Null;
            },
            Need::Nothing,
        ),
        (
            "duplicated",
            duplicated(),
            |_| {},
            Need::Place(Why::Clusters),
        ),
        (
            "no workload",
            aggregated(),
            |b| {
                b["spec"]["replicas"] = Value::Null;
                b["spec"]["clusters"] = json!([{"name": "A"}]);
            },
            Need::Place(Why::Clusters),
        ),
        (
            "duplicated, more replicas",
            json!({
                "replicaScheduling": {"replicaSchedulingType": "Duplicated"},
            }),
            |b| b["spec"]["replicas"] = json!(4),
            Need::Place(Why::Replicas),
        ),
        (
            "a target goes",
            aggregated(),
            |b| b["leaving"] = json!("A"),
            Need::Place(Why::TargetLeaving),
        ),
        (
            "another goes",
            aggregated(),
            |b| b["leaving"] = json!("B"),
            Need::Nothing,
        ),
        (
            "failed",
            aggregated(),
            |b| {
                b["status"]["conditions"][0]["status"] = json!("False");
            },
            Need::Place(Why::Pending),
        ),
        (
            "a new generation",
            aggregated(),
            |b| b["generation"] = json!(3),
            Need::Note,
        ),
        (
            "no status",
            aggregated(),
            |b| b["status"] = Value::Null,
            Need::Place(Why::Unsaid),
        ),
        (
            "suspended",
            aggregated(),
            |b| {
                b["applied"] = Value::Null;
                b["spec"]["suspension"] = json!({"scheduling": true});
            },
            Need::Nothing,
        ),
        (
            "follows others",
            aggregated(),
            |b| {
                b["applied"] = Value::Null;
                b["spec"]["placement"] = Value::Null;
            },
            Need::Nothing,
        ),
        (
            "deleted",
            aggregated(),
            |b| {
                b["applied"] = Value::Null;
                b["deleting"] = json!(true);
            },
            Need::Nothing,
        ),
    ];
    for (name, placement, change, wanted) in cases {
        assert_eq!(need(placement, change), wanted, "{name}");
    }
}

#[test]
fn a_rebalancer_asks_once() {
    let cases = [
        (None, 5, Some(5)),
        (Some(4), 5, Some(5)),
        (Some(5), 5, None),
        (Some(6), 5, None),
    ];
    for (asked, created, wanted) in cases {
        assert_eq!(rebalance(asked, created), wanted, "{asked:?} {created}");
    }
    let triggers = [
        (None, None, false),
        (Some(5), None, false),
        (None, Some(5), false),
        (Some(5), Some(5), false),
        (Some(6), Some(5), true),
    ];
    for (asked, placed, wanted) in triggers {
        assert_eq!(is_triggered(asked, placed), wanted, "{asked:?} {placed:?}");
    }
}

#[test]
fn results_are_compared_as_sets() {
    let part = |name: &str| Target {
        components: vec![(name.into(), 1)],
        ..target("A", 1)
    };
    let (a, b) = (target("A", 1), target("B", 2));
    let cases = [
        (vec![a.clone(), b.clone()], vec![b.clone(), a.clone()], true),
        (vec![a.clone()], vec![a.clone(), b], false),
        (vec![a.clone()], vec![target("A", 2)], false),
        (vec![part("x")], vec![part("x")], true),
        (vec![part("x")], vec![a], false),
        (vec![], vec![], true),
    ];
    for (one, other, same) in cases {
        assert_eq!(same_targets(&one, &other), same, "{one:?} {other:?}");
        let clusters = from_api::target_clusters(&one);
        assert!(same_targets(&from_api::targets(&clusters), &one));
    }
}
