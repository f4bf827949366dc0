//! The tunnel by which a hub reaches a member: what both ends must agree on.
//!
//! An agent dials its hub, or the [`Place`] that it names, with its own certificate, offers what [`Begins`] has, and is
//! from the first request on the HTTP/2 *server* of that connection, which is [`Still`] until then. The hub sends whole
//! requests down it, each with the [`Identity`] on whose behalf it is made; the agent
//! passes them on to its member's API server and to nothing else. Neither end sends a credential to the other. A
//! connection that is taken over (exec, attach, port-forward) is a CONNECT stream with a `:protocol`, RFC 8441, on which
//! [`Ending`] says an end that is meant.

mod account;
pub mod cause;
mod comes;
mod ending;
pub mod headers;
mod identity;
mod join;
mod mode;
mod path;
mod place;
mod still;

pub use account::{service_account, service_account_user};
pub use comes::Comes;
pub use ending::Ending;
pub use identity::{
    AUTHENTICATED, HUB_PREFIX, Identity, PROXIED, PROXIED_USER, Unfit, in_member, on_hub,
};
pub use join::join;
pub use mode::Mode;
pub use path::{NotForwarded, asks_of_oneself, forwarded};
pub use place::Place;
pub use still::{Begins, Heard, Still, serve};

use crate::http2::KeepAlive;
use std::time::Duration;

/// Requests of one tunnel at once; the hub answers 429 beyond.
pub const STREAMS: u32 = 256;
/// Longest headers of one request or answer, in bytes.
pub const HEADERS_MAX: u32 = 32 * 1024;
/// Bytes that may be on their way to the hub without having been read: of one stream, and of the whole connection. One
/// reader that takes nothing holds up none of the others. The library takes the connection's for a measure of how many
/// small frames it keeps, each of which costs far more than it carries.
pub const STREAM_WINDOW: u32 = 1024 * 1024;
/// See [`STREAM_WINDOW`].
pub const CONNECTION_WINDOW: u32 = STREAMS * STREAM_WINDOW;
/// The same on the way to the member, whose agent has less memory.
pub const MEMBER_STREAM_WINDOW: u32 = 256 * 1024;
/// See [`MEMBER_STREAM_WINDOW`].
pub const MEMBER_CONNECTION_WINDOW: u32 = STREAMS * MEMBER_STREAM_WINDOW;
/// How the agent learns that the hub is there, and the hub, while nothing is under way, by the agent's pings. Shorter
/// than what relays forget connections after that carry nothing, which is rarely below 50 s (docs/adr/0028).
pub const KEEP_ALIVE: KeepAlive = KeepAlive {
    every: Duration::from_secs(40),
    within: WITHIN,
};
/// How the hub does while something is under way.
pub const KEEP_ALIVE_BUSY: KeepAlive = KeepAlive {
    every: Duration::from_secs(20),
    within: WITHIN,
};
const WITHIN: Duration = Duration::from_secs(15);
/// Requests given up by the hub whose answers it goes on to expect, for as long as a line may be silent: for what comes of
/// one that it no longer knows, the library ends the tunnel in the end.
pub const GIVEN_UP: usize = 1024;
/// Requests given up by the hub that the agent has not cleared away; at the library's 20 a burst of cancelled watches
/// ends the tunnel.
pub const CANCELLED: usize = 16 * 1024;
