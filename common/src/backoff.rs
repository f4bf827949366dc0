//! Capped exponential delays with jitter; pure, the random numbers are passed in.

use rand::Rng;
use std::time::Duration;

/// The delays of one thing that is tried again. Each is between half of the exponential value and the
/// value itself, so that many waiters spread out and none waits for nearly nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    /// Starts at `base`, doubles with every failure, never exceeds `cap`.
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self {
            base,
            cap,
            failures: 0,
        }
    }

    /// How often it has failed since the last success.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// Notes a failure and returns the delay before the next attempt.
    pub fn next(&mut self, rng: &mut impl Rng) -> Duration {
        let factor = 1_u32.checked_shl(self.failures.min(31)).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_add(1);
        let full = self.base.saturating_mul(factor).min(self.cap);
        jitter(full, rng)
    }

    /// Notes a success.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A duration between half of `full` and `full`.
pub fn jitter(full: Duration, rng: &mut impl Rng) -> Duration {
    full.mul_f64(rng.random_range(0.5..=1.0)).min(full)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    proptest! {
        #[test]
        fn delays_stay_in_bounds(seed: u64, base in 1_u64..5_000, cap in 1_u64..60_000, n in 1_usize..80) {
            let (base, cap) = (Duration::from_millis(base), Duration::from_millis(cap));
            let mut rng = StdRng::seed_from_u64(seed);
            let mut backoff = Backoff::new(base, cap);
            for _ in 0..n {
                let delay = backoff.next(&mut rng);
                prop_assert!(delay <= cap);
                prop_assert!(delay >= base.min(cap) / 2);
            }
            backoff.reset();
            prop_assert!(backoff.next(&mut rng) <= base);
        }
    }
}
