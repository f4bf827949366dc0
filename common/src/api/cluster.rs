//! Cluster: one member, what the operator says about it and what its agent reports.

mod status;

pub use status::{
    ALLOWED_NAMESPACES_SHOWN, AgentInfo, AllocatableModeling, ApiEnablement, ApiResource,
    ClusterStatus, NodeSummary, ORPHANS_SHOWN, OrphanReport, OrphanedObject, ResourceSummary,
};

use super::{lenient, schema};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, ValidationRule,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, CustomResourceExt as _};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Condition: the member is healthy and takes workloads.
pub const READY: &str = "Ready";
/// Condition: the list of the member's APIs is whole.
pub const COMPLETE_API_ENABLEMENTS: &str = "CompleteAPIEnablements";
/// Condition: the agent's rights are taken away, for [`WROTE_TOO_MUCH`], for [`RESTORED`], or by hand.
pub const QUARANTINED: &str = "Quarantined";
/// Reason of that: the registration comes from a backup, and may have been removed since.
pub const RESTORED: &str = "RestoredFromBackup";
/// Reason of that: its agent wrote more than the hub lets one write.
pub const WROTE_TOO_MUCH: &str = "WroteTooMuch";
/// Condition: the agent knows that its Cluster is being deleted; the reason is the mode.
pub const UNREGISTERING: &str = "Unregistering";
/// Condition: another member claimed the same cluster id and was refused.
pub const DUPLICATE_ID: &str = "DuplicateClusterID";
/// Condition: its execution namespace is being deleted, and takes no Works; written by the hub.
pub const EXECUTION_SPACE_TERMINATING: &str = "ExecutionSpaceTerminating";

/// One member cluster.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cluster.karmada.io",
    version = "v1alpha1",
    kind = "Cluster",
    doc = "A member cluster of the fleet.",
    status = "ClusterStatus",
    derive = "Default",
    derive = "PartialEq",
    category = "karmada-io",
    selectable = ".spec.id",
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.kubernetesVersion"
    ),
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.syncMode"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(
        name = "Zones",
        type_ = "string",
        json_path = ".spec.zones",
        priority = "1"
    ),
    printcolumn(
        name = "Region",
        type_ = "string",
        json_path = ".spec.region",
        priority = "1"
    ),
    printcolumn(
        name = "Provider",
        type_ = "string",
        json_path = ".spec.provider",
        priority = "1"
    ),
    printcolumn(
        name = "API-Endpoint",
        type_ = "string",
        json_path = ".spec.apiEndpoint",
        priority = "1"
    ),
    printcolumn(
        name = "Proxy-URL",
        type_ = "string",
        json_path = ".spec.proxyURL",
        priority = "1"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!has(self.zone) || self.zone == '' || !has(self.zones) || self.zones.size() == 0",
    "message": "Zone and Zones cannot co-exist",
}]))]
pub struct ClusterSpec {
    /// UID of the member's namespace kube-system: says which cluster this is, whatever its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128_000))]
    pub id: Option<String>,
    /// Who moves Works into the member: its own agent (Pull) or the hub (Push).
    pub sync_mode: SyncMode,
    /// Address of the member's API server, a URL or host:port.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), extend("x-kubernetes-validations" = [{
        "rule": r"self == '' || self.matches('^([a-z][a-z0-9+.-]*://)?(\\[[0-9A-Fa-f:.%]+\\]|[^/?#@:\\[\\]\\s]+)(:[0-9]{1,5})?(/[^?#@\\s]*)?$')",
        "message": "must be host:port or a URL with a host and without user, query or fragment",
    }, {
        "rule": "!self.contains('?')",
        "message": "query parameters are not permitted in the URL",
    }]))]
    pub api_endpoint: Option<String>,
    /// Secret on the hub with credentials for the member; never used for a pull cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<LocalSecretReference>,
    /// Secret on the hub with a token that may impersonate; never used for a pull cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonator_secret_ref: Option<LocalSecretReference>,
    /// Accept any certificate of the member's API server.
    #[serde(
        rename = "insecureSkipTLSVerification",
        skip_serializing_if = "Option::is_none"
    )]
    pub insecure_skip_tls_verification: Option<bool>,
    /// Proxy towards the member: an http, https or socks5 URL.
    #[serde(rename = "proxyURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), extend("x-kubernetes-validations" = [{
        "rule": r"self.matches('^(https?|socks5)://\\S+$')",
        "message": "must be a URL with a host; its scheme must be http, https, or socks5",
        "messageExpression": "self.matches('^(https?|socks5):') ? 'must be a URL with a host' : \
            'unsupported scheme \"' + (self.contains(':') ? self.substring(0, self.indexOf(':')) : '') + \
            '\", must be http, https, or socks5'",
    }]))]
    pub proxy_url: Option<String>,
    /// Headers for the proxy; several values of one header are split by commas.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub proxy_header: BTreeMap<String, String>,
    /// Provider of the member, such as a cloud.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), extend("x-kubernetes-validations" = schema::label_value()))]
    pub provider: Option<String>,
    /// Region of the member.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), extend("x-kubernetes-validations" = schema::label_value()))]
    pub region: Option<String>,
    /// One zone; the hub moves it into zones.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), extend("x-kubernetes-validations" = schema::label_value()))]
    pub zone: Option<String>,
    /// Zones the member spans.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::list"
    )]
    #[schemars(
        length(max = 64),
        inner(length(max = 63)),
        extend("x-kubernetes-validations" = schema::label_values())
    )]
    pub zones: Vec<String>,
    /// Taints: policies that do not tolerate them place nothing here.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::list"
    )]
    #[schemars(length(max = 64), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["key", "effect"]
    ))]
    pub taints: Vec<Taint>,
    /// Grades of node sizes, counted in the status; ascending, each range beginning where the one
    /// of the grade before ends.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "lenient::list"
    )]
    #[schemars(length(max = 16), extend(
        "default" = default_models(),
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["grade"],
        "x-kubernetes-validations" = [
            {
                "rule": "self.map(m, m.grade).isSorted()",
                "message": "grades must be listed in ascending order",
            },
            {
                "rule": "self.all(m, m.ranges.size() == self[0].ranges.size() && \
                    m.ranges.all(r, self[0].ranges.exists(s, s.name == r.name)))",
                "message": "The resource types of each models should be the same",
            },
            {
                "rule": "self.all(m, !self.exists(n, n.grade > m.grade) || self.exists(n, \
                    n.grade > m.grade && !self.exists(k, k.grade > m.grade && \
                    k.grade < n.grade) && n.ranges.all(s, m.ranges.exists(r, \
                    r.name == s.name && (r.max == s.min || (isQuantity(r.max) && \
                    isQuantity(s.min) && quantity(r.max).compareTo(quantity(s.min)) == 0))))))",
                "message": "each range must begin where the same resource's range of the grade before ends",
            },
        ]
    ))]
    pub resource_models: Vec<ResourceModel>,
}

