//! ResourceBinding and ClusterResourceBinding: one template, the members it was given, and its state.

use super::policy::{ConflictResolution, FailoverBehavior, Placement, PurgeMode, SuspendClusters};
use super::work::ResourceHealth;
use super::{lenient, schema, shared};
use k8s_openapi::api::core::v1::{NodeSelector, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Condition: the scheduler placed the template.
pub const SCHEDULED: &str = "Scheduled";
/// Condition: every chosen member applied it.
pub const FULLY_APPLIED: &str = "FullyApplied";

/// A template and where it goes.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "work.karmada.io",
    version = "v1alpha2",
    kind = "ResourceBinding",
    doc = "The members one namespaced template was given, and its state there.",
    namespaced,
    status = "ResourceBindingStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "rb",
    category = "karmada-io",
    printcolumn(
        name = "Scheduled",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Scheduled\")].status"
    ),
    printcolumn(
        name = "FullyApplied",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"FullyApplied\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBindingSpec {
    /// The template.
    pub resource: ObjectReference,
    /// Objects that the template refers to follow it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagate_deps: Option<bool>,
    /// What one replica needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_requirements: Option<ReplicaRequirements>,
    /// Replicas in the template.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub replicas: Option<i32>,
    /// Parts of a template with several kinds of pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub components: Vec<Component>,
    /// The members it was given: the scheduler's result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000))]
    pub clusters: Vec<TargetCluster>,
    /// The placement of the policy that holds the template.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "shared")]
    #[schemars(with = "Option<Placement>")]
    pub placement: Option<Arc<Placement>>,
    /// Members it is leaving.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub graceful_eviction_tasks: Vec<GracefulEvictionTask>,
    /// Bindings whose templates refer to this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub required_by: Vec<BindingSnapshot>,
    /// Scheduler that places it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub scheduler_name: Option<String>,
    /// What happens on failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover: Option<FailoverBehavior>,
    /// What happens to an object in the member that is not ours.
    #[serde(default)]
    pub conflict_resolution: ConflictResolution,
    /// When someone last asked for it to be placed afresh.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::time"
    )]
    #[schemars(schema_with = "schema::time")]
    pub reschedule_triggered_at: Option<Time>,
    /// Pauses parts of the way to the members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspension: Option<BindingSuspension>,
    /// Objects stay in the members when the template is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
    /// Which bindings the scheduler serves first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_priority: Option<BindingPriority>,
    /// Groups of workloads that belong together or apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_affinity_groups: Option<WorkloadAffinityGroups>,
}

/// The same fields, for a cluster-scoped template.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "work.karmada.io",
    version = "v1alpha2",
    kind = "ClusterResourceBinding",
    doc = "The members one cluster-scoped template was given, and its state there.",
    status = "ResourceBindingStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "crb",
    category = "karmada-io",
    printcolumn(
        name = "Scheduled",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Scheduled\")].status"
    ),
    printcolumn(
        name = "FullyApplied",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"FullyApplied\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(transparent)]
pub struct ClusterResourceBindingSpec(pub ResourceBindingSpec);

/// Points at a template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Group and version.
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// Kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Namespace; absent for a cluster-scoped template.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// UID.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub uid: Option<String>,
    /// Version of the template that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub resource_version: Option<String>,
}

/// What one replica needs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaRequirements {
    /// Nodes it can run on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_claim: Option<NodeClaim>,
    /// Resources it asks for.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "lenient::quantities"
    )]
    #[schemars(schema_with = "schema::quantities")]
    pub resource_request: BTreeMap<String, Quantity>,
    /// Namespace whose quota it counts against.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Its priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub priority_class_name: Option<String>,
}

/// What one replica of a component needs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentRequirements {
    /// Nodes it can run on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_claim: Option<NodeClaim>,
    /// Resources it asks for.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "lenient::quantities"
    )]
    #[schemars(schema_with = "schema::quantities")]
    pub resource_request: BTreeMap<String, Quantity>,
    /// Its priority class.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub priority_class_name: Option<String>,
}

