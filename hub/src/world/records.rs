//! What is kept of each kind but the Cluster.
//!
//! Nothing an agent wrote is decoded but the conditions that are asked for, and those of any form.

use super::held::ObjectName;
use super::view::Record;
use super::writers::{Entry, Version};
use common::api::work::{APPLIED, WorkStatus};
use common::labels::{
    APPLIED_CLUSTER_OVERRIDES, APPLIED_OVERRIDES, BINDING_NAME, BINDING_NAMESPACE,
    BINDING_PERMANENT_ID, CLUSTER_BINDING_NAME, CLUSTER_BINDING_PERMANENT_ID, CLUSTER_LABEL,
    CONFLICT_RESOLUTION, INTERPRETATION, WORK_FINALIZER, WORK_PERMANENT_ID,
};
use common::names::EXECUTION_PREFIX;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

/// The status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// `True`.
    True,
    /// `False`.
    False,
    /// Anything else, and a condition that is not there.
    Unknown,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::True, Self::False, Self::Unknown];

    /// Reads it.
    pub fn of(text: Option<&str>) -> Self {
        match text {
            Some("True") => Self::True,
            Some("False") => Self::False,
            _ => Self::Unknown,
        }
    }

    /// As the API has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A condition, whatever form it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its status.
    pub status: Status,
    /// Whether its status is the text `Unknown`.
    pub says_unknown: bool,
    /// Its reason.
    pub reason: Box<str>,
    /// Differs when any field differs.
    pub fingerprint: u64,
}

impl Condition {
    /// Finds a condition among those that are stored.
    pub fn find(conditions: &[Value], type_: &str) -> Option<Self> {
        let found = conditions.iter().find(|one| one["type"] == type_)?;
        let status = found["status"].as_str();
        let mut fingerprint = DefaultHasher::new();
        found.to_string().hash(&mut fingerprint);
        Some(Self {
            status: Status::of(status),
            says_unknown: status == Some("Unknown"),
            reason: found["reason"].as_str().unwrap_or_default().into(),
            fingerprint: fingerprint.finish(),
        })
    }
}

/// The metadata that records are made of.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    #[serde(default)]
    pub(super) namespace: Option<String>,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) generation: i64,
    #[serde(default)]
    pub(super) deletion_timestamp: Option<String>,
    #[serde(default)]
    pub(super) labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) annotations: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) finalizers: Option<Vec<String>>,
    #[serde(default)]
    owner_references: Option<Vec<Owner>>,
    #[serde(default)]
    pub(super) managed_fields: Option<Vec<Entry>>,
}

#[derive(Debug, Deserialize)]
struct Owner {
    uid: Box<str>,
}

impl Metadata {
    /// Who has written the object, and what only its agent writes.
    pub(super) fn writers(&self, status: Option<&RawValue>) -> Version {
        let mut content = DefaultHasher::new();
        status.map(RawValue::get).hash(&mut content);
        let finalizers = self.finalizers.as_deref().unwrap_or_default();
        let ours = finalizers.iter().any(|one| one == WORK_FINALIZER);
        ours.hash(&mut content);
        let entries = self.managed_fields.as_deref().unwrap_or_default();
        Version::of(entries, content.finish())
    }
}

/// The conditions of a status, whatever is in it.
pub(super) fn conditions(status: Option<&RawValue>) -> Vec<Value> {
    #[derive(Deserialize)]
    struct View {
        #[serde(default)]
        conditions: Vec<Value>,
    }
    let read = status.and_then(|status| serde_json::from_str::<View>(status.get()).ok());
    read.map_or_else(Vec::new, |view| view.conditions)
}

#[derive(Deserialize)]
struct Bare {
    metadata: Metadata,
}

/// A Work.
#[derive(Debug)]
pub struct Work {
    /// Who has written it.
    pub writers: Version,
    /// Whether it is in force in its member.
    pub applied: Status,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// Whether its objects stay in the member when it goes.
    pub preserve: bool,
    /// The binding that it follows from, as its annotations name it.
    pub binding: Option<ObjectName>,
    /// The permanent id of that binding.
    pub binding_id: Option<Box<str>>,
    /// Its own permanent id.
    pub id: Option<Box<str>>,
    /// Differs when anything differs that the hub writes into it (see [`digest`]).
    pub content: u64,
    /// What its agent says, as JSON.
    status: Option<Box<str>>,
}

