//! What to make of a hub's own word about its addresses and authorities. Pure.
//!
//! Addresses are hints: whoever answers has to show a certificate of an authority that is kept. So they are
//! only ever added, and those the hub no longer names come last. An authority may go only once the hub has
//! been verified without it.

use crate::credentials::Registration;
use common::client::HostPort;
use common::discovery::Published;

/// How many addresses are kept; the oldest that the hub does not name go first.
const SERVERS_MAX: usize = 16;

/// What to keep from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// The authorities, as PEM.
    pub ca: String,
    /// The addresses, as `host:port`.
    pub servers: Vec<String>,
    /// Another authority signs than before.
    pub signer_changed: bool,
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Everything is known.
    Keep,
    /// Everything that was trusted still is.
    Store(News),
    /// An authority is gone: the hub has to be verified without it first.
    Prove(News),
}

/// Compares what a registration keeps with what its hub says.
pub fn decide(kept: &Registration, published: &Published) -> Decision {
    // What cannot be read is replaced like what is no longer published: once the hub has been verified.
    let known = common::tls::certificates(kept.ca.as_bytes()).unwrap_or_default();
    let signer_changed = known.first() != published.authorities.first();
    let dropped = known.is_empty() || known.iter().any(|der| !published.authorities.contains(der));
    let added = published.authorities.iter().any(|der| !known.contains(der));
    let news = News {
        ca: published.ca_pem(),
        servers: servers(&published.servers, kept.servers.iter().cloned()),
        signer_changed,
    };
    if dropped {
        Decision::Prove(news)
    } else if added || signer_changed || news.servers != kept.servers {
        Decision::Store(news)
    } else {
        Decision::Keep
    }
}

/// The addresses that the hub names, then those known otherwise.
pub fn servers(named: &[HostPort], known: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let named = named.iter().map(ToString::to_string);
    for server in named.chain(known) {
        if !all.contains(&server) {
            all.push(server);
        }
    }
    all.truncate(SERVERS_MAX);
    all
}

#[cfg(test)]
mod tests;
