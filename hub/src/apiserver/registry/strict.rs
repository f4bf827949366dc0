//! JSON and YAML read with an eye on fields that are there twice.
//!
//! Whoever may write anything may send what is read here. So a path is put together only for what is
//! told, what is told is bounded, and what the aliases of YAML repeat is bounded.

use crate::apiserver::error::quote;
use serde::Deserialize as _;
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

/// Reads one YAML document as API servers do, where `y` and `off` are truth values.
pub(crate) fn read_yaml(bytes: &[u8]) -> Result<Read, serde_yaml::Error> {
    if opened(bytes) > MOST_OPENED {
        return Err(serde_yaml::Error::custom("document is nested too deep"));
    }
    let notes = Notes {
        left: Some(Cell::new(MOST_REPEATED.max(2 * bytes.len()))),
        yaml: Some(bytes),
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
    super::go_json::problem(bytes).unwrap_or_else(|| why.to_string())
}

/// Keys that a YAML text has twice, by their paths, as Go tells them.
pub(crate) fn yaml_twice(yaml: &[u8], duplicates: &[String]) -> Vec<String> {
    let text = String::from_utf8_lossy(yaml);
    let told = duplicates.iter().map(|path| {
        let key = path.rsplit('.').next().unwrap_or_default();
        let line = last_line(&text, key);
        format!("line {line}: key {} already set in map", quote(key))
    });
    told.collect()
}

/// The number of the last line that begins with a key.
fn last_line(text: &str, key: &str) -> usize {
    let begins = |line: &str| {
        let rest = line.trim_start().trim_start_matches("- ").strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with(':'))
    };
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| begins(line))
        .last()
        .map_or(1, |(index, _)| index + 1)
}

/// Why a text is not YAML, in Go's words: the problem alone, and the line it is in.
pub(crate) fn go_yaml_words(why: &serde_yaml::Error) -> String {
    let text = why.to_string();
    let (problem, rest) = match text.split_once(" at line ") {
        Some((problem, rest)) => (problem, rest),
        None => (text.split(", while ").next().unwrap_or(&text), ""),
    };
    let digits = rest.split(' ').next().unwrap_or_default();
    // Go counts lines from nothing, does not tell that of the first, and adds one for what is wrong
    // with a single word.
    let line = digits.parse::<usize>().unwrap_or(1).saturating_sub(1);
    let of_words = rest.contains("while scanning")
        || problem.contains("not allowed in this context")
        || problem.contains("cannot start any token");
    match line {
        0 => format!("yaml: {problem}"),
        line => format!("yaml: line {}: {problem}", line + usize::from(of_words)),
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

struct Notes<'a> {
    duplicates: RefCell<Told>,
    order: Option<RefCell<Told>>,
    /// How much more may be read, where aliases can repeat what was.
    left: Option<Cell<usize>>,
    /// The text, where it is YAML: words without quotes may mean something there.
    yaml: Option<&'a [u8]>,
}

impl Default for Notes<'_> {
    fn default() -> Self {
        Self {
            duplicates: RefCell::new(Told::of(MOST_TOLD)),
            order: None,
            left: None,
            yaml: None,
        }
    }
}

impl Notes<'_> {
    fn spend<E: Error>(&self, size: usize) -> Result<(), E> {
        let Some(left) = &self.left else {
            return Ok(());
        };
        let rest = left.get().checked_sub(size);
        left.set(rest.ok_or_else(|| E::custom("document contains excessive aliasing"))?);
        Ok(())
    }

    /// What a word of the text stands for.
    fn word(&self, word: &str) -> Value {
        let plain = self.yaml.is_some_and(|text| {
            // Where in the text the word is; both are parts of one slice, or it is not found.
            let at = (word.as_ptr() as usize).checked_sub(text.as_ptr() as usize);
            let before = at.and_then(|at| text.get(at.checked_sub(1)?));
            !matches!(before, Some(b'"' | b'\''))
        });
        let meant = if plain { yaml_word(word) } else { None };
        meant.unwrap_or_else(|| Value::from(word))
    }
}

/// What YAML 1.1 reads in a word that YAML 1.2 takes for text.
fn yaml_word(word: &str) -> Option<Value> {
    match word {
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Some(Value::Bool(true)),
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Some(Value::Bool(false)),
        _ => {}
    }
    let digits = word.replace('_', "");
    let (sign, rest) = match digits.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, digits.strip_prefix('+').unwrap_or(&digits)),
    };
    if !rest.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let radix = |prefix: &str, radix| {
        let digits = rest.strip_prefix(prefix)?;
        i64::from_str_radix(digits, radix).ok()
    };
    let number = radix("0b", 2)
        .or_else(|| radix("0o", 8))
        .or_else(|| radix("0x", 16))
        .or_else(|| radix("0", 8))
        .or_else(|| rest.parse().ok());
    number.map(|number: i64| Value::from(sign * number))
}

struct Node<'a> {
    path: &'a Path<'a>,
    notes: &'a Notes<'a>,
}

/// A key: text, whatever a word of YAML stands for.
struct Key<'a>(&'a Notes<'a>);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        if self.0.yaml.is_none() {
            return String::deserialize(deserializer);
        }
        let key = Node {
            path: &Path::Root,
            notes: self.0,
        }
        .deserialize(deserializer)?;
        match key {
            Value::String(text) => Ok(text),
            Value::Array(_) | Value::Object(_) => Err(D::Error::custom("a key is no text")),
            other => Ok(other.to_string()),
        }
    }
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

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Value, E> {
        self.notes.spend(value.len())?;
        Ok(self.notes.word(value))
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
        while let Some(key) = entries.next_key_seed(Key(self.notes))? {
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
    fn words_of_yaml_mean_what_they_mean_to_servers() {
        let yaml = b"a: y\nb: 'y'\nc: \"no\"\nd: [off, 010, 1_000, 0x1F, '010']\ne: |\n  yes\nn: {on: x}\n";
        assert_eq!(
            read_yaml(yaml).expect("YAML").value,
            json!({
                "a": true, "b": "y", "c": "no", "d": [false, 8, 1000, 31, "010"], "e": "yes\n",
                "false": {"true": "x"},
            })
        );
        assert_eq!(
            read(br#"{"a":"y"}"#).expect("JSON").value,
            json!({"a": "y"})
        );
    }

    #[test]
    fn problems_of_yaml_are_told_in_the_words_of_go() {
        for (yaml, want) in [
            ("[", "yaml: line 1: did not find expected node content"),
            (
                "a: b: c",
                "yaml: mapping values are not allowed in this context",
            ),
            (
                "a: 1\nb: c: d\n",
                "yaml: line 2: mapping values are not allowed in this context",
            ),
        ] {
            let why = read_yaml(yaml.as_bytes()).expect_err(yaml);
            assert_eq!(go_yaml_words(&why), want, "{why}");
        }
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
        let some = read_yaml(b"a: &a [x, z]\nb: *a\n").expect("YAML");
        assert_eq!(some.value, json!({"a": ["x", "z"], "b": ["x", "z"]}));
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
