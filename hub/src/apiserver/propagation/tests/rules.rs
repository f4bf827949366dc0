//! Rules in the definitions of policies that no recorded scenario breaks, each held and broken.

use super::host::{Host, path};
use serde_json::{Value, json};

/// What is told of an object with this spec; none where it is taken.
async fn told(host: &Host, kind: &str, spec: Value) -> Option<String> {
    let object = json!({
        "apiVersion": "policy.karmada.io/v1alpha1", "kind": kind,
        "metadata": {"name": "p"}, "spec": spec,
    });
    let path = format!("{}?dryRun=All", path(kind, "default", ""));
    let (code, answer) = host.ask("POST", &path, "application/json", &object).await;
    let message = answer["message"].as_str().unwrap_or_default().to_owned();
    assert!(code == 201 || code == 422 || code == 403, "{answer}");
    (code != 201).then_some(message)
}

async fn hold(host: &Host, kind: &str, cases: Vec<(Value, &str)>) {
    for (spec, wanted) in cases {
        let said = told(host, kind, spec.clone()).await;
        match wanted {
            "" => assert_eq!(said, None, "{spec}"),
            wanted => {
                let said = said.unwrap_or_else(|| panic!("{spec} is taken"));
                assert!(said.contains(wanted), "{spec}: {said}");
            }
        }
    }
}

fn policy(more: Value) -> Value {
    let mut spec =
        json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a"}]});
    let object = spec.as_object_mut().expect("an object");
    object.extend(more.as_object().cloned().unwrap_or_default());
    spec
}

fn placed(placement: Value) -> Value {
    policy(json!({"placement": placement}))
}

#[tokio::test(start_paused = true)]
async fn placements_are_held_to_their_rules() {
    let host = Host::begin().await;
    let aggregated =
        json!({"replicaSchedulingType": "Divided", "replicaDivisionPreference": "Aggregated"});
    let dynamic = json!({
        "replicaSchedulingType": "Divided", "replicaDivisionPreference": "Weighted",
        "weightPreference": {"dynamicWeight": "AvailableReplicas"},
    });
    let terms = |term: Value, scheduling: &Value| {
        placed(json!({"clusterAffinities": [term], "replicaScheduling": scheduling}))
    };
    let over = |names: &[&str]| {
        let overflow: Vec<Value> = names
            .iter()
            .map(|name| json!({"clusterNames": [name]}))
            .collect();
        json!({"affinityName": "a", "clusterNames": ["m1"], "overflowAffinities": overflow})
    };
    let affinity = |key: &str, other: &str| {
        placed(json!({"workloadAffinity": {
            "affinity": {"groupByLabelKey": key}, "antiAffinity": {"groupByLabelKey": other},
        }}))
    };
    let spread = |constraints: Value| placed(json!({"spreadConstraints": constraints}));
    let cases = vec![
        (terms(over(&["b", "c"]), &aggregated), ""),
        (terms(over(&["b"]), &dynamic), ""),
        (
            terms(
                over(&["b"]),
                &json!({"replicaSchedulingType": "Duplicated"}),
            ),
            "overflowAffinities can only be used together with dynamic weight or aggregated scheduling",
        ),
        (
            terms(
                json!({"affinityName": "a", "overflowAffinities": [{"clusterNames": ["b"]}]}),
                &aggregated,
            ),
            "overflowAffinities can only be used together with the inline ClusterAffinity",
        ),
        (
            placed(json!({"clusterAffinities": [{"affinityName": "a b"}]})),
            "spec.placement.clusterAffinities[0].affinityName: Invalid value: \"a b\": name part must consist",
        ),
        (affinity("a", "b"), ""),
        (
            affinity("a", "a"),
            "spec.placement.workloadAffinity: Invalid value: affinity and antiAffinity must not use the \
             same groupByLabelKey",
        ),
        (
            affinity("a b", "a"),
            "workloadAffinity.affinity.groupByLabelKey: Invalid value: \"a b\": name part",
        ),
        (spread(json!([{"spreadByLabel": "a"}])), ""),
        (spread(json!([{"spreadByField": "zone"}, {}])), ""),
        (
            spread(json!([{"spreadByField": "cluster", "minGroups": -1}])),
            "minGroups lower than 0 is not allowed",
        ),
        (
            spread(json!([{"spreadByField": "zone"}, {"spreadByField": "zone"}, {}])),
            "spec.placement.spreadConstraints: Invalid value: multiple zone spread constraints are not allowed",
        ),
    ];
    hold(&host, "PropagationPolicy", cases.clone()).await;
    hold(&host, "ClusterPropagationPolicy", cases).await;
    host.end().await;
}

