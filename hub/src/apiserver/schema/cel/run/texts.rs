//! Functions of texts that the library has too, but slower than any text a request may bring allows, or
//! with patterns and quantities of its own kind.

use super::bounds::Work;
use super::{Stop, calls};
use crate::apiserver::schema::cel::syntax::{Kind, Node};
use crate::apiserver::schema::decode::quantity;
use crate::apiserver::schema::rules;
use kube_cel::cel::Value as Cel;
use regex::Regex;
use std::collections::HashMap;
use std::sync::Arc;

type Told = Result<Cel, Stop>;

/// What a pattern usually takes, and what it counts for if it takes more.
const SMALL: usize = 256 * 1024;
const LARGE: usize = 64 * 1024 * 1024;
/// So many patterns are kept.
const KEPT: usize = 16;

/// Patterns by their texts.
pub(super) type Patterns = HashMap<Arc<String>, Regex>;

/// Reads the patterns that stand below a node.
pub(super) fn prepare(node: &Node, all: &mut Patterns) {
    if let Kind::Call {
        target,
        function,
        arguments,
    } = &node.kind
        && matches!(function.as_ref(), "matches" | "find" | "findAll")
        && let Some(Kind::Text(text)) = target
            .iter()
            .map(AsRef::as_ref)
            .chain(arguments)
            .nth(1)
            .map(|pattern| &pattern.kind)
        && let Some(read) = rules::compile(text)
    {
        all.insert(Arc::new(text.to_string()), read);
    }
    for below in node.children() {
        prepare(below, all);
    }
}

/// What is done with a pattern, a text, and how often at most.
type Use = fn(&Regex, &str, usize) -> Cel;

/// What a call with a pattern does; nothing if it is of another function.
pub(super) fn user(function: &str, values: &[Cel]) -> Option<Use> {
    let [Cel::String(_), Cel::String(_), rest @ ..] = values else {
        return None;
    };
    match (function, rest) {
        ("matches", []) => Some(|of, text, _| Cel::Bool(of.is_match(text))),
        ("find", []) => Some(|of, text, _| {
            let found = of.find(text);
            calls::text(found.map_or("", |found| found.as_str()))
        }),
        ("findAll", [] | [Cel::Int(_)]) => Some(|of, text, most| {
            let found = of.find_iter(text).take(most);
            list(found.map(|found| found.as_str()))
        }),
        _ => None,
    }
}

/// Does it, with a pattern that is known or read now.
pub(super) fn with_pattern(
    user: Use,
    values: &[Cel],
    known: &Patterns,
    read: &mut Patterns,
    work: &mut Work,
) -> Told {
    let [Cel::String(text), Cel::String(pattern), rest @ ..] = values else {
        return Err(Stop::no_such_overload());
    };
    let most = match rest {
        [Cel::Int(most)] => usize::try_from(*most).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    if let Some(pattern) = known.get(pattern).or_else(|| read.get(pattern)) {
        return Ok(user(pattern, text, most));
    }
    work.pattern(SMALL + pattern.len())?;
    let compiled = match rules::compile_within(pattern, SMALL) {
        Some(compiled) => Some(compiled),
        None => {
            work.pattern(LARGE)?;
            rules::compile(pattern)
        }
    };
    let Some(compiled) = compiled else {
        return Err(Stop::Error(format!("`{pattern}` is no regular expression")));
    };
    let told = user(&compiled, text, most);
    if read.len() >= KEPT {
        read.clear();
    }
    read.insert(pattern.clone(), compiled);
    Ok(told)
}

fn list<'a>(texts: impl Iterator<Item = &'a str>) -> Cel {
    Cel::List(Arc::new(texts.map(calls::text).collect()))
}

/// What a call gives; nothing if the library has it.
pub(super) fn known(function: &str, values: &[Cel]) -> Option<Told> {
    Some(match (function, values) {
        ("indexOf", [Cel::String(text), Cel::String(part)]) => Ok(first(text, part, 0)),
        ("indexOf", [Cel::String(text), Cel::String(part), Cel::Int(from)]) => {
            Ok(first(text, part, usize::try_from(*from).unwrap_or(0)))
        }
        ("lastIndexOf", [Cel::String(text), Cel::String(part)]) => Ok(last(text, part, i64::MAX)),
        ("lastIndexOf", [Cel::String(text), Cel::String(part), Cel::Int(upto)]) => {
            Ok(last(text, part, *upto))
        }
        ("isQuantity", [Cel::String(text)]) => Ok(Cel::Bool(quantity::parse(text).is_ok())),
        _ => return None,
    })
}

/// A quantity as the library reads it, but no larger than binary ones become: the library takes any
/// exponent and reckons with what is left of it.
pub(super) fn quantity(text: &str) -> Result<Cel, Stop> {
    let read = quantity::parse(text).map_err(Stop::Error)?;
    Ok(calls::text(&format!("{}n", read.bounded_nano())))
}

/// At which letter a part first stands, from another one on.
fn first(text: &str, part: &str, from: usize) -> Cel {
    if part.is_empty() {
        return calls::counted(from);
    }
    let Some(rest) = after(text, from) else {
        return Cel::Int(-1);
    };
    let at = rest.find(part);
    at.map_or(Cel::Int(-1), |at| {
        calls::counted(from + rest[..at].chars().count())
    })
}

/// At which letter a part last stands, up to another one.
fn last(text: &str, part: &str, upto: i64) -> Cel {
    let letters = text.chars().count();
    if part.is_empty() {
        let letters = i64::try_from(letters).unwrap_or(i64::MAX);
        return Cel::Int(upto.clamp(0, letters));
    }
    let Ok(upto) = usize::try_from(upto) else {
        return Cel::Int(-1);
    };
    // It may end after the last place where it may begin.
    let end = upto.saturating_add(part.chars().count());
    let within = match after(text, end) {
        Some(rest) => &text[..text.len() - rest.len()],
        None => text,
    };
    let at = within.rfind(part);
    at.map_or(Cel::Int(-1), |at| {
        calls::counted(within[..at].chars().count())
    })
}

/// What comes after so many letters.
fn after(text: &str, letters: usize) -> Option<&str> {
    if letters == 0 {
        return Some(text);
    }
    let (at, letter) = text.char_indices().nth(letters - 1)?;
    text.get(at + letter.len_utf8()..)
}
