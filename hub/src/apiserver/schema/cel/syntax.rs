//! An expression as a tree, whose nodes know where in the text they stand; and how a fault in it is told.

use std::fmt::Write as _;
use std::sync::Arc;

/// Past so many faults of one expression, the rest is counted.
const MOST_FAULTS: usize = 100;

/// A part of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    /// Its own number, below that of the tree's size.
    pub(super) id: usize,
    /// The letter of the text at which it is told.
    pub(super) at: usize,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Arc<str>),
    Bytes(Arc<[u8]>),
    Ident(Arc<str>),
    /// A field, or whether it is there.
    Select {
        operand: Box<Node>,
        field: Arc<str>,
        test: bool,
    },
    Call {
        target: Option<Box<Node>>,
        function: Arc<str>,
        arguments: Vec<Node>,
    },
    List(Vec<Item>),
    Map(Vec<Entry>),
    /// A message of a named type; there are none that a rule could make.
    Message(Arc<str>),
    Fold(Box<Fold>),
}

/// One of a list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    pub(super) node: Node,
    pub(super) optional: bool,
}

/// One of a map.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) key: Node,
    pub(super) value: Node,
    pub(super) optional: bool,
}

/// What the macros over lists and maps stand for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fold {
    pub(super) range: Node,
    pub(super) variable: Arc<str>,
    pub(super) second: Option<Arc<str>>,
    pub(super) sum: Arc<str>,
    pub(super) start: Node,
    pub(super) condition: Node,
    pub(super) step: Node,
    pub(super) result: Node,
}

/// An expression that was read.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) root: Node,
    /// How many nodes have a number.
    pub(super) size: usize,
}

/// What is wrong with an expression, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) message: String,
}

impl Node {
    /// `a.b.c`, if it is nothing but names.
    pub(super) fn qualified(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.to_string()),
            Kind::Select {
                operand,
                field,
                test: false,
            } => Some(format!("{}.{field}", operand.qualified()?)),
            _ => None,
        }
    }

    pub(super) fn is_literal(&self) -> bool {
        matches!(
            self.kind,
            Kind::Null
                | Kind::Bool(_)
                | Kind::Int(_)
                | Kind::Uint(_)
                | Kind::Double(_)
                | Kind::Text(_)
                | Kind::Bytes(_)
        )
    }

    /// The nodes right below.
    pub(super) fn children(&self) -> Vec<&Self> {
        match &self.kind {
            Kind::Select { operand, .. } => vec![operand],
            Kind::Call {
                target, arguments, ..
            } => target.as_deref().into_iter().chain(arguments).collect(),
            Kind::List(items) => items.iter().map(|item| &item.node).collect(),
            Kind::Map(entries) => entries
                .iter()
                .flat_map(|entry| [&entry.key, &entry.value])
                .collect(),
            Kind::Fold(fold) => vec![
                &fold.range,
                &fold.start,
                &fold.condition,
                &fold.step,
                &fold.result,
            ],
            _ => Vec::new(),
        }
    }

    /// How deep it is.
    pub(super) fn depth(&self) -> usize {
        1 + self
            .children()
            .into_iter()
            .map(Self::depth)
            .max()
            .unwrap_or(0)
    }
}

/// The faults in the words of the reference: each with the line and a mark below it.
pub(super) fn told(source: &str, mut faults: Vec<Fault>) -> String {
    faults.sort_by_key(|fault| fault.at);
    let more = faults.len().saturating_sub(MOST_FAULTS);
    faults.truncate(MOST_FAULTS);
    let mut shown: Vec<String> = faults.iter().map(|fault| one(source, fault)).collect();
    if more > 0 {
        shown.push(format!("{more} more errors were truncated"));
    }
    shown.join("\n")
}

fn one(source: &str, fault: &Fault) -> String {
    let before: String = source.chars().take(fault.at).collect();
    let line = before.matches('\n').count();
    let column = before.chars().rev().take_while(|c| *c != '\n').count();
    let mut out = format!(
        "ERROR: <input>:{}:{}: {}",
        line + 1,
        column + 1,
        fault.message
    );
    let text = source.split('\n').nth(line).unwrap_or("");
    let text = text.replace('\t', " ");
    let _ = write!(out, "\n | {text}\n | ");
    let mut letters = text.chars();
    for letter in letters.by_ref().take(column) {
        out.push(if letter.len_utf8() > 1 {
            '\u{ff0e}'
        } else {
            '.'
        });
    }
    let wide = letters.next().is_some_and(|letter| letter.len_utf8() > 1);
    out.push(if wide { '\u{ff3e}' } else { '^' });
    out
}
