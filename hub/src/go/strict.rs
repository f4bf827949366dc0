//! JSON read with an eye on fields that are there twice.
//!
//! Whoever may write anything may send what is read here. So a path is put together only for what is
//! told, and what is told is bounded.

use super::syntax;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::fmt;
use std::fmt::Write as _;

/// How many fields are told, as the real server has it, and how long all their paths may be.
pub(crate) const MOST_TOLD: usize = 100;
pub(crate) const MOST_TEXT: usize = 256 * 1024;
/// How many fields are put in order.
const MOST_ORDERED: usize = 10_000;

/// What was read, and what is odd about it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Read {
    /// The value; of a field that is there twice, the last.
    pub(crate) value: Value,
    /// Fields that are there twice, once for each time too many: paths in JSON, in YAML what Go says.
    pub(crate) duplicates: Vec<String>,
}

/// Reads one JSON value and nothing after it.
pub(crate) fn read(bytes: &[u8]) -> Result<Read, serde_json::Error> {
    noted(bytes, Notes::default())
}

fn noted(bytes: &[u8], notes: Notes) -> Result<Read, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Node {
        path: &Path::Root,
        notes: &notes,
    }
    .deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(Read {
        value,
        duplicates: notes.duplicates.into_inner().paths,
    })
}

/// Why bytes are not read.
pub(crate) enum Unread {
    /// They are no JSON.
    Text(String),
    /// They have a number that is too large.
    Number(String),
}

/// Reads what Go reads: bytes that are no text, and halves of characters, are replaced. Objects that are
/// there twice are one if the reader knows their type.
pub(crate) fn read_as_go(bytes: &[u8], typed: bool) -> Result<Read, Unread> {
    let notes = || Notes {
        merges: typed,
        ..Notes::default()
    };
    let why = match noted(bytes, notes()) {
        Ok(read) => return Ok(read),
        Err(why) => why.to_string(),
    };
    if let Some(problem) = syntax::problem(bytes) {
        return Err(Unread::Text(problem));
    }
    if let Ok(read) = noted(&syntax::mended(bytes), notes()) {
        return Ok(read);
    }
    let large = |literal: &&str| literal.parse::<f64>().is_ok_and(f64::is_infinite);
    Err(match syntax::numbers(bytes).into_iter().find(large) {
        Some(number) => Unread::Number(format!(
            "json: cannot unmarshal number {number} into Go value of type float64"
        )),
        None => Unread::Text(why),
    })
}

/// The paths of the fields of a JSON value that can be read, in the order they are written.
pub(crate) fn order(bytes: &[u8]) -> Vec<String> {
    let notes = Notes {
        order: Some(RefCell::new(Told::of(MOST_ORDERED))),
        ..Notes::default()
    };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = Node {
        path: &Path::Root,
        notes: &notes,
    }
    .deserialize(&mut deserializer);
    match (read, notes.order) {
        (Ok(_), Some(order)) => order.into_inner().paths,
        _ => Vec::new(),
    }
}

/// Why a text is not JSON, in Go's words.
pub(crate) fn go_words(why: &serde_json::Error, bytes: &[u8]) -> String {
    syntax::problem(bytes).unwrap_or_else(|| why.to_string())
}

/// Where a value is; put into words only when it is told.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Path::Root, key) => f.write_str(key),
            Self::Field(of, key) => write!(f, "{of}.{key}"),
            Self::Item(of, index) => write!(f, "{of}[{index}]"),
        }
    }
}

/// Paths that are told, as many as there is room for.
struct Told {
    paths: Vec<String>,
    most: usize,
    text: usize,
}

impl Told {
    fn of(most: usize) -> Self {
        Self {
            paths: Vec::new(),
            most,
            text: 0,
        }
    }

    fn tell(&mut self, path: &Path<'_>) {
        if self.paths.len() >= self.most || self.text >= MOST_TEXT {
            return;
        }
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = write!(text, "{path}");
        self.text += text.len();
        self.paths.push(text);
    }
}

struct Notes {
    duplicates: RefCell<Told>,
    order: Option<RefCell<Told>>,
    /// Whether objects that are there twice become one.
    merges: bool,
}

impl Default for Notes {
    fn default() -> Self {
        Self {
            duplicates: RefCell::new(Told::of(MOST_TOLD)),
            order: None,
            merges: false,
        }
    }
}

/// What the type of a field makes of a value that is there again.
fn merge(old: &mut Value, new: Value) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in new {
                match old.get_mut(&key) {
                    Some(old) => merge(old, value),
                    None => {
                        old.insert(key, value);
                    }
                }
            }
        }
        (old, new) => *old = new,
    }
}

struct Node<'a> {
    path: &'a Path<'a>,
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
            path: &Path::Item(self.path, list.len()),
            notes: self.notes,
        })? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = Path::Field(self.path, &key);
            if map.contains_key(&key) {
                self.notes.duplicates.borrow_mut().tell(&path);
            }
            if let Some(order) = &self.notes.order {
                order.borrow_mut().tell(&path);
            }
            let value = entries.next_value_seed(Node {
                path: &path,
                notes: self.notes,
            })?;
            match map.get_mut(&key) {
                Some(old) if self.notes.merges => merge(old, value),
                _ => {
                    map.insert(key, value);
                }
            }
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
    }

    #[test]
    fn it_reads_what_go_reads() {
        let read = |text: &[u8], typed| read_as_go(text, typed).ok().map(|read| read.value);
        assert_eq!(
            read(b"[\"\xff\", \"\\ud83d x \\ud83d\\ude00 \\\\ud83d\"]", false),
            Some(json!(["\u{fffd}", "\u{fffd} x \u{1f600} \\ud83d"]))
        );
        let twice = br#"{"a":{"b":1,"c":2},"a":{"c":3,"d":4}}"#;
        assert_eq!(read(twice, false), Some(json!({"a": {"c": 3, "d": 4}})));
        assert_eq!(
            read(twice, true),
            Some(json!({"a": {"b": 1, "c": 3, "d": 4}}))
        );
        let why = read_as_go(br#"{"a":"1e500","b":-1e400}"#, false);
        assert!(matches!(why, Err(Unread::Number(why)) if why.contains(" -1e400 ")));
        assert!(matches!(read_as_go(b"{", false), Err(Unread::Text(_))));
    }

    #[test]
    fn what_is_told_is_bounded() {
        // Each of these paths would be as long as its first key.
        let long = "x".repeat(100_000);
        let twice = format!(r#"{{"{long}":{{{}"a":1}}}}"#, r#""a":1,"#.repeat(100_000));
        let told = read(twice.as_bytes()).expect("JSON").duplicates;
        assert!((1..=MOST_TOLD).contains(&told.len()), "{}", told.len());
        assert!(told.iter().map(String::len).sum::<usize>() <= MOST_TEXT + 2 * long.len());
        assert!(order(twice.as_bytes()).len() <= MOST_ORDERED);
        let list = format!(r#"{{"{long}":[{}0]}}"#, "0,".repeat(1_000_000));
        assert_eq!(read(list.as_bytes()).expect("JSON").duplicates.len(), 0);
    }

    #[test]
    fn what_is_nested_too_deep_is_refused() {
        for (open, levels) in [("[", 3_000_000), ("{\"a\":", 500_000)] {
            let text = open.repeat(levels);
            assert!(read(text.as_bytes()).is_err());
        }
    }

    proptest! {
        #[test]
        fn it_reads_what_serde_reads(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let ours = read(&bytes).ok().map(|read| read.value);
            prop_assert_eq!(ours, serde_json::from_slice::<Value>(&bytes).ok());
        }
    }
}
