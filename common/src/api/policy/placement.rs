//! Where a policy's objects may go, and how replicas are divided.

use crate::api::schema;
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Where objects go.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.clusterAffinity) && has(self.clusterAffinities) && \
        self.clusterAffinities.size() > 0)",
    "message": "clusterAffinities cannot co-exist with clusterAffinity",
}, {
    "rule": "!has(self.clusterAffinities) || !self.clusterAffinities.exists(a, \
        has(a.overflowAffinities) && a.overflowAffinities.size() > 0) || \
        (has(self.replicaScheduling) && self.replicaScheduling.replicaSchedulingType == 'Divided' && \
        ((has(self.replicaScheduling.replicaDivisionPreference) && \
        self.replicaScheduling.replicaDivisionPreference == 'Aggregated') || \
        (has(self.replicaScheduling.weightPreference) && \
        has(self.replicaScheduling.weightPreference.dynamicWeight))))",
    "message": "overflowAffinities can only be used together with dynamic weight or aggregated scheduling",
    "fieldPath": ".clusterAffinities",
}]))]
pub struct Placement {
    /// The clusters that may be chosen; all when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_affinity: Option<ClusterAffinity>,
    /// Groups of clusters, tried in order until one fits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-validations" = [{
        "rule": "self.all(a, self.exists_one(b, b.affinityName == a.affinityName))",
        "message": "each affinity term in a policy must have a unique name",
    }]))]
    pub cluster_affinities: Vec<ClusterAffinityTerm>,
    /// Taints of clusters that do not keep these objects away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::tolerations")]
    pub cluster_tolerations: Vec<Toleration>,
    /// How to spread over clusters, regions, zones or providers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-validations" = spread_rules()))]
    pub spread_constraints: Vec<SpreadConstraint>,
    /// How replicas are given to the chosen clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_scheduling: Option<ReplicaSchedulingStrategy>,
    /// Workloads that belong on the same, or on different, clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload_affinity: Option<WorkloadAffinity>,
}

/// Rules of the spread constraints together. One that names neither field nor label is by cluster.
fn spread_rules() -> Value {
    let by = "self.map(c, has(c.spreadByField) ? c.spreadByField : \
              has(c.spreadByLabel) && c.spreadByLabel != '' ? '' : 'cluster').filter(f, f != '')";
    let mut rules: Vec<Value> = ["cluster", "region", "zone", "provider"]
        .map(|field| {
            json!({
                "rule": format!("{by}.filter(f, f == '{field}').size() <= 1"),
                "message": format!("multiple {field} spread constraints are not allowed"),
            })
        })
        .into();
    rules.push(json!({
        "rule": format!("{by}.size() == 0 || 'cluster' in {by}"),
        "message": "the cluster spread constraint must be enabled in one of the constraints in case of \
                    SpreadByField is enabled",
    }));
    Value::from(rules)
}

/// A set of clusters: those that meet every part that is given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterAffinity {
    /// By label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,
    /// By provider, region or zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<FieldSelector>,
    /// By name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000), inner(length(max = 48)))]
    pub cluster_names: Vec<String>,
    /// Clusters left out, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000), inner(length(max = 48)))]
    pub exclude: Vec<String>,
}

/// A named set of clusters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.overflowAffinities) || self.overflowAffinities.size() == 0 || \
            has(self.labelSelector) || has(self.fieldSelector) || has(self.clusterNames) || \
            has(self.exclude)",
        "message": "overflowAffinities can only be used together with the inline ClusterAffinity",
        "fieldPath": ".overflowAffinities",
    },
    {
        "rule": "!has(self.overflowAffinities) || self.overflowAffinities.all(o, !has(o.affinityName) || \
            o.affinityName != self.affinityName && self.overflowAffinities.exists_one(p, \
            has(p.affinityName) && p.affinityName == o.affinityName))",
        "message": "overflow affinity name must be unique and must not duplicate the primary group's affinityName",
        "fieldPath": ".overflowAffinities",
    },
]))]
pub struct ClusterAffinityTerm {
    /// Name of the group, unique in its policy.
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = schema::label_key()))]
    pub affinity_name: String,
    /// By label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,
    /// By provider, region or zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<FieldSelector>,
    /// By name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000), inner(length(max = 48)))]
    pub cluster_names: Vec<String>,
    /// Clusters left out, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000), inner(length(max = 48)))]
    pub exclude: Vec<String>,
    /// Sets of clusters that take what does not fit into this one, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub overflow_affinities: Vec<OverflowAffinity>,
}

/// A set of clusters that takes what does not fit into another.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverflowAffinity {
    /// Name of the set, unique in its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32), extend("x-kubernetes-validations" = schema::label_key()))]
    pub affinity_name: Option<String>,
    /// By label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub label_selector: Option<LabelSelector>,
    /// By provider, region or zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_selector: Option<FieldSelector>,
    /// By name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000), inner(length(max = 48)))]
    pub cluster_names: Vec<String>,
    /// Clusters left out, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10_000), inner(length(max = 48)))]
    pub exclude: Vec<String>,
}

