//! What hub and agent share: API types, names, pure rules, and the client layer.
//!
//! Pure (no clock, no I/O, no tokio): `api`, `names`, `labels`, `identity`, `conditions`, `backoff`,
//! `duration`, `errors`, `gvk`, `harmless`, `interpreter`, `lua`, `merge`, `quantity`, `reserved`, `secret`, `selector`,
//! `token`, `unregister`, `yaml`.
//! Edges: `admin`, `chance`, `client`, `controller`, `discovery`, `env`, `http2`, `joined`, `leader`, `mapper`, `proxy`, `queue`,
//! `rest`, `telemetry`, `time`, `tls`, `watch`.

pub mod admin;
pub mod api;
pub mod backoff;
pub mod chance;
pub mod client;
pub mod conditions;
pub mod controller;
pub mod denial;
pub mod discovery;
pub mod duration;
pub mod env;
pub mod errors;
pub mod exposition;
pub mod gvk;
pub mod harmless;
pub mod http2;
pub mod identity;
pub mod interpreter;
pub mod joined;
pub mod labels;
pub mod leader;
pub mod liveness;
pub mod lock;
pub mod lua;
pub mod mapper;
pub mod merge;
pub mod names;
pub mod network;
pub mod proxy;
pub mod quantity;
pub mod queue;
pub mod reserved;
pub mod rest;
pub mod secret;
pub mod selector;
pub mod shutdown;
pub mod signal;
pub mod telemetry;
pub mod time;
pub mod tls;
pub mod token;
pub mod tunnel;
pub mod unregister;
pub mod uuid;
pub mod watch;
pub mod yaml;

#[cfg(test)]
mod testing;
