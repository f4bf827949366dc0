//! Requests and answers: from a connection to the verb that carries a request out, and back.

pub(crate) mod accepting;
mod backup;
mod body;
mod connection;
mod link;
pub mod listener;
mod metrics;
pub mod negotiate;
mod pages;
mod requests;
pub mod respond;
pub mod route;
pub mod router;
pub(crate) mod sending;
pub mod server;
mod shares;
mod slis;
mod speak;
mod standing;
mod tunnel;
mod turns;
mod verbs;
mod watch;
mod websocket;

pub use crate::access::Cut;
pub use link::Link;
pub use requests::Requests;
pub use speak::Protocol;
pub use standing::Changes;
pub(super) use turns::aside;
