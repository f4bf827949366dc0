//! What a process takes from the machine, as one value that is passed in.

use crate::chance::Chance;
use crate::time::{SharedClock, SystemClock};
use std::sync::Arc;

/// Time of day and chance. Clones share both.
#[derive(Clone)]
pub struct Env {
    /// Time of day.
    pub clock: SharedClock,
    /// What is drawn.
    pub chance: Chance,
}

impl Env {
    /// The machine's own: what a process runs with.
    pub fn system() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            chance: Chance::from_os(),
        }
    }

    /// By this clock and this seed: for tests and simulations.
    pub fn seeded(clock: SharedClock, seed: u64) -> Self {
        let chance = Chance::seeded(seed);
        Self { clock, chance }
    }
}
