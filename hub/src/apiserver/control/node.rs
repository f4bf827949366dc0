//! Where an object lies.

use crate::apiserver::store::{Key, Stored};
use std::fmt;
use std::sync::Arc;

/// The place of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Node {
    pub(super) kind: Arc<str>,
    pub(super) key: Key,
}

impl Node {
    pub(super) fn new(kind: &Arc<str>, namespace: &str, name: &str) -> Self {
        Self {
            kind: kind.clone(),
            key: Key::new(namespace, name),
        }
    }

    pub(super) fn of(kind: &Arc<str>, stored: &Stored) -> Self {
        Self {
            kind: kind.clone(),
            key: stored.key(),
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.key)
    }
}
