//! What must not be guessed: tokens, private keys, signatures, nonces of encryption, numbers of
//! certificates. It comes from the system, never from a seed that is passed in.
//!
//! This module is the only place that asks the system, so a simulation puts a fixed pool behind it for its own
//! thread. Signatures and nonces are the system's there too: the library lets nobody draw them.

use rand::rngs::{StdRng, ThreadRng};
use rand::{CryptoRng, RngCore, SeedableRng as _};
use rcgen::KeyPair;
use ring::rand::SystemRandom;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

thread_local! {
    static POOL: RefCell<Option<Pool>> = const { RefCell::new(None) };
}

struct Pool {
    rng: StdRng,
    /// PEM.
    keys: VecDeque<String>,
}

/// Draws bytes and letters.
pub fn rng() -> impl CryptoRng {
    POOL.with_borrow_mut(|pool| match pool {
        Some(pool) => Source::Fixed(Box::new(StdRng::from_rng(&mut pool.rng))),
        None => Source::System(rand::rng()),
    })
}

/// What ring draws from, for its keys, signatures and nonces.
pub fn system() -> SystemRandom {
    SystemRandom::new()
}

/// A new private key of ECDSA over P-256.
pub fn key_pair() -> Result<KeyPair, rcgen::Error> {
    let fixed = POOL.with_borrow_mut(|pool| pool.as_mut().map(|pool| pool.keys.pop_front()));
    match fixed {
        Some(Some(pem)) => KeyPair::from_pem(&pem),
        // A key of the system's would make the next run another one.
        Some(None) => Err(rcgen::Error::KeyGenerationUnavailable),
        None => KeyPair::generate(),
    }
}

/// For simulations, which run on one thread: what is drawn on this thread follows from a seed, and its keys
/// are these, one after the other, until this is dropped.
pub struct Fixed(PhantomData<*const ()>);

impl Fixed {
    /// From now on. The keys are PEM; there is an error in place of a key once they are used up.
    pub fn begin(seed: u64, keys: impl IntoIterator<Item = String>) -> Self {
        let pool = Pool {
            rng: StdRng::seed_from_u64(seed),
            keys: keys.into_iter().collect(),
        };
        POOL.set(Some(pool));
        Self(PhantomData)
    }
}

impl Drop for Fixed {
    fn drop(&mut self) {
        POOL.set(None);
    }
}

impl fmt::Debug for Fixed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fixed")
    }
}

enum Source {
    System(ThreadRng),
    Fixed(Box<StdRng>),
}

impl RngCore for Source {
    fn next_u32(&mut self) -> u32 {
        match self {
            Self::System(rng) => rng.next_u32(),
            Self::Fixed(rng) => rng.next_u32(),
        }
    }

    fn next_u64(&mut self) -> u64 {
        match self {
            Self::System(rng) => rng.next_u64(),
            Self::Fixed(rng) => rng.next_u64(),
        }
    }

    fn fill_bytes(&mut self, dest: &mut [u8]) {
        match self {
            Self::System(rng) => rng.fill_bytes(dest),
            Self::Fixed(rng) => rng.fill_bytes(dest),
        }
    }
}

impl CryptoRng for Source {}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng as _;

    fn drawn() -> [u64; 4] {
        rng().random()
    }

    #[test]
    fn a_simulation_draws_the_same_again_and_nobody_else_does() {
        let keys: Vec<String> = (0..2)
            .map(|_| key_pair().expect("a key").serialize_pem())
            .collect();
        let run = |seed| {
            let _fixed = Fixed::begin(seed, keys.clone());
            let made = [(); 2].map(|()| key_pair().expect("there").serialize_pem());
            assert!(key_pair().is_err(), "none is left");
            let other = std::thread::spawn(|| key_pair().is_ok() && drawn() != drawn());
            assert!(
                other.join().expect("no panic"),
                "another thread has the system"
            );
            (made, drawn(), drawn())
        };
        let one = run(7);
        assert_eq!(one, run(7));
        assert_eq!(one.0.to_vec(), keys);
        assert_ne!(one.1, one.2);
        assert_ne!(one.1, run(8).1);
        assert_ne!(drawn(), drawn());
        assert!(key_pair().is_ok(), "it ends with the simulation");
    }
}
