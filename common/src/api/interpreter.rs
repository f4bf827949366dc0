//! ResourceInterpreterCustomization and ResourceInterpreterWebhookConfiguration: how Karmada's parts learn
//! about kinds that they do not know.
//!
//! The hub and its agents carry customizations out. Nothing of Towline asks webhooks: they are listed, as Karmada's agent
//! does at its start, and none is made; [`UNREAD`] says so.

use super::schema;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, ValidationRule,
};
use kube::{CustomResource, CustomResourceExt as _};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What every answer about webhooks warns of, and why none is made.
pub const UNREAD: &str =
    "config.karmada.io: nothing of Towline asks webhooks; write a ResourceInterpreterCustomization";

/// How objects of one kind are interpreted.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.karmada.io",
    version = "v1alpha1",
    kind = "ResourceInterpreterCustomization",
    plural = "resourceinterpretercustomizations",
    doc = "Scripts by which objects of one kind are understood.",
    derive = "Default",
    derive = "PartialEq",
    shortname = "ric",
    category = "karmada-io",
    printcolumn(
        name = "TARGET-API-VERSION",
        type_ = "string",
        json_path = ".spec.target.apiVersion"
    ),
    printcolumn(
        name = "TARGET-KIND",
        type_ = "string",
        json_path = ".spec.target.kind"
    ),
    printcolumn(
        name = "AGE",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct CustomizationSpec {
    /// The kind.
    pub target: CustomizationTarget,
    /// The scripts, by what they tell.
    pub customizations: CustomizationRules,
}

/// A kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomizationTarget {
    /// Its apiVersion.
    pub api_version: String,
    /// Its name.
    pub kind: String,
}

/// Scripts, by what they tell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomizationRules {
    /// Which values of the member stay: `Retain(desiredObj, observedObj)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<Script>,
    /// Replicas and what each needs: `GetReplicas(obj)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_resource: Option<Script>,
    /// Parts with replicas of their own: `GetComponents(obj)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component_resource: Option<Script>,
    /// Sets the replicas: `ReviseReplica(obj, replicas)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica_revision: Option<Script>,
    /// Which status is reported: `ReflectStatus(observedObj)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_reflection: Option<Script>,
    /// One status of many: `AggregateStatus(obj, items)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_aggregation: Option<Script>,
    /// Whether it is well: `InterpretHealth(observedObj)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_interpretation: Option<Script>,
    /// What it needs beside it: `GetDependencies(obj)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dependency_interpretation: Option<Script>,
}

/// A script.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Script {
    /// Lua, with one function whole.
    #[schemars(length(max = 131_072))]
    pub lua_script: String,
}

/// One webhook.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterpreterWebhook {
    /// Its name, with a domain.
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self.matches('^[^.]+([.][^.]+)+[.]?$')",
        "message": "should be a domain with at least two segments separated by dots",
    }]))]
    pub name: String,
    /// Where it is asked.
    pub client_config: WebhookClientConfig,
    /// About what it is asked; about nothing when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<InterpreterRule>,
    /// How long it may take, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -2_147_483_648_i64, max = 2_147_483_647), extend("x-kubernetes-validations" = [{
        "rule": "self >= 1 && self <= 30",
        "message": "the timeout value must be between 1 and 30 seconds",
    }]))]
    pub timeout_seconds: Option<i32>,
    /// Versions of ResourceInterpreterContext that it takes, the best first.
    #[schemars(length(max = 16), inner(length(max = 63)), extend("x-kubernetes-validations" = [
        {
            "rule": "self.size() > 0",
            "message": "must specify one of v1alpha1",
            "reason": "FieldValueRequired",
        },
        {
            "rule": "self.all(v, self.exists_one(w, w == v))",
            "message": "duplicate version",
        },
        {
            "rule": "self.size() == 0 || 'v1alpha1' in self",
            "message": "must include at least one of v1alpha1",
        },
    ]))]
    pub interpreter_context_versions: Vec<String>,
}

/// Where a webhook is asked: at a URL, or at a Service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.url) != has(self.service)",
    "message": "exactly one of url or service is required",
    "reason": "FieldValueRequired",
}]))]
pub struct WebhookClientConfig {
    /// `https://HOST[:PORT]/PATH`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), extend("x-kubernetes-validations" = [{
        "rule": "self.startsWith('https://')",
        "message": "'https' is the only allowed URL scheme; desired format: https://host[/path]",
    }]))]
    pub url: Option<String>,
    /// The Service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<WebhookService>,
    /// PEM of the CA that its certificate is of, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "ca_bundle")]
    pub ca_bundle: Option<String>,
}

/// A Service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookService {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Path of the URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its port; 443 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i32>,
}

