//! What a field may hold, seen as ownership sees it: scalars, lists and maps, whole or item by item.

use super::element::Element;
use crate::apiserver::schema::{Go, Kind, ListType, MapType, Schema};
use crate::go::settle_numbers;
use serde_json::Value;
use std::sync::Arc;

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Type<'s> {
    /// What a schema says; `open` where unknown fields are kept because a parent says so.
    Known { schema: &'s Schema, open: bool },
    /// Anything: objects member by member, lists as a whole.
    Deduced,
    /// Anything, as a whole.
    Opaque,
}

/// What a scalar may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Number,
    String,
    Boolean,
    Any,
}

/// The forms that a value of a type may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Forms {
    pub(super) map: bool,
    pub(super) scalar: Option<Scalar>,
    pub(super) list: bool,
}

/// The one form in which a value is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Map,
    Scalar(Scalar),
    List,
}

impl Forms {
    const ALL: Self = Self {
        map: true,
        scalar: Some(Scalar::Any),
        list: true,
    };
    const NONE: Self = Self {
        map: false,
        scalar: None,
        list: false,
    };

    /// Those that a value can have, if any; else all, and the value will be found wrong later.
    pub(super) fn deduced(self, value: Option<&Value>) -> Self {
        match value {
            Some(Value::Object(_)) if self.map => Self {
                map: true,
                ..Self::NONE
            },
            Some(Value::Array(_)) if self.list => Self {
                list: true,
                ..Self::NONE
            },
            Some(Value::String(_) | Value::Number(_) | Value::Bool(_)) if self.scalar.is_some() => {
                Self {
                    scalar: self.scalar,
                    ..Self::NONE
                }
            }
            _ => self,
        }
    }

    /// The first that is possible.
    pub(super) fn first(self) -> Form {
        match (self.map, self.scalar) {
            (true, _) => Form::Map,
            (false, Some(scalar)) => Form::Scalar(scalar),
            (false, None) => Form::List,
        }
    }
}

/// How a list is owned.
#[derive(Debug, Clone, Copy)]
pub(super) struct List<'s> {
    pub(super) atomic: bool,
    pub(super) keys: Keys<'s>,
    pub(super) items: Type<'s>,
}

/// What tells the objects of a list apart; none for sets.
#[derive(Debug, Clone, Copy)]
pub(super) enum Keys<'s> {
    None,
    One(&'s str),
    Many(&'s [Arc<str>]),
}

/// How an object is owned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Map<'s> {
    pub(super) atomic: bool,
    schema: Option<&'s Schema>,
    open: bool,
    element: Option<Type<'s>>,
}

impl<'s> Map<'s> {
    /// A declared field.
    pub(super) fn field(&self, name: &str) -> Option<Type<'s>> {
        let schema = self.schema?.property(name)?;
        Some(Type::below(schema, self.open))
    }

    /// A declared field, or what stands under every other name.
    pub(super) fn child(&self, name: &str) -> Option<Type<'s>> {
        self.field(name).or(self.element)
    }

    /// What stands under names that are not declared.
    pub(super) fn element(&self) -> Option<Type<'s>> {
        self.element
    }

    /// Whether nothing is declared and anything may be there.
    pub(super) fn is_deduced(&self) -> bool {
        matches!(self.element, Some(Type::Deduced))
            && self
                .schema
                .is_none_or(|schema| schema.properties().next().is_none())
    }
}

impl<'s> Type<'s> {
    /// The type of whole objects.
    pub(super) fn of(schema: &'s Schema) -> Self {
        Self::below(schema, false)
    }

    /// The type of what a schema holds.
    fn below(schema: &'s Schema, open: bool) -> Self {
        if *schema.go() == Go::Raw {
            return Self::Opaque;
        }
        // Types of their own know nothing of where they are used.
        let inherited = open && schema.definition().is_none();
        let open = inherited || (*schema.go() == Go::None && schema.preserves_unknown());
        Self::Known { schema, open }
    }

