//! What a policy wants where an application or a member fails.

use crate::api::schema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What happens on failure.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailoverBehavior {
    /// When the application is unhealthy in a member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationFailover>,
    /// When the member fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterFailover>,
}

/// What happens when an application is unhealthy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.gracePeriodSeconds) || self.purgeMode == 'Gracefully'",
        "message": "only takes effect when purgeMode is gracefully",
        "fieldPath": ".gracePeriodSeconds",
    },
    {
        "rule": "!has(self.gracePeriodSeconds) || self.gracePeriodSeconds > 0",
        "message": "must be greater than 0",
        "fieldPath": ".gracePeriodSeconds",
    },
]))]
pub struct ApplicationFailover {
    /// When it counts as failed.
    pub decision_conditions: DecisionConditions,
    /// How the old copy goes.
    #[serde(default)]
    pub purge_mode: PurgeMode,
    /// How long the old copy may stay, with Gracefully.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -2_147_483_648_i64, max = 2_147_483_647))]
    pub grace_period_seconds: Option<i32>,
    /// What the new copy is told about the old one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// When an application counts as failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DecisionConditions {
    /// After it was unhealthy for this long.
    #[serde(default = "default_toleration")]
    #[schemars(
        range(min = -2_147_483_648_i64, max = 2_147_483_647),
        extend("x-kubernetes-validations" = [{
            "rule": "self >= 0",
            "message": "must be greater than or equal to 0",
        }])
    )]
    pub toleration_seconds: i32,
}

impl Default for DecisionConditions {
    fn default() -> Self {
        Self {
            toleration_seconds: default_toleration(),
        }
    }
}

fn default_toleration() -> i32 {
    300
}

/// What happens when a member fails.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterFailover {
    /// How the old copy goes.
    #[serde(default)]
    pub purge_mode: ClusterPurgeMode,
    /// What the new copy is told about the old one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_preservation: Option<StatePreservation>,
}

/// How the old copy goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PurgeMode {
    /// Before the new copy is placed.
    Directly,
    /// When the new copy is healthy or time is up.
    #[default]
    Gracefully,
    /// Not by itself.
    Never,
}

/// How the old copy goes from a failed member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ClusterPurgeMode {
    /// Before the new copy is placed.
    Directly,
    /// When the new copy is healthy or time is up.
    #[default]
    Gracefully,
}

/// What a new copy is told about the old one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatePreservation {
    /// One label each.
    #[schemars(length(max = 64))]
    pub rules: Vec<StatePreservationRule>,
}

/// Takes one value of the old copy's status into a label of the new copy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatePreservationRule {
    /// The label.
    #[schemars(length(min = 1, max = 317), extend("x-kubernetes-validations" = schema::label_key()))]
    pub alias_label_name: String,
    /// Where the value is, from the status downwards.
    #[schemars(length(min = 1, max = 1024))]
    pub json_path: String,
}
