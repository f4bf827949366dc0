//! YAML as API servers read it: the first document alone, in the words of YAML 1.1, with merges.
//!
//! Whoever may write anything may send what is read here. So what is told is bounded, and so is what
//! aliases repeat.

mod words;

use crate::go::strict::{MOST_TEXT, MOST_TOLD, Read};
use crate::go::{self, print, settle_numbers};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::cell::{Cell, RefCell};
use std::fmt;
use words::{last_line, tag, words};

/// How large YAML may become by its aliases, beyond twice its length: values and bytes of text together.
const MOST_REPEATED: usize = 512 * 1024;
/// How many brackets may be open, for YAML is taken apart before its depth is looked at.
const MOST_OPENED: usize = 1_000;

/// Reads the first document, where `y` and `off` are truth values. What is there twice is told by its
/// line. The error is Go's text.
pub(crate) fn read(bytes: &[u8]) -> Result<Read, String> {
    if opened(bytes) > MOST_OPENED {
        return Err("yaml: document is nested too deep".to_owned());
    }
    let notes = Notes {
        text: bytes,
        left: Cell::new(MOST_REPEATED.max(2 * bytes.len())),
        at: Cell::new(None),
        twice: RefCell::default(),
        said: RefCell::default(),
    };
    // Go does not look at what follows the first document.
    let Some(document) = serde_yaml::Deserializer::from_slice(bytes).next() else {
        return Ok(Read {
            value: Value::Null,
            duplicates: Vec::new(),
        });
    };
    match Node(&notes).deserialize(document) {
        Ok(mut value) => {
            settle_numbers(&mut value);
            Ok(Read {
                value,
                duplicates: notes.twice.into_inner(),
            })
        }
        Err(why) => Err(notes.said.take().unwrap_or_else(|| words(&why, bytes))),
    }
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

struct Notes<'a> {
    text: &'a [u8],
    /// How much more may be read.
    left: Cell<usize>,
    /// Where the last word stands, and whether it has no quotes.
    at: Cell<Option<(usize, bool)>>,
    /// Keys that are there twice, as Go tells them.
    twice: RefCell<Vec<String>>,
    /// What Go says of the problem, where it is none of the form of the text.
    said: RefCell<Option<String>>,
}

impl Notes<'_> {
    fn spend<E: Error>(&self, size: usize) -> Result<(), E> {
        let rest = self.left.get().checked_sub(size);
        self.left
            .set(rest.ok_or_else(|| E::custom("document contains excessive aliasing"))?);
        Ok(())
    }

    fn refuse<E: Error>(&self, why: String) -> E {
        *self.said.borrow_mut() = Some(why);
        E::custom("refused")
    }

    /// What a word of the text stands for.
    fn word<E: Error>(&self, word: &str) -> Result<Value, E> {
        // Where in the text the word is; both are parts of one slice, or it is not found.
        let at = (word.as_ptr() as usize).checked_sub(self.text.as_ptr() as usize);
        let before = at.and_then(|at| self.text.get(..at)).unwrap_or_default();
        let quoted = matches!(before.last(), Some(b'"' | b'\''));
        self.at.set(at.map(|at| (at, !quoted)));
        let lead = match before {
            [lead @ .., _] if quoted => lead,
            lead => lead,
        };
        match tag(lead) {
            b"!!binary" => {
                let compact: String = word.split_whitespace().collect();
                let bytes = STANDARD.decode(compact).map_err(|_| {
                    self.refuse::<E>("yaml: !!binary value contains invalid base64 data".to_owned())
                })?;
                Ok(Value::from(String::from_utf8_lossy(&bytes).into_owned()))
            }
            [b'!', b'!', ..] => Ok(Value::from(word)),
            _ if quoted => Ok(Value::from(word)),
            _ => Ok(go::yaml::plain(word).unwrap_or_else(|| Value::from(word))),
        }
    }

    fn tell(&self, entry: &Entry) {
        let mut twice = self.twice.borrow_mut();
        let length: usize = twice.iter().map(String::len).sum();
        if twice.len() >= MOST_TOLD || length >= MOST_TEXT {
            return;
        }
        let line = match entry.at.and_then(|at| self.text.get(..at)) {
            Some(before) => 1 + before.iter().filter(|byte| **byte == b'\n').count(),
            None => last_line(&String::from_utf8_lossy(self.text), &entry.key),
        };
        twice.push(format!(
            "line {line}: key {} already set in map",
            entry.shown
        ));
    }
}