/// Who moves Works into a member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SyncMode {
    /// The member's agent reads from the hub.
    #[default]
    Pull,
    /// The hub writes to the member.
    Push,
}

/// Names a Secret on the hub.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LocalSecretReference {
    /// Its namespace.
    #[schemars(length(max = 63), extend("x-kubernetes-validations" = schema::named()))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(max = 253), extend("x-kubernetes-validations" = schema::named()))]
    pub name: String,
}

/// Keeps what does not tolerate it away from a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Key.
    #[schemars(length(min = 1, max = 317), extend("x-kubernetes-validations" = schema::label_key()))]
    pub key: String,
    /// Value.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63), regex(pattern = schema::LABEL_VALUE_PATTERN))]
    pub value: Option<String>,
    /// What the taint does.
    pub effect: TaintEffect,
    /// When it was put on.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "lenient::time"
    )]
    #[schemars(schema_with = "schema::time")]
    pub time_added: Option<Time>,
}

/// What a taint does to what does not tolerate it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// Nothing new is placed here.
    #[default]
    NoSchedule,
    /// Other clusters are preferred. Karmada has none such, and the schema takes none.
    #[schemars(skip)]
    PreferNoSchedule,
    /// Nothing new is placed here, and what is here leaves.
    NoExecute,
}

/// One grade of node size.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceModel {
    /// Number of the grade.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub grade: i64,
    /// Range of each resource in this grade.
    #[schemars(length(min = 1, max = 8), extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["name"]
    ))]
    pub ranges: Vec<ResourceModelRange>,
}

/// From `min` inclusive to `max` exclusive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceModelRange {
    /// Name of the resource, such as cpu.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Smallest value in the range.
    #[schemars(schema_with = "schema::quantity")]
    pub min: Quantity,
    /// First value above the range.
    #[schemars(schema_with = "schema::quantity")]
    pub max: Quantity,
}

impl Cluster {
    /// The condition of a type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        let status = self.status.as_ref()?;
        status.conditions.iter().find(|c| c.type_ == type_)
    }
}

/// The definition, with the rules about the object's name that only the root can state.
pub fn definition() -> CustomResourceDefinition {
    let mut crd = Cluster::crd();
    let rule = |rule: &str, message: &str| ValidationRule {
        rule: rule.to_owned(),
        message: Some(message.to_owned()),
        ..ValidationRule::default()
    };
    let rules = vec![
        rule(
            "self.metadata.name.size() <= 48",
            "metadata.name: must be no more than 48 characters",
        ),
        rule(
            "!self.metadata.name.contains('.')",
            "metadata.name: must not contain dots",
        ),
        rule(
            "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "metadata.name: must consist of lower case letters, digits and '-', and start and end \
             with a letter or digit",
        ),
        rule(
            "self.metadata.name != 'rbac-generator'",
            "metadata.name: is reserved",
        ),
    ];
    for version in &mut crd.spec.versions {
        if let Some(root) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        {
            root.x_kubernetes_validations = Some(rules.clone());
            // Names are never longer; saying so keeps the rules above within the cost budget.
            let name = JSONSchemaProps {
                type_: Some("string".to_owned()),
                max_length: Some(253),
                ..JSONSchemaProps::default()
            };
            let metadata = JSONSchemaProps {
                type_: Some("object".to_owned()),
                properties: Some([("name".to_owned(), name)].into()),
                ..JSONSchemaProps::default()
            };
            let fields = root.properties.get_or_insert_default();
            fields.insert("metadata".to_owned(), metadata);
        }
    }
    crd
}

/// The nine grades a cluster gets that names none.
pub fn default_models() -> Vec<ResourceModel> {
    // Larger than any node; the reference's value for "no upper end".
    const END: &str = "9223372036854775807";
    const CPU: [&str; 10] = ["0", "1", "2", "4", "8", "16", "32", "64", "128", END];
    const MEMORY: [&str; 10] = [
        "0", "4Gi", "16Gi", "32Gi", "64Gi", "128Gi", "256Gi", "512Gi", "1Ti", END,
    ];
    let range = |name: &str, bounds: &[&str]| ResourceModelRange {
        name: name.to_owned(),
        min: Quantity(bounds[0].to_owned()),
        max: Quantity(bounds[1].to_owned()),
    };
    (0_i64..)
        .zip(CPU.windows(2).zip(MEMORY.windows(2)))
        .map(|(grade, (cpu, memory))| ResourceModel {
            grade,
            ranges: vec![range("cpu", cpu), range("memory", memory)],
        })
        .collect()
}
