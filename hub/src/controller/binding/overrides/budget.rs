//! How much the overrides of one object for one cluster may come to.
//!
//! Pure. A policy of a few kilobytes can ask for large texts to be read, and large lists to be walked over, some
//! thousand times; others wait for their turn meanwhile. It is counted, not timed, so that the same is refused
//! everywhere.

use std::cell::Cell;

/// What the overrides of one object for one cluster may come to, in bytes of YAML that are read.
const MOST: usize = 4 << 20;
/// What every step takes, however small it is.
const STEP: usize = 16;
/// What opening one member of a list or an object takes, and closing it again.
pub(super) const MEMBER: usize = 4;
/// How many members are passed by for what one byte takes.
pub(super) const PASSED: usize = 16;

/// The overrides come to more than that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the overrides of this object are too much work for one cluster; use fewer rules, put all changes of one field \
     into one rule, or make the object smaller"
)]
pub struct TooMuch;

/// What is left of it.
#[derive(Debug)]
pub(super) struct Budget(Cell<usize>);

impl Budget {
    pub(super) fn new() -> Self {
        Self(Cell::new(MOST))
    }

    /// Takes one step of some size.
    pub(super) fn spend(&self, size: usize) -> Result<(), TooMuch> {
        let left = self.0.get().checked_sub(size.saturating_add(STEP));
        self.0.set(left.unwrap_or_default());
        left.map(drop).ok_or(TooMuch)
    }

    /// What was spent so far.
    #[cfg(test)]
    pub(super) fn spent(&self) -> usize {
        MOST - self.0.get()
    }
}