/// Requirements on provider, region and zone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldSelector {
    /// Requirements that must all hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub match_expressions: Vec<FieldRequirement>,
}

/// One requirement on a field of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldRequirement {
    /// The field: provider, region or zone.
    #[schemars(with = "String", length(max = 63), extend("x-kubernetes-validations" = [{
        "rule": "self in ['provider', 'region', 'zone']",
        "message": "unsupported key, must be provider, region, or zone",
        "messageExpression": "'unsupported key \"' + self + '\", must be provider, region, or zone'",
    }]))]
    pub key: ClusterField,
    /// How its value relates to the values: In or NotIn.
    #[schemars(with = "String", length(max = 63), extend("x-kubernetes-validations" = [{
        "rule": "self in ['In', 'NotIn']",
        "message": "unsupported operator, must be In or NotIn",
        "messageExpression": "'unsupported operator \"' + self + '\", must be In or NotIn'",
    }]))]
    pub operator: FieldOperator,
    /// Values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 63)))]
    pub values: Vec<String>,
}

/// A field of a cluster that can be selected by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ClusterField {
    /// `spec.provider`.
    Provider,
    /// `spec.region`.
    Region,
    /// `spec.zones`.
    Zone,
}

/// How a field's value relates to values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FieldOperator {
    /// Is one of them.
    In,
    /// Is none of them.
    NotIn,
}

/// Bounds on the number of groups that are used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!(has(self.spreadByField) && has(self.spreadByLabel) && self.spreadByLabel != '')",
        "message": "spreadByLabel should not co-exist with spreadByField",
    },
    {
        "rule": "!has(self.minGroups) || self.minGroups >= 0",
        "message": "minGroups lower than 0 is not allowed",
    },
    {
        "rule": "!has(self.maxGroups) || self.maxGroups >= 0",
        "message": "maxGroups lower than 0 is not allowed",
    },
    {
        "rule": "!has(self.maxGroups) || !has(self.minGroups) || self.maxGroups <= 0 || \
            self.maxGroups >= self.minGroups",
        "message": "maxGroups lower than minGroups is not allowed",
    },
]))]
pub struct SpreadConstraint {
    /// Groups are the values of this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread_by_field: Option<SpreadField>,
    /// Groups are the values of this label.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 317))]
    pub spread_by_label: Option<String>,
    /// Most groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -2_147_483_648_i64, max = 2_147_483_647))]
    pub max_groups: Option<i64>,
    /// Fewest groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -2_147_483_648_i64, max = 2_147_483_647))]
    pub min_groups: Option<i64>,
}

/// A field to spread by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum SpreadField {
    /// Every cluster is a group.
    Cluster,
    /// `spec.region`.
    Region,
    /// `spec.zones`.
    Zone,
    /// `spec.provider`.
    Provider,
}

/// How replicas are given to clusters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaSchedulingStrategy {
    /// Every cluster gets all replicas, or they are divided.
    #[serde(default)]
    pub replica_scheduling_type: ReplicaSchedulingType,
    /// How replicas are divided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_division_preference: Option<ReplicaDivisionPreference>,
    /// Weights, with Weighted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_preference: Option<ClusterPreferences>,
}

/// Every cluster gets all replicas, or they are divided.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReplicaSchedulingType {
    /// Every cluster gets all replicas.
    Duplicated,
    /// Replicas are divided.
    #[default]
    Divided,
}

/// How replicas are divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReplicaDivisionPreference {
    /// Onto as few clusters as possible.
    Aggregated,
    /// By weight.
    Weighted,
}

/// Weights of clusters.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPreferences {
    /// Fixed weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub static_weight_list: Vec<StaticClusterWeight>,
    /// Weights that follow the clusters' state; wins over fixed ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dynamic_weight: Option<DynamicWeight>,
}

/// One fixed weight.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticClusterWeight {
    /// The clusters it is for.
    pub target_cluster: ClusterAffinity,
    /// The weight.
    #[schemars(range(min = 1, max = 2_147_483_647))]
    pub weight: i64,
}

/// A weight that follows the clusters' state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DynamicWeight {
    /// Replicas that would still fit.
    AvailableReplicas,
}

/// Workloads that belong together or apart.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.affinity) || !has(self.antiAffinity) || \
        self.affinity.groupByLabelKey != self.antiAffinity.groupByLabelKey",
    "message": "affinity and antiAffinity must not use the same groupByLabelKey",
}]))]
pub struct WorkloadAffinity {
    /// Together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub affinity: Option<WorkloadAffinityTerm>,
    /// Apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anti_affinity: Option<WorkloadAffinityTerm>,
}

/// Which workloads are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadAffinityTerm {
    /// Workloads with the same value of this label are one group.
    #[schemars(length(min = 1, max = 317), extend("x-kubernetes-validations" = schema::label_key()))]
    pub group_by_label_key: String,
}
