//! One step of a path to a field, its order and its text in `fieldsV1`.

use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::fmt;

/// A step from an object or a list to what it holds.
#[derive(Debug, Clone)]
pub(super) enum Element {
    /// A member of an object.
    Field(String),
    /// The item of a list with these values under its keys, sorted by key.
    Key(Vec<(String, Value)>),
    /// The item of a set.
    Value(Value),
    /// The item at an index; only read, never made.
    Index(i64),
}

/// Why a text is no step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unread {
    /// Of a kind that a later version may know; it is ignored.
    Unknown,
    /// Not well-formed.
    Malformed,
}

impl Element {
    /// The step to a member.
    pub(super) fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    /// Reads a key of `fieldsV1`.
    pub(super) fn read(text: &str) -> Result<Self, Unread> {
        let (kind, rest) = text.split_once(':').ok_or(Unread::Malformed)?;
        let malformed = |_| Unread::Malformed;
        match kind {
            "f" => Ok(Self::field(rest)),
            "v" => serde_json::from_str(rest)
                .map(Self::Value)
                .map_err(malformed),
            "i" => rest.parse().map(Self::Index).map_err(|_| Unread::Malformed),
            "k" => {
                let keys: Map<String, Value> = serde_json::from_str(rest).map_err(malformed)?;
                let mut keys: Vec<_> = keys.into_iter().collect();
                keys.sort_by(|(a, _), (b, _)| a.cmp(b));
                Ok(Self::Key(keys))
            }
            other if other.chars().count() == 1 => Err(Unread::Unknown),
            _ => Err(Unread::Malformed),
        }
    }

    /// As a key of `fieldsV1`.
    pub(super) fn written(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Value(value) => format!("v:{}", escaped(value.to_string())),
            Self::Index(at) => format!("i:{at}"),
            Self::Key(keys) => {
                let members: Vec<String> = keys
                    .iter()
                    .map(|(key, value)| format!("{}:{value}", Value::from(key.as_str())))
                    .collect();
                format!("k:{}", escaped(format!("{{{}}}", members.join(","))))
            }
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

/// Go writes JSON so that it can stand in a page.
fn escaped(text: String) -> String {
    if !text.contains(['<', '>', '&']) {
        return text;
    }
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Value(value) => write!(f, "[={}]", shown(value)),
            Self::Index(at) => write!(f, "[{at}]"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys
                    .iter()
                    .map(|(key, value)| format!("{key}={}", shown(value)))
                    .collect();
                write!(f, "[{}]", keys.join(","))
            }
        }
    }
}

/// A value within a path.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => crate::go::quote(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(shown).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(members) => members
            .iter()
            .map(|(key, member)| format!("{key}={}", shown(member)))
            .collect(),
        other => other.to_string(),
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Element {}

impl PartialOrd for Element {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Element {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            (Self::Value(a), Self::Value(b)) => compare(a, b),
            (Self::Key(a), Self::Key(b)) => compare_keys(a, b),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}

fn compare_keys(a: &[(String, Value)], b: &[(String, Value)]) -> Ordering {
    for ((a, of_a), (b, of_b)) in a.iter().zip(b) {
        let order = a.cmp(b).then_with(|| compare(of_a, of_b));
        if order != Ordering::Equal {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// An order of all values; whole numbers and others compare by what they are worth.
pub(super) fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => a.cmp(&b),
            _ => {
                let (a, b) = (a.as_f64().unwrap_or(0.0), b.as_f64().unwrap_or(0.0));
                a.total_cmp(&b)
            }
        },
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            for (a, b) in a.iter().zip(b) {
                let order = compare(a, b);
                if order != Ordering::Equal {
                    return order;
                }
            }
            a.len().cmp(&b.len())
        }
        (Value::Object(a), Value::Object(b)) => compare_objects(a, b),
        (a, b) => rank(a).cmp(&rank(b)),
    }
}

fn compare_objects(a: &Map<String, Value>, b: &Map<String, Value>) -> Ordering {
    fn sorted(members: &Map<String, Value>) -> Vec<(&String, &Value)> {
        let mut all: Vec<_> = members.iter().collect();
        all.sort_by_key(|(key, _)| *key);
        all
    }
    let (a, b) = (sorted(a), sorted(b));
    for ((a, of_a), (b, of_b)) in a.iter().zip(&b) {
        let order = a.cmp(b).then_with(|| compare(of_a, of_b));
        if order != Ordering::Equal {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

/// Whether two values are worth the same.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    compare(a, b) == Ordering::Equal
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn steps_are_read_and_written() {
        let cases = [
            ("f:spec", ".spec"),
            ("f:a:b", ".a:b"),
            (r#"k:{"name":"x"}"#, r#"[name="x"]"#),
            (
                r#"k:{"containerPort":80,"protocol":"TCP"}"#,
                r#"[containerPort=80,protocol="TCP"]"#,
            ),
            (r#"v:"x""#, r#"[="x"]"#),
            ("v:1", "[=1]"),
            ("i:3", "[3]"),
            (r#"v:"\u003ca\u003e""#, r#"[="<a>"]"#),
        ];
        for (text, path) in cases {
            let element = Element::read(text).unwrap();
            assert_eq!(element.written(), text);
            assert_eq!(element.to_string(), path);
        }
        assert_eq!(Element::read("x:1"), Err(Unread::Unknown));
        for wrong in ["", "f", "v:", "k:1", "i:x"] {
            assert_eq!(Element::read(wrong), Err(Unread::Malformed), "{wrong}");
        }
    }

    #[test]
    fn numbers_compare_by_what_they_are_worth() {
        assert!(same(&json!(1), &json!(1.0)));
        assert!(!same(&json!(1), &json!("1")));
        assert!(!same(&json!(null), &json!({})));
    }
}
