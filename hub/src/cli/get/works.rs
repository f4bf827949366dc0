//! Works as one line each: what is in them, and what their member says.
//!
//! Pure.

use chrono::{DateTime, Utc};
use common::api::work::{APPLIED, ResourceHealth, Work};
use common::conditions;
use common::labels::{BINDING_NAME, BINDING_NAMESPACE, CLUSTER_BINDING_NAME};
use common::names::EXECUTION_PREFIX;
use common::time::from_time;
use serde::Serialize;
use serde_json::Value;

/// A Work, and what became of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::cli) struct Delivery {
    /// The cluster in whose execution namespace it lies; the namespace, when it is none.
    pub(in crate::cli) cluster: String,
    pub(in crate::cli) name: String,
    /// The binding that it was made of; none for one that somebody wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) binding: Option<String>,
    /// Kinds of its objects, in order.
    pub(in crate::cli) objects: Vec<String>,
    /// Absent until its member said so or so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) applied: Option<bool>,
    /// The worst of its objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) health: Option<ResourceHealth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) created: Option<DateTime<Utc>>,
    /// The member's words, or why there are none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(in crate::cli) message: String,
}

impl Delivery {
    /// What a Work says.
    pub(super) fn of(work: &Work) -> Self {
        let metadata = &work.metadata;
        let status = work.status.clone().unwrap_or_default();
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let condition = conditions::get(&status.conditions, APPLIED);
        let suspended = work.spec.suspend_dispatching == Some(true);
        let message = match condition {
            _ if metadata.deletion_timestamp.is_some() => "being removed".to_owned(),
            _ if suspended => "held back: its dispatching is suspended".to_owned(),
            Some(condition) if condition.status == "True" => String::new(),
            Some(condition) => condition.message.clone(),
            None => "no answer yet".to_owned(),
        };
        let manifests = work.spec.workload.manifests.iter();
        let kinds = manifests.filter_map(|it| it.get("kind").and_then(Value::as_str));
        Self {
            cluster: cluster(namespace).to_owned(),
            name: metadata.name.clone().unwrap_or_default(),
            binding: binding(work),
            objects: kinds.map(str::to_owned).collect(),
            applied: condition.map(|it| it.status == "True"),
            health: status
                .manifest_statuses
                .iter()
                .filter_map(|it| it.health)
                .max_by_key(|it| badness(*it)),
            created: metadata.creation_timestamp.as_ref().and_then(from_time),
            message,
        }
    }
}

/// The cluster of an execution namespace.
pub(super) fn cluster(namespace: &str) -> &str {
    namespace
        .strip_prefix(EXECUTION_PREFIX)
        .unwrap_or(namespace)
}

fn binding(work: &Work) -> Option<String> {
    let annotation = |key: &str| work.metadata.annotations.as_ref()?.get(key);
    match (annotation(BINDING_NAMESPACE), annotation(BINDING_NAME)) {
        (Some(namespace), Some(name)) => Some(format!("{namespace}/{name}")),
        _ => annotation(CLUSTER_BINDING_NAME).cloned(),
    }
}

fn badness(health: ResourceHealth) -> u8 {
    match health {
        ResourceHealth::Healthy => 0,
        ResourceHealth::Unknown => 1,
        ResourceHealth::Unhealthy => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn work(status: Value) -> Work {
        serde_json::from_value(json!({
            "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {
                "name": "web-1", "namespace": "karmada-es-m1",
                "annotations": {BINDING_NAMESPACE: "shop", BINDING_NAME: "web-deployment"},
            },
            "spec": {"workload": {"manifests": [{"kind": "Namespace"}, {"kind": "Deployment"}]}},
            "status": status,
        }))
        .expect("a Work")
    }

    fn condition(status: &str, message: &str) -> Value {
        json!([{"type": "Applied", "status": status, "reason": "R", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    }

    #[test]
    fn the_worst_of_a_work_stands_for_it() {
        let identifier =
            json!({"ordinal": 0, "version": "v1", "kind": "K", "resource": "", "name": "n"});
        let each = |health: &[&str]| {
            let told: Vec<Value> = health
                .iter()
                .map(|it| json!({"identifier": identifier, "health": it}))
                .collect();
            let status = json!({"conditions": condition("True", "done"), "manifestStatuses": told});
            Delivery::of(&work(status)).health
        };
        assert_eq!(each(&[]), None);
        assert_eq!(each(&["Healthy", "Unknown"]), Some(ResourceHealth::Unknown));
        assert_eq!(
            each(&["Unhealthy", "Healthy", "Unknown"]),
            Some(ResourceHealth::Unhealthy)
        );
    }

    #[test]
    fn a_work_says_what_its_member_says() {
        let seen = |status: Value| Delivery::of(&work(status));
        let fresh = seen(json!({}));
        assert_eq!(
            (fresh.applied, fresh.message.as_str()),
            (None, "no answer yet")
        );
        assert_eq!(fresh.cluster, "m1");
        assert_eq!(fresh.binding.as_deref(), Some("shop/web-deployment"));
        assert_eq!(fresh.objects, ["Namespace", "Deployment"]);
        let failed = seen(json!({"conditions": condition("False", "quota exceeded")}));
        assert_eq!(
            (failed.applied, failed.message.as_str()),
            (Some(false), "quota exceeded")
        );
        let done = seen(json!({"conditions": condition("True", "done")}));
        assert_eq!((done.applied, done.message.as_str()), (Some(true), ""));
        let mut held = work(json!({}));
        held.spec.suspend_dispatching = Some(true);
        assert!(Delivery::of(&held).message.starts_with("held back"));
    }
}
