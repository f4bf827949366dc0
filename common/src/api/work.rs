//! Work: objects the hub wants in one member, and what the agent says became of them.

use super::{lenient, schema};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Condition: every manifest was applied.
pub const APPLIED: &str = "Applied";
/// Condition: the Work is handed to the member (not suspended).
pub const DISPATCHING: &str = "Dispatching";
/// Condition: the manifests are being rolled out.
pub const PROGRESSING: &str = "Progressing";
/// Condition: the manifests exist in the member.
pub const AVAILABLE: &str = "Available";
/// Condition: the manifests are not in the state they should be.
pub const DEGRADED: &str = "Degraded";
/// Condition of our own, there only while it is False: what keeps workloads of the Work from being healthy.
pub const WORKLOAD_HEALTHY: &str = "WorkloadHealthy";
/// Condition of our own, there only while it is False: a customization's script about an object of the Work fails.
pub const INTERPRETED: &str = "Interpreted";

/// Objects for one member and how to treat them.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "work.karmada.io",
    version = "v1alpha1",
    kind = "Work",
    doc = "Objects that belong in one member cluster, named by the namespace, and their state there.",
    namespaced,
    status = "WorkStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "wk",
    category = "karmada-io",
    printcolumn(
        name = "Workload-Kind",
        type_ = "string",
        json_path = ".spec.workload.manifests[*].kind"
    ),
    printcolumn(
        name = "Applied",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Applied\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct WorkSpec {
    /// The objects.
    #[serde(default)]
    pub workload: WorkloadTemplate,
    /// Pauses creation and update in the member; a deletion is still carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend_dispatching: Option<bool>,
    /// When the Work is deleted, the objects stay in the member and lose our marks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
}

/// A list of objects.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadTemplate {
    /// Whole Kubernetes objects, each with apiVersion, kind and metadata.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::list"
    )]
    #[schemars(schema_with = "schema::raw_objects")]
    pub manifests: Vec<Value>,
}

/// What the agent says became of a Work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkStatus {
    /// State of the Work as a whole, by type: Applied, Dispatching.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::conditions"
    )]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// State of each manifest.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::list"
    )]
    #[schemars(length(max = 1000))]
    pub manifest_statuses: Vec<ManifestStatus>,
}

/// State of one manifest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestStatus {
    /// Which manifest.
    pub identifier: ResourceIdentifier,
    /// The status its kind's rule reflects from the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::raw_object")]
    pub status: Option<Value>,
    /// Its health by its kind's rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<ResourceHealth>,
}

/// Points at one manifest of a Work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceIdentifier {
    /// Position in the Work's manifests, from 0.
    pub ordinal: i64,
    /// API group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub group: String,
    /// API version.
    #[schemars(length(max = 63))]
    pub version: String,
    /// Kind.
    #[schemars(length(max = 63))]
    pub kind: String,
    /// Plural name of the resource; may be empty.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub resource: String,
    /// Namespace; empty for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Name.
    #[schemars(length(max = 253))]
    pub name: String,
}

/// Health of an object in a member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ResourceHealth {
    /// It does what it should.
    Healthy,
    /// It does not.
    Unhealthy,
    /// Nobody can say, or the value was not understood.
    #[default]
    #[serde(other)]
    Unknown,
}
