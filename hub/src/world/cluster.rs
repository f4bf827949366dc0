//! What is kept of a Cluster.

use super::records::{Condition, Metadata, Status, conditions};
use super::view::Record;
use super::writers::Version;
use crate::permissions::{Grant, Registration};
use crate::scheduler::{self, Interner, from_api};
use chrono::{DateTime, Utc};
use common::api::cluster::Cluster as Api;
use common::api::cluster::{EXECUTION_SPACE_TERMINATING, QUARANTINED, READY, Taint, UNREGISTERING};
use common::labels::{CERTIFICATE_END, FAILOVER_TAINT, QUARANTINED_SINCE, UNREGISTER};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// A Cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// What its own controller decides by.
    pub lifecycle: Lifecycle,
    /// `spec.id`, unless empty.
    pub id: Option<Box<str>>,
    /// Whether an agent is expected to report: one in the member, or one beside the hub that has registered.
    pub pull: bool,
    /// Its condition Ready.
    pub ready: Option<Condition>,
    /// The status of each condition, by type.
    pub conditions: BTreeMap<Box<str>, Box<str>>,
    /// Its taints, as they are written.
    pub taints: Vec<Taint>,
    /// The key of the taint that failover put on.
    pub failover_taint: Option<Box<str>>,
    /// The deprecated field, unless empty.
    pub zone: Option<Box<str>>,
    /// Its zones.
    pub zones: Vec<Box<str>>,
    /// Who holds its rights; none for one that was never registered.
    pub grant: Option<Grant>,
    /// Whether the annotation is there that withholds them.
    pub withheld: bool,
    /// When the last certificate ends that was issued to its agent.
    pub certificate_end: Option<DateTime<Utc>>,
    /// Who has written it, and what only its agent writes.
    pub writers: Version,
    /// What placement looks at; none for an object that is no Cluster of the API.
    pub placing: Option<Arc<scheduler::Cluster>>,
}

/// Equal parts of clusters are kept once in a process: a thousand of them have a handful of different ones.
static PARTS: LazyLock<Mutex<Interner>> = LazyLock::new(Mutex::default);

/// What placement looks at. A status that cannot be read counts as none.
fn placing(object: &str) -> Option<Arc<scheduler::Cluster>> {
    let read = serde_json::from_str::<Api>(object).or_else(|_| {
        let mut object: Value = serde_json::from_str(object)?;
        object.as_object_mut().map(|fields| fields.remove("status"));
        serde_json::from_value(object)
    });
    let mut parts = PARTS.lock().unwrap_or_else(PoisonError::into_inner);
    let cluster = read.map(|object| from_api::cluster(&object, &mut parts));
    cluster.ok().map(Arc::new)
}

/// What the lifecycle of a Cluster depends on; not the rest of its status, which its agent writes all the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifecycle {
    /// UID.
    pub uid: Box<str>,
    /// Counts changes of its spec.
    pub generation: i64,
    /// When it was deleted.
    pub deleted: Option<Box<str>>,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// How `towline unregister` asked for it.
    pub unregister: Option<Box<str>>,
    /// The status of Ready.
    pub ready: Option<Status>,
    /// Whether its agent knows that it is being deleted.
    pub unregistering: Option<Status>,
    /// Whether its conditions say that its rights are withheld.
    pub quarantined: Option<Status>,
    /// Whether its conditions say that its execution namespace is being deleted.
    pub space_terminating: Option<Status>,
}

#[derive(Deserialize)]
struct Object<'a> {
    metadata: Metadata,
    #[serde(default)]
    spec: Option<Spec>,
    #[serde(borrow, default)]
    status: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    id: Option<Box<str>>,
    #[serde(default)]
    sync_mode: Option<String>,
    #[serde(default)]
    taints: Value,
    #[serde(default)]
    zone: Option<Box<str>>,
    #[serde(default)]
    zones: Option<Vec<Box<str>>>,
}

impl Record for Cluster {
    const KIND: &'static str = "Cluster";

    type Kept = Arc<Self>;

