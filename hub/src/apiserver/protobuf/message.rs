//! Messages, led by the types of their fields.

use super::wire::{Field, Reader};
use super::{MAGIC, Unread, leaf};
use crate::apiserver::schema::{Go, Schema};
use serde_json::{Map, Value};

/// Messages within messages.
const MAX_DEPTH: usize = 64;

/// Values in one body; a real one has some thousands.
const MAX_VALUES: usize = 400_000;

/// One walk over a body.
pub(super) struct Walk {
    depth: usize,
    values: usize,
}

/// What a field number stands for.
enum Known<'s> {
    Field(&'s str, &'s Schema),
    /// A message whose fields JSON shows as those of the outer one.
    Inner(Vec<u32>),
}

/// The field of `schema` whose numbers begin with `outer` and go on with `number`.
fn known<'s>(schema: &'s Schema, outer: &[u32], number: u32) -> Option<Known<'s>> {
    for (name, field) in schema.properties() {
        let Some(rest) = field.proto().and_then(|p| p.numbers.strip_prefix(outer)) else {
            continue;
        };
        match rest {
            [last] if *last == number => return Some(Known::Field(name, field)),
            [first, _, ..] if *first == number => {
                let mut inner = outer.to_vec();
                inner.push(number);
                return Some(Known::Inner(inner));
            }
            _ => {}
        }
    }
    None
}

impl Walk {
    /// Begins at a depth.
    pub(super) fn new(depth: usize) -> Self {
        Self { depth, values: 0 }
    }

    /// Reads a message as a struct.
    pub(super) fn message(&mut self, message: &[u8], schema: &Schema) -> Result<Value, Unread> {
        let mut members = Map::new();
        self.nested(|walk| walk.fields(message, schema, &[], &mut members))?;
        Ok(Value::Object(members))
    }

    fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Unread>,
    ) -> Result<T, Unread> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Unread::Depth);
        }
        let done = read(self);
        self.depth -= 1;
        done
    }

    fn fields(
        &mut self,
        message: &[u8],
        schema: &Schema,
        outer: &[u32],
        members: &mut Map<String, Value>,
    ) -> Result<(), Unread> {
        let mut reader = Reader::new(message);
        while let Some((number, field)) = reader.next()? {
            match known(schema, outer, number) {
                None => {}
                Some(Known::Inner(inner)) => {
                    let Field::Bytes(message) = field else {
                        return Err(wrong(field, "of an inner message"));
                    };
                    self.nested(|walk| walk.fields(message, schema, &inner, members))?;
                }
                Some(Known::Field(name, of)) => self.member(name, of, field, members)?,
            }
        }
        Ok(())
    }

    fn member(
        &mut self,
        name: &str,
        of: &Schema,
        field: Field<'_>,
        members: &mut Map<String, Value>,
    ) -> Result<(), Unread> {
        match (of.go(), field) {
            (Go::Slice, _) => {
                let Some(items) = of.items() else {
                    return Ok(());
                };
                let list = members
                    .entry(name)
                    .or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(list) = list else {
                    return Ok(());
                };
                if let (Field::Bytes(packed), Go::Int32 | Go::Int64 | Go::Bool) =
                    (field, items.go())
                {
                    let mut reader = Reader::new(packed);
                    while let Some(number) = reader.packed()? {
                        list.push(self.value(name, items, Field::Varint(number))?);
                    }
                } else {
                    list.push(self.element(name, items, field)?);
                }
            }
            (Go::Map, Field::Bytes(entry)) => {
                let Some(values) = of.additional() else {
                    return Ok(());
                };
                let (key, value) = self.entry(name, values, entry)?;
                let map = members
                    .entry(name)
                    .or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = map {
                    map.insert(key, value);
                }
            }
            (Go::Map, field) => return Err(wrong(field, name)),
            _ => {
                let value = self.value(name, of, field)?;
                members.insert(name.to_owned(), value);
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        name: &str,
        values: &Schema,
        entry: &[u8],
    ) -> Result<(String, Value), Unread> {
        let mut key = String::new();
        let mut value = None;
        let mut reader = Reader::new(entry);
        while let Some((number, field)) = reader.next()? {
            match (number, field) {
                (1, Field::Bytes(text)) => leaf::text(text)?.clone_into(&mut key),
                (2, field) => value = Some(self.element(name, values, field)?),
                _ => {}
            }
        }
        let none = || match values.go() {
            Go::Bytes => Value::from(""),
            _ => values.zero(),
        };
        Ok((key, value.unwrap_or_else(none)))
    }

    /// An item of a list or a value of a map. A list there is a message with items.
    fn element(&mut self, name: &str, of: &Schema, field: Field<'_>) -> Result<Value, Unread> {
        match (of.go(), field, of.items()) {
            (Go::Slice, Field::Bytes(message), Some(items)) => self.nested(|walk| {
                let mut list = Vec::new();
                let mut reader = Reader::new(message);
                while let Some((number, field)) = reader.next()? {
                    if number == 1 {
                        list.push(walk.element(name, items, field)?);
                    }
                }
                Ok(Value::Array(list))
            }),
            _ => self.value(name, of, field),
        }
    }

    fn value(&mut self, name: &str, of: &Schema, field: Field<'_>) -> Result<Value, Unread> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(Unread::Values);
        }
        match (of.go(), field) {
            (Go::Bool, Field::Varint(number)) => Ok(Value::from(number != 0)),
            (Go::Int32, Field::Varint(number)) => Ok(Value::from(leaf::int32(number))),
            (Go::Int64, Field::Varint(number)) => Ok(Value::from(leaf::signed(number))),
            (Go::Float, Field::Fixed64(bits)) => Ok(leaf::float(f64::from_bits(bits))),
            (_, Field::Bytes(bytes)) => self.bytes(name, of, bytes),
            (_, field) => Err(wrong(field, name)),
        }
    }

    fn bytes(&mut self, name: &str, of: &Schema, bytes: &[u8]) -> Result<Value, Unread> {
        match of.go() {
            Go::String(_) => leaf::text(bytes).map(Value::from),
            Go::Bytes => Ok(leaf::bytes(bytes)),
            Go::Time => leaf::time(bytes, false),
            Go::MicroTime => leaf::time(bytes, true),
            Go::Duration => leaf::duration(bytes),
            Go::Quantity => leaf::quantity(bytes),
            Go::IntOrString => leaf::int_or_string(bytes),
            Go::Fields | Go::Json => leaf::json(leaf::only(bytes)?, name),
            Go::Raw => {
                let raw = leaf::only(bytes)?;
                if raw.starts_with(MAGIC) {
                    let depth = self.depth;
                    return self.nested(|_| super::read(raw, depth + 1));
                }
                leaf::json(raw, name)
            }
            Go::Struct(_) => self.message(bytes, of),
            Go::PropsOrBool => self.choice(name, bytes, Value::from),
            Go::PropsOrArray | Go::PropsOrStrings => self.choice(name, bytes, |_| Value::Null),
            _ => Err(wrong(Field::Bytes(bytes), name)),
        }
    }

    /// A schema, or something beside it: whether anything is allowed, schemas, or names.
    fn choice(
        &mut self,
        name: &str,
        message: &[u8],
        neither: impl Fn(bool) -> Value,
    ) -> Result<Value, Unread> {
        let Some(props) = Schema::json_schema_props() else {
            return Ok(Value::Null);
        };
        let (mut allows, mut schema, mut others) = (false, None, Vec::new());
        let is_bool = neither(true).is_boolean();
        let names = name == "dependencies";
        let mut reader = Reader::new(message);
        while let Some((number, field)) = reader.next()? {
            match (number, field) {
                (1, Field::Varint(number)) => allows = number != 0,
                (1, Field::Bytes(bytes)) => schema = Some(self.props(bytes, &props)?),
                (2, Field::Bytes(bytes)) if is_bool => schema = Some(self.props(bytes, &props)?),
                (2, Field::Bytes(bytes)) if names => others.push(Value::from(leaf::text(bytes)?)),
                (2, Field::Bytes(bytes)) => others.push(self.props(bytes, &props)?),
                (_, field) => return Err(wrong(field, name)),
            }
        }
        if !others.is_empty() {
            return Ok(Value::Array(others));
        }
        Ok(schema.unwrap_or_else(|| neither(allows)))
    }

    /// Within a choice nothing else puts a schema into the form of Go.
    fn props(&mut self, message: &[u8], props: &Schema) -> Result<Value, Unread> {
        let mut value = self.message(message, props)?;
        props.coerce(&mut value).map_err(Unread::Coerce)?;
        Ok(value)
    }
}

fn wrong(field: Field<'_>, name: &str) -> Unread {
    Unread::WrongWire {
        wire: field.wire(),
        field: name.to_owned(),
    }
}
