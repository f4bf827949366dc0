//! Failures of the choice of clusters.

use super::{Failure, edited, every_cluster, silent};
use crate::explain::tests::seeds::{healthy, unplaced};
use crate::explain::{Cause as C, Stage as S};
use serde_json::json;

pub(super) fn failures() -> Vec<Failure> {
    let everywhere = json!({});
    let taint = |key: &str| json!({"spec": {"taints": [{"key": key, "effect": "NoSchedule"}]}});
    let divided = json!({"replicaScheduling": {"replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Aggregated"}});
    let mut alone = divided.clone();
    alone["clusterAffinity"] = json!({"clusterNames": ["m1"]});
    vec![
        Failure::of(
            "no cluster fits",
            unplaced(&json!({"clusterAffinity": {"clusterNames": ["m9"]}})),
            S::Placement,
            C::NoClusterFits,
            None,
            r#"{"clusterNames":["m1","m2","m3"]}"#,
        ),
        Failure::of(
            "no cluster has the labels",
            unplaced(&json!({"clusterAffinity": {"labelSelector":
            {"matchLabels": {"tier": "gold"}}}})),
            S::Placement,
            C::NoClusterFits,
            None,
            "kubectl label cluster m1 --overwrite tier=gold",
        ),
        Failure::of(
            "taint",
            edited(unplaced(&everywhere), |it| {
                every_cluster(it, &taint("dedicated"));
            }),
            S::Placement,
            C::Tainted,
            None,
            r#"{"clusterTolerations":[{"effect":"NoSchedule","key":"dedicated""#,
        ),
        Failure::of(
            "cordoned",
            edited(unplaced(&everywhere), |it| {
                every_cluster(it, &taint("cluster.karmada.io/unschedulable"));
            }),
            S::Placement,
            C::Tainted,
            None,
            "towline uncordon m1 m2 m3",
        ),
        Failure::of(
            "API missing",
            edited(unplaced(&everywhere), |it| {
                it.template["apiVersion"] = json!("example.com/v1");
                it.template["kind"] = json!("Widget");
                it.resource = "widgets.example.com".into();
                it.policies[0].spec.resource_selectors[0].api_version = "example.com/v1".into();
                it.policies[0].spec.resource_selectors[0].kind = "Widget".into();
                let bound = it.binding.as_mut().expect("there");
                bound.spec.resource.api_version = "example.com/v1".into();
                bound.spec.resource.kind = "Widget".into();
            }),
            S::Placement,
            C::ApiMissing,
            None,
            "name: widgets.example.com",
        ),
        Failure::of(
            "spread impossible",
            unplaced(&json!({"spreadConstraints":
            [{"spreadByField": "cluster", "minGroups": 5, "maxGroups": 5}]})),
            S::Placement,
            C::SpreadImpossible,
            None,
            r#""minGroups":3"#,
        ),
        Failure::of(
            "no group may be chosen",
            edited(
                unplaced(&json!({
                    "replicaScheduling": divided["replicaScheduling"],
                    "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 2}],
                })),
                |it| {
                    let bound = it.binding.as_mut().expect("there");
                    bound.spec.replicas = Some(0);
                    let says =
                        "failed to select clusters: no enough resource when selecting 0 clusters";
                    bound.status.conditions[0].message = says.to_owned();
                },
            ),
            S::Placement,
            C::PolicyImpossible,
            None,
            "kubectl -n shop edit pp/web",
        ),
        Failure::of(
            "no region",
            unplaced(&json!({"spreadConstraints": [
            {"spreadByField": "region", "minGroups": 1, "maxGroups": 1},
            {"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}]})),
            S::Placement,
            C::FieldMissing,
            None,
            "kubectl patch cluster m1",
        ),
        Failure::of(
            "capacity",
            edited(unplaced(&divided), |it| {
                every_cluster(
                    it,
                    &json!({"status":
            {"resourceSummary": {"allocatable": {"cpu": "1"}}}}),
                );
            }),
            S::Placement,
            C::LittleRoom,
            None,
            "kubectl -n shop scale deployments.apps web --replicas=3",
        ),
        Failure::of(
            "capacity, beside a copy that the policy no longer means",
            edited(unplaced(&alone), |it| {
                every_cluster(
                    it,
                    &json!({"status":
            {"resourceSummary": {"allocatable": {"cpu": "1"}}}}),
                );
                let bound = it.binding.as_mut().expect("there");
                bound.spec.clusters = healthy().binding.expect("there").spec.clusters;
            }),
            S::Placement,
            C::LittleRoom,
            None,
            "kubectl -n shop scale deployments.apps web --replicas=5",
        ),
        Failure::of(
            "placement suspended",
            edited(healthy(), |it| {
                let bound = it.binding.as_mut().expect("there");
                bound.spec.suspension =
                    serde_json::from_value(json!({"scheduling": true})).expect("a suspension");
            }),
            S::Placement,
            C::Suspended,
            None,
            "kubectl -n shop patch rb/web-deployment",
        ),
        Failure::of(
            "agent gone before it was placed",
            edited(unplaced(&everywhere), |it| {
                let mut gone = silent();
                json_patch::merge(&mut gone, &taint("cluster.karmada.io/unreachable"));
                every_cluster(it, &gone);
            }),
            S::Placement,
            C::AgentGone,
            Some("m1"),
            "rollout restart deployment/towline-agent",
        ),
        Failure::of(
            "no cluster",
            edited(unplaced(&everywhere), |it| it.clusters.clear()),
            S::Placement,
            C::NoClusters,
            None,
            "towline token create",
        ),
    ]
}
