//! YAML of files, and inside texts, read as Kubernetes and most applications read it, with a bound on what it grows to.
//!
//! Pure. kubectl, Karmada and most applications read YAML 1.1: plain `yes` and `on` are truth values and `0644` is an
//! octal number there, and keys of `<<` are merged. What has quotes or is a block is a text. Aliases let a small text
//! stand for a huge document, so what is read counts.

use crate::go::{settle_numbers, yaml};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use granit_parser::{Event, Parser, ScalarStyle, Tag, options};
use serde_json::{Map, Value};
use std::cell::Cell;
use std::collections::BTreeMap;

/// What a document may come to for each byte of its text, aliases carried out: its values and the bytes of its
/// texts.
const COST_PER_BYTE: usize = 2;
/// What it may come to in any case.
const COST_FREE: usize = 65_536;
/// How many lists and objects may lie in each other, aliases carried out.
const DEPTH_MAX: usize = 128;
/// Tags of YAML's own types.
const OWN: &str = "tag:yaml.org,2002:";
/// From here on a float may stand for a whole number that has no 64 bits.
const LARGEST: f64 = 9_223_372_036_854_775_808.0;

/// What is wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// No YAML, or nothing that JSON can say.
    #[error("is no YAML: {0}")]
    Syntax(String),
    /// Several documents, where one is wanted and none can be told.
    #[error("has more than one YAML document")]
    Several,
}

/// Reads one document; an empty text is null.
pub(crate) fn parse(text: &str) -> Result<Value, YamlError> {
    let readers = Reader::all(text)?;
    match &readers[..] {
        [] => Ok(Value::Null),
        [only] => only.document(bound(text)).map(|(value, _)| value),
        _ => Err(YamlError::Several),
    }
}

/// Reads all documents; an empty one is null.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>, YamlError> {
    let (readers, mut left) = (Reader::all(text)?, bound(text));
    let mut all = Vec::with_capacity(readers.len());
    for reader in readers {
        let (value, rest) = reader.document(left)?;
        all.push(value);
        left = rest;
    }
    Ok(all)
}

/// What all documents of a text may come to.
fn bound(text: &str) -> usize {
    text.len() * COST_PER_BYTE + COST_FREE
}

#[derive(Default)]
struct Reader<'a> {
    /// What the document consists of, in order.
    events: Vec<Event<'a>>,
    /// Where the events begin that an alias stands for.
    anchors: BTreeMap<usize, usize>,
    /// What may still come.
    left: Cell<usize>,
}

impl<'a> Reader<'a> {
    /// One for each document.
    fn all(text: &'a str) -> Result<Vec<Self>, YamlError> {
        let options = options! {
            emit_comments: false,
            flow_nesting_limit: DEPTH_MAX,
            block_nesting_limit: DEPTH_MAX,
        };
        let mut readers: Vec<Self> = Vec::new();
        for next in Parser::new_from_str_with_options(text, options) {
            let (event, _) = next.map_err(|why| YamlError::Syntax(why.to_string()))?;
            match event {
                Event::DocumentStart(..) => readers.push(Self::default()),
                Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
                event => {
                    if let Some(reader) = readers.last_mut() {
                        reader.push(event);
                    }
                }
            }
        }
        Ok(readers)
    }

    fn push(&mut self, event: Event<'a>) {
        let anchor = event.anchor_id();
        let at = self.events.len();
        self.anchors.extend(anchor.map(|id| (id, at)));
        self.events.push(event);
    }

    /// The document, and what of `left` it leaves.
    fn document(&self, left: usize) -> Result<(Value, usize), YamlError> {
        self.left.set(left);
        if self.events.is_empty() {
            return Ok((Value::Null, left));
        }
        let mut value = self.value(&mut 0, DEPTH_MAX).map_err(YamlError::Syntax)?;
        settle_numbers(&mut value);
        Ok((value, self.left.get()))
    }

    fn spend(&self, cost: usize) -> Result<(), String> {
        let left = self.left.get().checked_sub(cost);
        self.left.set(left.ok_or("its aliases stand for too much")?);
        Ok(())
    }

