//! Pods, and what they are made of.

use super::{Shape, one_container, pod, post, shape};
use crate::bodies::{list, map, object};
use serde_json::json;

pub(super) fn all() -> Vec<Shape> {
    const PODS: &str = "/api/v1/namespaces/default/pods";
    let port = |at: usize| json!({"containerPort": at % 60_000 + 1, "hostPort": at % 60_000 + 1});
    vec![
        shape(
            "containers",
            10_000,
            201,
            post(PODS, |n| {
                pod(
                    json!({"containers": list(n, |at| json!({"name": format!("c{at}"), "image": "b"}))}),
                )
            }),
        ),
        shape(
            "containers that are none",
            50_000,
            422,
            post(PODS, |n| pod(json!({"containers": list(n, |_| json!({}))}))),
        ),
        shape(
            "ports",
            15_000,
            None,
            post(PODS, move |n| {
                one_container(json!({"ports": list(n, port)}))
            }),
        ),
        shape(
            "one port many times",
            15_000,
            None,
            post(PODS, |n| {
                one_container(json!({"ports": list(n, |_| json!({"containerPort": 1}))}))
            }),
        ),
        shape(
            "one port on many hosts",
            15_000,
            None,
            post(PODS, |n| {
                one_container(
                    json!({"ports": list(n, |at| json!({"containerPort": 1, "hostPort": at % 60_000 + 1}))}),
                )
            }),
        ),
        shape(
            "variables",
            40_000,
            201,
            post(PODS, |n| {
                one_container(
                    json!({"env": list(n, |at| json!({"name": format!("V{at}"), "value": "v"}))}),
                )
            }),
        ),
        shape(
            "one variable many times",
            40_000,
            201,
            post(PODS, |n| {
                one_container(json!({"env": list(n, |_| json!({"name": "V", "value": "v"}))}))
            }),
        ),
        shape(
            "volumes",
            20_000,
            201,
            post(PODS, |n| {
                pod(json!({"containers": [{"name": "a", "image": "b"}],
                "volumes": list(n, |at| json!({"name": format!("v{at}"), "emptyDir": {}}))}))
            }),
        ),
        shape(
            "mounts",
            10_000,
            None,
            post(PODS, |n| {
                pod(json!({"containers": [{"name": "a", "image": "b",
                    "volumeMounts": list(n, |at| json!({"name": format!("v{at}"), "mountPath": format!("/{at}")}))}],
                "volumes": list(n, |at| json!({"name": format!("v{at}"), "emptyDir": {}}))}))
            }),
        ),
        shape(
            "tolerations",
            30_000,
            201,
            post(PODS, |n| {
                pod(json!({"containers": [{"name": "a", "image": "b"}],
                "tolerations": list(n, |at| json!({"key": format!("k{at}"), "operator": "Exists"}))}))
            }),
        ),
        shape(
            "host aliases",
            20_000,
            None,
            post(PODS, |n| {
                pod(json!({"containers": [{"name": "a", "image": "b"}],
                "hostAliases": list(n, |at| json!({"ip": "10.0.0.1", "hostnames": [format!("h{at}")]}))}))
            }),
        ),
        shape(
            "spreads",
            15_000,
            None,
            post(PODS, |n| {
                pod(
                    json!({"containers": [{"name": "a", "image": "b"}], "topologySpreadConstraints": list(n, |at| json!(
                {"maxSkew": 1, "topologyKey": format!("k{at}"), "whenUnsatisfiable": "DoNotSchedule"}))}),
                )
            }),
        ),
        shape(
            "affinities",
            10_000,
            None,
            post(PODS, |n| {
                let terms = list(n, |at| {
                    json!({"weight": 1, "preference": {"matchExpressions":
                [{"key": format!("k{at}"), "operator": "Exists"}]}})
                });
                pod(json!({"containers": [{"name": "a", "image": "b"}],
                "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}))
            }),
        ),
        shape(
            "labels to match",
            30_000,
            None,
            post("/apis/apps/v1/namespaces/default/deployments", |n| {
                let labels = map(n, |_| json!("v"));
                object(
                    "apps/v1",
                    "Deployment",
                    "b",
                    json!({"spec": {"selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "b"}]}}}}),
                )
            }),
        ),
        shape(
            "expressions to match",
            15_000,
            None,
            post("/apis/apps/v1/namespaces/default/deployments", |n| {
                let expressions = list(
                    n,
                    |at| json!({"key": format!("k{at}"), "operator": "In", "values": ["v"]}),
                );
                object(
                    "apps/v1",
                    "Deployment",
                    "b",
                    json!({"spec": {"selector": {"matchExpressions": expressions},
                "template": {"metadata": {"labels": map(n, |_| json!("v"))},
                    "spec": {"containers": [{"name": "a", "image": "b"}]}}}}),
                )
            }),
        ),
    ]
}
