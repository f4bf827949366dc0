//! Bodies of requests in protobuf, as typed Go clients send them for built-in kinds. Pure.
//!
//! The numbers of fields and the form in which Go would have written them as JSON are in the
//! table of built-in schemas, so that one reader does for all kinds.

mod leaf;
mod message;
mod wire;

use crate::apiserver::schema::Schema;
use crate::apiserver::schema::builtin::schemas;
use serde_json::{Map, Value};
use wire::{Field, Reader};

/// The media type of such a body.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What a body begins with.
const MAGIC: &[u8] = b"k8s\0";

/// Why a body cannot be read, in the words of the real server where it has any.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// Not even the beginning is right.
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    NoPrefix,
    /// It ends too early.
    #[error("unexpected EOF")]
    Short,
    /// It is not well-formed.
    #[error("proto: {0}")]
    Wire(&'static str),
    /// A field has the form of another type.
    #[error("proto: wrong wireType = {wire} for field {field}")]
    WrongWire {
        /// The number of the form that it has.
        wire: u8,
        /// What the message calls it.
        field: String,
    },
    /// Messages within messages within messages.
    #[error("proto: messages are nested too deep")]
    Depth,
    /// More than any object has.
    #[error("proto: there are more values in the message than are read")]
    Values,
    /// A field that holds JSON does not.
    #[error("the JSON in field {0} cannot be read")]
    Json(String),
    /// The kind is not served.
    #[error("no kind {kind:?} is registered for version {version:?}")]
    Kind {
        /// Group and version, as the body names them.
        version: String,
        /// As the body names it.
        kind: String,
    },
    /// A value is none of its type.
    #[error("{0}")]
    Coerce(String),
}

/// Reads a body into what its JSON would have been.
pub fn decode(body: &[u8]) -> Result<Value, Unread> {
    read(body, 0)
}

/// The envelope around every message.
#[derive(Default)]
struct Envelope<'b> {
    version: &'b str,
    kind: &'b str,
    raw: &'b [u8],
    json: bool,
}

fn envelope(body: &[u8]) -> Result<Envelope<'_>, Unread> {
    let rest = body.strip_prefix(MAGIC).ok_or(Unread::NoPrefix)?;
    let mut envelope = Envelope::default();
    let mut reader = Reader::new(rest);
    while let Some((number, field)) = reader.next()? {
        match (number, field) {
            (1, Field::Bytes(types)) => {
                let mut reader = Reader::new(types);
                while let Some((number, field)) = reader.next()? {
                    match (number, field) {
                        (1, Field::Bytes(text)) => envelope.version = leaf::text(text)?,
                        (2, Field::Bytes(text)) => envelope.kind = leaf::text(text)?,
                        _ => {}
                    }
                }
            }
            (2, Field::Bytes(raw)) => envelope.raw = raw,
            (4, Field::Bytes(content)) => envelope.json = content == b"application/json",
            _ => {}
        }
    }
    Ok(envelope)
}

/// Reads a body that stands at this depth of another.
fn read(body: &[u8], depth: usize) -> Result<Value, Unread> {
    let envelope = envelope(body)?;
    if envelope.json {
        let json = serde_json::from_slice(envelope.raw);
        return json.map_err(|_| Unread::Json("raw".to_owned()));
    }
    let Some(schema) = schema(envelope.version, envelope.kind) else {
        return Err(Unread::Kind {
            version: envelope.version.to_owned(),
            kind: envelope.kind.to_owned(),
        });
    };
    let mut value = message::Walk::new(depth).message(envelope.raw, schema)?;
    schema.coerce(&mut value).map_err(Unread::Coerce)?;
    let mut object = match value {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    object.insert("apiVersion".to_owned(), Value::from(envelope.version));
    object.insert("kind".to_owned(), Value::from(envelope.kind));
    Ok(Value::Object(object))
}

/// The type of a kind; those of options are the same in every group.
fn schema(api_version: &str, kind: &str) -> Option<&'static Schema> {
    let builtin = schemas();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if matches!(
        kind,
        "DeleteOptions" | "CreateOptions" | "UpdateOptions" | "PatchOptions"
    ) {
        return builtin.named("meta.k8s.io", "v1", kind);
    }
    let of = |known: &&crate::apiserver::schema::builtin::BuiltinKind| {
        known.group == group && known.version == version && known.kind == kind
    };
    match builtin.kinds.iter().find(of) {
        Some(known) => {
            let definition = builtin.definitions().get(usize::from(known.definition))?;
            Some(&definition.schema)
        }
        None => builtin.named(group, version, kind),
    }
}

#[cfg(test)]
mod tests;
