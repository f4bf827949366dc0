//! Bodies of some count of the same.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value, json};

/// A list of what `item` makes of each number below `count`.
pub(crate) fn list(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

/// A map of the same, under keys that begin with a letter.
pub(crate) fn map(count: usize, value: impl Fn(usize) -> Value) -> Value {
    let members = (0..count).map(|at| (format!("k{at}"), value(at)));
    Value::Object(members.collect::<Map<_, _>>())
}

/// An object of a kind with these members.
pub(crate) fn object(version: &str, kind: &str, name: &str, more: Value) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}});
    merge(&mut object, more);
    object
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

/// Levels around nothing.
pub(crate) fn nested(open: &str, close: &str, levels: usize) -> String {
    format!("{}0{}", open.repeat(levels), close.repeat(levels))
}

/// A ConfigMap in protobuf with so many entries.
pub(crate) fn protobuf(count: usize) -> Vec<u8> {
    let mut map = field(1, &field(1, b"b"));
    for at in 0..count {
        let entry = [field(1, format!("k{at}").as_bytes()), field(2, b"v")].concat();
        map.extend(field(2, &entry));
    }
    let types = [field(1, b"v1"), field(2, b"ConfigMap")].concat();
    let unknown = [field(1, &types), field(2, &map)].concat();
    [b"k8s\0".as_slice(), &unknown].concat()
}

fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = value.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap_or_default() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or_default());
    out.extend_from_slice(value);
    out
}

/// What is no certificate request, in base64.
pub(crate) fn garbage(count: usize) -> String {
    let text = format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
        "MIIB".repeat(count)
    );
    BASE64_STANDARD.encode(text)
}
