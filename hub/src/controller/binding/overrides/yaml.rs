//! YAML inside a text, read as the applications that it is for read it, with a bound on what it grows to.
//!
//! Pure. Karmada and most applications read YAML 1.1: plain `yes` and `on` are truth values and `0644` is an
//! octal number there, and keys of `<<` are merged. Aliases let a small text stand for a huge document, so what
//! is read counts.

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;

/// What a document may come to for each byte of its text, aliases carried out: its values and the bytes of its
/// texts.
const COST_PER_BYTE: usize = 2;
/// What it may come to in any case.
const COST_FREE: usize = 65_536;
/// Longest text that may be more than a text.
const WORD_MAX: usize = 24;

/// Why a text is no document that can be patched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum YamlError {
    /// No YAML, or nothing that JSON can say.
    #[error("the field is no YAML: {0}")]
    Syntax(String),
    /// Several documents, of which none can be told.
    #[error("the field has more than one YAML document")]
    Several,
}

/// Reads one document; an empty text is null.
pub(super) fn parse(text: &str) -> Result<Value, YamlError> {
    let budget = Cell::new(text.len() * COST_PER_BYTE + COST_FREE);
    let quoted = quoted(text);
    let reader = Reader {
        quoted: &quoted,
        budget: &budget,
    };
    let mut documents = serde_yaml::Deserializer::from_str(text);
    let Some(first) = documents.next() else {
        return Ok(Value::Null);
    };
    let value = reader
        .deserialize(first)
        .map_err(|error| YamlError::Syntax(error.to_string()))?;
    match documents.next() {
        Some(_) => Err(YamlError::Several),
        None => Ok(value),
    }
}

/// Short texts that stand between quotes.
fn quoted(text: &str) -> BTreeSet<&str> {
    let between = |mark| text.split(mark).skip(1);
    let short = |part: &&str| part.len() <= WORD_MAX;
    between('"').chain(between('\'')).filter(short).collect()
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    quoted: &'a BTreeSet<&'a str>,
    /// What may still come.
    budget: &'a Cell<usize>,
}

impl Reader<'_> {
    fn spend<E: serde::de::Error>(&self, cost: usize) -> Result<(), E> {
        let left = self.budget.get().checked_sub(cost);
        let left = left.ok_or_else(|| E::custom("its aliases stand for too much"))?;
        self.budget.set(left);
        Ok(())
    }

    /// What a plain text is to readers of YAML 1.1; a text that has quotes anywhere is one everywhere.
    fn plain(&self, text: &str) -> Option<Value> {
        let value = match text {
            "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Value::Bool(true),
            "no" | "No" | "NO" | "off" | "Off" | "OFF" => Value::Bool(false),
            text if text.len() <= WORD_MAX => {
                let digits = text.strip_prefix('0')?;
                let octal = digits.bytes().all(|b| b.is_ascii_digit());
                let octal = octal.then(|| u64::from_str_radix(digits, 8).ok());
                octal.flatten()?.into()
            }
            _ => return None,
        };
        (!self.quoted.contains(text)).then_some(value)
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.spend(1)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON knows")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value);
        number
            .map(Value::Number)
            .ok_or_else(|| E::custom(format!("JSON has no number {value}")))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.spend(value.len())?;
        Ok(self.plain(value).unwrap_or_else(|| value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        let mut merged = Vec::new();
        while let Some(Key(key)) = map.next_key()? {
            self.spend(key.len())?;
            let value = map.next_value_seed(self)?;
            match (key.as_str(), value) {
                ("<<", Value::Object(more)) => merged.push(more),
                ("<<", Value::Array(items)) => {
                    for item in items {
                        let Value::Object(more) = item else {
                            return Err(A::Error::custom("a merge needs maps"));
                        };
                        merged.push(more);
                    }
                }
                (_, value) => {
                    members.insert(key, value);
                }
            }
        }
        for (key, value) in merged.into_iter().flatten() {
            members.entry(key).or_insert(value);
        }
        Ok(Value::Object(members))
    }
}

/// A key as the text that JSON makes of it.
struct Key(String);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that is a text")
    }

    fn visit_unit<E>(self) -> Result<Key, E> {
        Ok(Key("null".to_owned()))
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Key, E> {
        self.visit_unit()
    }

    fn visit_bool<E>(self, value: bool) -> Result<Key, E> {
        Ok(Key(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Key, E> {
        Ok(Key(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Key, E> {
        Ok(Key(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Key, E> {
        Ok(Key(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Key, E> {
        Ok(Key(value.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_are_what_their_readers_take_them_for() {
        let cases = [
            ("", json!(null)),
            ("a", json!("a")),
            (
                "a: yes\nb: Off\nc: true\nd: ~\n",
                json!({"a": true, "b": false, "c": true, "d": null}),
            ),
            ("a: 'yes'\nb: \"off\"\n", json!({"a": "yes", "b": "off"})),
            (
                "mode: 0644\nother: '0600'\n",
                json!({"mode": 420, "other": "0600"}),
            ),
            (
                "a: 089\nb: 0x1F\nc: 0\n",
                json!({"a": "089", "b": 31, "c": 0}),
            ),
            (
                "1: a\ntrue: b\nnull: c\n1.5: d\n",
                json!({"1": "a", "true": "b", "null": "c", "1.5": "d"}),
            ),
            (
                "base: &base {x: 1, y: 2}\nown:\n  <<: *base\n  y: 3\n",
                json!({"base": {"x": 1, "y": 2}, "own": {"x": 1, "y": 3}}),
            ),
            (
                "a: &a {x: 1}\nb: &b {x: 2, z: 3}\nc: {<<: [*a, *b]}\n",
                json!({"a": {"x": 1}, "b": {"x": 2, "z": 3}, "c": {"x": 1, "z": 3}}),
            ),
            (
                "- 1\n- -2\n- 1.5\n- 2026-01-01\n",
                json!([1, -2, 1.5, "2026-01-01"]),
            ),
        ];
        for (text, want) in cases {
            assert_eq!(parse(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        for text in [
            "{no",
            "a: .inf",
            "a: !tag {b: 1}",
            "? [a]\n: b",
            "a: 1\n---\nb: 2\n",
            "<<: {a: 1}\nb: *c\n",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("a: 1\n---\nb: 2\n"), Err(YamlError::Several));
    }

    #[test]
    fn aliases_do_not_multiply() {
        let many = |anchor: &str| format!("a: &a {anchor}\nb: [{}]\n", vec!["*a"; 2000].join(", "));
        let list = format!("[{}]", vec!["x"; 2000].join(", "));
        let keys = format!("{{{}: 1}}", "k".repeat(1000));
        for anchor in [list.as_str(), &"x".repeat(5000), &keys] {
            let error = parse(&many(anchor)).expect_err("too much");
            assert!(error.to_string().contains("too much"), "{error}");
        }
        assert!(parse(&many("x")).is_ok());
        let plain = format!("[{}]", vec!["yes"; 100_000].join(","));
        assert!(parse(&plain).is_ok());
        let deep = "[".repeat(100_000);
        assert!(parse(&deep).is_err());
    }
}
