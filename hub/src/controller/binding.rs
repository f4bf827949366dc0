//! From bindings to Works: which members get a template, what each of them gets, and what is written of it.
//!
//! Decisions, and `sync`, which carries them out.

pub mod condition;
pub mod facts;
pub mod overrides;
pub mod render;
pub mod sync;
pub mod targets;
#[cfg(test)]
mod tests;
pub mod write;
