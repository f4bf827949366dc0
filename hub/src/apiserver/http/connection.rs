//! One connection: where it comes from, the certificate that was shown on it, and what has not left it.

use super::sending::Unsent;
use crate::apiserver::authn::{Peer, Shown};
use crate::apiserver::keys::Keys;
use crate::limit::{InFlight, Ticket};
use chrono::{DateTime, Utc};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// A request carries it among its extensions.
#[derive(Debug)]
pub(super) struct Connection {
    /// Where it comes from.
    pub(super) address: IpAddr,
    /// Answers on their way.
    pub(super) unsent: Arc<Unsent>,
    shown: Option<Shown>,
    /// Requests of strangers on it.
    strange: InFlight,
}

impl Connection {
    /// A new one.
    pub(super) fn new(address: IpAddr, shown: Option<Shown>) -> Self {
        Self {
            address,
            unsent: Arc::default(),
            shown,
            strange: InFlight::of_connection(),
        }
    }

    /// What is shown at the other end, as it holds now.
    pub(super) fn peer(&self, keys: &Keys, now: DateTime<Utc>) -> Arc<Peer> {
        match &self.shown {
            Some(shown) => shown.peer(keys, now),
            None => Arc::new(Peer::Unknown),
        }
    }

    /// Counts a request of somebody unknown, unless there are too many of them here.
    pub(super) fn stranger(&self) -> Option<Ticket> {
        self.strange.enter("")
    }
}

/// What is counted as one place: an address, or the network that one host may have for itself.
pub(crate) fn place(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            format!("{}/64", Ipv6Addr::from(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_host_are_one_place() {
        let of = |text: &str| place(text.parse().expect("an address"));
        assert_eq!(of("192.0.2.7"), "192.0.2.7");
        assert_eq!(of("::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::"));
        assert!(of("2001:db8:1:3::1") != of("2001:db8:1:2::1"));
    }
}