    fn next(&self, at: &mut usize) -> Result<&Event<'a>, String> {
        let event = self.events.get(*at).ok_or("it ends too early")?;
        *at += 1;
        Ok(event)
    }

    fn anchor(&self, id: usize) -> Result<usize, String> {
        let at = self.anchors.get(&id).copied();
        at.ok_or_else(|| "an alias stands for nothing".to_owned())
    }

    /// Whether a list or an object ends here, which is passed then.
    fn ends(&self, at: &mut usize) -> bool {
        let end = matches!(
            self.events.get(*at),
            Some(Event::SequenceEnd | Event::MappingEnd)
        );
        *at += usize::from(end);
        end
    }

    /// The value that begins at an event; `at` is the event behind it afterwards.
    fn value(&self, at: &mut usize, depth: usize) -> Result<Value, String> {
        self.spend(1)?;
        let event = self.next(at)?;
        if let Event::Scalar(text, style, _, tag) = event {
            self.spend(text.len())?;
            return scalar(text, *style, tag.as_deref());
        }
        let depth = depth.checked_sub(1).ok_or("it is nested too deep")?;
        match event {
            Event::Alias(id) => self.value(&mut self.anchor(*id)?, depth),
            Event::SequenceStart(_, _, tag) => {
                own(tag.as_deref())?;
                let mut items = Vec::new();
                while !self.ends(at) {
                    items.push(self.value(at, depth)?);
                }
                Ok(Value::Array(items))
            }
            Event::MappingStart(_, _, tag) => {
                own(tag.as_deref())?;
                self.members(at, depth).map(Value::Object)
            }
            _ => Err("a value is expected".to_owned()),
        }
    }

    fn members(&self, at: &mut usize, depth: usize) -> Result<Map<String, Value>, String> {
        let mut members = Map::new();
        let mut merged = Vec::new();
        while !self.ends(at) {
            let key = self.key(at)?;
            let value = self.value(at, depth)?;
            match (key, value) {
                (Key::Text(key), value) => {
                    members.insert(key, value);
                }
                (Key::Merge, Value::Array(items)) => merged.extend(items),
                (Key::Merge, value) => merged.push(value),
            }
        }
        for more in merged {
            let Value::Object(more) = more else {
                return Err("a merge needs maps".to_owned());
            };
            for (key, value) in more {
                members.entry(key).or_insert(value);
            }
        }
        Ok(members)
    }

    fn key(&self, at: &mut usize) -> Result<Key, String> {
        let mut event = self.next(at)?;
        if let Event::Alias(id) = event {
            event = self.next(&mut self.anchor(*id)?)?;
        }
        let Event::Scalar(text, style, _, tag) = event else {
            return Err("a key that is a text is expected".to_owned());
        };
        self.spend(text.len())?;
        Key::of(text, *style, tag.as_deref())
    }
}

/// A key of an object.
enum Key {
    /// As the text that JSON makes of it.
    Text(String),
    /// What stands there are members.
    Merge,
}

impl Key {
    fn of(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Self, String> {
        let plain = tag.is_none() && style == ScalarStyle::Plain;
        let merges =
            tag.is_some_and(|tag| tag.suffix_in_namespace(OWN).as_deref() == Some("merge"));
        if text == "<<" && (plain || merges) {
            return Ok(Self::Merge);
        }
        let mut value = scalar(text, style, tag)?;
        settle_numbers(&mut value);
        Ok(Self::Text(match value {
            Value::String(key) => key,
            // Nobody means a truth value by a key `on`.
            Value::Bool(truth) if !text.eq_ignore_ascii_case(&truth.to_string()) => text.to_owned(),
            other => other.to_string(),
        }))
    }
}

/// Its name, of a tag that is one of YAML's own types.
fn own(tag: Option<&Tag>) -> Result<Option<String>, String> {
    let Some(tag) = tag else {
        return Ok(None);
    };
    match tag.suffix_in_namespace(OWN) {
        Some(name) => Ok(Some(name.into_owned())),
        None => Err(format!("JSON has no tag {}", tag.original())),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let Some(name) = own(tag)? else {
        return match style {
            ScalarStyle::Plain => plain(text),
            _ => Ok(text.into()),
        };
    };
    let is: fn(&Value) -> bool = match name.as_str() {
        "bool" => Value::is_boolean,
        "int" => |value| value.is_i64() || value.is_u64(),
        "float" => Value::is_number,
        "null" => Value::is_null,
        "binary" => return binary(text).map(Value::from),
        _ => return Ok(text.into()),
    };
    let value = plain(text)?;
    match is(&value) {
        true => Ok(value),
        false => Err(format!("{text:?} is no {name}")),
    }
}

/// A word without quotes; `y` and `n` are those of coordinates to more readers than they are truth values.
fn plain(text: &str) -> Result<Value, String> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(format!("JSON has no number {text}"));
    }
    let digits = |b: u8| b.is_ascii_digit() || b == b'_';
    match yaml::plain(text) {
        Some(Value::Bool(_)) if text.len() == 1 => Ok(text.into()),
        Some(value)
            if value.as_f64().is_some_and(|float| float.abs() >= LARGEST)
                && !(value.is_u64() || value.is_i64())
                && unsigned.bytes().all(digits) =>
        {
            Err(format!("{text} has more than 64 bits"))
        }
        found => Ok(found.unwrap_or_else(|| text.into())),
    }
}

fn binary(text: &str) -> Result<String, String> {
    let compact: String = text.split_whitespace().collect();
    let bytes = STANDARD.decode(compact).ok();
    let read = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    read.ok_or_else(|| "a !!binary that is no text".to_owned())
}

#[cfg(test)]
mod tests;
