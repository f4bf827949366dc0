//! YAML as `kubectl` and other readers of YAML 1.1 are to read it: a text never looks like anything else.
//!
//! YAML 1.1 takes `yes`, `on`, `1_000`, `1:30` and `2026-01-01` for truth values, numbers and times. Every
//! text that some reader may take for more than a text has quotes here.

use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// Longest key that stands before its colon; a longer one has a line of its own, as readers take only
/// 1,024 characters.
const KEY_MAX: usize = 128;
/// Words that are no texts, in small letters.
const WORDS: [&str; 9] = ["y", "yes", "n", "no", "on", "off", "true", "false", "null"];

/// A value as a document; keys are sorted. The error is that of a value which is no JSON.
pub fn to_string(value: &(impl Serialize + ?Sized)) -> Result<String, serde_json::Error> {
    Ok(document(&serde_json::to_value(value)?))
}

/// JSON as a document.
pub fn document(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => members(&mut out, map, 0),
        Value::Array(items) if !items.is_empty() => entries(&mut out, items, 0),
        Value::String(text) => out.push_str(&line(text)),
        other => scalar(&mut out, other),
    }
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

fn pad(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

/// The members of a map; the first one stands where the text ends, the others at `depth`.
fn members(out: &mut String, map: &Map<String, Value>, depth: usize) {
    for (index, (key, value)) in map.iter().enumerate() {
        if index > 0 {
            pad(out, depth);
        }
        let key = line(key);
        if key.len() > KEY_MAX {
            out.push_str("? ");
            out.push_str(&key);
            out.push('\n');
            pad(out, depth);
        } else {
            out.push_str(&key);
        }
        out.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                pad(out, depth + 1);
                members(out, inner, depth + 1);
            }
            Value::Array(inner) if !inner.is_empty() => {
                out.push('\n');
                pad(out, depth);
                entries(out, inner, depth);
            }
            Value::String(text) => {
                out.push(' ');
                string(out, text, depth + 1);
            }
            other => {
                out.push(' ');
                scalar(out, other);
            }
        }
        end_line(out);
    }
}

/// The entries of a list, likewise.
fn entries(out: &mut String, items: &[Value], depth: usize) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            pad(out, depth);
        }
        out.push_str("- ");
        match item {
            Value::Object(inner) if !inner.is_empty() => members(out, inner, depth + 1),
            Value::Array(inner) if !inner.is_empty() => entries(out, inner, depth + 1),
            Value::String(text) => string(out, text, depth + 1),
            other => scalar(out, other),
        }
        end_line(out);
    }
}

fn end_line(out: &mut String) {
    if !out.ends_with('\n') {
        out.push('\n');
    }
}

/// What is no text, or is empty.
fn scalar(out: &mut String, value: &Value) {
    match value {
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        // Some readers take an exponent for a number only behind a point.
        Value::Number(number) => {
            let text = number.to_string();
            match text.split_once(['e', 'E']) {
                Some((mantissa, exponent)) => {
                    let point = if mantissa.contains('.') { "" } else { ".0" };
                    let sign = if exponent.starts_with(['-', '+']) {
                        ""
                    } else {
                        "+"
                    };
                    out.extend([mantissa, point, "e", sign, exponent]);
                }
                None => out.push_str(&text),
            }
        }
        other => out.push_str(&other.to_string()),
    }
}

/// A text: lines as lines where that is safe.
fn string(out: &mut String, text: &str, depth: usize) {
    let body = text.trim_end_matches('\n');
    let ends = text.len() - body.len();
    let lines = body.contains('\n') || ends > 0;
    let safe = !body.is_empty()
        && !body.starts_with([' ', '\n', '\t'])
        && body.chars().all(|c| c == '\n' || c == '\t' || is_shown(c));
    if !lines || !safe {
        out.push_str(&line(text));
        return;
    }
    out.push_str(match ends {
        0 => "|-\n",
        1 => "|\n",
        _ => "|+\n",
    });
    for row in body.split('\n') {
        if !row.is_empty() {
            pad(out, depth);
            out.push_str(row);
        }
        out.push('\n');
    }
    out.extend(std::iter::repeat_n('\n', ends.saturating_sub(1)));
}

