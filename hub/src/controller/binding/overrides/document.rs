//! A document that is opened only where a patch leads: the rest stays as it came.
//!
//! Pure. [`Value`] is the leaf of a manifest; [`RawValue`] that of JSON inside a text, whose order of members
//! and numbers are its author's.

use super::budget::MEMBER;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use std::fmt;

/// A document or a part of one.
#[derive(Debug)]
pub(super) enum Node<L> {
    /// Not opened; may be an object or a list all the same.
    Leaf(L),
    /// Members in their order; no name twice.
    Object(Vec<(String, Node<L>)>),
    /// Items.
    Array(Vec<Node<L>>),
}

/// A part that can be opened.
pub(super) trait Leaf: Sized {
    /// A part that holds this value.
    fn of(value: &Value) -> Self;

    /// What it takes to open it, and to close it again.
    fn cost(&self) -> usize;

    /// The parts of an object or a list; none of anything else.
    fn opened(&mut self) -> Option<Node<Self>>;
}

impl<L: Leaf> Node<L> {
    /// Makes an object or a list of a leaf that is one.
    pub(super) fn open(&mut self) {
        if let Self::Leaf(leaf) = self
            && let Some(opened) = leaf.opened()
        {
            *self = opened;
        }
    }

    /// What it takes to open it; nothing where it is open.
    pub(super) fn cost(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.cost(),
            Self::Object(_) | Self::Array(_) => 0,
        }
    }

    /// How many parts an opened one has.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Leaf(_) => 0,
            Self::Object(members) => members.len(),
            Self::Array(items) => items.len(),
        }
    }
}

impl Leaf for Value {
    fn of(value: &Value) -> Self {
        value.clone()
    }

    fn cost(&self) -> usize {
        match self {
            Self::Object(members) => members.len() * MEMBER,
            Self::Array(items) => items.len() * MEMBER,
            _ => 0,
        }
    }

    fn opened(&mut self) -> Option<Node<Self>> {
        match self {
            Self::Object(members) => Some(Node::Object(
                std::mem::take(members)
                    .into_iter()
                    .map(|(name, value)| (name, Node::Leaf(value)))
                    .collect(),
            )),
            Self::Array(items) => Some(Node::Array(
                std::mem::take(items).into_iter().map(Node::Leaf).collect(),
            )),
            _ => None,
        }
    }
}

impl Node<Value> {
    /// The whole as a value.
    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Leaf(value) => value,
            Self::Object(members) => members
                .into_iter()
                .map(|(name, node)| (name, node.into_value()))
                .collect(),
            Self::Array(items) => items.into_iter().map(Self::into_value).collect(),
        }
    }
}

impl Leaf for Box<RawValue> {
    fn of(value: &Value) -> Self {
        to_raw_value(value).expect("invariant: a value is JSON")
    }

    fn cost(&self) -> usize {
        // JSON is read some eight times as fast as YAML.
        self.get().len() / 8
    }

    fn opened(&mut self) -> Option<Node<Self>> {
        match self.get().as_bytes().first() {
            Some(b'{') => {
                let Members(members) = serde_json::from_str(self.get()).ok()?;
                Some(Node::Object(members))
            }
            Some(b'[') => {
                let items: Vec<Self> = serde_json::from_str(self.get()).ok()?;
                Some(Node::Array(items.into_iter().map(Node::Leaf).collect()))
            }
            _ => None,
        }
    }
}

impl Node<Box<RawValue>> {
    /// Reads JSON.
    pub(super) fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self::Leaf)
    }

    /// The whole as JSON without spaces.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Leaf(raw) => write_compact(out, raw.get()),
            Self::Object(members) => {
                out.push('{');
                for (index, (name, node)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    out.push_str(&Value::from(name.as_str()).to_string());
                    out.push(':');
                    node.write(out);
                }
                out.push('}');
            }
            Self::Array(items) => {
                out.push('[');
                for (index, node) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    node.write(out);
                }
                out.push(']');
            }
        }
    }
}

/// JSON without the spaces between its parts.
fn write_compact(out: &mut String, json: &str) {
    let mut within = false;
    let mut escaped = false;
    for c in json.chars() {
        if within {
            within = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if c.is_ascii_whitespace() {
            continue;
        } else {
            within = c == '"';
        }
        out.push(c);
    }
}

/// The members of an object in their order; of members of one name the last counts.
struct Members(Vec<(String, Node<Box<RawValue>>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members: Vec<(String, Node<Box<RawValue>>)> = Vec::new();
                let mut places: BTreeMap<String, usize> = BTreeMap::new();
                while let Some((name, raw)) = map.next_entry::<String, Box<RawValue>>()? {
                    let node = Node::Leaf(raw);
                    let known = places.get(&name).and_then(|at| members.get_mut(*at));
                    match known {
                        Some((_, before)) => *before = node,
                        None => {
                            places.insert(name.clone(), members.len());
                            members.push((name, node));
                        }
                    }
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_opened_keeps_order_and_numbers() {
        let text = r#" {"z": [1.0, 1e3, 123456789012345678901234567890], "a" : {"s": "a \" b\\"} , "z2":null} "#;
        let mut node = Node::parse(text).expect("JSON");
        let want =
            r#"{"z":[1.0,1e3,123456789012345678901234567890],"a":{"s":"a \" b\\"},"z2":null}"#;
        assert_eq!(node.to_text(), want);
        node.open();
        assert_eq!(node.to_text(), want);
        let Node::Object(members) = &mut node else {
            panic!("an object")
        };
        for (_, member) in members {
            member.open();
        }
        assert_eq!(node.to_text(), want);
    }

    #[test]
    fn of_two_members_of_one_name_the_last_counts() {
        let mut node = Node::parse(r#"{"a":1,"b":2,"a":3}"#).expect("JSON");
        node.open();
        assert_eq!(node.to_text(), r#"{"a":3,"b":2}"#);
    }

    #[test]
    fn no_depth_is_too_much_for_what_stays_closed() {
        let text = format!(
            "{{\"deep\":{}{}}}",
            "[".repeat(200_000),
            "]".repeat(200_000)
        );
        let mut node = Node::parse(&text).expect("JSON");
        node.open();
        assert_eq!(node.to_text(), text);
    }
}