/// Kinds and operations; `*` stands for all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterpreterRule {
    /// What is asked, such as `InterpretReplica`.
    #[schemars(schema_with = "operations")]
    pub operations: Vec<String>,
    /// API groups; the core group is empty.
    #[schemars(schema_with = "api_groups")]
    pub api_groups: Vec<String>,
    /// Versions.
    #[schemars(schema_with = "api_versions")]
    pub api_versions: Vec<String>,
    /// Kinds.
    #[schemars(schema_with = "kinds")]
    pub kinds: Vec<String>,
}

/// What a webhook may be asked.
const OPERATIONS: [&str; 9] = [
    "*",
    "AggregateStatus",
    "InterpretComponent",
    "InterpretDependency",
    "InterpretHealth",
    "InterpretReplica",
    "InterpretStatus",
    "Retain",
    "ReviseReplica",
];

fn operations(_: &mut SchemaGenerator) -> Schema {
    all_or_some("operations", &json!({"type": "string", "enum": OPERATIONS}))
}

fn api_groups(_: &mut SchemaGenerator) -> Schema {
    all_or_some("API groups", &json!({"type": "string"}))
}

fn api_versions(_: &mut SchemaGenerator) -> Schema {
    all_or_some("API versions", &named())
}

fn kinds(_: &mut SchemaGenerator) -> Schema {
    all_or_some("kinds", &named())
}

fn all_or_some(what: &str, items: &Value) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 64,
        "items": items,
        "x-kubernetes-validations": [{
            "rule": "!('*' in self) || self.size() == 1",
            "message": format!("if '*' is present, must not specify other {what}"),
        }],
    })
}

fn named() -> Value {
    json!({
        "type": "string",
        "x-kubernetes-validations": schema::named(),
    })
}

fn ca_bundle(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "byte", "maxLength": 262_144})
}

/// The definition of customizations.
pub(super) fn customizations() -> CustomResourceDefinition {
    ResourceInterpreterCustomization::crd()
}

/// The definition of webhooks; an object of it has them beside its metadata, in no spec.
pub(super) fn webhooks() -> CustomResourceDefinition {
    let mut crd = WebhooksInSpec::crd();
    let root = crd.spec.versions.first_mut();
    let root = root.and_then(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    if let Some(root) = root
        && let Some(properties) = &mut root.properties
        && let Some(spec) = properties.remove("spec")
    {
        properties.extend(spec.properties.unwrap_or_default());
        root.required = Some(vec!["webhooks".to_owned()]);
        // What is there from before can be changed and goes.
        root.x_kubernetes_validations = Some(vec![ValidationRule {
            rule: "oldSelf.hasValue()".to_owned(),
            optional_old_self: Some(true),
            message: Some(UNREAD.to_owned()),
            reason: Some("FieldValueForbidden".to_owned()),
            ..ValidationRule::default()
        }]);
    }
    warning(crd, UNREAD)
}

/// As derived; [`webhooks`] puts it in its place.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "config.karmada.io",
    version = "v1alpha1",
    kind = "ResourceInterpreterWebhookConfiguration",
    root = "WebhooksInSpec",
    plural = "resourceinterpreterwebhookconfigurations",
    doc = "Webhooks by which Karmada's parts understand objects of some kinds.",
    category = "karmada-io"
)]
#[serde(rename_all = "camelCase")]
struct WebhooksSpec {
    /// The webhooks.
    #[schemars(length(max = 64), extend("x-kubernetes-validations" = [{
        "rule": "self.all(w, self.exists_one(v, v.name == w.name))",
        "message": "the names of webhooks must be unique",
    }]))]
    webhooks: Vec<InterpreterWebhook>,
}

/// With a warning in every answer.
fn warning(mut crd: CustomResourceDefinition, text: &str) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        version.deprecated = Some(true);
        version.deprecation_warning = Some(text.to_owned());
    }
    crd
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields are where Karmada's clients have them.
    #[test]
    fn webhooks_lie_beside_the_metadata() {
        let crd = serde_json::to_value(webhooks()).expect("serializes");
        let version = &crd["spec"]["versions"][0];
        let root = &version["schema"]["openAPIV3Schema"];
        assert_eq!(root["required"], json!(["webhooks"]));
        assert!(root["properties"].get("spec").is_none());
        let webhook = &root["properties"]["webhooks"]["items"];
        let mut required: Vec<&str> = (webhook["required"].as_array().into_iter().flatten())
            .filter_map(Value::as_str)
            .collect();
        required.sort_unstable();
        assert_eq!(
            required,
            ["clientConfig", "interpreterContextVersions", "name"]
        );
        assert_eq!(version["deprecationWarning"], UNREAD);
        assert_eq!(crd["spec"]["scope"], "Cluster");
    }
}