    fn read(object: &str) -> serde_json::Result<Option<Self>> {
        let Object {
            metadata,
            spec,
            status,
        } = serde_json::from_str(object)?;
        let conditions = conditions(status);
        let ready = Condition::find(&conditions, READY);
        let status_of =
            |type_| Condition::find(&conditions, type_).map(|condition| condition.status);
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key);
        let writers = metadata.writers(status);
        let end = annotation(CERTIFICATE_END)
            .and_then(|noted| DateTime::parse_from_rfc3339(noted).ok())
            .map(|end| end.with_timezone(&Utc));
        let (withheld, unregister, failover_taint) = (
            annotation(QUARANTINED_SINCE).is_some(),
            annotation(UNREGISTER).map(|mode| mode.as_str().into()),
            annotation(FAILOVER_TAINT).map(|key| key.as_str().into()),
        );
        let registration = Registration::of_cluster(&ObjectMeta {
            name: Some(metadata.name),
            uid: Some(metadata.uid.clone()),
            annotations: metadata.annotations,
            ..ObjectMeta::default()
        });
        let statuses = conditions.iter().filter_map(|condition| {
            let text = |key: &str| condition[key].as_str().map(Into::into);
            Some((text("type")?, text("status")?))
        });
        let Spec {
            id,
            sync_mode,
            taints,
            zone,
            zones,
        } = spec.unwrap_or_default();
        Ok(Some(Self {
            id: id.filter(|id| !id.is_empty()),
            conditions: statuses.collect(),
            taints: serde_json::from_value(taints).unwrap_or_default(),
            failover_taint,
            zone: zone.filter(|zone| !zone.is_empty()),
            zones: zones.unwrap_or_default(),
            lifecycle: Lifecycle {
                uid: metadata.uid.into(),
                generation: metadata.generation,
                deleted: metadata.deletion_timestamp.map(Into::into),
                finalizers: metadata.finalizers.unwrap_or_default(),
                unregister,
                ready: ready.as_ref().map(|ready| ready.status),
                unregistering: status_of(UNREGISTERING),
                quarantined: status_of(QUARANTINED),
                space_terminating: status_of(EXECUTION_SPACE_TERMINATING),
            },
            // The agent of a cluster that was joined runs beside the hub, and is one all the same.
            pull: sync_mode.as_deref() != Some("Push") || registration.is_some(),
            ready,
            grant: registration.map(|registration| registration.grant),
            withheld,
            placing: placing(object),
            certificate_end: end,
            writers,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(object: &Value) -> Cluster {
        let read = Cluster::read(&object.to_string());
        read.expect("an object").expect("held")
    }

    #[test]
    fn a_cluster_is_read_whatever_its_status_holds() {
        let cluster = read(&json!({
            "metadata": {"name": "m1", "uid": "u",
                "annotations": {CERTIFICATE_END: "2026-01-01T00:00:00Z"}},
            "spec": {"syncMode": "Pull"},
            "status": {"conditions": [7, {"type": "Ready", "lastTransitionTime": "+99:99"}], "nodeSummary": "odd"},
        }));
        let ready = cluster.ready.expect("there");
        assert!(!ready.says_unknown);
        assert_eq!(ready.status, Status::Unknown);
        let end = cluster.certificate_end.expect("noted");
        assert_eq!(end.timestamp(), 1_767_225_600);
        assert!(
            read(&json!({"metadata": {"name": "m1"}, "status": 7}))
                .ready
                .is_none()
        );
    }

    #[test]
    fn what_only_its_agent_writes_is_no_matter_of_its_lifecycle() {
        let cluster = |ready: &str, nodes: u32| {
            read(&json!({
                "metadata": {"name": "m1", "uid": "u", "generation": 1},
                "status": {
                    "conditions": [{"type": "Ready", "status": ready}],
                    "nodeSummary": {"totalNum": nodes},
                },
            }))
        };
        assert_eq!(cluster("True", 1).lifecycle, cluster("True", 2).lifecycle);
        assert_ne!(
            cluster("True", 1).lifecycle,
            cluster("Unknown", 1).lifecycle
        );
    }
}
