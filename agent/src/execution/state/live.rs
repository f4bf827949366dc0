//! One live object as it is kept.

use crate::execution::manifest::Gvk;
use crate::execution::wire::LiveMeta;
use crate::work_status::{has_no_status, health, reflect};
use chrono::{DateTime, Utc};
use common::api::work::ResourceHealth;
use serde_json::Value;

/// What is known of the fields that are ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fields {
    /// Seen, and not yet held against the manifest.
    Seen(Box<str>),
    /// They were all ours when the field set had this hash.
    Verified(u64),
}

/// A live object that is labelled ours.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveRecord {
    /// UID.
    pub uid: Box<str>,
    /// Version.
    pub version: u64,
    /// Name of the Work it names, if that lies in our namespace.
    pub work: Option<Box<str>>,
    /// Hash of the manifest that was applied last.
    pub hash: Option<u64>,
    /// The fields that are ours.
    pub fields: Fields,
    /// Finalizers, while it is being deleted.
    pub deleting: Option<Box<[String]>>,
    /// Until when it is held.
    pub hold_until: Option<DateTime<Utc>>,
    /// Whether its manifest wants it to outlive the Work.
    pub keep: bool,
    /// Health by its kind's rule.
    pub health: ResourceHealth,
    /// Reflected status, as JSON.
    pub status: Option<Box<str>>,
}

/// A number for a field set.
fn fields_hash(fields: &Value) -> u64 {
    crate::execution::fields::hash(fields)
}

impl LiveRecord {
    /// A live object as it was read. `namespace` is ours on the hub; `verified` says that its fields are
    /// known to be as wanted, because we have just applied it.
    pub fn new(gvk: &Gvk, object: &Value, meta: LiveMeta, namespace: &str, verified: bool) -> Self {
        let (health, status) = if has_no_status(gvk) {
            (ResourceHealth::Healthy, None)
        } else {
            let status = reflect::reflect(gvk, object).map(|s| s.to_string().into_boxed_str());
            (health::health(gvk, object), status)
        };
        let fields = if verified {
            Fields::Verified(fields_hash(&meta.fields))
        } else {
            Fields::Seen(meta.fields.to_string().into_boxed_str())
        };
        Self {
            uid: meta.uid.into_boxed_str(),
            version: meta.version,
            work: meta
                .work
                .filter(|(ns, _)| ns == namespace)
                .map(|(_, name)| name.into_boxed_str()),
            hash: meta.hash,
            fields,
            deleting: meta.deleting.then(|| meta.finalizers.into_boxed_slice()),
            hold_until: meta.hold_until,
            keep: meta.keep,
            health,
            status,
        }
    }

    /// Carries over what was verified before, when nothing of ours has changed since.
    pub fn inherit(&mut self, before: &Self) {
        if self.uid != before.uid || self.hash != before.hash {
            return;
        }
        if let (Fields::Seen(text), Fields::Verified(hash)) = (&self.fields, &before.fields)
            && crate::execution::manifest::hash_bytes(text.as_bytes()) == *hash
        {
            self.fields = Fields::Verified(*hash);
        }
    }

    /// Whether the Work must be looked at, `before` being what was known.
    pub fn needs_work(&self, before: Option<&Self>) -> bool {
        let Some(before) = before else {
            return true;
        };
        matches!(self.fields, Fields::Seen(_))
            || self.uid != before.uid
            || self.work != before.work
            || self.hold_until != before.hold_until
            || self.deleting != before.deleting
    }

    /// Whether what the hub is told has changed.
    pub fn reports_differently(&self, before: Option<&Self>) -> bool {
        before.is_none_or(|b| self.health != b.health || self.status != b.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn record(fields: &Value, verified: bool) -> LiveRecord {
        let object = json!({"metadata": {"uid": "u", "labels": {"karmada.io/managed": "true"},
            "managedFields": [{"manager": "towline", "operation": "Apply", "fieldsV1": fields}]}});
        let gvk = Gvk::new("v1", "ConfigMap").expect("sound");
        LiveRecord::new(&gvk, &object, LiveMeta::read(&object), "es", verified)
    }

    #[test]
    fn what_was_verified_stays_so_until_a_field_is_lost() {
        let applied = record(&json!({"f:data": {"f:k": {}}}), true);
        let mut echo = record(&json!({"f:data": {"f:k": {}}}), false);
        echo.inherit(&applied);
        assert!(!echo.needs_work(Some(&applied)));
        let mut drifted = record(&json!({"f:data": {".": {}}}), false);
        drifted.inherit(&applied);
        assert!(drifted.needs_work(Some(&applied)));
        assert!(drifted.needs_work(None));
    }
}
