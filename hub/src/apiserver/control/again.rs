//! When what failed is tried again: soon at first, and ever more seldom, as long as it fails.

use common::backoff::Backoff;
use common::chance::Chance;
use rand::rngs::StdRng;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// After the first failure.
const BASE: Duration = Duration::from_millis(200);
/// At the most.
const CAP: Duration = Duration::from_secs(60);

/// The next attempt of one thing.
#[derive(Debug)]
pub(super) struct Again {
    backoff: Backoff,
    at: Option<Instant>,
    rng: StdRng,
}

impl Again {
    /// Waits as long as is usual here.
    pub(super) fn usual(chance: &Chance) -> Self {
        Self::new(BASE, CAP, chance)
    }

    /// Waits `base` after the first failure, and never longer than `cap`.
    pub(super) fn new(base: Duration, cap: Duration, chance: &Chance) -> Self {
        Self {
            backoff: Backoff::new(base, cap),
            at: None,
            rng: chance.stream("attempts"),
        }
    }

    /// Notes how an attempt ended.
    pub(super) fn ended(&mut self, failed: bool) {
        if failed {
            self.at = Some(Instant::now() + self.backoff.next(&mut self.rng));
        } else {
            self.backoff.reset();
            self.at = None;
        }
    }

    /// Whether nothing has to be waited for.
    pub(super) fn is_due(&self) -> bool {
        self.at.is_none_or(|at| at <= Instant::now())
    }

    /// Comes when it is time; never while nothing has failed.
    pub(super) async fn due(&self) {
        match self.at {
            Some(at) => sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn attempts_grow_seldom_and_begin_anew() {
        let mut again = Again::usual(&Chance::seeded(1));
        assert!(again.is_due());
        let start = Instant::now();
        for _ in 0..20 {
            again.ended(true);
            assert!(!again.is_due());
            again.due().await;
        }
        let whole = start.elapsed();
        assert!(whole > CAP * 5 && whole < CAP * 12, "{whole:?}");
        again.ended(false);
        again.ended(true);
        let before = Instant::now();
        again.due().await;
        assert!(before.elapsed() <= BASE * 2);
    }
}
