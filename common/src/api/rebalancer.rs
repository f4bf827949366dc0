//! WorkloadRebalancer: asks once for named templates to be placed afresh.

use super::{lenient, schema};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Reason of a workload that is not done: no binding of it is there.
pub const BINDING_NOT_FOUND: &str = "ReferencedBindingNotFound";

/// What is placed afresh.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "apps.karmada.io",
    version = "v1alpha1",
    kind = "WorkloadRebalancer",
    plural = "workloadrebalancers",
    doc = "Asks once for templates to be placed afresh.",
    status = "RebalancerStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct RebalancerSpec {
    /// The templates.
    #[schemars(length(min = 1, max = 1000))]
    pub workloads: Vec<WorkloadReference>,
    /// How many seconds after its end the object goes; it stays when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2_147_483_647))]
    pub ttl_seconds_after_finished: Option<i32>,
}

/// Points at a template.
#[derive(
    Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadReference {
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
}

/// What became of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RebalancerStatus {
    /// Each template, sorted.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::list"
    )]
    #[schemars(length(max = 2000))]
    pub observed_workloads: Vec<ObservedWorkload>,
    /// Generation of the object that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When nothing was left to do.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::time"
    )]
    #[schemars(schema_with = "schema::time")]
    pub finish_time: Option<Time>,
}

/// What became of one template.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObservedWorkload {
    /// The template.
    pub workload: WorkloadReference,
    /// Whether it was asked for; absent while that is still tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<RebalanceResult>,
    /// Why not, in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub reason: Option<String>,
}

/// Whether a template was asked to be placed afresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RebalanceResult {
    /// Its binding says so.
    Successful,
    /// It has no binding.
    Failed,
}