/// Nodes a replica can run on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaim {
    /// Required node affinity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::node_selector")]
    pub hard_node_affinity: Option<NodeSelector>,
    /// Labels a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that are tolerated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::node_tolerations")]
    pub tolerations: Vec<Toleration>,
}

/// One part of a template with several kinds of pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// Its name.
    #[schemars(length(min = 1, max = 32))]
    pub name: String,
    /// Its replicas.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub replicas: i32,
    /// What one replica needs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_requirements: Option<ComponentRequirements>,
}

/// A member and its share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetCluster {
    /// The member.
    #[schemars(length(min = 1, max = 48))]
    pub name: String,
    /// Its replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub replicas: Option<i32>,
    /// Its replicas by component.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub components: Vec<TargetComponent>,
}

/// A component's share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetComponent {
    /// The component.
    #[schemars(length(min = 1, max = 32))]
    pub name: String,
    /// Its replicas.
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub replicas: i32,
}

/// A member that a template is leaving.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GracefulEvictionTask {
    /// The member.
    #[schemars(length(min = 1, max = 48))]
    pub from_cluster: String,
    /// How the copy there goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purge_mode: Option<PurgeMode>,
    /// Replicas that leave.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub replicas: Option<i32>,
    /// Why, in one CamelCase word.
    #[schemars(length(min = 1, max = 32))]
    pub reason: String,
    /// Why, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
    /// Which controller asked for it.
    #[schemars(length(max = 253))]
    pub producer: String,
    /// How long the copy may stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub grace_period_seconds: Option<i32>,
    /// Keeps the copy until a person decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suppress_deletion: Option<bool>,
    /// Labels for the new copy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub preserved_label_state: BTreeMap<String, String>,
    /// When the task was made.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::time"
    )]
    #[schemars(schema_with = "schema::time")]
    pub creation_timestamp: Option<Time>,
    /// Members the template had before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000), inner(length(max = 48)))]
    pub clusters_before_failover: Vec<String>,
}

/// A binding whose template refers to this one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BindingSnapshot {
    /// Its namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000))]
    pub clusters: Vec<TargetCluster>,
}

/// Pauses parts of the way to the members.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BindingSuspension {
    /// To every member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatching: Option<bool>,
    /// To some members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatching_on_clusters: Option<SuspendClusters>,
    /// Keeps the scheduler away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<bool>,
}

/// Which bindings are scheduled first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BindingPriority {
    /// Higher comes first.
    #[serde(default)]
    #[schemars(range(min = -2_147_483_648_i64, max = 2_147_483_647))]
    pub priority: i32,
}

/// Groups of workloads that belong together or apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadAffinityGroups {
    /// Together.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub affinity_group: Option<String>,
    /// Apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub anti_affinity_group: Option<String>,
}

/// State of a template in its members.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceBindingStatus {
    /// Generation the scheduler last looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_observed_generation: Option<i64>,
    /// Name of the affinity term that is being tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub scheduler_observing_affinity_name: Option<String>,
    /// When it was last placed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::time"
    )]
    #[schemars(schema_with = "schema::time")]
    pub last_scheduled_time: Option<Time>,
    /// State as a whole, by type: Scheduled, FullyApplied.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::conditions"
    )]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// State in each member.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::list"
    )]
    #[schemars(length(max = 10_000))]
    pub aggregated_status: Vec<AggregatedStatusItem>,
}

/// State of a template in one member.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AggregatedStatusItem {
    /// The member.
    #[schemars(length(min = 1, max = 48))]
    pub cluster_name: String,
    /// Status reflected from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::raw_object")]
    pub status: Option<Value>,
    /// Whether it was applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<bool>,
    /// Why it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32_768))]
    pub applied_message: Option<String>,
    /// Its health there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<ResourceHealth>,
}
