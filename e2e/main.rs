//! Tests against the lab; `e2e/test` runs them.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by a panic; its helpers are no production code either"
)]

mod cases;
mod env;
