//! What the monitor reads of Clusters and Leases: as little as it needs, and nothing that an agent could
//! write so that it cannot be read.

use super::decide::{NEVER, Ready, STOPPED, Seen};
use common::api::cluster::READY;
use serde::Deserialize;
use serde_json::Value;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// A Cluster, narrowly.
#[derive(Debug, Deserialize)]
pub(super) struct ClusterView {
    pub(super) metadata: Meta,
    spec: Option<SpecView>,
    status: Option<StatusView>,
}

/// The metadata of either.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) name: String,
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) resource_version: String,
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
    pub(super) metadata: Meta,
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
        let mode = self
            .spec
            .as_ref()
            .and_then(|spec| spec.sync_mode.as_deref());
        Seen {
            pull: mode != Some("Push"),
            ready: self
                .conditions()
                .iter()
                .find(|c| c["type"] == READY)
                .map(ready),
        }
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

fn ready(condition: &Value) -> Ready {
    let unknown = condition["status"] == "Unknown";
    let mut hasher = DefaultHasher::new();
    condition.to_string().hash(&mut hasher);
    Ready {
        unknown,
        by_hub: unknown && (condition["reason"] == STOPPED || condition["reason"] == NEVER),
        fingerprint: hasher.finish(),
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
