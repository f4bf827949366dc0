//! What members say of a template, in its binding and in itself.
//!
//! `collect` makes one item of each Work, `bound` keeps what all of them say within what an object can hold, and
//! `decide` says what is to be written, all pure; `shell` carries it out.

pub mod bound;
pub mod collect;
pub mod decide;
mod shell;
#[cfg(test)]
mod tests;

pub use collect::{Work, collect, expected};
pub use decide::{Decision, Observed, decide, decide_refused, is_stirring};
pub use shell::Answers;
