//! What a process takes from the machine, as one value that is passed in.

use crate::chance::Chance;
use crate::network::{Network, Sockets};
use crate::time::{SharedClock, SystemClock};
use std::sync::Arc;

/// Time of day, chance, and the way out. Clones share all of them.
#[derive(Clone)]
pub struct Env {
    /// Time of day.
    pub clock: SharedClock,
    /// What is drawn.
    pub chance: Chance,
    /// What clients are connected by in place of the machine's sockets.
    pub network: Option<Arc<dyn Network>>,
    /// What clients have in place of TCP.
    pub sockets: Option<Arc<dyn Sockets>>,
}

impl Env {
    /// The machine's own: what a process runs with.
    pub fn system() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            chance: Chance::from_os(),
            network: None,
            sockets: None,
        }
    }

    /// By this clock and this seed: for tests and simulations.
    pub fn seeded(clock: SharedClock, seed: u64) -> Self {
        Self {
            clock,
            chance: Chance::seeded(seed),
            network: None,
            sockets: None,
        }
    }

    /// The same, with all clients connected by `network`.
    #[must_use]
    pub fn over(self, network: Arc<dyn Network>) -> Self {
        Self {
            network: Some(network),
            ..self
        }
    }

    /// The same, with all clients connected by `sockets`.
    #[must_use]
    pub fn through(self, sockets: Arc<dyn Sockets>) -> Self {
        Self {
            sockets: Some(sockets),
            ..self
        }
    }
}
