//! What templates refer to goes where they go: the pure half of the dependencies distributor.
//!
//! `parent` says what the binding of a template that others follow shows, and `sought` which templates those are;
//! `attach` puts the parents into the binding of such a template, whose whole content the detector decides.

pub mod attach;
pub mod parent;
pub mod sought;
#[cfg(test)]
mod tests;
