//! The smallest merge patch that turns one status into another.
//!
//! Pure. Maps are compared key by key; lists are replaced whole, and a patch that replaces the list of
//! conditions carries the resourceVersion it was made from, so that nobody's condition is lost.

use common::api::cluster::ClusterStatus;
use common::merge::difference;
use serde_json::{Value, json};

/// The body that turns `seen` into `wanted`, or none when they agree.
///
/// `resource_version` is that of the object `seen` was read from.
pub fn status_patch(
    seen: &ClusterStatus,
    wanted: &ClusterStatus,
    resource_version: &str,
) -> Result<Option<Value>, serde_json::Error> {
    let (seen, wanted) = (serde_json::to_value(seen)?, serde_json::to_value(wanted)?);
    let Some(difference) = difference(&seen, &wanted) else {
        return Ok(None);
    };
    let touches_conditions = difference.get("conditions").is_some();
    let mut body = json!({ "status": difference });
    if touches_conditions {
        body["metadata"] = json!({ "resourceVersion": resource_version });
    }
    Ok(Some(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::api::cluster::NodeSummary;
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use proptest::prelude::*;

    fn status(version: &str, nodes: i64, memory: &[(&str, &str)]) -> ClusterStatus {
        let mut status = ClusterStatus {
            kubernetes_version: Some(version.into()),
            node_summary: Some(NodeSummary {
                total_num: nodes,
                ready_num: 0,
            }),
            ..ClusterStatus::default()
        };
        let summary = status.resource_summary.get_or_insert_default();
        for (name, text) in memory {
            summary
                .allocatable
                .insert((*name).to_owned(), Quantity((*text).to_owned()));
        }
        status
    }

    #[test]
    fn equal_statuses_need_no_write() {
        let one = status("v1", 3, &[("cpu", "4")]);
        assert_eq!(status_patch(&one, &one.clone(), "7").expect("patch"), None);
    }

    #[test]
    fn only_what_changed_is_sent() {
        let seen = status("v1", 3, &[("cpu", "4"), ("example.com/gpu", "1")]);
        let wanted = status("v1", 4, &[("cpu", "8")]);
        let body = status_patch(&seen, &wanted, "7").expect("patch");
        let want = json!({"status": {
            "nodeSummary": {"totalNum": 4},
            "resourceSummary": {"allocatable": {"cpu": "8", "example.com/gpu": null}},
        }});
        assert_eq!(body, Some(want));
    }

    #[test]
    fn conditions_carry_the_version_they_were_made_from() {
        let seen = ClusterStatus::default();
        let mut wanted = ClusterStatus::default();
        let now = chrono::DateTime::UNIX_EPOCH;
        let ready = common::conditions::new("Ready", true, "ClusterReady", "", now);
        common::conditions::set(&mut wanted.conditions, ready, now);
        let body = status_patch(&seen, &wanted, "7")
            .expect("patch")
            .expect("a body");
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        assert_eq!(body["status"]["conditions"][0]["type"], "Ready");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(Value::from),
            (0u8..4).prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                proptest::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    /// A merge patch that is no object replaces everything; statuses are objects.
    fn any_object() -> impl Strategy<Value = Value> {
        proptest::collection::btree_map("[a-c]", any_json(), 0..4)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        /// Applying the difference to what was seen gives what was wanted.
        #[test]
        fn the_difference_is_sufficient(from in any_object(), to in any_object()) {
            let mut patched = from.clone();
            if let Some(patch) = difference(&from, &to) {
                json_patch::merge(&mut patched, &patch);
            }
            prop_assert_eq!(patched, to);
        }
    }
}
