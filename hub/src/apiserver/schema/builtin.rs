//! The built-in kinds and their schemas, as a real API server tells them: a compressed table that
//! `e2e/modules/facts` writes, read when it is first needed.

use super::{Go, Kind, ListType, MapType, PatchStrategy, Proto, Schema};
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

static PACKED: &[u8] = include_bytes!("builtin/kubernetes.json.gz");

/// All that is known of the built-in kinds.
#[derive(Debug)]
pub struct Builtin {
    /// The answer to `/version` of the server that was read.
    pub version: Value,
    /// Its kinds, in the order of discovery.
    pub kinds: Vec<BuiltinKind>,
    /// Other kinds with a body, by `group/version/Kind`: definitions.
    pub named: BTreeMap<String, u16>,
    definitions: Vec<Definition>,
}

/// A type of the built-in kinds.
#[derive(Debug)]
pub struct Definition {
    /// Its name in OpenAPI: `io.k8s.api.apps.v1.DeploymentSpec`.
    pub name: Arc<str>,
    /// What objects of it look like.
    pub schema: Schema,
}

/// A built-in kind.
#[derive(Debug, Deserialize)]
pub struct BuiltinKind {
    /// API group; empty for the core group.
    #[serde(rename = "g", default)]
    pub group: String,
    /// `v1`, `v1beta1`, …
    #[serde(rename = "v")]
    pub version: String,
    /// Its name in bodies: `Deployment`.
    #[serde(rename = "k")]
    pub kind: String,
    /// Its name in paths: `deployments`.
    #[serde(rename = "p")]
    pub plural: String,
    /// `deployment`.
    #[serde(rename = "s")]
    pub singular: String,
    /// What people type instead: `deploy`.
    #[serde(rename = "sh", default)]
    pub short_names: Vec<String>,
    /// Names of several kinds at once: `all`.
    #[serde(rename = "c", default)]
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    #[serde(rename = "ns", default)]
    pub namespaced: bool,
    /// What can be done with its objects: `get`, `list`, …
    #[serde(rename = "vb")]
    pub verbs: Vec<String>,
    /// Parts of its objects that are written by themselves.
    #[serde(rename = "sub", default)]
    pub subresources: Vec<BuiltinSubresource>,
    /// What a table shows of its objects.
    #[serde(rename = "col", default)]
    pub columns: Vec<BuiltinColumn>,
    /// The number of its type in [`Builtin::definitions`].
    #[serde(rename = "d")]
    pub definition: u16,
}

/// A subresource of a built-in kind.
#[derive(Debug, Deserialize)]
pub struct BuiltinSubresource {
    /// `status`, `scale`, `token`, …
    #[serde(rename = "n")]
    pub name: String,
    /// Group, version and kind of its body.
    #[serde(rename = "k")]
    pub kind: (String, String, String),
    /// What can be done with it: `get`, `update`, …
    #[serde(rename = "v")]
    pub verbs: Vec<String>,
}

/// A column of a table.
#[derive(Debug, Deserialize)]
pub struct BuiltinColumn {
    /// What stands above it.
    #[serde(rename = "n")]
    pub name: String,
    /// `string`, `integer`, `date`, …
    #[serde(rename = "t")]
    pub r#type: String,
    /// `name` for the name of the object; else mostly empty.
    #[serde(rename = "f", default)]
    pub format: String,
    /// Above 0 it is shown by `-o wide` only.
    #[serde(rename = "p", default)]
    pub priority: i32,
}

#[derive(Deserialize)]
struct RawBuiltin {
    version: Value,
    kinds: Vec<BuiltinKind>,
    named: BTreeMap<String, u16>,
    definitions: Vec<RawDefinition>,
}

#[derive(Deserialize)]
struct RawDefinition {
    #[serde(rename = "n")]
    name: String,
    #[serde(rename = "g")]
    go: String,
    #[serde(rename = "mt", default)]
    map_type: String,
    #[serde(rename = "f")]
    fields: Vec<RawField>,
}

