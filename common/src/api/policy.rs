//! PropagationPolicy and ClusterPropagationPolicy: which objects go to which members, and how.

mod failover;
mod placement;

pub use failover::{
    ApplicationFailover, ClusterFailover, ClusterPurgeMode, DecisionConditions, FailoverBehavior,
    PurgeMode, StatePreservation, StatePreservationRule,
};
pub use placement::{
    ClusterAffinity, ClusterAffinityTerm, ClusterField, ClusterPreferences, DynamicWeight,
    FieldOperator, FieldRequirement, FieldSelector, OverflowAffinity, Placement,
    ReplicaDivisionPreference, ReplicaSchedulingStrategy, ReplicaSchedulingType, SpreadConstraint,
    SpreadField, StaticClusterWeight, WorkloadAffinity, WorkloadAffinityTerm,
};

use super::schema;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The scheduler that is used when a policy names none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Which objects go where.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.karmada.io",
    version = "v1alpha1",
    kind = "PropagationPolicy",
    plural = "propagationpolicies",
    doc = "Says which objects of its namespace go to which members.",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    shortname = "pp",
    category = "karmada-io",
    printcolumn(
        name = "Conflict-Resolution",
        type_ = "string",
        json_path = ".spec.conflictResolution"
    ),
    printcolumn(name = "Priority", type_ = "string", json_path = ".spec.priority"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.schedulerName) == has(oldSelf.schedulerName)",
        "message": "the schedulerName should not be updated",
        "fieldPath": ".schedulerName",
    },
    {
        "rule": "!has(self.failover) || !has(self.failover.application) || \
            (has(self.propagateDeps) && self.propagateDeps) || \
            self.resourceSelectors.exists(s, s.kind == 'ServiceImport' && \
            s.apiVersion == 'multicluster.x-k8s.io/v1alpha1')",
        "message": "application failover is set, propagateDeps must be true",
        "fieldPath": ".propagateDeps",
    },
    {
        "rule": "self.preemption != 'Always' || \
            self.resourceSelectors.all(s, has(s.name) && s.name != '')",
        "message": "name cannot be empty if preemption is Always, the empty name may cause unexpected \
            resources preemption",
        "fieldPath": ".resourceSelectors",
    },
]))]
pub struct PropagationSpec {
    /// The objects; one that matches any of these is meant.
    #[schemars(length(min = 1, max = 1000))]
    pub resource_selectors: Vec<ResourceSelector>,
    /// Deprecated; use propagateDeps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub association: Option<bool>,
    /// Objects that these refer to, such as ConfigMaps, follow them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propagate_deps: Option<bool>,
    /// Where to.
    #[serde(default)]
    pub placement: Placement,
    /// Of two policies that match, the higher one wins.
    #[serde(default)]
    #[schemars(range(min = -2_147_483_648_i64, max = 2_147_483_647))]
    pub priority: i32,
    /// Whether this policy takes objects over from one of lower priority.
    #[serde(default)]
    pub preemption: PreemptionBehavior,
    /// Names of override policies that must exist before anything is placed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 253)))]
    pub dependent_overrides: Vec<String>,
    /// Scheduler that places these objects; cannot be changed.
    #[serde(default = "default_scheduler")]
    #[schemars(length(max = 253), extend("x-kubernetes-validations" = [{
        "rule": "self == oldSelf",
        "message": "the schedulerName should not be updated",
    }]))]
    pub scheduler_name: String,
    /// What happens when a member or an application fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover: Option<FailoverBehavior>,
    /// What happens to an object in the member that is not ours.
    #[serde(default)]
    pub conflict_resolution: ConflictResolution,
    /// When a change of this policy reaches objects it already placed; at once when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activation_preference: Option<ActivationPreference>,
    /// Pauses propagation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspension: Option<Suspension>,
    /// Objects stay in the members when the template is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preserve_resources_on_deletion: Option<bool>,
    /// Which bindings the scheduler serves first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_priority: Option<SchedulePriority>,
}

fn default_scheduler() -> String {
    DEFAULT_SCHEDULER.to_owned()
}

/// The same fields, for objects of every namespace and of none.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.karmada.io",
    version = "v1alpha1",
    kind = "ClusterPropagationPolicy",
    plural = "clusterpropagationpolicies",
    doc = "Says which objects, of every namespace and of none, go to which members.",
    derive = "Default",
    derive = "PartialEq",
    shortname = "cpp",
    category = "karmada-io",
    printcolumn(
        name = "Conflict-Resolution",
        type_ = "string",
        json_path = ".spec.conflictResolution"
    ),
    printcolumn(name = "Priority", type_ = "string", json_path = ".spec.priority"),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(transparent)]
pub struct ClusterPropagationSpec(pub PropagationSpec);

/// Matches objects.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelector {
    /// Group and version.
    #[schemars(length(min = 1, max = 317))]
    pub api_version: String,
    /// Kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Namespace; the policy's own, or every one for a cluster policy, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Name; wins over the label selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub name: Option<String>,
    /// Labels, when no name is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,
}

/// Whether a policy takes objects over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PreemptionBehavior {
    /// From any policy of lower priority.
    Always,
    /// Only objects that no policy holds.
    #[default]
    Never,
}

/// What to do about an object that exists and is not ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConflictResolution {
    /// Leave it and report.
    #[default]
    Abort,
    /// Take it over.
    Overwrite,
}

/// When a changed policy takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ActivationPreference {
    /// Only when the template itself changes.
    Lazy,
}

/// Pauses propagation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.dispatching) || !self.dispatching || !has(self.dispatchingOnClusters) || \
        !has(self.dispatchingOnClusters.clusterNames) || \
        self.dispatchingOnClusters.clusterNames.size() == 0",
    "message": "suspension dispatching cannot co-exist with dispatchingOnClusters.clusterNames",
}]))]
pub struct Suspension {
    /// To every member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatching: Option<bool>,
    /// To some members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dispatching_on_clusters: Option<SuspendClusters>,
}

/// Members by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SuspendClusters {
    /// Their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000), inner(length(max = 48)))]
    pub cluster_names: Vec<String>,
}

/// Which bindings are scheduled first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchedulePriority {
    /// Where the number comes from.
    pub priority_class_source: PriorityClassSource,
    /// Name of the class.
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: String,
}

/// Where a priority comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PriorityClassSource {
    /// A PriorityClass of Kubernetes on the hub.
    KubePriorityClass,
}
