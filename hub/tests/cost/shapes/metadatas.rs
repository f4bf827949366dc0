//! What every object has: labels, owners, finalizers, managed fields.

use super::{Ask, MERGE, RULED, Shape, dry, metadata, post, shape};
use crate::bodies::{list, map, object};
use serde_json::{Value, json};

pub(super) fn all() -> Vec<Shape> {
    const MAPS: &str = "/api/v1/namespaces/default/configmaps";
    let owner = |at: usize, more: bool| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{at}"), "uid": format!("{at}"), "controller": more});
    let entry = |at: usize| {
        json!({"manager": format!("m{at}"), "operation": "Update", "apiVersion": "v1",
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:k{at}"): {}}}})
    };
    vec![
        shape(
            "labels",
            50_000,
            201,
            post(MAPS, |n| {
                metadata(json!({"labels": map(n, |_| json!("v"))}))
            }),
        ),
        shape(
            "labels that are wrong",
            50_000,
            422,
            post(MAPS, |n| {
                metadata(json!({"labels": map(n, |_| json!("!"))}))
            }),
        ),
        shape(
            "annotations",
            20_000,
            201,
            post(MAPS, |n| {
                metadata(json!({"annotations": map(n, |_| json!("v"))}))
            }),
        ),
        shape(
            "finalizers",
            50_000,
            201,
            post(MAPS, |n| {
                metadata(json!({"finalizers": list(n, |at| json!(format!("a.b/{at}")))}))
            }),
        ),
        shape(
            "finalizers that are wrong",
            50_000,
            422,
            post(MAPS, |n| {
                metadata(json!({"finalizers": list(n, |at| json!(format!("!{at}")))}))
            }),
        ),
        shape(
            "finalizers of a custom kind",
            50_000,
            201,
            post(RULED, |n| {
                object(
                    "a.example/v1",
                    "Ruled",
                    "b",
                    json!({"metadata": {"finalizers": list(n, |at| json!(format!("f{at}")))}}),
                )
            }),
        ),
        shape(
            "owners",
            20_000,
            201,
            post(MAPS, move |n| {
                metadata(json!({"ownerReferences": list(n, |at| owner(at, false))}))
            }),
        ),
        shape(
            "owners that all control",
            20_000,
            422,
            post(MAPS, move |n| {
                metadata(json!({"ownerReferences": list(n, |at| owner(at, true))}))
            }),
        ),
        shape(
            "owners that are none",
            100_000,
            422,
            post(MAPS, |n| {
                metadata(json!({"ownerReferences": list(n, |_| json!({}))}))
            }),
        ),
        shape(
            "managed fields",
            8_000,
            None,
            post(MAPS, move |n| {
                metadata(json!({"managedFields": list(n, entry)}))
            }),
        ),
        shape("managed fields of a change", 8_000, None, |n| {
            let entry = |at: usize| {
                json!({"manager": format!("m{at}"), "operation": "Apply", "apiVersion": "v1",
                    "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {format!("f:k{at}"): {}}}})
            };
            let body = json!({"metadata": {"managedFields": list(n, entry)}});
            Ask::new(
                "PATCH",
                &dry(&format!("{MAPS}/a")),
                MERGE,
                body.to_string().into_bytes(),
            )
        }),
        shape(
            "fields that one manager owns",
            40_000,
            None,
            post(MAPS, |n| {
                let fields = (0..n).map(|at| (format!("f:k{at}"), json!({})));
                let entry = json!({"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": fields.collect::<Value>()}});
                metadata(json!({"managedFields": [entry]}))
            }),
        ),
    ]
}
