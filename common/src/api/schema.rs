//! Schema pieces the API types share, and the limits every field gets.
//!
//! An agent's status is stored by the hub and decoded by every controller, so no field is without a
//! bound: what a type does not say itself is filled in by [`finish`].

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Longest string of a field that names no limit of its own.
const STRING_MAX: i64 = 1024;
/// Most items of a list that names no limit of its own.
const ITEMS_MAX: i64 = 256;
/// Most entries of a map that names no limit of its own.
const PROPERTIES_MAX: i64 = 256;
/// Largest integer that every JSON reader holds exactly.
const INTEGER_MAX: f64 = 9_007_199_254_740_991.0;

/// Every time that both Go and jiff can hold, in the form Kubernetes writes it.
pub const TIME_PATTERN: &str =
    r"^[12]\d{3}-\d{2}-\d{2}T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?Z$";
/// A Kubernetes quantity.
const QUANTITY_PATTERN: &str = r"^[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?$";
/// The value of a label; may be empty.
pub const LABEL_VALUE_PATTERN: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
/// A name with an optional DNS prefix, as the keys of labels and taints.
pub const QUALIFIED_NAME_PATTERN: &str =
    r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$";

/// What Kubernetes says of a key that is none of a label.
pub const LABEL_KEY_MESSAGE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must \
     start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used \
     for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
/// What Kubernetes says of a value that is none of a label.
pub const LABEL_VALUE_MESSAGE: &str = "a valid label must be an empty string or consist of alphanumeric characters, \
     '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or \
     'my_value',  or '12345', regex used for validation is \
     '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Rules of a text that is the key of a label; the schema leaves out what is empty.
pub fn label_key() -> Value {
    matches(
        &format!("self == '' || self.matches('{QUALIFIED_NAME_PATTERN}')"),
        LABEL_KEY_MESSAGE,
    )
}

/// Rules of a text that is the value of a label.
pub fn label_value() -> Value {
    matches(
        &format!("self.matches('{LABEL_VALUE_PATTERN}')"),
        LABEL_VALUE_MESSAGE,
    )
}

/// The same, for each text of a list.
pub fn label_values() -> Value {
    matches(
        &format!("self.all(v, v.matches('{LABEL_VALUE_PATTERN}'))"),
        LABEL_VALUE_MESSAGE,
    )
}

/// Rules of a text that must not be empty.
pub fn named() -> Value {
    json!([{"rule": "self != ''", "message": "must not be empty", "reason": "FieldValueRequired"}])
}

fn matches(rule: &str, message: &str) -> Value {
    json!([{"rule": rule, "message": message}])
}

/// A point in time.
pub fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "format": "date-time", "maxLength": 30, "pattern": TIME_PATTERN,
    })
}

/// A map from resource name to quantity.
pub fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": true,
            "maxLength": 64,
            "pattern": QUANTITY_PATTERN,
        },
    })
}

/// One quantity, written as a string so that rules can compute with it.
pub fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "maxLength": 24, "pattern": QUANTITY_PATTERN})
}

/// A whole object of any kind.
pub fn raw_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A list of whole objects of any kind.
pub fn raw_objects(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": raw_object(generator), "maxItems": 1000})
}

/// Any value at all.
pub fn raw_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-preserve-unknown-fields": true})
}

/// How many conditions an object may have.
pub const CONDITIONS_MAX: usize = 32;

/// Conditions, merged by type.
pub fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut transition = time(generator);
    transition.insert(
        "description".into(),
        "When the status last changed from one value to another.".into(),
    );
    json_schema!({
        "type": "array",
        "maxItems": CONDITIONS_MAX,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": {
                    "description": "What this condition speaks about, in CamelCase.",
                    "type": "string", "maxLength": 316,
                    "pattern": QUALIFIED_NAME_PATTERN,
                },
                "status": {
                    "description": "Whether it holds.",
                    "type": "string", "enum": ["True", "False", "Unknown"],
                },
                "observedGeneration": {
                    "description": "Generation of the object that was looked at.",
                    "type": "integer", "format": "int64", "minimum": 0, "maximum": INTEGER_MAX,
                },
                "lastTransitionTime": transition,
                "reason": {
                    "description": "Why, in one CamelCase word, for programs.",
                    "type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                },
                "message": {
                    "description": "Why, for people; may be empty.",
                    "type": "string", "maxLength": 32768,
                },
            },
        },
    })
}

