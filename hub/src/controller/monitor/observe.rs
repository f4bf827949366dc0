//! What the monitor reads of Clusters and Leases: as little as it needs, and nothing that an agent could
//! write so that it cannot be read.

use super::decide::Seen;
use crate::world::Condition;
use common::api::cluster::READY;
use common::labels::REGISTRATION_ID;
use serde::Deserialize;
use serde_json::Value;

/// A Cluster, narrowly.
#[derive(Debug, Deserialize)]
pub(super) struct ClusterView {
    pub(super) metadata: Meta,
    spec: Option<SpecView>,
    status: Option<StatusView>,
}

/// Its metadata.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) name: String,
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) resource_version: String,
    #[serde(default)]
    annotations: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecView {
    sync_mode: Option<String>,
}

#[derive(Debug, Deserialize)]
struct StatusView {
    conditions: Option<Vec<Value>>,
}

/// A Lease, narrowly.
#[derive(Debug, Deserialize)]
pub(super) struct LeaseView {
    spec: Option<LeaseSpecView>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseSpecView {
    renew_time: Option<String>,
}

impl ClusterView {
    /// What matters of it.
    pub(super) fn seen(&self) -> Seen {
        let spec = self.spec.as_ref();
        let mode = spec.and_then(|spec| spec.sync_mode.as_deref());
        let annotations = self.metadata.annotations.as_ref();
        let registered = annotations.is_some_and(|all| all[REGISTRATION_ID].is_string());
        let ready = Condition::find(self.conditions(), READY);
        Seen::of(mode != Some("Push") || registered, ready.as_ref())
    }

    /// Its conditions as they are stored.
    pub(super) fn conditions(&self) -> &[Value] {
        let conditions = self
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_deref());
        conditions.unwrap_or_default()
    }
}

impl LeaseView {
    /// The text of its `renewTime`; nobody reads a time out of it.
    pub(super) fn renewed(&self) -> Option<&str> {
        self.spec.as_ref()?.renew_time.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn view(status: &Value) -> ClusterView {
        serde_json::from_value(json!({
            "metadata": {"name": "m1"}, "spec": {"syncMode": "Pull"}, "status": status,
        }))
        .expect("decodes")
    }

    #[test]
    fn hostile_conditions_are_read() {
        let odd =
            view(&json!({"conditions": [7, {"type": "Ready", "lastTransitionTime": "+99:99"}]}));
        let ready = odd.seen().ready.expect("there");
        assert!(!ready.unknown && !ready.by_hub);
        assert_eq!(view(&json!({})).seen().ready, None);
    }

    #[test]
    fn a_push_cluster_is_judged_once_an_agent_speaks_for_it() {
        let pull = |annotations: Value| {
            let view: ClusterView = serde_json::from_value(json!({
                "metadata": {"name": "m1", "annotations": annotations}, "spec": {"syncMode": "Push"},
            }))
            .expect("decodes");
            view.seen().pull
        };
        assert!(!pull(Value::Null) && !pull(json!({})));
        assert!(pull(json!({REGISTRATION_ID: "a"})));
    }

    #[test]
    fn the_hubs_own_mark_is_known() {
        let mark = view(&json!({"conditions": [
            {"type": "Ready", "status": "Unknown", "reason": "ClusterStatusUnknown"},
        ]}));
        assert!(mark.seen().ready.expect("there").by_hub);
        let agents = view(&json!({"conditions": [
            {"type": "Ready", "status": "Unknown", "reason": "Other"},
        ]}));
        assert!(!agents.seen().ready.expect("there").by_hub);
    }
}
