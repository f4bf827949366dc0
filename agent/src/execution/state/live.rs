//! One live object as it is kept.

use crate::execution::interpret::Shown;
use crate::execution::wire::LiveMeta;
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
    /// Which script about it fails, and why.
    pub problem: Option<Box<str>>,
    /// Hash of the scripts that said so, 0 without.
    pub shown_by: u64,
}

/// Longest name that an object can have.
const NAME_MAX: usize = 253;
/// Most bytes of fields and status that are kept of an object which no Work names.
const UNWANTED_MAX: usize = 512;
/// Most bytes of the field set that are kept of an object which a Work names.
const FIELDS_MAX: usize = 128 * 1024;
/// Most bytes of finalizers that are kept of one object.
const FINALIZERS_MAX: usize = 4 * 1024;

/// A number for a field set.
fn fields_hash(fields: &Value) -> u64 {
    crate::execution::fields::hash(fields)
}

impl LiveRecord {
    /// A live object as it was read, and what the hub is told of it. `namespace` is ours on the hub; `verified` says
    /// that its fields are known to be as wanted, because we have just applied it.
    pub fn new(shown: Shown, meta: LiveMeta, namespace: &str, verified: bool) -> Self {
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
                .filter(|(ns, name)| ns == namespace && name.len() <= NAME_MAX)
                .map(|(_, name)| name.into_boxed_str()),
            hash: meta.hash,
            fields,
            deleting: meta.deleting.then(|| meta.finalizers.into_boxed_slice()),
            hold_until: meta.hold_until,
            keep: meta.keep,
            health: shown.health,
            status: shown.status,
            problem: shown.problem,
            shown_by: shown.by,
        }
    }

    /// Drops what is too long to be kept: anybody in the member may make objects with our marks, and whatever
    /// is in them. What is dropped counts as not as wanted, so that a Work which names the object applies it.
    pub fn bound(&mut self, wanted: bool) {
        let fields = match &self.fields {
            Fields::Seen(text) => text.len(),
            Fields::Verified(_) => 0,
        };
        let told = [&self.status, &self.problem];
        let status: usize = told.into_iter().flatten().map(|text| text.len()).sum();
        if !wanted && fields + status > UNWANTED_MAX {
            self.fields = Fields::Seen(Box::default());
            self.status = None;
            self.problem = None;
        } else if fields > FIELDS_MAX {
            self.fields = Fields::Seen(Box::default());
        }
        if let Some(finalizers) = &mut self.deleting
            && finalizers.iter().map(String::len).sum::<usize>() > FINALIZERS_MAX
        {
            *finalizers = Box::from([format!("{} in all", finalizers.len())]);
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
        let told = |live: &Self| (live.health, live.status.clone(), live.problem.clone());
        before.is_none_or(|before| told(self) != told(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::gvk::Gvk;
    use serde_json::json;

    fn record(fields: &Value, verified: bool) -> LiveRecord {
        let object = json!({"metadata": {"uid": "u", "labels": {"karmada.io/managed": "true"},
            "managedFields": [{"manager": "towline", "operation": "Apply", "fieldsV1": fields}]}});
        let gvk = Gvk::new("v1", "ConfigMap").expect("sound");
        let shown = Shown::built_in(&gvk, &object);
        LiveRecord::new(shown, LiveMeta::read(&object), "es", verified)
    }

    #[test]
    fn what_others_put_into_an_object_is_not_kept_at_any_length() {
        let long: serde_json::Map<String, Value> = (0..20_000)
            .map(|i| (format!("f:key-{i:05}"), json!({})))
            .collect();
        let kept = |wanted| {
            let mut seen = record(&json!({"f:data": long}), false);
            seen.bound(wanted);
            seen.fields
        };
        assert_eq!(kept(false), Fields::Seen("".into()));
        assert_eq!(kept(true), Fields::Seen("".into()));
        let mut short = record(&json!({"f:data": {"f:k": {}}}), false);
        let before = short.clone();
        short.bound(false);
        assert_eq!(short, before);
        let mut going = record(&Value::Null, false);
        going.deleting = Some((0..1000).map(|i| format!("example.com/{i}")).collect());
        going.bound(true);
        assert_eq!(
            going.deleting.as_deref(),
            Some(&["1000 in all".to_owned()][..])
        );
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
