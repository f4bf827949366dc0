//! OverridePolicy and ClusterOverridePolicy: what is different about an object in some members.
//!
//! The lists of an [`Overriders`] are applied in one order, whatever order they are written in: image,
//! command, args, labels, annotations, field, plaintext.

use super::policy::{ClusterAffinity, ResourceSelector};
use super::schema;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What is different, where.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.karmada.io",
    version = "v1alpha1",
    kind = "OverridePolicy",
    plural = "overridepolicies",
    doc = "Changes objects of its namespace on their way to some members.",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    shortname = "op",
    category = "karmada-io"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.overrideRules) || self.overrideRules.size() == 0 || !has(self.targetCluster)",
        "message": "overrideRules and targetCluster can't co-exist",
        "fieldPath": ".targetCluster",
    },
    {
        "rule": "!has(self.overrideRules) || self.overrideRules.size() == 0 || \
            !has(self.overriders) || \
            [has(self.overriders.plaintext) && self.overriders.plaintext.size() > 0, \
            has(self.overriders.imageOverrider) && self.overriders.imageOverrider.size() > 0, \
            has(self.overriders.commandOverrider) && self.overriders.commandOverrider.size() > 0, \
            has(self.overriders.argsOverrider) && self.overriders.argsOverrider.size() > 0, \
            has(self.overriders.labelsOverrider) && self.overriders.labelsOverrider.size() > 0, \
            has(self.overriders.annotationsOverrider) && \
            self.overriders.annotationsOverrider.size() > 0, \
            has(self.overriders.fieldOverrider) && self.overriders.fieldOverrider.size() > 0]\
            .all(given, !given)",
        "message": "overrideRules and overriders can't co-exist",
        "fieldPath": ".overriders",
    },
]))]
pub struct OverrideSpec {
    /// The objects; all that the policy can reach when absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1000))]
    pub resource_selectors: Vec<ResourceSelector>,
    /// Changes, each for some members, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub override_rules: Vec<RuleWithCluster>,
    /// Deprecated; use overrideRules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_cluster: Option<ClusterAffinity>,
    /// Deprecated; use overrideRules.
    #[serde(default, skip_serializing_if = "Overriders::is_empty")]
    pub overriders: Overriders,
}

/// The same fields, for objects of every namespace and of none.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "policy.karmada.io",
    version = "v1alpha1",
    kind = "ClusterOverridePolicy",
    plural = "clusteroverridepolicies",
    doc = "Changes objects, of every namespace and of none, on their way to some members.",
    derive = "Default",
    derive = "PartialEq",
    shortname = "cop",
    category = "karmada-io"
)]
#[serde(transparent)]
pub struct ClusterOverrideSpec(pub OverrideSpec);

/// Changes for some members.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuleWithCluster {
    /// The members; all when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_cluster: Option<ClusterAffinity>,
    /// The changes.
    pub overriders: Overriders,
}

/// Changes, by what they change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overriders {
    /// Values at a path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub plaintext: Vec<PlaintextOverrider>,
    /// Images of containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub image_overrider: Vec<ImageOverrider>,
    /// Commands of containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub command_overrider: Vec<CommandArgsOverrider>,
    /// Arguments of containers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub args_overrider: Vec<CommandArgsOverrider>,
    /// Labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub labels_overrider: Vec<LabelAnnotationOverrider>,
    /// Annotations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub annotations_overrider: Vec<LabelAnnotationOverrider>,
    /// JSON or YAML documents inside a string field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub field_overrider: Vec<FieldOverrider>,
}

