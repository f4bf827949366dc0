//! The narrow shapes in which Works and live objects are read.
//!
//! Pure. Whatever is not needed is skipped while decoding; manifests stay text.

use super::desired::parse_hash;
use super::fields::applied_by;
use super::state::Order;
use chrono::{DateTime, Utc};
use common::labels::{
    ADOPTED, DELETION, FIELD_MANAGER, HOLD_UNTIL, KEPT_FROM, MANAGED, MANAGED_VALUE, MANIFEST_HASH,
    WORK_NAME, WORK_NAMESPACE,
};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// A Work as the hub sends it.
#[derive(Debug, Deserialize)]
pub struct WireWork {
    /// Its metadata.
    pub metadata: WorkMeta,
    #[serde(default)]
    spec: Option<WireSpec>,
    #[serde(default)]
    status: Option<WireStatus>,
}

/// The metadata of a Work.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkMeta {
    /// Name.
    pub name: String,
    /// UID.
    #[serde(default)]
    pub uid: String,
    /// Version.
    #[serde(default)]
    pub resource_version: String,
    /// Generation.
    #[serde(default)]
    pub generation: i64,
    /// Set when it is being deleted.
    #[serde(default)]
    pub deletion_timestamp: Option<String>,
    /// Finalizers.
    #[serde(default)]
    pub finalizers: Vec<String>,
    #[serde(default)]
    annotations: Option<Orders>,
}

