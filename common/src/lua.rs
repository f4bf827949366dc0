//! Lua for short scripts of people who are not trusted with the process that runs them.
//!
//! Pure, and deterministic: a call sees its arguments and nothing else, no clock, no chance, no other call. The engine is
//! Luau, which asks at every call, turn of a loop and step of a pattern whether to go on; what it is told is decided by
//! counting, and so is what memory it gets. Nothing is collected: what a call makes lies in a heap of its own and goes with it.
//!
//! What scripts are given is written in `lua/library.lua`. See `docs/adr/0019-scripts-run-in-luau.md`.

mod bridge;
mod clock;
mod ledger;
mod machine;
mod number;
mod program;
#[cfg(test)]
mod tests;

pub use bridge::{NotConverted, restore};
pub use ledger::{Exceeded, Limits};
pub use machine::{Context, Machine, Module, Native, Refused, RunError, type_name, type_number};
pub use mlua::Value;
pub use program::{CompileError, Program};
