//! Chance: where everything that is drawn comes from, as [`crate::time::Clock`] is where the time comes from.
//!
//! What spreads requests, names objects or tells processes apart is drawn from a [`Chance`] that is passed
//! in. What must not be guessed is drawn from the system by [`secret`], and by nothing else.

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that draws from the system"
)]
pub mod secret;

use rand::rngs::StdRng;
use rand::{RngCore as _, SeedableRng as _};
use ring::digest;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// One process's source of chance. Clones share it.
///
/// Each component draws from a stream of its own, which follows from the seed and the component's name: one
/// that is left out, or draws more often, shifts no other.
#[derive(Clone)]
pub struct Chance(Arc<Source>);

struct Source {
    seed: [u8; 32],
    /// How many streams of a name were given out.
    given: Mutex<BTreeMap<String, u64>>,
}

impl Chance {
    /// By a seed of the system: what a process runs with.
    pub fn from_os() -> Self {
        let mut seed = [0; 32];
        secret::rng().fill_bytes(&mut seed);
        Self::of(seed)
    }

    /// The same draws for the same seed: for tests and simulations.
    pub fn seeded(seed: u64) -> Self {
        let mut whole = [0; 32];
        whole[..8].copy_from_slice(&seed.to_le_bytes());
        Self::of(whole)
    }

    fn of(seed: [u8; 32]) -> Self {
        Self(Arc::new(Source {
            seed,
            given: Mutex::default(),
        }))
    }

    /// A stream for the component of this name. The second of a name is another one than the first, so that
    /// two of them never draw the same. Every name is remembered: name components, not objects.
    pub fn stream(&self, name: &str) -> StdRng {
        let mut given = self.0.given.lock().unwrap_or_else(PoisonError::into_inner);
        let count = match given.get_mut(name) {
            Some(count) => {
                *count += 1;
                *count
            }
            None => {
                given.insert(name.to_owned(), 0);
                0
            }
        };
        drop(given);
        let mut whole = digest::Context::new(&digest::SHA256);
        whole.update(&self.0.seed);
        whole.update(&count.to_le_bytes());
        whole.update(name.as_bytes());
        let mut seed = [0; 32];
        seed.copy_from_slice(whole.finish().as_ref());
        StdRng::from_seed(seed)
    }

    /// The same for a component that draws in many places at once.
    pub fn shared_stream(&self, name: &str) -> SharedStream {
        SharedStream(Arc::new(Mutex::new(self.stream(name))))
    }
}

impl fmt::Debug for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chance")
    }
}

/// A stream that many draw from. Clones share it.
#[derive(Clone)]
pub struct SharedStream(Arc<Mutex<StdRng>>);

impl SharedStream {
    /// Draws.
    pub fn draw<T>(&self, draw: impl FnOnce(&mut StdRng) -> T) -> T {
        draw(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for SharedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedStream")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng as _;

    fn draws(mut stream: StdRng) -> [u64; 4] {
        stream.random()
    }

    #[test]
    fn a_stream_follows_from_seed_and_name_alone() {
        let (one, other) = (Chance::seeded(7), Chance::seeded(7));
        let lease = draws(one.stream("lease"));
        // Others that draw before it do not shift it.
        draws(other.stream("status"));
        assert_eq!(lease, draws(other.stream("lease")));
        assert_ne!(lease, draws(Chance::seeded(8).stream("lease")));
        assert_ne!(lease, draws(one.stream("status")));
    }

    #[test]
    fn no_two_streams_of_a_name_are_the_same() {
        let chance = Chance::seeded(7);
        let first = draws(chance.stream("lease"));
        let second = draws(chance.clone().stream("lease"));
        assert_ne!(first, second);
        let again = Chance::seeded(7);
        assert_eq!(first, draws(again.stream("lease")));
        assert_eq!(second, draws(again.stream("lease")));
    }

    #[test]
    fn a_process_draws_what_no_other_does() {
        let [one, other] = [(); 2].map(|()| draws(Chance::from_os().stream("lease")));
        assert_ne!(one, other);
    }

    #[test]
    fn those_who_share_a_stream_draw_in_turn() {
        let shared = Chance::seeded(7).shared_stream("names");
        let other = shared.clone();
        let drawn = [&shared, &other, &shared].map(|stream| stream.draw(|rng| rng.random::<u64>()));
        assert_eq!(drawn[..], draws(Chance::seeded(7).stream("names"))[..3]);
    }
}
