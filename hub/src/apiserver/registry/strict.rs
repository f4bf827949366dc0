//! JSON and YAML read with an eye on fields that are there twice.
//!
//! Whoever may write anything may send what is read here. So a path is put together only for what is
//! told, what is told is bounded, and what the aliases of YAML repeat is bounded.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::fmt::Write as _;

/// How many fields are told, as the real server has it, and how long all their paths may be.
pub(crate) const MOST_TOLD: usize = 100;
const MOST_TEXT: usize = 256 * 1024;
/// How large YAML may become by its aliases, beyond twice its length: values and bytes of text together.
const MOST_REPEATED: usize = 512 * 1024;
/// How many brackets may be open in YAML, which is taken apart before its depth is looked at.
const MOST_OPENED: usize = 1_000;
/// How many fields are put in order.
const MOST_ORDERED: usize = 10_000;

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

/// Reads one YAML document.
pub(crate) fn read_yaml(bytes: &[u8]) -> Result<Read, serde_yaml::Error> {
    if opened(bytes) > MOST_OPENED {
        return Err(serde_yaml::Error::custom("document is nested too deep"));
    }
    let notes = Notes {
        left: Some(Cell::new(MOST_REPEATED.max(2 * bytes.len()))),
        ..Notes::default()
    };
    let value = Node {
        path: &Path::Root,
        notes: &notes,
    }
    .deserialize(serde_yaml::Deserializer::from_slice(bytes))?;
    Ok(Read {
        value,
        duplicates: notes.duplicates.into_inner().paths,
    })
}

/// How many brackets are open at a time, those within texts counted too.
fn opened(bytes: &[u8]) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for byte in bytes {
        match byte {
            b'[' | b'{' => {
                now += 1;
                most = most.max(now);
            }
            b']' | b'}' => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
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
    /// How much more may be read, where aliases can repeat what was.
    left: Option<Cell<usize>>,
}

impl Default for Notes {
    fn default() -> Self {
        Self {
            duplicates: RefCell::new(Told::of(MOST_TOLD)),
            order: None,
            left: None,
        }
    }
}

impl Notes {
    fn spend<E: Error>(&self, size: usize) -> Result<(), E> {
        let Some(left) = &self.left else {
            return Ok(());
        };
        let rest = left.get().checked_sub(size);
        left.set(rest.ok_or_else(|| E::custom("document contains excessive aliasing"))?);
        Ok(())
    }
}

struct Node<'a> {
    path: &'a Path<'a>,
    notes: &'a Notes,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.notes.spend(1)?;
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
        self.notes.spend(value.len())?;
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
            self.notes.spend(key.len())?;
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
    fn aliases_repeat_only_so_much() {
        let some = read_yaml(b"a: &a [x, y]\nb: *a\n").expect("YAML");
        assert_eq!(some.value, json!({"a": ["x", "y"], "b": ["x", "y"]}));
        let wide = format!(
            "a: &a [{}0]\nb: [{}*a]\n",
            "0,".repeat(5000),
            "*a,".repeat(5000)
        );
        let long = format!(
            "a: &a {}\nb: [{}*a]\n",
            "x".repeat(50_000),
            "*a,".repeat(5000)
        );
        let mut deep = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
        for level in 1..12 {
            let below = format!("*a{},", level - 1).repeat(10);
            deep.push_str(&format!("a{level}: &a{level} [{}x]\n", below));
        }
        for bomb in [wide, long, deep] {
            assert!(read_yaml(bomb.as_bytes()).is_err());
        }
    }

    #[test]
    fn what_is_nested_too_deep_is_refused() {
        for (open, levels) in [("[", 3_000_000), ("{\"a\":", 500_000), ("- ", 5_000)] {
            let text = open.repeat(levels);
            assert!(read(text.as_bytes()).is_err());
            assert!(read_yaml(text.as_bytes()).is_err());
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
