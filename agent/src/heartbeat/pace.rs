//! When the Lease is renewed next.
//!
//! Pure; the random share is passed in.

use std::time::Duration;

/// Renewals are spread by up to this share of the interval.
const JITTER: f64 = 0.04;
/// Wait after the first failure; doubles up to the interval.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const MAX_DEADLINE: Duration = Duration::from_secs(10);

/// The rhythm of renewals.
#[derive(Debug, Clone)]
pub struct Pace {
    interval: Duration,
    failures: u32,
}

impl Pace {
    /// The rhythm of a Lease of `duration`, renewed each `fraction` of it.
    pub fn new(duration: Duration, fraction: f64) -> Self {
        Self {
            interval: duration.mul_f64(fraction),
            failures: 0,
        }
    }

    /// How long one renewal may take: a quarter of the interval, so that a lost connection leaves
    /// time for another.
    pub fn deadline(&self) -> Duration {
        (self.interval / 4).min(MAX_DEADLINE)
    }

    /// The wait from the start of a renewal that succeeded; `share` lies in 0..1.
    pub fn renewed(&mut self, share: f64) -> Duration {
        self.failures = 0;
        self.interval.mul_f64(1.0 + JITTER * share)
    }

    /// The wait from the start of a renewal that failed; soon at first, then at the usual pace, for
    /// many agents may have lost the same hub.
    pub fn failed(&mut self, share: f64) -> Duration {
        let step = FIRST_RETRY.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        // Never before the deadline is over, and never in step with the others.
        let wait = step.min(self.interval).mul_f64(0.5 + 0.5 * share);
        self.deadline().min(self.interval) + wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pace() -> Pace {
        Pace::new(Duration::from_secs(40), 0.25)
    }

    #[test]
    fn renewals_are_ten_seconds_and_a_little_apart() {
        assert_eq!(pace().renewed(0.0), Duration::from_secs(10));
        assert_eq!(pace().renewed(1.0), Duration::from_millis(10_400));
        assert_eq!(pace().deadline(), Duration::from_millis(2500));
        assert_eq!(
            Pace::new(Duration::from_secs(400), 0.5).deadline(),
            MAX_DEADLINE
        );
    }

    #[test]
    fn failures_are_retried_soon_then_at_the_usual_pace() {
        let mut pace = pace();
        let waits: Vec<_> = (0..6).map(|_| pace.failed(1.0).as_millis()).collect();
        assert_eq!(waits, [3500, 4500, 6500, 10_500, 12_500, 12_500]);
        pace.renewed(0.5);
        assert_eq!(pace.failed(1.0).as_millis(), 3500);
    }

    proptest! {
        /// A single lost renewal never costs the usual grace of four intervals.
        #[test]
        fn a_lost_renewal_is_made_up(seconds in 1u64..3600, fraction in 0.01f64..0.99, share in 0.0f64..1.0) {
            let mut pace = Pace::new(Duration::from_secs(seconds), fraction);
            let interval = Duration::from_secs(seconds).mul_f64(fraction);
            let lost = pace.failed(share);
            prop_assert!(lost >= pace.deadline());
            prop_assert!(pace.deadline() + lost < interval * 3);
        }
    }
}