impl Overriders {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Rules of a text that is a JSON pointer.
fn pointer() -> Value {
    json!([{
        "rule": "self == '' || self.startsWith('/')",
        "message": "JSON pointer must be empty or start with a \"/\"",
    }])
}

/// What no override changes, by pointers to it: the value itself, and all below it.
const OUT_OF_REACH: [&str; 6] = [
    "/apiVersion",
    "/kind",
    "/metadata/name",
    "/metadata/namespace",
    "/metadata/ownerReferences",
    "/metadata/finalizers",
];
/// Where labels and annotations of ours begin, with the slash as a pointer has it.
const OURS: [&str; 5] = [
    "karmada.io~1",
    "resourcebinding.karmada.io~1",
    "clusterresourcebinding.karmada.io~1",
    "propagationpolicy.karmada.io~1",
    "clusterpropagationpolicy.karmada.io~1",
];
/// Single ones of ours among keys of which users set others.
const SINGLE: [&str; 7] = [
    "work.karmada.io~1name",
    "work.karmada.io~1namespace",
    "work.karmada.io~1permanent-id",
    "resourcetemplate.karmada.io~1managed-annotations",
    "resourcetemplate.karmada.io~1managed-labels",
    "resourcetemplate.karmada.io~1uid",
    "resourcetemplate.karmada.io~1generation",
];

/// Rules of a pointer into an object: whoever may write an override decides about values, not about what
/// the object is, who owns it, and whose it is.
fn within_reach() -> Value {
    let mut exact = vec!["/".to_owned(), "/metadata".to_owned()];
    let mut begins = Vec::new();
    for path in OUT_OF_REACH {
        exact.push(path.to_owned());
        begins.push(format!("{path}/"));
    }
    for map in ["/metadata/labels", "/metadata/annotations"] {
        exact.push(map.to_owned());
        exact.extend(SINGLE.map(|key| format!("{map}/{key}")));
        begins.extend(OURS.map(|key| format!("{map}/{key}")));
    }
    let begins: Vec<String> = begins
        .iter()
        .map(|prefix| format!("!self.startsWith('{prefix}')"))
        .collect();
    let exact: Vec<String> = exact.iter().map(|path| format!("'{path}'")).collect();
    json!([{
        "rule": format!("!(self in [{}]) && {}", exact.join(", "), begins.join(" && ")),
        "message": "an override must not change apiVersion, kind, name, namespace, ownerReferences, \
                    finalizers, or labels and annotations of the system",
    }])
}

/// Adds, removes or replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum OverriderOperator {
    /// Adds.
    Add,
    /// Removes.
    Remove,
    /// Replaces.
    Replace,
}

/// Adds or removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CommandOperator {
    /// Adds.
    Add,
    /// Removes.
    Remove,
}

/// Changes the value at a path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlaintextOverrider {
    /// A JSON pointer; it reaches neither what an object is nor what says whose it is.
    #[schemars(length(min = 1, max = 1024), extend("x-kubernetes-validations" = within_reach()))]
    pub path: String,
    /// What to do there.
    pub operator: OverriderOperator,
    /// The value, unless removing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::raw_value")]
    pub value: Option<Value>,
}

/// Changes a part of images.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ImageOverrider {
    /// Where the image is; in every container when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicate: Option<ImagePredicate>,
    /// Which part of it.
    pub component: ImageComponent,
    /// What to do.
    pub operator: OverriderOperator,
    /// The value, unless removing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub value: Option<String>,
}

/// Where an image is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImagePredicate {
    /// A JSON pointer to it.
    #[schemars(length(max = 1024), extend("x-kubernetes-validations" = pointer()))]
    pub path: String,
}

/// A part of an image's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImageComponent {
    /// Host and port.
    Registry,
    /// Path.
    Repository,
    /// Tag or digest.
    Tag,
}

/// Changes the command or the arguments of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandArgsOverrider {
    /// The container.
    #[schemars(length(min = 1, max = 253))]
    pub container_name: String,
    /// What to do.
    pub operator: CommandOperator,
    /// Words to add or to remove.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 4096)))]
    pub value: Vec<String>,
}

/// Changes labels or annotations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LabelAnnotationOverrider {
    /// What to do.
    pub operator: OverriderOperator,
    /// Keys and values; with remove, the keys count.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "text_map")]
    pub value: BTreeMap<String, String>,
}

fn text_map(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": 262_144},
    })
}

/// Changes a document inside a string field.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.json) && self.json.size() > 0 && has(self.yaml) && self.yaml.size() > 0)",
    "message": "FieldOverrider has both YAML and JSON set. Only one is allowed",
}, {
    "rule": "has(self.json) && self.json.size() > 0 || has(self.yaml) && self.yaml.size() > 0",
    "message": "FieldOverrider must have either JSON or YAML set",
    "reason": "FieldValueRequired",
}]))]
pub struct FieldOverrider {
    /// A JSON pointer to the field.
    #[schemars(length(max = 1024), extend("x-kubernetes-validations" = pointer()))]
    pub field_path: String,
    /// Changes of a JSON document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub json: Vec<DocumentPatch>,
    /// Changes of a YAML document.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub yaml: Vec<DocumentPatch>,
}

/// One change of a document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentPatch {
    /// A JSON pointer inside the document.
    #[schemars(length(max = 1024), extend("x-kubernetes-validations" = pointer()))]
    pub sub_path: String,
    /// What to do there.
    pub operator: OverriderOperator,
    /// The value, unless removing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::raw_value")]
    pub value: Option<Value>,
}
