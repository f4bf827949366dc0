//! The hub of a fleet: its controllers, what it installs, and the operator's command line.
//!
//! `cli` is the binary `towline`; `install` makes an existing API server a hub.

pub mod access;
pub mod aggregated;
pub mod apiserver;
pub mod approver;
mod budget;
pub mod cli;
mod commands;
pub mod config;
pub mod controller;
pub mod epoch;
pub mod explain;
mod go;
pub mod install;
pub mod limit;
pub mod liveness;
mod pack;
mod page;
pub mod permissions;
pub mod plan;
pub mod propagation;
pub mod run;
pub mod scheduler;
pub mod serve;
pub mod shipped;
pub mod snapshot;
pub mod token_secret;
pub mod world;
mod yaml;

/// As in `towline-hub`: what is tried is what ships.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
