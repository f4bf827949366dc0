//! The operations of overriders on a document: RFC 6902's add, remove and replace, as Karmada carries them out.
//!
//! Pure. A document is opened only where a path leads, so that what nobody touches keeps its order, and its
//! numbers as they are written. Errors have Karmada's texts.

use super::budget::{Budget, PASSED, TooMuch};
use super::document::{Leaf, Node};
use common::api::override_policy::{DocumentPatch, OverriderOperator, PlaintextOverrider};
use serde_json::Value;

/// No document gets deeper than this: whatever walks over it does so level by level on its stack.
const MOST_DEEP: usize = 100;

/// One change at a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation<'a> {
    operator: OverriderOperator,
    path: &'a str,
    value: Option<&'a Value>,
}

impl<'a> From<&'a PlaintextOverrider> for Operation<'a> {
    fn from(overrider: &'a PlaintextOverrider) -> Self {
        Self {
            operator: overrider.operator,
            path: &overrider.path,
            value: overrider.value.as_ref(),
        }
    }
}

impl<'a> From<&'a DocumentPatch> for Operation<'a> {
    fn from(patch: &'a DocumentPatch) -> Self {
        Self {
            operator: patch.operator,
            path: &patch.sub_path,
            value: patch.value.as_ref(),
        }
    }
}

/// Why an operation does not apply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// What is to hold the value is not there.
    #[error("add operation does not apply: doc is missing path: {0:?}: missing value")]
    AddTo(String),
    /// What is to lose the value is not there.
    #[error("remove operation does not apply: doc is missing path: {0:?}: missing value")]
    RemoveFrom(String),
    /// What is to go is not there.
    #[error(
        "error in remove for path: '{path}': unable to remove nonexistent key: {key}: missing value"
    )]
    Remove {
        /// The whole path.
        path: String,
        /// Its last part.
        key: String,
    },
    /// What holds the value is not there.
    #[error("replace operation does not apply: doc is missing path: {0}: missing value")]
    ReplaceIn(String),
    /// What is to be replaced is not there.
    #[error("replace operation does not apply: doc is missing key: {0}: missing value")]
    Replace(String),
    /// No position in its list.
    #[error(
        "error in {operation} for path: '{path}': Unable to access invalid index: {key}: invalid index referenced"
    )]
    Index {
        /// `add` or `remove`.
        operation: &'static str,
        /// The whole path.
        path: String,
        /// Its last part.
        key: String,
    },
    /// The result would be too deep.
    #[error("{0:?} would make the document deeper than {MOST_DEEP} levels")]
    Deep(String),
    /// All overrides together do too much.
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
}

/// Carries out all operations in order.
pub(super) fn apply<'a, L: Leaf>(
    document: &mut Node<L>,
    operations: impl IntoIterator<Item = Operation<'a>>,
    budget: &Budget,
) -> Result<(), PatchError> {
    operations
        .into_iter()
        .try_for_each(|operation| operation.apply(document, budget))
}

impl Operation<'_> {
    fn apply<L: Leaf>(self, document: &mut Node<L>, budget: &Budget) -> Result<(), PatchError> {
        let Self { operator, path, .. } = self;
        let value = self.value.unwrap_or(&Value::Null);
        let adds = operator != OverriderOperator::Remove;
        let level = path.bytes().filter(|byte| *byte == b'/').count();
        if level > MOST_DEEP || (adds && level + depth(value) > MOST_DEEP) {
            return Err(PatchError::Deep(path.to_owned()));
        }
        if path.is_empty() && adds {
            *document = Node::Leaf(L::of(value));
            return Ok(());
        }
        let Some((parent, key)) = parent(document, path, budget)? else {
            return Err(missing(operator)(path.to_owned()));
        };
        match operator {
            OverriderOperator::Add => add(parent, &key, value, path),
            OverriderOperator::Remove => remove(parent, &key, path),
            OverriderOperator::Replace => match child(parent, &key) {
                Some(found) => {
                    *found = Node::Leaf(L::of(value));
                    Ok(())
                }
                None => Err(PatchError::Replace(path.to_owned())),
            },
        }
    }
}