#[derive(Deserialize, Default)]
struct RawField {
    #[serde(rename = "n")]
    name: String,
    #[serde(rename = "t")]
    expression: String,
    #[serde(rename = "o", default)]
    omit: String,
    #[serde(rename = "p", default)]
    pointer: bool,
    #[serde(rename = "pb", default)]
    proto: String,
    #[serde(rename = "r", default)]
    required: bool,
    #[serde(rename = "d", default)]
    default: Option<Value>,
    #[serde(rename = "e", default)]
    values: Vec<String>,
    #[serde(rename = "ie", default)]
    item_values: Vec<String>,
    #[serde(rename = "lt", default)]
    list_type: String,
    #[serde(rename = "lk", default)]
    list_keys: Vec<String>,
    #[serde(rename = "mt", default)]
    map_type: String,
    #[serde(rename = "ps", default)]
    strategy: String,
    #[serde(rename = "mk", default)]
    merge_key: String,
}

/// The table, read when first asked for.
pub fn schemas() -> &'static Builtin {
    static READ: OnceLock<Builtin> = OnceLock::new();
    READ.get_or_init(|| {
        let raw: RawBuiltin = serde_json::from_reader(GzDecoder::new(PACKED))
            .expect("invariant: the table of built-in kinds that was compiled in reads");
        Builtin::from_raw(raw)
    })
}

/// A definition by its number.
pub(in crate::apiserver) fn definition(number: u16) -> &'static Definition {
    &schemas().definitions[usize::from(number)]
}

impl Builtin {
    fn from_raw(raw: RawBuiltin) -> Self {
        let mut words = Words::default();
        let definitions = raw
            .definitions
            .into_iter()
            .map(|one| one.build(&mut words))
            .collect();
        Self {
            version: raw.version,
            kinds: raw.kinds,
            named: raw.named,
            definitions,
        }
    }

    /// All types, by number.
    pub fn definitions(&self) -> &[Definition] {
        &self.definitions
    }

    /// The type of a body that is no kind of its own: `DeleteOptions`, `Scale`, `TokenRequest`.
    pub fn named(&self, group: &str, version: &str, kind: &str) -> Option<&Schema> {
        let number = self.named.get(&format!("{group}/{version}/{kind}"))?;
        let found = self.definitions.get(usize::from(*number))?;
        Some(&found.schema)
    }
}

/// Names that occur again and again are kept once.
#[derive(Default)]
struct Words {
    known: HashSet<Arc<str>>,
    types: HashMap<String, Go>,
}

impl Words {
    fn word(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.known.insert(new.clone());
        new
    }

    fn go(&mut self, text: &str) -> Go {
        if let Some(known) = self.types.get(text) {
            return known.clone();
        }
        let (base, name) = text.split_once('=').unwrap_or((text, ""));
        let named = (!name.is_empty()).then(|| self.word(name));
        let go = match base {
            "string" => Go::String(named),
            "bool" => Go::Bool,
            "int32" => Go::Int32,
            "int64" => Go::Int64,
            "float64" => Go::Float,
            "bytes" => Go::Bytes,
            "time" => Go::Time,
            "microtime" => Go::MicroTime,
            "duration" => Go::Duration,
            "quantity" => Go::Quantity,
            "intorstring" => Go::IntOrString,
            "raw" => Go::Raw,
            "fields" => Go::Fields,
            "json" => Go::Json,
            "propsorbool" => Go::PropsOrBool,
            "propsorarray" => Go::PropsOrArray,
            "propsorstrings" => Go::PropsOrStrings,
            other => unknown(other),
        };
        self.types.insert(text.to_owned(), go.clone());
        go
    }
}

/// The table and this reader are of one build; a word that is not known is a defect of both.
fn unknown(word: &str) -> Go {
    tracing::error!(
        word,
        "the table of built-in kinds has a type that is not known"
    );
    Go::Json
}

fn kind_of(go: &Go) -> (Kind, Option<&'static str>) {
    match go {
        Go::String(_) | Go::Duration => (Kind::String, None),
        Go::Bytes => (Kind::String, Some("byte")),
        Go::Time | Go::MicroTime => (Kind::String, Some("date-time")),
        Go::Bool => (Kind::Boolean, None),
        Go::Int32 => (Kind::Integer, Some("int32")),
        Go::Int64 => (Kind::Integer, Some("int64")),
        Go::Float => (Kind::Number, Some("double")),
        Go::Quantity => (Kind::Quantity, None),
        Go::IntOrString => (Kind::IntOrString, Some("int-or-string")),
        Go::Raw | Go::Fields | Go::Struct(_) | Go::Map => (Kind::Object, None),
        Go::Slice => (Kind::Array, None),
        Go::None | Go::Json | Go::PropsOrBool | Go::PropsOrArray | Go::PropsOrStrings => {
            (Kind::Any, None)
        }
    }
}

