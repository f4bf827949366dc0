//! The controllers of the hub. Each is a [`common::controller::Reconcile`] with its sources; what they share
//! is in [`common::controller`].

pub mod binding;
pub mod binding_status;
pub mod bindings;
pub mod cluster;
pub mod dependencies;
pub mod detector;
pub mod events;
pub mod eviction;
pub mod fleet;
pub mod monitor;
pub mod namespace;
pub mod notices;
pub mod quarantine;
pub mod rebalancer;
pub mod registration;
pub mod rights;
pub mod scheduler;
pub mod taint_policy;
#[cfg(test)]
mod tests;