/// A label selector.
pub fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "description": "Labels that must be there with exactly these values.",
                "type": "object",
                "additionalProperties": {"type": "string", "maxLength": 63},
            },
            "matchExpressions": {
                "description": "Requirements that must all hold.",
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {
                            "description": "Key of the label.",
                            "type": "string", "maxLength": 317,
                        },
                        "operator": {
                            "description": "How the label's value relates to the values.",
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "description": "Values for In and NotIn.",
                            "type": "array", "items": {"type": "string", "maxLength": 63},
                        },
                    },
                },
            },
        },
    })
}

/// Tolerations of cluster taints; comparing operators are refused, as clusters have no such taints.
pub fn tolerations(_: &mut SchemaGenerator) -> Schema {
    toleration_list(&["", "Exists", "Equal"])
}

/// Tolerations of node taints.
pub fn node_tolerations(_: &mut SchemaGenerator) -> Schema {
    toleration_list(&["Exists", "Equal", "Lt", "Gt", ""])
}

fn toleration_list(operators: &[&str]) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 128,
        "items": {
            "type": "object",
            "properties": {
                "key": {
                    "description": "Key of the taint; empty with Exists tolerates every key.",
                    "type": "string", "maxLength": 317,
                },
                "operator": {
                    "description": "How the taint's value relates to the value; Equal when absent.",
                    "type": "string", "enum": operators,
                },
                "value": {
                    "description": "Value of the taint, with Equal.",
                    "type": "string", "maxLength": 63,
                },
                "effect": {
                    "description": "Effect of the taint; empty tolerates every effect.",
                    "type": "string",
                    "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute", ""],
                },
                "tolerationSeconds": {
                    "description": "How long a NoExecute taint is tolerated; for ever when absent.",
                    "type": "integer", "format": "int64",
                    "minimum": -INTEGER_MAX, "maximum": INTEGER_MAX,
                },
            },
        },
    })
}

/// A node selector: terms of which one must match.
pub fn node_selector(_: &mut SchemaGenerator) -> Schema {
    let requirements = |description: &str| {
        json_schema!({
            "description": description,
            "type": "array",
            "items": {
                "type": "object",
                "required": ["key", "operator"],
                "properties": {
                    "key": {"description": "Key.", "type": "string", "maxLength": 317},
                    "operator": {
                        "description": "How the value relates to the values.",
                        "type": "string",
                        "enum": ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"],
                    },
                    "values": {
                        "description": "Values to compare with.",
                        "type": "array", "items": {"type": "string", "maxLength": 317},
                    },
                },
            },
        })
    };
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "required": ["nodeSelectorTerms"],
        "properties": {
            "nodeSelectorTerms": {
                "description": "Terms, of which one must match.",
                "type": "array",
                "items": {
                    "type": "object",
                    "x-kubernetes-map-type": "atomic",
                    "properties": {
                        "matchExpressions": requirements("Requirements on the node's labels."),
                        "matchFields": requirements("Requirements on the node's fields."),
                    },
                },
            },
        },
    })
}

/// Makes a derived definition final: no nulls, every field bounded.
pub fn finish(crd: &mut CustomResourceDefinition) {
    for version in &mut crd.spec.versions {
        if let Some(root) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        {
            bound(root);
        }
    }
}

fn bound(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    match schema.type_.as_deref() {
        Some("string") if schema.enum_.is_none() => {
            schema.max_length.get_or_insert(STRING_MAX);
        }
        Some("array") => {
            schema.max_items.get_or_insert(ITEMS_MAX);
        }
        Some("integer") => {
            let max = match schema.format.as_deref() {
                Some("int32") => f64::from(i32::MAX),
                _ => INTEGER_MAX,
            };
            schema.minimum.get_or_insert(0.0);
            schema.maximum.get_or_insert(max);
        }
        Some("object") if schema.additional_properties.is_some() => {
            schema.max_properties.get_or_insert(PROPERTIES_MAX);
        }
        _ => {}
    }
    for child in schema.properties.iter_mut().flatten() {
        bound(child.1);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        bound(items);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        bound(values);
    }
}
