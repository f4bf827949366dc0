//! What hub and agent share: API types, names, pure rules, and the client layer.
//!
//! Pure (no clock, no I/O, no tokio): `api`, `names`, `labels`, `identity`, `conditions`, `backoff`,
//! `duration`, `errors`, `secret`, `token`, `unregister`. Edges: `admin`, `client`, `discovery`, `leader`,
//! `proxy`, `telemetry`, `time`, `tls`, `watch`.

pub mod admin;
pub mod api;
pub mod backoff;
pub mod client;
pub mod conditions;
pub mod denial;
pub mod discovery;
pub mod duration;
pub mod errors;
pub mod identity;
pub mod labels;
pub mod leader;
pub mod names;
pub mod proxy;
pub mod secret;
pub mod telemetry;
pub mod time;
pub mod tls;
pub mod token;
pub mod unregister;
pub mod watch;

#[cfg(test)]
mod testing;