/// A text on one line.
fn line(text: &str) -> String {
    if is_plain(text) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_shown(c) => out.push(c),
            c => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
        }
    }
    out.push('"');
    out
}

/// Whether readers take a character as it is.
fn is_shown(c: char) -> bool {
    !c.is_control()
        && !matches!(
            c,
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
}

/// Whether no reader takes a text without quotes for anything else. What begins with a digit, a sign or a
/// point may be a number, a time or an address, to one or the other.
fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    let colon = |at: usize| bytes.get(at + 1).is_some_and(|next| *next != b' ');
    (first.is_ascii_alphabetic() || matches!(first, b'/' | b'_' | b'$' | b'('))
        && *last != b' '
        && bytes.iter().enumerate().all(|(at, byte)| match byte {
            b':' => colon(at),
            b' ' | b'-' | b'_' | b'.' | b'/' | b'$' | b'(' | b')' | b'+' | b'=' | b',' | b'@'
            | b';' => true,
            byte => byte.is_ascii_alphanumeric(),
        })
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_stay_texts() {
        for text in [
            "",
            " ",
            "y",
            "N",
            "yes",
            "No",
            "ON",
            "off",
            "True",
            "null",
            "~",
            "1",
            "-1",
            "+1",
            "0x1F",
            "0o7",
            "010",
            "1_000",
            "1.5",
            ".5",
            "1e3",
            ".inf",
            ".nan",
            "1:30",
            "190:20:30.15",
            "2026-01-01",
            "2026-01-01T00:00:00Z",
            "<<",
            "=",
            "a: b",
            "a:",
            "a #b",
            "- a",
            "? a",
            "*a",
            "&a",
            "!a",
            "%a",
            "@a",
            "`a`",
            "[a]",
            "{a}",
            "'a'",
            "\"a\"",
            "|",
            ">",
            " a",
            "a ",
            "é",
            "\u{85}",
            "\t",
        ] {
            let shown = line(text);
            assert!(
                shown.starts_with('"') && shown.ends_with('"'),
                "{text:?}: {shown}"
            );
        }
        for text in [
            "a",
            "kube-system",
            "apps/v1",
            "a b",
            "a:b",
            "nginx:1.29",
            "k=v",
            "yesterday",
        ] {
            assert_eq!(line(text), text);
        }
    }

    #[test]
    fn a_document_reads_as_it_is_laid_out() {
        let value = json!({
            "apiVersion": "v1",
            "data": {"a": "yes", "b": "one\ntwo\n", "c": "one\n\n  two", "d": "one\n\n", "e": " x\ny"},
            "empty": {"list": [], "map": {}, "none": null},
            "lists": [["a", {"b": 1, "c": [true]}], 1.5, 1e300],
            "x".repeat(KEY_MAX + 1): {"k": 1},
        });
        let long = "x".repeat(KEY_MAX + 1);
        let want = format!(
            "apiVersion: v1\n\
             data:\n  a: \"yes\"\n  b: |\n    one\n    two\n  c: |-\n    one\n\n      two\n  d: |+\n    one\n\n  e: \" x\\ny\"\n\
             empty:\n  list: []\n  map: {{}}\n  none: null\n\
             lists:\n- - a\n  - b: 1\n    c:\n    - true\n- 1.5\n- 1.0e+300\n\
             ? {long}\n:\n  k: 1\n"
        );
        let document = document(&value);
        assert_eq!(document, want);
        let read: Value = serde_yaml::from_str(&document).expect("YAML");
        assert_eq!(read, value);
    }

    #[test]
    fn values_alone_are_documents() {
        for (value, want) in [
            (json!("on"), "\"on\"\n"),
            (json!("a\nb"), "\"a\\nb\"\n"),
            (json!(null), "null\n"),
            (json!({}), "{}\n"),
            (json!([1, "2"]), "- 1\n- \"2\"\n"),
        ] {
            assert_eq!(document(&value), want);
        }
    }
}