fn expression(text: &str, words: &mut Words) -> Schema {
    if let Some(number) = text.strip_prefix('#') {
        return Schema {
            shared: number.parse().ok(),
            ..Schema::default()
        };
    }
    if let Some(items) = text.strip_prefix("[]") {
        return Schema {
            kind: Kind::Array,
            go: Go::Slice,
            items: Some(Box::new(expression(items, words))),
            ..Schema::default()
        };
    }
    if let Some(values) = text.strip_prefix("{}") {
        return Schema {
            kind: Kind::Object,
            go: Go::Map,
            additional: Some(Box::new(expression(values, words))),
            ..Schema::default()
        };
    }
    let go = words.go(text);
    let (kind, format) = kind_of(&go);
    Schema {
        kind,
        format: format.map(|format| words.word(format)),
        preserve_unknown: matches!(go, Go::Raw | Go::Fields | Go::Json),
        go,
        ..Schema::default()
    }
}

impl RawDefinition {
    fn build(self, words: &mut Words) -> Definition {
        let fields = self
            .fields
            .into_iter()
            .map(|field| (words.word(&field.name), field.build(words)))
            .collect();
        Definition {
            name: words.word(&self.name),
            schema: Schema {
                kind: Kind::Object,
                go: Go::Struct(words.word(&self.go)),
                map_type: map_type(&self.map_type),
                fields,
                ..Schema::default()
            },
        }
    }
}

fn map_type(text: &str) -> Option<MapType> {
    match text {
        "atomic" => Some(MapType::Atomic),
        "granular" => Some(MapType::Granular),
        _ => None,
    }
}

impl RawField {
    fn build(self, words: &mut Words) -> Schema {
        let mut schema = expression(&self.expression, words);
        schema.omit_empty = self.omit.contains('e');
        schema.omit_zero = self.omit.contains('z');
        schema.pointer = self.pointer;
        schema.required_field = self.required;
        schema.proto = proto(&self.proto);
        schema.default = self.default.map(Box::new);
        schema.values = self.values.iter().map(|v| words.word(v)).collect();
        if let Some(items) = schema.items.as_mut() {
            items.values = self.item_values.iter().map(|v| words.word(v)).collect();
        }
        schema.list_type = match self.list_type.as_str() {
            "map" => Some(ListType::Map),
            "set" => Some(ListType::Set),
            "atomic" => Some(ListType::Atomic),
            _ => None,
        };
        schema.list_map_keys = self.list_keys.iter().map(|k| words.word(k)).collect();
        schema.map_type = map_type(&self.map_type);
        schema.patch_strategy = PatchStrategy {
            merge: self.strategy.split(',').any(|s| s == "merge"),
            replace: self.strategy.split(',').any(|s| s == "replace"),
            retain_keys: self.strategy.split(',').any(|s| s == "retainKeys"),
        };
        schema.patch_merge_key = (!self.merge_key.is_empty()).then(|| words.word(&self.merge_key));
        schema
    }
}

/// `2.4b`: field 2, within it field 4, length-delimited.
fn proto(text: &str) -> Option<Proto> {
    let wire = text.chars().last()?;
    let numbers = text.get(..text.len() - wire.len_utf8())?;
    Some(Proto {
        numbers: numbers.split('.').map_while(|n| n.parse().ok()).collect(),
        wire,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_reads_and_every_reference_has_a_target() {
        let builtin = schemas();
        assert!(builtin.kinds.len() >= 50, "{}", builtin.kinds.len());
        let count = builtin.definitions().len();
        fn holds(schema: &Schema, count: usize) {
            assert!(schema.shared.is_none_or(|at| usize::from(at) < count));
            for nested in schema.items.iter().chain(&schema.additional) {
                holds(nested, count);
            }
        }
        for definition in builtin.definitions() {
            for (_, field) in &definition.schema.fields {
                holds(field, count);
                let proto = field.proto.as_ref();
                assert!(proto.is_none_or(|p| !p.numbers.is_empty()));
            }
        }
    }

    #[test]
    fn bodies_without_a_kind_of_their_own_are_known() {
        let builtin = schemas();
        for (group, version, kind) in [
            ("meta.k8s.io", "v1", "DeleteOptions"),
            ("autoscaling", "v1", "Scale"),
            ("authentication.k8s.io", "v1", "TokenRequest"),
        ] {
            assert!(builtin.named(group, version, kind).is_some(), "{kind}");
        }
        assert!(builtin.named("x", "v1", "Y").is_none());
    }
}
