//! ClusterTaintPolicy: which taints clusters get and lose by what their conditions say.

use super::policy::ClusterAffinity;
use super::schema;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which clusters get which taints, and when.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.karmada.io",
    version = "v1alpha1",
    kind = "ClusterTaintPolicy",
    plural = "clustertaintpolicies",
    doc = "Puts taints on clusters, and takes them off, by the clusters' conditions.",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterTaintSpec {
    /// The clusters; all when absent. One that is meant no more keeps the taints that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_clusters: Option<ClusterAffinity>,
    /// When all of these hold, the taints come; never when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub add_on_conditions: Vec<MatchCondition>,
    /// When all of these hold, the taints go; never when there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub remove_on_conditions: Vec<MatchCondition>,
    /// The taints.
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = [{
        "rule": "self.all(t, self.exists_one(u, u.key == t.key && u.effect == t.effect))",
        "message": "Duplicate taint with the same key and effect is not allowed",
    }]))]
    pub taints: Vec<PolicyTaint>,
}

/// A condition of a cluster, and what its status is or is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchCondition {
    /// Type of the condition; one that the cluster does not have matches nothing.
    #[schemars(length(min = 1, max = 316))]
    pub condition_type: String,
    /// Whether its status is one of the values, or none of them.
    pub operator: MatchOperator,
    /// Values of its status.
    #[schemars(length(max = 3), inner(length(max = 16)))]
    pub status_values: Vec<String>,
}

/// How a status relates to values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MatchOperator {
    /// Is one of them.
    In,
    /// Is none of them.
    NotIn,
}

/// A taint that a policy puts on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyTaint {
    /// Key.
    #[schemars(length(min = 1, max = 317), regex(pattern = schema::QUALIFIED_NAME_PATTERN))]
    pub key: String,
    /// What it does to what does not tolerate it.
    pub effect: PolicyTaintEffect,
    /// Value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = schema::LABEL_VALUE_PATTERN))]
    pub value: Option<String>,
}

/// What a taint does. There is no other effect of clusters' taints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PolicyTaintEffect {
    /// Nothing new is placed on the cluster.
    NoSchedule,
    /// Nothing new is placed, and what is there leaves.
    NoExecute,
}
