//! The schemas of a document: those of its kinds and everything they refer to.

use super::operation::has;
use super::{META, component, custom, groups, kind_of, list_component, reference, schema_of};
use crate::apiserver::schema::builtin::{self, definition};
use crate::apiserver::schema::{Go, Kind, ListType, MapType, Schema};
use crate::apiserver::scheme::Resource;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Time";
const MICRO_TIME: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime";
const DURATION: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Duration";
const FIELDS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1";
const PATCH: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const RAW: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const JSON: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON";
const OR_BOOL: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool";
const OR_ARRAY: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray";
const OR_STRINGS: &str =
    "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray";

/// Types that describe themselves in a word.
fn leaf(name: &str) -> Option<Value> {
    Some(match name {
        TIME | MICRO_TIME => json!({"type": "string", "format": "date-time"}),
        DURATION => json!({"type": "string"}),
        FIELDS | RAW | PATCH => json!({"type": "object"}),
        QUANTITY => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        INT_OR_STRING => json!({
            "oneOf": [{"type": "integer"}, {"type": "string"}],
            "format": "int-or-string",
        }),
        JSON | OR_BOOL | OR_ARRAY | OR_STRINGS => json!({}),
        _ => return None,
    })
}

#[derive(Default)]
struct Collected {
    schemas: BTreeMap<String, Value>,
    /// Definitions that are named and not yet shown.
    open: Vec<u16>,
}

pub(super) fn schemas(resources: &[Arc<Resource>]) -> Value {
    let mut all = Collected::default();
    all.add_leaf(PATCH);
    let mut built_in = None;
    for resource in resources {
        let custom = resource.is_custom();
        if !custom {
            built_in = Some((&*resource.group, &*resource.version));
        }
        match resource.schema.definition() {
            Some(number) => {
                all.open.push(number);
            }
            None => {
                let shown = custom::schema(resource);
                all.schemas.insert(component(resource), shown);
                all.add_named("ObjectMeta");
            }
        }
        if has(resource, "list") {
            all.schemas.insert(list_component(resource), list(resource));
            all.add_named("ListMeta");
        }
        if has(resource, "delete") {
            all.add_named("Status");
            all.add_named("DeleteOptions");
        }
        if has(resource, "watch") && !custom {
            all.add_leaf(RAW);
            all.schemas.insert(format!("{META}.WatchEvent"), event());
        }
        for sub in &resource.subresources {
            let (group, version, kind) = &sub.kind;
            let number = builtin::schemas()
                .named
                .get(&format!("{group}/{version}/{kind}"));
            all.open.extend(number);
        }
    }
    if built_in.is_some() {
        all.schemas.extend(pages());
    }
    while let Some(number) = all.open.pop() {
        all.add(number);
    }
    for resource in resources {
        all.name(&component(resource), &json!([kind_of(resource)]));
        for sub in &resource.subresources {
            let (group, version, kind) = &sub.kind;
            if let Some(name) = schema_of(group, version, kind) {
                let kind = json!({"group": &**group, "version": &**version, "kind": &**kind});
                all.name(name, &json!([kind]));
            }
        }
    }
    for kind in ["DeleteOptions", "WatchEvent"] {
        all.name(&format!("{META}.{kind}"), &groups::kinds(kind, built_in));
    }
    for kind in ["APIResourceList", "Status"] {
        let named = json!([{"group": "", "version": "v1", "kind": kind}]);
        all.name(&format!("{META}.{kind}"), &named);
    }
    let schemas: Map<String, Value> = all.schemas.into_iter().collect();
    Value::Object(schemas)
}

