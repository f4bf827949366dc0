//! The built-in API server: the part of the Kubernetes API that a hub needs, on SQLite, in one process.

pub mod admit;
pub mod agents;
pub mod audit;
pub mod authn;
pub mod authz;
pub mod backup;
pub mod caller;
pub mod catalogue;
pub mod control;
pub mod discovery;
pub mod error;
pub mod facts;
pub mod http;
pub mod keys;
pub mod managed;
pub mod openapi;
pub mod patch;
pub mod protobuf;
pub mod registry;
pub mod reviews;
pub mod schema;
pub mod seed;
pub mod serve;
pub mod signer;
pub mod store;
mod strategies;
pub mod table;
