//! What members say of a template, in its binding and in itself: the pure half of the answer back.
//!
//! `collect` makes one item of each Work, `bound` keeps what all of them say within what an object can hold, and
//! `decide` says what is to be written.

pub mod bound;
pub mod collect;
pub mod decide;
#[cfg(test)]
mod tests;

pub use collect::{Work, collect};
pub use decide::{Decision, Observed, decide, is_stirring};