fn missing(operator: OverriderOperator) -> fn(String) -> PatchError {
    match operator {
        OverriderOperator::Add => PatchError::AddTo,
        OverriderOperator::Remove => PatchError::RemoveFrom,
        OverriderOperator::Replace => PatchError::ReplaceIn,
    }
}

/// The object or list that a path ends in, opened, and the last key.
fn parent<'n, L: Leaf>(
    document: &'n mut Node<L>,
    path: &str,
    budget: &Budget,
) -> Result<Option<(&'n mut Node<L>, String)>, TooMuch> {
    let Some((parents, last)) = path.rsplit_once('/') else {
        return Ok(None);
    };
    let parts = match parents.strip_prefix('/') {
        Some(parts) => Some(parts.split('/')),
        None if parents.is_empty() => None,
        None => return Ok(None),
    };
    let mut at = document;
    open(at, budget)?;
    for part in parts.into_iter().flatten() {
        let Some(next) = child(at, &unescaped(part)) else {
            return Ok(None);
        };
        at = next;
        open(at, budget)?;
    }
    Ok(match at {
        Node::Leaf(_) => None,
        Node::Object(_) | Node::Array(_) => Some((at, unescaped(last))),
    })
}

/// Opens what is about to be searched.
fn open<L: Leaf>(node: &mut Node<L>, budget: &Budget) -> Result<(), TooMuch> {
    let cost = node.cost();
    node.open();
    budget.spend(cost + node.count() / PASSED)
}

/// One part of a JSON pointer as the key that it means.
pub(super) fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// A member of an opened object, or an item of an opened list.
fn child<'n, L>(at: &'n mut Node<L>, key: &str) -> Option<&'n mut Node<L>> {
    match at {
        Node::Leaf(_) => None,
        Node::Object(members) => {
            let found = members.iter_mut().find(|(name, _)| name == key);
            found.map(|(_, node)| node)
        }
        Node::Array(items) => {
            let at = index(key, items.len())?;
            items.get_mut(at)
        }
    }
}

fn add<L: Leaf>(at: &mut Node<L>, key: &str, value: &Value, path: &str) -> Result<(), PatchError> {
    let node = Node::Leaf(L::of(value));
    match at {
        Node::Object(members) => match members.iter_mut().find(|(name, _)| name == key) {
            Some((_, found)) => *found = node,
            None => members.push((key.to_owned(), node)),
        },
        Node::Array(items) if key == "-" => items.push(node),
        Node::Array(items) => match index(key, items.len() + 1) {
            Some(at) => items.insert(at, node),
            None => return Err(no_index("add", path, key)),
        },
        Node::Leaf(_) => return Err(PatchError::AddTo(path.to_owned())),
    }
    Ok(())
}

fn remove<L>(at: &mut Node<L>, key: &str, path: &str) -> Result<(), PatchError> {
    match at {
        Node::Object(members) => match members.iter().position(|(name, _)| name == key) {
            Some(at) => drop(members.remove(at)),
            None => {
                return Err(PatchError::Remove {
                    path: path.to_owned(),
                    key: key.to_owned(),
                });
            }
        },
        Node::Array(items) => match index(key, items.len()) {
            Some(at) => drop(items.remove(at)),
            None => return Err(no_index("remove", path, key)),
        },
        Node::Leaf(_) => return Err(PatchError::RemoveFrom(path.to_owned())),
    }
    Ok(())
}

fn no_index(operation: &'static str, path: &str, key: &str) -> PatchError {
    PatchError::Index {
        operation,
        path: path.to_owned(),
        key: key.to_owned(),
    }
}

/// A position below `length`; one below zero counts from the end.
fn index(key: &str, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    let number: i64 = key.parse().ok()?;
    let counted = if number < 0 { number + length } else { number };
    if counted < length {
        usize::try_from(counted).ok()
    } else {
        None
    }
}

/// How many objects and lists lie within each other.
fn depth(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or_default(),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
