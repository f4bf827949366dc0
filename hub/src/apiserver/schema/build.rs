//! From the schema in a CustomResourceDefinition to nodes.

use super::cel::{CelRule, Scope};
use super::rules::{Pattern, Rules};
use super::{Kind, ListType, MapType, Schema, builtin};
use serde_json::{Map, Value};
use std::sync::{Arc, OnceLock};

impl Schema {
    /// The schema of a whole custom resource, from its `openAPIV3Schema`.
    pub fn of_crd(openapi: &Value, preserve_unknown: bool) -> Self {
        let mut schema = node_at(openapi, true);
        schema.kind = Kind::Object;
        schema.preserve_unknown |= preserve_unknown;
        make_whole(&mut schema);
        schema
    }

    /// One node of a schema of a CustomResourceDefinition.
    #[cfg(test)]
    pub(super) fn from_openapi(openapi: &Value) -> Self {
        node(openapi)
    }

    /// The same as defaults are held against it: what may be a number or a string may be anything.
    pub(super) fn of_default(openapi: &Value) -> Self {
        let mut schema = node(openapi);
        schema.forget_either();
        schema
    }

    fn forget_either(&mut self) {
        self.typed &= self.kind != Kind::IntOrString;
        let fields = self.fields.iter_mut().map(|(_, field)| field);
        let below = self.items.as_deref_mut().into_iter();
        let below = below.chain(self.additional.as_deref_mut());
        fields.chain(below).for_each(Self::forget_either);
    }
}

/// The type of `metadata`, which is that of built-in kinds whatever a CRD says.
pub(super) fn object_meta() -> Option<u16> {
    static NUMBER: OnceLock<Option<u16>> = OnceLock::new();
    *NUMBER.get_or_init(|| number("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"))
}

/// The type of the schemas in a CustomResourceDefinition.
pub(super) fn json_schema_props() -> Option<u16> {
    static NUMBER: OnceLock<Option<u16>> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        number("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")
    })
}

fn number(name: &str) -> Option<u16> {
    let mut all = builtin::schemas().definitions().iter();
    let at = all.position(|definition| definition.name.as_ref() == name)?;
    u16::try_from(at).ok()
}

/// Gives a node the fields that every whole object has.
fn make_whole(schema: &mut Schema) {
    schema.embedded = true;
    let mut fields = std::mem::take(&mut schema.fields).into_vec();
    let metadata = fields
        .iter()
        .position(|(name, _)| name.as_ref() == "metadata")
        .map(|at| fields.remove(at).1);
    if let Some(metadata) = metadata
        && (metadata.typed || metadata.rules.is_some() || !metadata.fields.is_empty())
    {
        schema.rules.get_or_insert_default().metadata = Some(Box::new(metadata));
    }
    for name in ["apiVersion", "kind"] {
        if !fields.iter().any(|(known, _)| known.as_ref() == name) {
            let text = Schema {
                kind: Kind::String,
                ..Schema::default()
            };
            fields.push((name.into(), text));
        }
    }
    if let Some(number) = object_meta() {
        fields.push(("metadata".into(), Schema::built_in(number)));
    }
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    schema.fields = fields.into();
}

fn node(openapi: &Value) -> Schema {
    let embedded = openapi["x-kubernetes-embedded-resource"] == Value::Bool(true);
    node_at(openapi, embedded)
}

