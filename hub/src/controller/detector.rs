//! Which policy holds a template, and the binding that follows: the pure half of the detector.
//!
//! `skip` says what is never propagated, `choose` which policy, `claim` how a template shows it, `content` what its
//! binding says, and `decide` puts them together for one template. `wake` finds the templates that a policy may
//! concern, `marks` what a policy itself carries.

pub mod choose;
pub mod claim;
pub mod content;
pub mod decide;
pub mod marks;
pub mod skip;
#[cfg(test)]
mod tests;
pub mod wake;

pub use decide::{Decision, Observed, Problem, Write, decide};