#[tokio::test(start_paused = true)]
async fn failover_is_held_to_its_rules() {
    let host = Host::begin().await;
    let failover = |more: Value| {
        let mut application = json!({"decisionConditions": {"tolerationSeconds": 1}});
        let object = application.as_object_mut().expect("an object");
        object.extend(more.as_object().cloned().unwrap_or_default());
        policy(json!({"propagateDeps": true, "failover": {"application": application}}))
    };
    let cases = vec![
        (failover(json!({"purgeMode": "Never"})), ""),
        (
            failover(json!({"purgeMode": "Directly", "gracePeriodSeconds": 5})),
            "spec.failover.application.gracePeriodSeconds: Invalid value: only takes effect when purgeMode \
             is gracefully",
        ),
        (
            failover(json!({"decisionConditions": {"tolerationSeconds": -1}})),
            "tolerationSeconds: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            failover(json!({"statePreservation": {"rules": [
                {"aliasLabelName": "a b", "jsonPath": "{.x}"},
            ]}})),
            "rules[0].aliasLabelName: Invalid value: \"a b\": name part must consist",
        ),
    ];
    hold(&host, "PropagationPolicy", cases).await;
    let import = json!([{"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ServiceImport", "name": "a"}]);
    let carried = json!({
        "resourceSelectors": import,
        "failover": {"application": {"decisionConditions": {}}},
    });
    hold(&host, "PropagationPolicy", vec![(carried, "")]).await;
    host.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_pointer_of_an_override_reaches_values_only() {
    let host = Host::begin().await;
    let at = |path: &str| {
        json!({"overrideRules": [{"overriders": {"plaintext": [
            {"path": path, "operator": "add", "value": "x"},
        ]}}]})
    };
    let refused = "overriders.plaintext[0].path: Invalid value: ";
    let mut cases: Vec<(Value, &str)> = [
        "/spec/replicas",
        "/data/kind",
        "/metadata/labels/app",
        "/metadata/labels/kind",
        "/metadata/annotations/example.com~1name",
        "/metadata/annotations/work.karmada.io~1conflict-resolution",
        "/metadata/labels/resourcetemplate.karmada.io~1retain-replicas",
        "/metadata/generateName",
        "/metadata/names",
        "/spec/template/metadata/labels",
        "/spec/template/metadata/name",
    ]
    .into_iter()
    .map(|path| (at(path), ""))
    .collect();
    cases.extend(
        [
            "/",
            "/kind",
            "/apiVersion",
            "/metadata",
            "/metadata/name",
            "/metadata/namespace",
            "/metadata/ownerReferences",
            "/metadata/ownerReferences/0/uid",
            "/metadata/finalizers",
            "/metadata/finalizers/-",
            "/metadata/labels",
            "/metadata/annotations",
            "/metadata/labels/karmada.io~1managed",
            "/metadata/labels/work.karmada.io~1permanent-id",
            "/metadata/annotations/work.karmada.io~1name",
            "/metadata/labels/propagationpolicy.karmada.io~1permanent-id",
            "/metadata/annotations/resourcetemplate.karmada.io~1managed-labels",
        ]
        .into_iter()
        .map(|path| (at(path), refused)),
    );
    hold(&host, "OverridePolicy", cases.clone()).await;
    hold(&host, "ClusterOverridePolicy", cases).await;
    host.end().await;
}

#[tokio::test(start_paused = true)]
async fn taints_of_a_policy_are_each_there_once() {
    let host = Host::begin().await;
    let taints = |effects: [&str; 2]| {
        let one = |effect: &str| json!({"key": "a", "effect": effect});
        json!({"taints": effects.map(one)})
    };
    let cases = vec![
        (taints(["NoSchedule", "NoExecute"]), ""),
        (
            taints(["NoSchedule", "NoSchedule"]),
            "spec.taints: Invalid value: Duplicate taint with the same key and effect is not allowed",
        ),
        (json!({"taints": []}), "spec.taints"),
    ];
    hold(&host, "ClusterTaintPolicy", cases).await;
    host.end().await;
}