/// One node; `whole` at the root of an object.
fn node_at(openapi: &Value, whole: bool) -> Schema {
    let Some(given) = openapi.as_object() else {
        return Schema {
            preserve_unknown: true,
            ..Schema::default()
        };
    };
    let flag = |key: &str| given.get(key).and_then(Value::as_bool) == Some(true);
    let text = |key: &str| given.get(key).and_then(Value::as_str);
    let int_or_string = flag("x-kubernetes-int-or-string");
    let kind = match text("type") {
        _ if int_or_string => Kind::IntOrString,
        Some("object") => Kind::Object,
        Some("array") => Kind::Array,
        Some("string") => Kind::String,
        Some("integer") => Kind::Integer,
        Some("number") => Kind::Number,
        Some("boolean") => Kind::Boolean,
        _ => Kind::Any,
    };
    let mut schema = Schema {
        kind,
        typed: kind != Kind::Any,
        format: text("format").and_then(|f| supported_format(kind, f)),
        nullable: flag("nullable"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        default: given
            .get("default")
            .filter(|value| !value.is_null())
            .map(|value| Box::new(value.clone())),
        list_type: match text("x-kubernetes-list-type") {
            Some("map") => Some(ListType::Map),
            Some("set") => Some(ListType::Set),
            Some("atomic") => Some(ListType::Atomic),
            _ => None,
        },
        list_map_keys: words(given.get("x-kubernetes-list-map-keys")).into(),
        map_type: match text("x-kubernetes-map-type") {
            Some("atomic") => Some(MapType::Atomic),
            _ => None,
        },
        fields: fields(given),
        items: given.get("items").map(|items| Box::new(node(items))),
        additional: match given.get("additionalProperties") {
            Some(Value::Object(values)) => Some(Box::new(node(&Value::Object(values.clone())))),
            Some(Value::Bool(true)) => Some(Box::default()),
            _ => None,
        },
        rules: rules(openapi, given, whole),
        ..Schema::default()
    };
    if flag("x-kubernetes-embedded-resource") {
        make_whole(&mut schema);
    }
    schema
}

fn fields(given: &Map<String, Value>) -> Box<[(Arc<str>, Schema)]> {
    let Some(Value::Object(properties)) = given.get("properties") else {
        return Box::default();
    };
    let mut fields: Vec<(Arc<str>, Schema)> = properties
        .iter()
        .map(|(name, schema)| (name.as_str().into(), node(schema)))
        .collect();
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    fields.into()
}

fn words(given: Option<&Value>) -> Vec<Arc<str>> {
    let listed = given.and_then(Value::as_array).into_iter().flatten();
    listed.filter_map(Value::as_str).map(Arc::from).collect()
}

fn nodes(given: Option<&Value>) -> Vec<Schema> {
    let listed = given.and_then(Value::as_array).into_iter().flatten();
    listed.map(node).collect()
}

/// What makes rules; most nodes have nothing of it.
const DEMANDS: [&str; 20] = [
    "allOf",
    "anyOf",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "required",
    "uniqueItems",
    "x-kubernetes-validations",
];

fn rules(openapi: &Value, given: &Map<String, Value>, whole: bool) -> Option<Box<Rules>> {
    if !DEMANDS.iter().any(|demand| given.contains_key(*demand)) {
        return None;
    }
    let flag = |key: &str| given.get(key).and_then(Value::as_bool) == Some(true);
    let count = |key: &str| given.get(key).and_then(Value::as_u64);
    let number = |key: &str| given.get(key).and_then(Value::as_number).cloned();
    let list = |key: &str| given.get(key).and_then(Value::as_array);
    let rules = Rules {
        required: words(given.get("required")),
        one_of_values: list("enum").cloned().unwrap_or_default(),
        pattern: given
            .get("pattern")
            .and_then(Value::as_str)
            .filter(|pattern| !pattern.is_empty())
            .map(Pattern::new),
        minimum: number("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        maximum: number("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: given.get("multipleOf").and_then(Value::as_f64),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        unique_items: flag("uniqueItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
        all_of: nodes(given.get("allOf")),
        any_of: nodes(given.get("anyOf")),
        one_of: nodes(given.get("oneOf")),
        not: given.get("not").map(|not| Box::new(node(not))),
        metadata: None,
        cel: list("x-kubernetes-validations")
            .filter(|rules| !rules.is_empty())
            .map(|rules| {
                let scope = Scope::of(openapi, whole).unwrap_or_else(Scope::of_anything);
                let scope = Arc::new(scope);
                rules
                    .iter()
                    .map(|rule| CelRule::new(rule, &scope))
                    .collect()
            })
            .unwrap_or_default(),
    };
    Some(Box::new(rules))
}

/// Formats that are checked, without the hyphens that do not count; others are mere words.
const FORMATS: [&str; 25] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
];

/// Whether values of a type, in the words of OpenAPI, are held against a format.
pub(crate) fn knows_format(of: &str, format: &str) -> bool {
    let kind = match of {
        "" | "string" => Kind::String,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        _ => Kind::Object,
    };
    supported_format(kind, format).is_some()
}

fn supported_format(kind: Kind, format: &str) -> Option<Arc<str>> {
    let plain = format.replace('-', "");
    let known = match kind {
        Kind::Any | Kind::String => FORMATS.contains(&plain.as_str()) || plain == "k8slongname",
        Kind::Integer => matches!(format, "int32" | "int64"),
        Kind::Number => matches!(format, "float" | "double"),
        _ => false,
    };
    known.then(|| format.into())
}