impl Work {
    /// What its agent says; what cannot be read is nothing.
    pub fn status(&self) -> WorkStatus {
        let read = self.status.as_deref().map(serde_json::from_str);
        read.and_then(Result::ok).unwrap_or_default()
    }
}

impl Record for Work {
    const KIND: &'static str = "Work";

    type Kept = Arc<Self>;

    fn read(object: &str) -> serde_json::Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Object<'a> {
            metadata: Metadata,
            #[serde(default)]
            spec: Value,
            #[serde(borrow, default)]
            status: Option<&'a RawValue>,
        }
        let Object {
            metadata,
            spec,
            status,
        } = serde_json::from_str(object)?;
        let applied = Condition::find(&conditions(status), APPLIED);
        let writers = metadata.writers(status);
        let (labels, annotations) = (
            metadata.labels.unwrap_or_default(),
            metadata.annotations.unwrap_or_default(),
        );
        let finalizers = metadata.finalizers.unwrap_or_default();
        let held = finalizers.iter().any(|one| one == WORK_FINALIZER);
        let name = |key: &str| annotations.get(key).map(String::as_str);
        let binding = match (name(BINDING_NAME), name(CLUSTER_BINDING_NAME)) {
            (Some(of), _) => Some(ObjectName::new(name(BINDING_NAMESPACE), of)),
            (None, Some(of)) => Some(ObjectName::new(None, of)),
            (None, None) => None,
        };
        let id = |key: &str| labels.get(key).map(|id| id.as_str().into());
        Ok(Some(Self {
            writers,
            applied: applied.map_or(Status::Unknown, |applied| applied.status),
            deleting: metadata.deletion_timestamp.is_some(),
            preserve: spec.get("preserveResourcesOnDeletion") == Some(&Value::Bool(true)),
            binding_id: id(BINDING_PERMANENT_ID).or_else(|| id(CLUSTER_BINDING_PERMANENT_ID)),
            id: id(WORK_PERMANENT_ID),
            content: digest(&labels, &annotations, held, &spec),
            // Nobody asks what became of a Work that no binding wants.
            status: status
                .filter(|_| binding.is_some())
                .map(|it| it.get().into()),
            binding,
        }))
    }
}

/// What the hub writes into the Works of a binding.
pub const WORK_LABELS: [&str; 3] = [
    BINDING_PERMANENT_ID,
    CLUSTER_BINDING_PERMANENT_ID,
    WORK_PERMANENT_ID,
];
/// The same of annotations.
pub const WORK_ANNOTATIONS: [&str; 7] = [
    BINDING_NAME,
    BINDING_NAMESPACE,
    CLUSTER_BINDING_NAME,
    CONFLICT_RESOLUTION,
    APPLIED_OVERRIDES,
    APPLIED_CLUSTER_OVERRIDES,
    INTERPRETATION,
];

/// A number for what the hub writes into a Work: its own labels and annotations, whether an agent finalizes it, and
/// all of its spec.
pub fn digest(
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    finalized: bool,
    spec: &Value,
) -> u64 {
    let mut hasher = DefaultHasher::new();
    WORK_LABELS.map(|key| labels.get(key)).hash(&mut hasher);
    let told = WORK_ANNOTATIONS.map(|key| annotations.get(key));
    told.hash(&mut hasher);
    finalized.hash(&mut hasher);
    // The keys of a Value are sorted.
    spec.to_string().hash(&mut hasher);
    hasher.finish()
}

/// An Event in an execution namespace.
#[derive(Debug)]
pub struct Event {
    /// Who has written it.
    pub writers: Version,
}

impl Record for Event {
    const KIND: &'static str = "Event";

    type Kept = Arc<Self>;

