//! Schemas: one kind of node for built-in types and for CustomResourceDefinitions, and what objects
//! are held against.
//!
//! A [`Schema`] is a field together with its type. Types of the built-in kinds are shared and may
//! refer to each other in circles; every accessor follows such a reference by itself.

mod build;
pub mod builtin;
pub(crate) mod cel;
mod decode;
mod defaults;
pub(crate) mod kinds;
mod order;
mod prune;
pub(crate) mod rules;
mod validate;

pub(crate) use build::knows_format;
pub(crate) use decode::leaf::{duration_nanos, shown_duration};
pub(crate) use decode::quantity;
pub(crate) use decode::quantity::above as quantity_above;
pub(crate) use decode::quantity::is_whole as whole_bytes;
pub use validate::Verdict;

use rules::Rules;
use serde_json::Value;
use std::sync::Arc;

/// What a value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// Any JSON value, kept as it is.
    #[default]
    Any,
    /// A JSON object, with declared fields or as a map.
    Object,
    /// A list.
    Array,
    /// A string.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A truth value.
    Boolean,
    /// A whole number or a string.
    IntOrString,
    /// A quantity: written as a string or as a number.
    Quantity,
}

/// How lists are merged (`x-kubernetes-list-type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListType {
    /// As a whole.
    #[default]
    Atomic,
    /// Scalars, each at most once.
    Set,
    /// Objects, known by their keys.
    Map,
}

/// How objects are merged (`x-kubernetes-map-type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MapType {
    /// Field by field.
    #[default]
    Granular,
    /// As a whole.
    Atomic,
}

/// What a strategic merge patch does with a field (`x-kubernetes-patch-strategy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PatchStrategy {
    /// Lists are merged, not replaced.
    pub merge: bool,
    /// Objects are replaced, not merged.
    pub replace: bool,
    /// Keys that the patch does not name are cleared.
    pub retain_keys: bool,
}

/// The Go type behind a built-in field: what its values must be so that a typed server reads them,
/// and in what form it writes them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Go {
    /// None: a CustomResourceDefinition.
    #[default]
    None,
    /// A string, perhaps of a named type.
    String(Option<Arc<str>>),
    /// `bool`.
    Bool,
    /// `int32`.
    Int32,
    /// `int64`.
    Int64,
    /// `float64`.
    Float,
    /// Base64.
    Bytes,
    /// Seconds.
    Time,
    /// Microseconds.
    MicroTime,
    /// `1h2m`.
    Duration,
    /// A number with a suffix.
    Quantity,
    /// A number or a string.
    IntOrString,
    /// An object of any kind.
    Raw,
    /// A set of fields.
    Fields,
    /// Anything.
    Json,
    /// A schema, or whether there is one.
    PropsOrBool,
    /// A schema, or several.
    PropsOrArray,
    /// A schema, or names.
    PropsOrStrings,
    /// A list.
    Slice,
    /// A map.
    Map,
    /// A struct of this name.
    Struct(Arc<str>),
}

/// Where a field stands in a protobuf message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proto {
    /// Field numbers: more than one where JSON shows the fields of an inner message as its own.
    pub numbers: Box<[u32]>,
    /// `v` varint, `b` length-delimited, `f` fixed.
    pub wire: char,
}

/// A field and its type.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    pub(super) kind: Kind,
    pub(super) go: Go,
    /// The type stands under this number in the table of built-in kinds.
    pub(super) shared: Option<u16>,
    pub(super) omit_empty: bool,
    pub(super) omit_zero: bool,
    pub(super) pointer: bool,
    pub(super) required_field: bool,
    pub(super) preserve_unknown: bool,
    pub(super) embedded: bool,
    pub(super) nullable: bool,
    /// Whether a CustomResourceDefinition named a type at all; inside `allOf` and its like it often
    /// does not.
    pub(super) typed: bool,
    pub(super) proto: Option<Proto>,
    pub(super) format: Option<Arc<str>>,
    pub(super) list_type: Option<ListType>,
    pub(super) map_type: Option<MapType>,
    pub(super) list_map_keys: Box<[Arc<str>]>,
    pub(super) patch_strategy: PatchStrategy,
    pub(super) patch_merge_key: Option<Arc<str>>,
    pub(super) default: Option<Box<Value>>,
    /// The values that a built-in string may have.
    pub(super) values: Box<[Arc<str>]>,
    pub(super) fields: Box<[(Arc<str>, Schema)]>,
    pub(super) items: Option<Box<Schema>>,
    pub(super) additional: Option<Box<Schema>>,
    /// What a CustomResourceDefinition demands of values.
    pub(super) rules: Option<Box<Rules>>,
}

impl Schema {
    /// The same node with what its type says, where that stands elsewhere.
    fn ty(&self) -> &Self {
        self.shared
            .map_or(self, |number| &builtin::definition(number).schema)
    }

