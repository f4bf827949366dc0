//! Patches of every kind.

use super::{APPLY, Ask, JSON, JSON_PATCH, MERGE, STRATEGIC, Shape, dry, patch, shape};
use crate::bodies::{list, map, object};
use serde_json::{Value, json};

pub(super) fn all() -> Vec<Shape> {
    const MAP: &str = "/api/v1/namespaces/default/configmaps/a";
    const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/a";
    let apply = |n: usize| {
        object(
            "v1",
            "ConfigMap",
            "a",
            json!({"data": map(n, |_| json!("v"))}),
        )
    };
    vec![
        shape(
            "patch by operations",
            9_000,
            200,
            patch(MAP, JSON_PATCH, |n| {
                let mut all = vec![json!({"op": "add", "path": "/data", "value": {}})];
                all.extend(
                    (0..n).map(
                        |at| json!({"op": "add", "path": format!("/data/k{at}"), "value": "v"}),
                    ),
                );
                Value::Array(all)
            }),
        ),
        shape(
            "patch by tests",
            9_000,
            None,
            patch(MAP, JSON_PATCH, |n| {
                list(
                    n,
                    |_| json!({"op": "test", "path": "/metadata/name", "value": "a"}),
                )
            }),
        ),
        shape(
            "patch by copies",
            9_000,
            None,
            patch(MAP, JSON_PATCH, |n| {
                let mut all = vec![json!({"op": "add", "path": "/data", "value": {"a": "x"}})];
                all.extend((0..n).map(
                    |at| json!({"op": "copy", "from": "/data/a", "path": format!("/data/k{at}")}),
                ));
                Value::Array(all)
            }),
        ),
        shape(
            "patch with unknown members",
            9_000,
            None,
            patch(MAP, JSON_PATCH, |n| {
                list(
                    n,
                    |_| json!({"op": "test", "path": "/metadata/name", "value": "a", "more": 1}),
                )
            }),
        ),
        shape(
            "merge patch",
            100_000,
            200,
            patch(MAP, MERGE, |n| json!({"data": map(n, |_| json!("v"))})),
        ),
        shape(
            "merge patch of nulls",
            100_000,
            200,
            patch(MAP, MERGE, |n| json!({"data": map(n, |_| Value::Null)})),
        ),
        shape(
            "merge patch that does not fit",
            100_000,
            422,
            patch(MAP, MERGE, |n| json!({"data": list(n, |_| json!(1))})),
        ),
        shape(
            "strategic patch of containers",
            10_000,
            200,
            patch(DEPLOYMENT, STRATEGIC, |n| {
                let containers = list(n, |at| json!({"name": format!("c{at}"), "image": "b"}));
                json!({"spec": {"template": {"spec": {"containers": containers}}}})
            }),
        ),
        shape(
            "strategic patch with an order",
            10_000,
            200,
            patch(DEPLOYMENT, STRATEGIC, |n| {
                let containers = list(n, |at| json!({"name": format!("c{at}"), "image": "b"}));
                let order = list(n, |at| json!({"name": format!("c{at}")}));
                json!({"spec": {"template": {"spec": {"containers": containers, "$setElementOrder/containers": order}}}})
            }),
        ),
        shape(
            "strategic patch of scalars",
            50_000,
            200,
            patch(
                MAP,
                STRATEGIC,
                |n| json!({"metadata": {"finalizers": list(n, |at| json!(format!("a.b/{at}")))}}),
            ),
        ),
        shape(
            "strategic patch that deletes",
            20_000,
            200,
            patch(DEPLOYMENT, STRATEGIC, |n| {
                let gone = list(
                    n,
                    |at| json!({"$patch": "delete", "name": format!("c{at}")}),
                );
                json!({"spec": {"template": {"spec": {"containers": gone}}}})
            }),
        ),
        shape("apply", 40_000, 200, patch(MAP, APPLY, apply)),
        shape(
            "apply of a new one",
            40_000,
            201,
            patch("/api/v1/namespaces/default/configmaps/c", APPLY, |n| {
                object(
                    "v1",
                    "ConfigMap",
                    "c",
                    json!({"data": map(n, |_| json!("v"))}),
                )
            }),
        ),
        shape(
            "apply of containers",
            8_000,
            200,
            patch(DEPLOYMENT, APPLY, |n| {
                let ports = list(
                    n,
                    |at| json!({"containerPort": at % 60_000 + 1, "protocol": "TCP"}),
                );
                let container = json!({"name": "a", "image": "b", "ports": ports});
                object(
                    "apps/v1",
                    "Deployment",
                    "a",
                    json!({"spec": {"template": {"spec": {"containers": [container]}}}}),
                )
            }),
        ),
        shape("update", 60_000, 200, |n| {
            let body = object(
                "v1",
                "ConfigMap",
                "a",
                json!({"data": map(n, |_| json!("v"))}),
            );
            Ask::new("PUT", &dry(MAP), JSON, body.to_string().into_bytes())
        }),
    ]
}