    /// The forms that values may have.
    pub(super) fn forms(self) -> Forms {
        let Self::Known { schema, .. } = self else {
            return Forms::ALL;
        };
        let scalar = |scalar| Forms {
            scalar: Some(scalar),
            ..Forms::NONE
        };
        match schema.kind() {
            Kind::Any | Kind::IntOrString => Forms::ALL,
            Kind::Object => Forms {
                map: true,
                ..Forms::NONE
            },
            Kind::Array => Forms {
                list: true,
                ..Forms::NONE
            },
            Kind::String if matches!(schema.format(), None | Some("byte")) => {
                scalar(Scalar::String)
            }
            Kind::String | Kind::Quantity => scalar(Scalar::Any),
            Kind::Integer | Kind::Number => scalar(Scalar::Number),
            Kind::Boolean => scalar(Scalar::Boolean),
        }
    }

    /// How a list of this type is owned.
    pub(super) fn list(self) -> Option<List<'s>> {
        let Self::Known { schema, open } = self else {
            return Some(List {
                atomic: true,
                keys: Keys::None,
                items: Self::Opaque,
            });
        };
        if !self.forms().list {
            return None;
        }
        let strategy = schema.patch_strategy();
        let (atomic, keys) = match schema.list_type() {
            ListType::Map => (false, Keys::Many(schema.list_map_keys())),
            ListType::Set => (false, Keys::None),
            ListType::Atomic if strategy.merge && !schema.is_atomic_list() => {
                let key = schema.patch_merge_key();
                (false, key.map_or(Keys::None, Keys::One))
            }
            ListType::Atomic => (true, Keys::None),
        };
        Some(List {
            atomic,
            keys,
            items: schema
                .items()
                .map_or(Self::Opaque, |items| Self::below(items, open)),
        })
    }

    /// How an object of this type is owned.
    pub(super) fn map(self) -> Option<Map<'s>> {
        let (schema, open) = match self {
            Self::Known { schema, open } => (schema, open),
            Self::Deduced => {
                return Some(Map {
                    atomic: false,
                    schema: None,
                    open: true,
                    element: Some(Self::Deduced),
                });
            }
            Self::Opaque => {
                return Some(Map {
                    atomic: true,
                    schema: None,
                    open: true,
                    element: Some(Self::Opaque),
                });
            }
        };
        if !self.forms().map {
            return None;
        }
        let element = match schema.additional() {
            Some(values) if is_anything(values) => Some(Self::Deduced),
            Some(values) => Some(Self::below(values, open)),
            None if open || schema.properties().next().is_none() => Some(Self::Deduced),
            None => None,
        };
        Some(Map {
            atomic: schema.map_type() == MapType::Atomic,
            schema: Some(schema),
            open,
            element,
        })
    }
}

/// `additionalProperties: true`.
fn is_anything(schema: &Schema) -> bool {
    *schema.go() == Go::None && schema.kind() == Kind::Any && schema.preserves_unknown()
}

impl List<'_> {
    /// The step to an item, or why there is none.
    pub(super) fn step(&self, item: &Value) -> Result<Element, String> {
        let keys: Vec<&str> = match self.keys {
            Keys::None => return set_step(item),
            Keys::One(key) => vec![key],
            Keys::Many(keys) => keys.iter().map(AsRef::as_ref).collect(),
        };
        let Value::Object(members) = item else {
            let what = if item.is_null() {
                "a null element"
            } else {
                "non-map elements"
            };
            return Err(format!("associative list with keys may not have {what}"));
        };
        let mut found: Vec<(String, Value)> = Vec::with_capacity(keys.len());
        for key in &keys {
            let default = || {
                let Type::Known { schema, .. } = self.items else {
                    return None;
                };
                schema.property(key)?.default_value()
            };
            if let Some(value) = members.get(*key).or_else(default) {
                found.push(((*key).to_owned(), written(value)));
            }
        }
        if found.is_empty() {
            let keys: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] \
                 (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Element::Key(found))
    }
}

/// A value as it is kept.
fn written(value: &Value) -> Value {
    let mut value = value.clone();
    settle_numbers(&mut value);
    value
}

fn set_step(item: &Value) -> Result<Element, String> {
    Err(match item {
        Value::Object(_) => "associative list without keys has an element that's a map type",
        Value::Array(_) => "not supported: associative list with lists as elements",
        Value::Null => "associative list without keys has an element that's an explicit null",
        other => return Ok(Element::Value(written(other))),
    }
    .to_owned())
}
