//! Requests and answers: from a connection to the verb that carries a request out, and back.

mod body;
pub mod info;
pub mod limit;
mod metrics;
pub mod negotiate;
mod pages;
pub mod respond;
pub mod router;
pub mod server;
mod shares;
mod verbs;
mod watch;
