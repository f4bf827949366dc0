//! Writes protobuf bodies from a text: `v1 ConfigMap 1{1:"name"} 2{1:"key" 2:"value"}`.
//!
//! `N:"text"` is a string field, `N:12` a number, `N{…}` a message. The text is the object; around it
//! come the frame and the kind that Kubernetes puts there.

use anyhow::{Context as _, Result, bail};
use std::iter::Peekable;
use std::str::Chars;

/// The whole body.
pub(crate) fn encode(text: &str) -> Result<Vec<u8>> {
    let mut words = text.splitn(3, ' ');
    let version = words.next().context("an apiVersion comes first")?;
    let kind = words.next().context("then a kind")?;
    let raw = message(&mut words.next().unwrap_or_default().chars().peekable())?;
    let mut meta = Vec::new();
    bytes(&mut meta, 1, version.as_bytes());
    bytes(&mut meta, 2, kind.as_bytes());
    let mut body = b"k8s\0".to_vec();
    bytes(&mut body, 1, &meta);
    bytes(&mut body, 2, &raw);
    Ok(body)
}

fn message(text: &mut Peekable<Chars<'_>>) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    while let Some(c) = text.peek().copied() {
        match c {
            ' ' | '\n' => {
                text.next();
            }
            '}' => return Ok(out),
            _ => field(text, &mut out)?,
        }
    }
    Ok(out)
}

fn field(text: &mut Peekable<Chars<'_>>, out: &mut Vec<u8>) -> Result<()> {
    let number = number(text)?;
    match text.next() {
        Some('{') => {
            let inner = message(text)?;
            anyhow::ensure!(text.next() == Some('}'), "a message has no end");
            bytes(out, number, &inner);
        }
        Some(':') if text.peek() == Some(&'"') => {
            text.next();
            let value: String = text.by_ref().take_while(|c| *c != '"').collect();
            bytes(out, number, value.as_bytes());
        }
        Some(':') => {
            let value = self::number(text)?;
            varint(out, number << 3);
            varint(out, value);
        }
        other => bail!("field {number} goes on with {other:?}"),
    }
    Ok(())
}

fn number(text: &mut Peekable<Chars<'_>>) -> Result<u64> {
    let mut digits = String::new();
    while let Some(c) = text.next_if(char::is_ascii_digit) {
        digits.push(c);
    }
    digits
        .parse()
        .with_context(|| format!("no number: {:?}", text.peek()))
}

fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(u8::try_from(value & 0x7f).unwrap_or_default() | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).unwrap_or_default());
}