fn list(resource: &Resource) -> Value {
    let (metadata, one) = (
        reference(&format!("{META}.ListMeta")),
        reference(&component(resource)),
    );
    let custom = resource.is_custom();
    let inner = |shown: Value| match custom {
        true => shown,
        false => with(shown, vec![("default", json!({}))]),
    };
    let mut shown = json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": inner(metadata),
            "items": {"type": "array", "items": inner(one)},
        },
        "x-kubernetes-group-version-kind": [{
            "group": &*resource.group,
            "version": &*resource.version,
            "kind": &*resource.list_kind,
        }],
    });
    if let Some(fields) = custom::selectable(resource) {
        shown["x-kubernetes-selectable-fields"] = fields;
    }
    shown
}

/// An event of a watch.
fn event() -> Value {
    json!({
        "type": "object",
        "required": ["type", "object"],
        "properties": {
            "type": {"type": "string", "default": ""},
            "object": reference(RAW),
        },
    })
}

/// What the page of a group and version is made of.
fn pages() -> [(String, Value); 2] {
    let text = || json!({"type": "string"});
    let filled = || json!({"type": "string", "default": ""});
    let texts = || json!({"type": "array", "items": filled()});
    let atomic = |mut list: Value| {
        list["x-kubernetes-list-type"] = json!("atomic");
        list
    };
    let one = format!("{META}.APIResource");
    let resources = json!({
        "type": "array",
        "items": {"allOf": [reference(&one)], "default": {}},
    });
    let list = json!({
        "type": "object",
        "required": ["groupVersion", "resources"],
        "properties": {
            "apiVersion": text(),
            "kind": text(),
            "groupVersion": filled(),
            "resources": atomic(resources),
        },
    });
    let resource = json!({
        "type": "object",
        "required": ["name", "singularName", "namespaced", "kind", "verbs"],
        "properties": {
            "name": filled(),
            "singularName": filled(),
            "namespaced": {"type": "boolean", "default": false},
            "group": text(),
            "version": text(),
            "kind": filled(),
            "verbs": texts(),
            "shortNames": atomic(texts()),
            "categories": atomic(texts()),
            "storageVersionHash": text(),
        },
    });
    [(format!("{one}List"), list), (one, resource)]
}

impl Collected {
    /// Says which kinds a schema is of, if there is such a schema.
    fn name(&mut self, schema: &str, kinds: &Value) {
        if let Some(shown) = self.schemas.get_mut(schema) {
            shown["x-kubernetes-group-version-kind"] = kinds.clone();
        }
    }

    fn add_leaf(&mut self, name: &str) {
        if let Some(shown) = leaf(name) {
            self.schemas.entry(name.to_owned()).or_insert(shown);
        }
    }

    fn add_named(&mut self, kind: &str) {
        let name = format!("{META}.{kind}");
        let mut all = builtin::schemas().definitions().iter();
        let found = all.position(|definition| *definition.name == name);
        self.open
            .extend(found.and_then(|at| u16::try_from(at).ok()));
    }

    fn add(&mut self, number: u16) {
        let definition = definition(number);
        if self.schemas.contains_key(&*definition.name) {
            return;
        }
        // A place of its own first: types refer to each other in circles.
        self.schemas
            .insert(definition.name.to_string(), Value::Null);
        let mut properties = Map::new();
        let mut required = Vec::new();
        for (name, field) in &definition.schema.fields {
            if field.is_required_field() {
                required.push(name.to_string());
            }
            properties.insert(name.to_string(), self.field(field));
        }
        let mut shown = json!({"type": "object"});
        if !required.is_empty() {
            shown["required"] = json!(required);
        }
        if !properties.is_empty() {
            shown["properties"] = Value::Object(properties);
        }
        if definition.schema.map_type() == MapType::Atomic {
            shown["x-kubernetes-map-type"] = json!("atomic");
        }
        self.schemas.insert(definition.name.to_string(), shown);
    }