/// The annotations that are for us; a value of another type than text is none.
#[derive(Debug, Default, Deserialize)]
struct Orders {
    #[serde(default, rename = "towline.dev/tell-orphans")]
    tell: Option<Value>,
    #[serde(default, rename = "towline.dev/delete-orphans")]
    delete: Option<Value>,
    #[serde(default, rename = "towline.dev/interpretation")]
    scripts: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    #[serde(default)]
    workload: Option<WireWorkload>,
    #[serde(default)]
    suspend_dispatching: Option<bool>,
    #[serde(default)]
    preserve_resources_on_deletion: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct WireWorkload {
    #[serde(default)]
    manifests: Option<Box<RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus {
    #[serde(default)]
    conditions: Option<Value>,
    #[serde(default)]
    manifest_statuses: Option<Value>,
}

impl WireWork {
    /// The JSON array of manifests.
    pub fn manifests(&self) -> &str {
        self.spec
            .as_ref()
            .and_then(|spec| spec.workload.as_ref()?.manifests.as_deref())
            .map_or("[]", RawValue::get)
    }

    /// Whether delivery is suspended.
    pub fn suspended(&self) -> bool {
        self.spec
            .as_ref()
            .and_then(|s| s.suspend_dispatching)
            .unwrap_or(false)
    }

    /// Whether the objects outlive the Work.
    pub fn preserve(&self) -> bool {
        self.spec
            .as_ref()
            .and_then(|s| s.preserve_resources_on_deletion)
            .unwrap_or(false)
    }

    /// What the operator orders about orphans.
    pub fn order(&self) -> Order {
        let Some(orders) = &self.metadata.annotations else {
            return Order::default();
        };
        let delete = orders.delete.as_ref().and_then(Value::as_str);
        Order {
            tell: orders.tell.as_ref().is_some_and(|v| v == "true"),
            delete: delete
                .into_iter()
                .flat_map(|uids| uids.split(','))
                .map(str::trim)
                .filter(|uid| !uid.is_empty())
                .map(Box::from)
                .collect(),
        }
    }

    /// The scripts that its objects are to be asked by.
    pub fn scripts(&self) -> Option<&String> {
        match self.metadata.annotations.as_ref()?.scripts.as_ref()? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The conditions, as JSON.
    pub fn conditions(&self) -> &[Value] {
        self.status
            .as_ref()
            .and_then(|s| s.conditions.as_ref()?.as_array())
            .map_or(&[], Vec::as_slice)
    }

    /// The reported manifests, as JSON.
    pub fn manifest_statuses(&self) -> Value {
        self.status
            .as_ref()
            .and_then(|s| s.manifest_statuses.clone())
            .unwrap_or_else(|| Value::Array(Vec::new()))
    }
}

/// What a live object's metadata says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveMeta {
    /// UID.
    pub uid: String,
    /// Version; 0 when it is no number.
    pub version: u64,
    /// Whether it has our label.
    pub managed: bool,
    /// Namespace and name of the Work it names.
    pub work: Option<(String, String)>,
    /// Hash of the manifest that was applied last.
    pub hash: Option<u64>,
    /// Our field set.
    pub fields: Value,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Until when it is held.
    pub hold_until: Option<DateTime<Utc>>,
    /// Whether it was there before a Work took it over.
    pub adopted: bool,
    /// Whether its manifest wants it to outlive the Work.
    pub keep: bool,
    /// The Work that it outlived, as `NAMESPACE/NAME`.
    pub kept_from: Option<String>,
}

impl LiveMeta {
    /// Reads a live object, whole or metadata alone.
    pub fn read(object: &Value) -> Self {
        let meta = object.get("metadata").unwrap_or(&Value::Null);
        let text = |key: &str| meta.get(key).and_then(Value::as_str).unwrap_or_default();
        let entry = |map: &str, key: &str| {
            meta.get(map)
                .and_then(|m| m.get(key))
                .and_then(Value::as_str)
        };
        let work = entry("annotations", WORK_NAMESPACE)
            .zip(entry("annotations", WORK_NAME))
            .map(|(ns, name)| (ns.to_owned(), name.to_owned()));
        let managed_fields = meta
            .get("managedFields")
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        let finalizers = meta
            .get("finalizers")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        Self {
            uid: text("uid").to_owned(),
            version: text("resourceVersion").parse().unwrap_or(0),
            managed: entry("labels", MANAGED) == Some(MANAGED_VALUE),
            work,
            hash: entry("annotations", MANIFEST_HASH).and_then(parse_hash),
            fields: applied_by(managed_fields, FIELD_MANAGER)
                .cloned()
                .unwrap_or(Value::Null),
            deleting: meta.get("deletionTimestamp").is_some_and(Value::is_string),
            finalizers: finalizers
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            hold_until: entry("annotations", HOLD_UNTIL)
                .and_then(|at| DateTime::parse_from_rfc3339(at).ok())
                .map(|at| at.with_timezone(&Utc)),
            adopted: entry("annotations", ADOPTED) == Some("true"),
            keep: entry("annotations", DELETION) == Some("keep"),
            kept_from: entry("annotations", KEPT_FROM).map(str::to_owned),
        }
    }

    /// Whether it outlived this Work, or one of the same name.
    pub fn was_kept_from(&self, namespace: &str, work: &str) -> bool {
        let kept_from = self.kept_from.as_deref().and_then(|it| it.split_once('/'));
        kept_from == Some((namespace, work))
    }

    /// Whether it is labelled ours and names this Work.
    pub fn belongs_to(&self, namespace: &str, work: &str) -> bool {
        self.managed
            && self
                .work
                .as_ref()
                .is_some_and(|(ns, name)| ns == namespace && name == work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::labels::{DELETE_ORPHANS, INTERPRETATION, TELL_ORPHANS};
    use serde_json::json;

    #[test]
    fn a_work_is_read_however_little_it_says() {
        let bare: WireWork = serde_json::from_str(r#"{"metadata":{"name":"w"}}"#).expect("decodes");
        assert_eq!(bare.manifests(), "[]");
        assert!(!bare.suspended() && !bare.preserve() && bare.conditions().is_empty());
        let full: WireWork = serde_json::from_str(
            r#"{"metadata":{"name":"w","uid":"u","generation":2,"extra":[1]},
               "spec":{"workload":{"manifests":[{"a":1}, 7]},"suspendDispatching":true},
               "status":{"conditions":[{"type":"Applied"}],"manifestStatuses":null}}"#,
        )
        .expect("decodes");
        assert_eq!(full.manifests(), r#"[{"a":1}, 7]"#);
        assert!(full.suspended());
        assert_eq!(full.conditions().len(), 1);
        assert_eq!(full.manifest_statuses(), json!([]));
        assert_eq!(full.order(), Order::default());
        let ordered: WireWork = serde_json::from_value(json!({"metadata": {"name": "w",
            "annotations": {TELL_ORPHANS: "true", DELETE_ORPHANS: "a, b,", INTERPRETATION: "{}", "other": "x"}}}))
        .expect("decodes");
        assert_eq!(ordered.scripts().map(String::as_str), Some("{}"));
        let order = ordered.order();
        assert!(order.tell);
        assert_eq!(*order.delete, ["a".into(), "b".into()]);
    }

    #[test]
    fn a_live_object_tells_whose_it_is() {
        let live = LiveMeta::read(&json!({"metadata": {"uid": "u", "resourceVersion": "12",
            "labels": {MANAGED: "true"},
            "annotations": {WORK_NAMESPACE: "es", WORK_NAME: "w", MANIFEST_HASH: "00000000000000ff",
                HOLD_UNTIL: "2030-01-01T00:00:00Z"},
            "finalizers": ["x"], "deletionTimestamp": "2030-01-01T00:00:00Z"}}));
        assert!(live.belongs_to("es", "w") && !live.belongs_to("es", "x"));
        assert_eq!((live.version, live.hash), (12, Some(255)));
        assert!(live.deleting && live.hold_until.is_some());
        assert_eq!(live.finalizers, ["x"]);
        let odd = LiveMeta::read(&json!({"metadata": {"labels": 3}}));
        assert!(!odd.managed && odd.work.is_none());
    }
}