    /// The schema of a built-in type.
    pub(super) fn built_in(number: u16) -> Self {
        Self {
            shared: Some(number),
            ..Self::default()
        }
    }

    /// The schema of the schemas in a CustomResourceDefinition.
    pub fn json_schema_props() -> Option<Self> {
        build::json_schema_props().map(Self::built_in)
    }

    /// The number of its type in the table of built-in kinds, if it is a built-in one.
    pub fn definition(&self) -> Option<u16> {
        self.shared
    }

    /// The Go type behind it.
    pub fn go(&self) -> &Go {
        &self.ty().go
    }

    /// Where it stands in a protobuf message.
    pub fn proto(&self) -> Option<&Proto> {
        self.proto.as_ref()
    }

    /// Whether an object of a built-in kind is to have this field.
    pub fn is_required_field(&self) -> bool {
        self.required_field
    }

    /// Whether Go's JSON leaves the field out when it is empty.
    pub fn omits_empty(&self) -> bool {
        self.omit_empty
    }

    /// Whether Go's JSON leaves the field out when it has its zero value.
    pub fn omits_zero(&self) -> bool {
        self.omit_zero
    }

    /// Whether the Go field is a pointer, so that an empty value differs from none.
    pub fn is_pointer(&self) -> bool {
        self.pointer
    }

    /// What a value may be.
    pub fn kind(&self) -> Kind {
        self.ty().kind
    }

    /// The `format` of OpenAPI: `int32`, `date-time`, …
    pub fn format(&self) -> Option<&str> {
        self.ty().format.as_deref()
    }

    /// The declared field of this name.
    pub fn property(&self, name: &str) -> Option<&Self> {
        let fields = &self.ty().fields;
        let at = fields.binary_search_by(|(key, _)| key.as_ref().cmp(name));
        at.ok()
            .and_then(|at| fields.get(at))
            .map(|(_, schema)| schema)
    }

    /// What stands under this key: the declared field, or else what a map has everywhere.
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.property(name).or_else(|| self.additional())
    }

    /// All declared fields, sorted by name.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.ty()
            .fields
            .iter()
            .map(|(name, schema)| (name.as_ref(), schema))
    }

    /// Where a field stands in its Go type, which protobuf's numbers follow in most.
    pub fn place_of(&self, name: &str) -> (Vec<u32>, String) {
        if let Go::Struct(of) = self.go()
            && let Some(mut order) = order::of(of)
        {
            let place = order.position(|one| one == name);
            let place = place.and_then(|at| u32::try_from(at).ok());
            return (place.into_iter().collect(), name.to_owned());
        }
        let numbers = match self.property(name).and_then(|field| field.proto.as_ref()) {
            Some(proto) => proto.numbers.to_vec(),
            // Fields of a map have no place but their name, kind and version stand first.
            None => Vec::new(),
        };
        (numbers, name.to_owned())
    }

    /// What a map holds under every key that is not declared.
    pub fn additional(&self) -> Option<&Self> {
        self.ty().additional.as_deref()
    }

    /// What a list holds.
    pub fn items(&self) -> Option<&Self> {
        self.ty().items.as_deref()
    }

    /// How lists are merged; atomic where the schema says nothing.
    pub fn list_type(&self) -> ListType {
        self.list_type.or(self.ty().list_type).unwrap_or_default()
    }

    /// Whether the schema says that a list is merged as a whole, which is more than not to say how.
    pub fn is_atomic_list(&self) -> bool {
        self.list_type.or(self.ty().list_type) == Some(ListType::Atomic)
    }

    /// What tells the items of a list of objects apart.
    pub fn list_map_keys(&self) -> &[Arc<str>] {
        match &self.list_map_keys {
            keys if keys.is_empty() => &self.ty().list_map_keys,
            keys => keys,
        }
    }

    /// How objects are merged.
    pub fn map_type(&self) -> MapType {
        let known = self.map_type.or(self.ty().map_type);
        known.unwrap_or_default()
    }

    /// What a field itself says of that, whatever its type says.
    pub fn own_map_type(&self) -> Option<MapType> {
        self.map_type
    }

    /// What a strategic merge patch does here.
    pub fn patch_strategy(&self) -> PatchStrategy {
        self.patch_strategy
    }

    /// By which field a strategic merge patch knows the items of a list.
    pub fn patch_merge_key(&self) -> Option<&str> {
        self.patch_merge_key.as_deref()
    }

    /// What is put where nothing is.
    pub fn default_value(&self) -> Option<&Value> {
        self.default.as_deref()
    }

    /// Whether fields that are not declared are kept.
    pub fn preserves_unknown(&self) -> bool {
        self.ty().preserve_unknown
    }

    /// Whether it is a whole object with `apiVersion`, `kind` and `metadata`.
    pub fn is_embedded(&self) -> bool {
        self.ty().embedded
    }
}