    /// What a field is, without what is said about the field itself.
    fn bare(&mut self, field: &Schema) -> Value {
        let named = match field.go() {
            Go::Struct(_) => {
                return match field.definition() {
                    Some(number) => {
                        self.open.push(number);
                        reference(&definition(number).name)
                    }
                    None => json!({"type": "object"}),
                };
            }
            Go::Time => TIME,
            Go::MicroTime => MICRO_TIME,
            Go::Duration => DURATION,
            Go::Quantity => QUANTITY,
            Go::IntOrString => INT_OR_STRING,
            Go::Raw => RAW,
            Go::Fields => FIELDS,
            Go::Json => JSON,
            Go::PropsOrBool => OR_BOOL,
            Go::PropsOrArray => OR_ARRAY,
            Go::PropsOrStrings => OR_STRINGS,
            _ => return self.plain(field),
        };
        self.add_leaf(named);
        reference(named)
    }

    fn plain(&mut self, field: &Schema) -> Value {
        let mut shown = match field.kind() {
            Kind::Object => json!({"type": "object"}),
            Kind::Array => json!({"type": "array"}),
            Kind::String => json!({"type": "string"}),
            Kind::Integer => json!({"type": "integer"}),
            Kind::Number => json!({"type": "number"}),
            Kind::Boolean => json!({"type": "boolean"}),
            Kind::Any | Kind::IntOrString | Kind::Quantity => json!({}),
        };
        if let Some(format) = field.format() {
            shown["format"] = json!(format);
        }
        if !field.values.is_empty() {
            let values: Vec<&str> = field.values.iter().map(|value| &**value).collect();
            shown["enum"] = json!(values);
        }
        if let Some(items) = field.items() {
            shown["items"] = self.inner(items);
        }
        if let Some(values) = field.additional() {
            shown["additionalProperties"] = self.inner(values);
        }
        shown
    }

    /// What a list or a map holds; every value in it has a zero value.
    fn inner(&mut self, schema: &Schema) -> Value {
        let shown = self.bare(schema);
        let zero = match schema.go() {
            Go::Struct(_) => json!({}),
            Go::String(_) => json!(""),
            Go::Int32 | Go::Int64 => json!(0),
            _ => return shown,
        };
        with(shown, vec![("default", zero)])
    }

    fn field(&mut self, field: &Schema) -> Value {
        let shown = self.bare(field);
        let mut said: Vec<(&str, Value)> = Vec::new();
        if let Some(default) = field.default_value() {
            said.push(("default", default.clone()));
        }
        if field.kind() == Kind::Array && field.list_type.is_some() {
            let list_type = match field.list_type() {
                ListType::Atomic => "atomic",
                ListType::Set => "set",
                ListType::Map => "map",
            };
            said.push(("x-kubernetes-list-type", json!(list_type)));
        }
        if !field.list_map_keys().is_empty() {
            let keys: Vec<&str> = field.list_map_keys().iter().map(|key| &**key).collect();
            said.push(("x-kubernetes-list-map-keys", json!(keys)));
        }
        if let Some(map_type) = field.own_map_type() {
            let shown = match map_type {
                MapType::Atomic => "atomic",
                MapType::Granular => "granular",
            };
            said.push(("x-kubernetes-map-type", json!(shown)));
        }
        let strategy = field.patch_strategy();
        let words = [
            (strategy.merge, "merge"),
            (strategy.replace, "replace"),
            (strategy.retain_keys, "retainKeys"),
        ];
        let words: Vec<&str> = words
            .iter()
            .filter(|(set, _)| *set)
            .map(|(_, word)| *word)
            .collect();
        if !words.is_empty() {
            said.push(("x-kubernetes-patch-strategy", json!(words.join(","))));
        }
        if let Some(key) = field.patch_merge_key() {
            said.push(("x-kubernetes-patch-merge-key", json!(key)));
        }
        with(shown, said)
    }
}

/// Something more about a type; beside a reference nothing may stand, so that it moves inside.
fn with(shown: Value, said: Vec<(&str, Value)>) -> Value {
    if said.is_empty() {
        return shown;
    }
    let mut shown = if shown.get("$ref").is_some() {
        json!({"allOf": [shown]})
    } else {
        shown
    };
    for (key, value) in said {
        shown[key] = value;
    }
    shown
}
