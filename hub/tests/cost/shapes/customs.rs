//! Custom kinds, their rules, and their definitions.

use super::{APPLY, CRD, JSON_PATCH, MERGE, RULED, Shape, WORK, patch, post, ruled, shape, work};
use crate::bodies::{list, map, object};
use serde_json::{Value, json};

pub(super) fn all() -> Vec<Shape> {
    const STATUS: &str = "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works/a/status";
    vec![
        shape(
            "zeros as conditions",
            100_000,
            422,
            patch(STATUS, JSON_PATCH, |n| work(list(n, |_| json!(0)))),
        ),
        shape(
            "very many zeros as conditions",
            1_400_000,
            422,
            patch(STATUS, JSON_PATCH, |n| work(list(n, |_| json!(0)))),
        ),
        shape(
            "zeros as conditions, merged",
            100_000,
            422,
            patch(
                STATUS,
                MERGE,
                |n| json!({"status": {"conditions": list(n, |_| json!(0))}}),
            ),
        ),
        shape(
            "empty conditions",
            100_000,
            422,
            patch(
                STATUS,
                MERGE,
                |n| json!({"status": {"conditions": list(n, |_| json!({}))}}),
            ),
        ),
        shape(
            "conditions",
            15_000,
            None,
            patch(STATUS, MERGE, |n| {
                let condition = |at: usize| {
                    json!({"type": format!("T{at}"), "status": "True", "reason": "R",
                "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"})
                };
                json!({"status": {"conditions": list(n, condition)}})
            }),
        ),
        shape(
            "statuses of manifests",
            10_000,
            None,
            patch(STATUS, MERGE, |n| {
                let status = |at: usize| {
                    json!({"identifier": {"ordinal": at, "version": "v1", "kind": "ConfigMap",
                "resource": "configmaps", "name": format!("m{at}")}, "health": "Healthy"})
                };
                json!({"status": {"manifestStatuses": list(n, status)}})
            }),
        ),
        shape(
            "manifests",
            20_000,
            None,
            post(WORK, |n| {
                let manifest = |at: usize| object("v1", "ConfigMap", &format!("m{at}"), json!({}));
                object(
                    "work.karmada.io/v1alpha1",
                    "Work",
                    "b",
                    json!({"spec": {"workload": {"manifests": list(n, manifest)}}}),
                )
            }),
        ),
        shape(
            "manifests that are none",
            200_000,
            422,
            post(WORK, |n| {
                object(
                    "work.karmada.io/v1alpha1",
                    "Work",
                    "b",
                    json!({"spec": {"workload": {"manifests": list(n, |_| json!({}))}}}),
                )
            }),
        ),
        shape(
            "manifests, applied",
            8_000,
            None,
            patch(
                "/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-m1/works/c",
                APPLY,
                |n| {
                    let manifest =
                        |at: usize| object("v1", "ConfigMap", &format!("m{at}"), json!({}));
                    object(
                        "work.karmada.io/v1alpha1",
                        "Work",
                        "c",
                        json!({"spec": {"workload": {"manifests": list(n, manifest)}}}),
                    )
                },
            ),
        ),
        shape(
            "a list that is too long",
            400_000,
            422,
            post(RULED, |n| ruled("short", list(n, |_| json!(0)))),
        ),
        shape(
            "a set",
            50_000,
            201,
            post(RULED, |n| {
                ruled("set", list(n, |at| json!(format!("s{at}"))))
            }),
        ),
        shape(
            "a set of the same",
            50_000,
            422,
            post(RULED, |n| {
                ruled("set", list(n, |at| json!(format!("s{}", at % (n / 2 + 1)))))
            }),
        ),
        shape(
            "a map",
            50_000,
            201,
            post(RULED, |n| {
                ruled("map", list(n, |at| json!({"k": format!("s{at}")})))
            }),
        ),
        shape(
            "a map without keys",
            100_000,
            422,
            post(RULED, |n| ruled("map", list(n, |_| json!({})))),
        ),
        shape(
            "words for a pattern",
            80_000,
            201,
            post(RULED, |n| ruled("words", list(n, |_| json!("abcdefgh")))),
        ),
        shape(
            "words that do not fit a pattern",
            80_000,
            422,
            post(RULED, |n| ruled("words", list(n, |_| json!("abcdefgh!")))),
        ),
        shape(
            "numbers for a rule",
            1_000,
            201,
            post(RULED, |n| ruled("n", list(n, |at| json!(at)))),
        ),
        shape(
            "anything",
            200_000,
            201,
            post(RULED, |n| {
                ruled("any", json!({"a": list(n, |at| json!(at))}))
            }),
        ),
        shape(
            "unknown fields of a custom kind",
            60_000,
            201,
            post(RULED, |n| {
                object(
                    "a.example/v1",
                    "Ruled",
                    "b",
                    json!({"spec": map(n, |_| json!(1))}),
                )
            }),
        ),
        shape(
            "columns of a definition",
            4_000,
            None,
            post(CRD, |n| {
                let column = |at: usize| json!({"name": format!("c{at}"), "type": "string", "jsonPath": ".spec.a"});
                definition(
                    json!({"additionalPrinterColumns": list(n, column)}),
                    json!({"type": "object"}),
                )
            }),
        ),
        shape(
            "properties of a definition",
            10_000,
            201,
            post(CRD, |n| {
                let spec =
                    json!({"type": "object", "properties": map(n, |_| json!({"type": "string"}))});
                definition(
                    json!({}),
                    json!({"type": "object", "properties": {"spec": spec}}),
                )
            }),
        ),
        shape(
            "properties without a type",
            10_000,
            422,
            post(CRD, |n| {
                let spec =
                    json!({"type": "object", "properties": map(n, |_| json!({"type": "x"}))});
                definition(
                    json!({}),
                    json!({"type": "object", "properties": {"spec": spec}}),
                )
            }),
        ),
        shape(
            "values of a definition",
            20_000,
            201,
            post(CRD, |n| {
                let spec = json!({"type": "string", "enum": list(n, |at| json!(format!("v{at}")))});
                definition(
                    json!({}),
                    json!({"type": "object", "properties": {"spec": spec}}),
                )
            }),
        ),
        shape(
            "short names of a definition",
            50_000,
            None,
            post(CRD, |n| {
                let mut one = definition(json!({}), json!({"type": "object"}));
                one["spec"]["names"]["shortNames"] = list(n, |at| json!(format!("s{at}")));
                one
            }),
        ),
    ]
}

fn definition(version: Value, schema: Value) -> Value {
    let mut first = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    for (key, value) in version.as_object().into_iter().flatten() {
        first[key] = value.clone();
    }
    object(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "bs.b.example",
        json!({"spec": {
        "group": "b.example", "scope": "Namespaced", "names": {"plural": "bs", "singular": "b", "kind": "B"},
        "versions": [first]}}),
    )
}