/// A member of a map.
struct Entry {
    key: String,
    /// The key as Go prints it.
    shown: String,
    /// Where the key stands, if that is known.
    at: Option<usize>,
    value: Value,
}

/// Takes members of a map one by one.
type Sink<'s> = dyn FnMut(Entry) + 's;

/// Hands on all members, those that are merged among them.
fn members<'de, A: MapAccess<'de>>(
    notes: &Notes<'_>,
    mut entries: A,
    sink: &mut Sink<'_>,
) -> Result<(), A::Error> {
    loop {
        notes.at.set(None);
        let Some(key) = entries.next_key_seed(Node(notes))? else {
            return Ok(());
        };
        let at = notes.at.take();
        if key == "<<" && at.is_some_and(|(_, plain)| plain) {
            entries.next_value_seed(Merge {
                notes,
                sink: &mut *sink,
            })?;
            continue;
        }
        let shown = print::source(&key);
        let text = match key {
            Value::String(text) => text,
            Value::Null => {
                let value = entries.next_value_seed(Node(notes))?;
                let value = print::source(&value);
                return Err(notes.refuse(format!(
                    "unsupported map key of type: %!s(<nil>), key: <nil>, value: {value}"
                )));
            }
            Value::Array(_) | Value::Object(_) => {
                let shown = shown.replace("map[string]", "map[interface {}]");
                return Err(notes.refuse(format!("yaml: invalid map key: {shown}")));
            }
            mut other => {
                settle_numbers(&mut other);
                other.to_string()
            }
        };
        notes.spend(text.len())?;
        let value = entries.next_value_seed(Node(notes))?;
        sink(Entry {
            key: text,
            shown,
            at: at.map(|(at, _)| at),
            value,
        });
    }
}

/// A value.
struct Node<'a>(&'a Notes<'a>);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.0.spend(1)?;
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

    #[allow(clippy::cast_precision_loss, reason = "a number this large is a float")]
    fn visit_i128<E: Error>(self, value: i128) -> Result<Value, E> {
        Ok(Value::from(value as f64))
    }

    #[allow(clippy::cast_precision_loss, reason = "a number this large is a float")]
    fn visit_u128<E: Error>(self, value: u128) -> Result<Value, E> {
        Ok(Value::from(value as f64))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        if value.is_finite() {
            return Ok(Value::from(value));
        }
        let shown = match value {
            value if value.is_nan() => "NaN",
            value if value > 0.0 => "+Inf",
            _ => "-Inf",
        };
        Err(self.0.refuse(format!("json: unsupported value: {shown}")))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.0.spend(value.len())?;
        Ok(Value::from(value))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Value, E> {
        self.0.spend(value.len())?;
        self.0.word(value)
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Node(self.0))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        members(self.0, entries, &mut |entry: Entry| {
            if map.contains_key(&entry.key) {
                self.0.tell(&entry);
            }
            map.insert(entry.key, entry.value);
        })?;
        Ok(Value::Object(map))
    }
}

/// What `<<` puts into a map: the members of another, or of several, the first of which has the last
/// word.
struct Merge<'a, 'n, 's> {
    notes: &'a Notes<'n>,
    sink: &'a mut Sink<'s>,
}

impl Merge<'_, '_, '_> {
    fn refuse<T, E: Error>(&self) -> Result<T, E> {
        let why = "yaml: map merge requires map or sequence of maps as the value";
        Err(self.notes.refuse(why.to_owned()))
    }
}

impl<'de> DeserializeSeed<'de> for Merge<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.notes.spend(1)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Merge<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map, or a list of maps")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.refuse()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.refuse()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.refuse()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.refuse()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.refuse()
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.refuse()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut maps: Vec<Vec<Entry>> = Vec::new();
        loop {
            let mut map = Vec::new();
            let next = items.next_element_seed(Merge {
                notes: self.notes,
                sink: &mut |entry: Entry| map.push(entry),
            })?;
            if next.is_none() {
                break;
            }
            maps.push(map);
        }
        maps.into_iter().rev().flatten().for_each(self.sink);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<(), A::Error> {
        members(self.notes, entries, self.sink)
    }
}

#[cfg(test)]
mod tests;
