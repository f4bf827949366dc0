//! JSON read with an eye on fields that are there twice.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::fmt;

/// What was read, and what is odd about it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Read {
    /// The value; of a field that is there twice, the last.
    pub(crate) value: Value,
    /// Paths of fields that are there twice, once for each time too many.
    pub(crate) duplicates: Vec<String>,
}

/// Reads one JSON value and nothing after it.
pub(crate) fn read(bytes: &[u8]) -> Result<Read, serde_json::Error> {
    let notes = Notes::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Node {
        path: String::new(),
        notes: &notes,
    }
    .deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(Read {
        value,
        duplicates: notes.duplicates.into_inner(),
    })
}

/// Reads one YAML document.
pub(crate) fn read_yaml(bytes: &[u8]) -> Result<Read, serde_yaml::Error> {
    let notes = Notes::default();
    let value = Node {
        path: String::new(),
        notes: &notes,
    }
    .deserialize(serde_yaml::Deserializer::from_slice(bytes))?;
    Ok(Read {
        value,
        duplicates: notes.duplicates.into_inner(),
    })
}

/// The paths of all fields of a JSON value that can be read, in the order they are written.
pub(crate) fn order(bytes: &[u8]) -> Vec<String> {
    let notes = Notes {
        order: Some(RefCell::default()),
        ..Notes::default()
    };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = Node {
        path: String::new(),
        notes: &notes,
    }
    .deserialize(&mut deserializer);
    match (read, notes.order) {
        (Ok(_), Some(order)) => order.into_inner(),
        _ => Vec::new(),
    }
}

/// Why a text is not JSON, in Go's words.
pub(crate) fn go_words(why: &serde_json::Error, bytes: &[u8]) -> String {
    if why.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let line = bytes
        .split(|byte| *byte == b'\n')
        .nth(why.line().saturating_sub(1));
    let at = line.and_then(|line| line.get(why.column().saturating_sub(1)));
    let place = if why.to_string().starts_with("trailing characters") {
        "after top-level value"
    } else {
        "looking for beginning of value"
    };
    match at {
        Some(byte) => format!("invalid character '{}' {place}", char::from(*byte)),
        None => why.to_string(),
    }
}

#[derive(Default)]
struct Notes {
    duplicates: RefCell<Vec<String>>,
    order: Option<RefCell<Vec<String>>>,
}

struct Node<'a> {
    path: String,
    notes: &'a Notes,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Node {
            path: format!("{}[{}]", self.path, list.len()),
            notes: self.notes,
        })? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = if self.path.is_empty() {
                key.clone()
            } else {
                format!("{}.{key}", self.path)
            };
            if map.contains_key(&key) {
                self.notes.duplicates.borrow_mut().push(path.clone());
            }
            if let Some(order) = &self.notes.order {
                order.borrow_mut().push(path.clone());
            }
            let value = entries.next_value_seed(Node {
                path,
                notes: self.notes,
            })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn duplicates_are_told_and_the_last_counts() {
        let read = read(br#"{"a":1,"b":[{"c":1,"c":2}],"a":{"d":null},"a":3}"#).expect("JSON");
        assert_eq!(read.value, json!({"a": 3, "b": [{"c": 2}]}));
        assert_eq!(read.duplicates, ["b[0].c", "a", "a"]);
        assert_eq!(order(b"{\"a\":1,\"b\":[{\"c\":1}]}"), ["a", "b", "b[0].c"]);
        let yaml = read_yaml(b"a: 1\nb: [x]\na: 2\n").expect("YAML");
        assert_eq!(
            (yaml.value, yaml.duplicates),
            (json!({"a": 2, "b": ["x"]}), vec!["a".to_owned()])
        );
    }

    proptest! {
        #[test]
        fn it_reads_what_serde_reads(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let ours = read(&bytes).ok().map(|read| read.value);
            prop_assert_eq!(ours, serde_json::from_slice::<Value>(&bytes).ok());
        }
    }
}
