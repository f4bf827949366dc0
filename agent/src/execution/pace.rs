//! How soon the hub is told what changed of a Work's objects.
//!
//! Pure. What changes the health of an object is told after a moment, which gathers what belongs together.
//! Anything else waits twice as long each time while one change follows the other, so that a rollout costs
//! a handful of writes however long it takes.

use std::time::Duration;
use tokio::time::Instant;

/// How long changes are gathered at least.
const FIRST: Duration = Duration::from_millis(800);
/// How long they are gathered at most.
pub const LONGEST: Duration = Duration::from_secs(10);
/// After so long without a report the next change is the first again.
const CALM: Duration = Duration::from_secs(30);

/// The reports of one Work.
#[derive(Debug, Clone, Copy, Default)]
pub struct Pace {
    last: Option<Instant>,
    /// Reports that followed each other.
    count: u8,
}

impl Pace {
    /// How long to gather; `urgent` says that a health has changed.
    pub fn delay(&self, now: Instant, urgent: bool) -> Duration {
        if urgent || !self.goes_on(now) {
            return FIRST;
        }
        let factor = 1_u32.checked_shl(self.count.into()).unwrap_or(u32::MAX);
        FIRST.saturating_mul(factor).min(LONGEST)
    }

    /// Takes note that the hub was told.
    pub fn told(&mut self, now: Instant) {
        self.count = if self.goes_on(now) {
            self.count.saturating_add(1)
        } else {
            1
        };
        self.last = Some(now);
    }

    fn goes_on(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now < last + CALM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports of a Work whose objects change without end for so long.
    fn reports(lasts: Duration) -> usize {
        let start = Instant::now();
        let (mut now, mut pace, mut count) = (start, Pace::default(), 0);
        while now < start + lasts {
            pace.told(now);
            count += 1;
            now += pace.delay(now, false);
        }
        count
    }

    #[test]
    fn a_long_rollout_costs_little_more_than_a_short_one() {
        assert!(reports(Duration::from_secs(3)) <= 3);
        assert!(reports(Duration::from_secs(12)) <= 4);
        assert!(reports(Duration::from_secs(60)) <= 9);
    }

    #[test]
    fn health_is_told_soon_and_calm_begins_anew() {
        let now = Instant::now();
        let mut pace = Pace::default();
        for _ in 0..200 {
            pace.told(now);
        }
        assert_eq!(pace.delay(now, false), LONGEST);
        assert_eq!(pace.delay(now, true), FIRST);
        assert_eq!(pace.delay(now + CALM, false), FIRST);
        pace.told(now + CALM);
        assert_eq!(pace.delay(now + CALM, false), FIRST * 2);
    }
}
