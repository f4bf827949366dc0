//! What a member says of itself, and what is said of it.

use crate::api::{lenient, schema};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the agent reports, and what the hub concludes from silence.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Version of the member's API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub kubernetes_version: Option<String>,
    /// APIs the member serves, sorted.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::list"
    )]
    #[schemars(length(max = 2000))]
    pub api_enablements: Vec<ApiEnablement>,
    /// State of the cluster, by type: Ready, CompleteAPIEnablements.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::conditions"
    )]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Counts of nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_summary: Option<NodeSummary>,
    /// Sums of resources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_summary: Option<ResourceSummary>,
    /// Actions a remedy asks for, such as keeping traffic away.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::list"
    )]
    #[schemars(length(max = 32), inner(length(max = 128)))]
    pub remedy_actions: Vec<String>,
    /// The agent itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentInfo>,
}

/// What an agent says about itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentInfo {
    /// Version of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub version: Option<String>,
    /// When the certificate it uses on the hub expires.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::time"
    )]
    #[schemars(schema_with = "schema::time")]
    pub certificate_expiration_time: Option<Time>,
    /// Who issued that certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub certificate_issuer: Option<String>,
    /// The certificate authorities by which it verifies the hub, as sha256: and the digest of the public key.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::list"
    )]
    #[schemars(length(max = 16), inner(length(max = 128)))]
    pub trusted_authorities: Vec<String>,
    /// The last error it met; empty when all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub last_error: Option<String>,
    /// What Works left behind in the member; none before the agent knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphans: Option<OrphanReport>,
    /// Reserved namespaces of the member that its owner opened to Works.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::list"
    )]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    pub allowed_namespaces: Vec<String>,
    /// What of the member its owner opened to users of the hub: read-only or impersonate; nothing without.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub proxy: Option<String>,
}

/// How many allowed namespaces are named.
pub const ALLOWED_NAMESPACES_SHOWN: usize = 64;

/// How many orphans are named; the rest is counted.
pub const ORPHANS_SHOWN: usize = 200;

/// Objects in a member that name a Work which the hub does not have, or which does not name them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrphanReport {
    /// How many there are.
    #[serde(default)]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub count: i64,
    /// Some of them, by Work and name.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::list"
    )]
    #[schemars(length(max = 200))]
    pub objects: Vec<OrphanedObject>,
}

/// One of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrphanedObject {
    /// Name of the Work that it names.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub work: String,
    /// API group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub group: String,
    /// API version.
    #[serde(default)]
    #[schemars(length(max = 63))]
    pub version: String,
    /// Kind.
    #[serde(default)]
    #[schemars(length(max = 63))]
    pub kind: String,
    /// Namespace; empty for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// Name.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub name: String,
    /// UID in the member.
    #[serde(default)]
    #[schemars(length(max = 128))]
    pub uid: String,
}

/// APIs of one group and version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiEnablement {
    /// Group and version, as in apiVersion.
    #[schemars(length(max = 317))]
    pub group_version: String,
    /// Its resources, sorted by name.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::list"
    )]
    #[schemars(length(max = 1000))]
    pub resources: Vec<ApiResource>,
}

/// One resource of an API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiResource {
    /// Plural name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Kind.
    #[schemars(length(max = 63))]
    pub kind: String,
}

/// Counts of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSummary {
    /// All nodes.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub total_num: i64,
    /// Nodes that are ready.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub ready_num: i64,
}

/// Sums of resources over nodes and pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSummary {
    /// What the nodes offer.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "lenient::quantities"
    )]
    #[schemars(schema_with = "schema::quantities")]
    pub allocatable: BTreeMap<String, Quantity>,
    /// What pods without a node ask for.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "lenient::quantities"
    )]
    #[schemars(schema_with = "schema::quantities")]
    pub allocating: BTreeMap<String, Quantity>,
    /// What running pods ask for.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "lenient::quantities"
    )]
    #[schemars(schema_with = "schema::quantities")]
    pub allocated: BTreeMap<String, Quantity>,
    /// How many nodes have room of each grade.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::list"
    )]
    #[schemars(length(max = 64))]
    pub allocatable_modelings: Vec<AllocatableModeling>,
}

/// How many nodes have room of one grade.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AllocatableModeling {
    /// Number of the grade.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub grade: i64,
    /// Number of nodes.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub count: i64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature serde wants"
)]
fn is_zero(number: &i64) -> bool {
    *number == 0
}
