//! The agent: runs in a member cluster, dials the hub, and carries out what the hub wants there.

pub mod cluster_status;
pub mod config;
pub mod context;
pub mod credentials;
pub mod departure;
pub mod drift;
pub mod error;
pub mod execution;
pub mod following;
pub mod heartbeat;
pub mod hub;
pub mod member;
pub mod proxy;
pub mod push;
pub mod registration;
pub mod report;
pub mod rotation;
pub mod run;
#[cfg(test)]
mod testing;
pub mod uninstall;
pub mod upkeep;
