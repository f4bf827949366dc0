//! From bindings to Works: which members get a template, what each of them gets, and what is written of it.
//!
//! Decisions only; who carries them out reads and writes.

pub mod overrides;
pub mod render;
pub mod targets;
#[cfg(test)]
mod tests;
pub mod write;
