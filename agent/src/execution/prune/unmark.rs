//! The patch that takes our marks off an object.
//!
//! Pure.

use common::labels::{
    ADOPTED, FIELD_MANAGER, KEPT_FROM, MANAGED, MANAGED_ANNOTATIONS, MANAGED_LABELS, MANIFEST_HASH,
    RETAINED_FIELD_MANAGER, TEMPLATE_GENERATION, TEMPLATE_UID, WORK_NAME, WORK_NAMESPACE,
    WORK_PERMANENT_ID,
};
use serde_json::{Value, json};

/// The JSON patch that takes our marks and our field ownership off an object, if it is still as read. With `kept_from` it
/// notes the Work that it outlives.
pub(super) fn unmark(object: &Value, kept_from: Option<&str>) -> Value {
    const LABELS: [&str; 2] = [MANAGED, WORK_PERMANENT_ID];
    const ANNOTATIONS: [&str; 18] = [
        ADOPTED,
        WORK_NAME,
        WORK_NAMESPACE,
        MANIFEST_HASH,
        MANAGED_LABELS,
        MANAGED_ANNOTATIONS,
        TEMPLATE_UID,
        TEMPLATE_GENERATION,
        // What Karmada's hub writes on the templates that it propagates.
        "resourcebinding.karmada.io/namespace",
        "resourcebinding.karmada.io/name",
        "resourcebinding.karmada.io/dependencies",
        "clusterresourcebinding.karmada.io/name",
        "propagationpolicy.karmada.io/namespace",
        "propagationpolicy.karmada.io/name",
        "clusterpropagationpolicy.karmada.io/name",
        "policy.karmada.io/applied-placement",
        "policy.karmada.io/applied-overrides",
        "policy.karmada.io/applied-cluster-overrides",
    ];
    let meta = &object["metadata"];
    let mut patch = vec![
        json!({"op": "replace", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]}),
    ];
    let claims = [
        "resourcebinding.karmada.io/permanent-id",
        "clusterresourcebinding.karmada.io/permanent-id",
        "propagationpolicy.karmada.io/permanent-id",
        "clusterpropagationpolicy.karmada.io/permanent-id",
    ];
    for (map, keys) in [
        (
            "labels",
            LABELS.iter().chain(&claims).copied().collect::<Vec<_>>(),
        ),
        ("annotations", ANNOTATIONS.to_vec()),
    ] {
        for key in keys {
            if meta[map].get(key).is_some() {
                let escaped = key.replace('~', "~0").replace('/', "~1");
                patch.push(json!({"op": "remove", "path": format!("/metadata/{map}/{escaped}")}));
            }
        }
    }
    if let Some(work) = kept_from {
        patch.push(match meta["annotations"].is_object() {
            true => {
                let key = KEPT_FROM.replace('/', "~1");
                json!({"op": "add", "path": format!("/metadata/annotations/{key}"), "value": work})
            }
            false => {
                json!({"op": "add", "path": "/metadata/annotations", "value": {KEPT_FROM: work}})
            }
        });
    }
    if let Some(entries) = meta["managedFields"].as_array() {
        let mut rest: Vec<Value> = entries
            .iter()
            .filter(|e| e["manager"] != FIELD_MANAGER && e["manager"] != RETAINED_FIELD_MANAGER)
            .cloned()
            .collect();
        if rest.is_empty() {
            // An empty list is ignored; one empty entry resets the tracking.
            rest.push(json!({}));
        }
        patch.push(json!({"op": "replace", "path": "/metadata/managedFields", "value": rest}));
    }
    Value::Array(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_marks_are_taken_off() {
        let object = json!({"metadata": {"resourceVersion": "5",
            "labels": {MANAGED: "true", "app": "web", "propagationpolicy.karmada.io/permanent-id": "p"},
            "annotations": {WORK_NAME: "w", "note": "x", "resourcebinding.karmada.io/name": "web-deployment",
                "policy.karmada.io/applied-placement": "{}"},
            "managedFields": [{"manager": "towline", "operation": "Apply"}, {"manager": "other"}]}});
        assert_eq!(
            unmark(&object, None),
            json!([
                {"op": "replace", "path": "/metadata/resourceVersion", "value": "5"},
                {"op": "remove", "path": "/metadata/labels/karmada.io~1managed"},
                {"op": "remove", "path": "/metadata/labels/propagationpolicy.karmada.io~1permanent-id"},
                {"op": "remove", "path": "/metadata/annotations/work.karmada.io~1name"},
                {"op": "remove", "path": "/metadata/annotations/resourcebinding.karmada.io~1name"},
                {"op": "remove", "path": "/metadata/annotations/policy.karmada.io~1applied-placement"},
                {"op": "replace", "path": "/metadata/managedFields", "value": [{"manager": "other"}]},
            ])
        );
    }

    #[test]
    fn what_outlives_its_work_remembers_it() {
        let noted = |annotations: Value| {
            let object = json!({"metadata": {"resourceVersion": "5", "annotations": annotations}});
            let patch = unmark(&object, Some("karmada-es-m1/w"));
            let patch: json_patch::Patch = serde_json::from_value(patch).expect("a patch");
            let mut after = object;
            json_patch::patch(&mut after, &patch).expect("applies");
            after["metadata"]["annotations"].clone()
        };
        let kept = json!({KEPT_FROM: "karmada-es-m1/w"});
        assert_eq!(noted(json!({WORK_NAME: "w", ADOPTED: "true"})), kept);
        assert_eq!(noted(Value::Null), kept);
        assert_eq!(noted(json!({KEPT_FROM: "karmada-es-m1/v"})), kept);
    }
}