    fn read(object: &str) -> serde_json::Result<Option<Self>> {
        let Bare { metadata } = serde_json::from_str(object)?;
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let is_agents = namespace.starts_with(EXECUTION_PREFIX);
        Ok(is_agents.then(|| Self {
            writers: metadata.writers(None),
        }))
    }
}

/// The Lease of an agent.
#[derive(Debug)]
pub struct Lease {
    /// The text of its `renewTime`; nobody reads a time out of it.
    pub renewed: Option<Box<str>>,
}

impl Record for Lease {
    const KIND: &'static str = "Lease";

    type Kept = Arc<Self>;

    fn read(object: &str) -> serde_json::Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Object {
            spec: Option<Spec>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Spec {
            renew_time: Option<Box<str>>,
        }
        let Object { spec } = serde_json::from_str(object)?;
        let renewed = spec.and_then(|spec| spec.renew_time);
        Ok(Some(Self { renewed }))
    }
}

/// A namespace that carries the label of execution namespaces.
#[derive(Debug)]
pub struct Space {
    /// The UIDs of its owners.
    pub owners: Vec<Box<str>>,
    /// It is being deleted.
    pub terminating: bool,
}

impl Record for Space {
    const KIND: &'static str = "Namespace";

    type Kept = Arc<Self>;

    fn read(object: &str) -> serde_json::Result<Option<Self>> {
        let Bare { metadata } = serde_json::from_str(object)?;
        let owners = metadata.owner_references.unwrap_or_default();
        Ok(Some(Self {
            owners: owners.into_iter().map(|owner| owner.uid).collect(),
            terminating: metadata.deletion_timestamp.is_some(),
        }))
    }
}

/// An object of which nothing but its name matters.
#[derive(Debug)]
pub struct Marker;

impl Record for Marker {
    const KIND: &'static str = "object";

    type Kept = Arc<Self>;

    fn read(_: &str) -> serde_json::Result<Option<Self>> {
        Ok(Some(Self))
    }
}

/// An object that carries rights of an agent.
#[derive(Debug)]
pub struct Owned {
    /// The cluster that its label names.
    pub cluster: Option<Box<str>>,
}

impl Record for Owned {
    const KIND: &'static str = "object with rights";

    type Kept = Arc<Self>;

    fn read(object: &str) -> serde_json::Result<Option<Self>> {
        let Bare { metadata } = serde_json::from_str(object)?;
        let label = metadata
            .labels
            .as_ref()
            .and_then(|all| all.get(CLUSTER_LABEL));
        let cluster = label.map(|label| label.as_str().into());
        Ok(Some(Self { cluster }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_wrote_cannot_hide_an_object() {
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        for status in [
            deep.as_str(),
            "7",
            r#"{"conditions":7}"#,
            r#"{"conditions":[7]}"#,
        ] {
            let object = format!(r#"{{"metadata":{{"name":"w"}},"status":{status}}}"#);
            let work = Work::read(&object).expect("an object").expect("held");
            assert_eq!(work.applied, Status::Unknown);
        }
        let applied = r#"{"metadata":{"name":"w"},"status":{"conditions":
            [7, {"type":"Applied","status":"True","lastTransitionTime":"+99:99"}]}}"#;
        let work = Work::read(applied).expect("an object").expect("held");
        assert_eq!(work.applied, Status::True);
    }

    #[test]
    fn a_work_says_whether_its_objects_stay() {
        for (spec, preserve) in [
            (r#"{"preserveResourcesOnDeletion":true}"#, true),
            (r#"{"preserveResourcesOnDeletion":false}"#, false),
            ("{}", false),
        ] {
            let object = format!(r#"{{"metadata":{{"name":"w"}},"spec":{spec}}}"#);
            let work = Work::read(&object).expect("an object").expect("held");
            assert_eq!(work.preserve, preserve, "{spec}");
        }
    }

    #[test]
    fn events_elsewhere_are_not_held() {
        let event = |namespace: &str| {
            let object = format!(r#"{{"metadata":{{"name":"e","namespace":"{namespace}"}}}}"#);
            Event::read(&object).expect("an object").is_some()
        };
        assert!(event("karmada-es-m1"));
        assert!(!event("default"));
    }
}
