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

    /// How long one renewal may take, a connection included: a quarter of the interval, so that a lost connection leaves
    /// time for another. One after a failure may take twice as long as the one before, up to the interval: a hub to
    /// which many come back at once would only be kept busy by those who give up and begin anew.
    pub fn deadline(&self) -> Duration {
        let longer = self.usual().saturating_mul(1 << self.failures.min(2));
        longer.min(MAX_DEADLINE)
    }

    fn usual(&self) -> Duration {
        (self.interval / 4).min(MAX_DEADLINE)
    }

    /// The wait from the start of a renewal that succeeded; `share` lies in 0..1.
    pub fn renewed(&mut self, share: f64) -> Duration {
        self.failures = 0;
        self.interval.mul_f64(1.0 + JITTER * share)
    }

    /// The wait from the start of a renewal that failed after `took`; soon at first, then at the usual pace, for
    /// many agents may have lost the same hub.
    pub fn failed(&mut self, took: Duration, share: f64) -> Duration {
        let step = FIRST_RETRY.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        // Never before the usual deadline is over, and never in step with the others.
        let wait = step.min(self.interval).mul_f64(0.5 + 0.5 * share);
        self.usual().max(took) + wait
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
        let refused = Duration::from_millis(1);
        let waits: Vec<_> = (0..6)
            .map(|_| pace.failed(refused, 1.0).as_millis())
            .collect();
        assert_eq!(waits, [3500, 4500, 6500, 10_500, 12_500, 12_500]);
        pace.renewed(0.5);
        assert_eq!(pace.failed(refused, 1.0).as_millis(), 3500);
    }

    #[test]
    fn what_failed_may_take_longer_the_next_time() {
        let mut pace = pace();
        let deadlines: Vec<_> = (0..4)
            .map(|_| {
                let deadline = pace.deadline();
                assert!(pace.failed(deadline, 0.0) > deadline);
                deadline.as_millis()
            })
            .collect();
        assert_eq!(deadlines, [2500, 5000, 10_000, 10_000]);
        pace.renewed(0.0);
        assert_eq!(pace.deadline(), Duration::from_millis(2500));
    }

    proptest! {
        /// A single lost renewal never costs the usual grace of four intervals.
        #[test]
        fn a_lost_renewal_is_made_up(seconds in 1u64..3600, fraction in 0.01f64..0.99, share in 0.0f64..1.0) {
            let mut pace = Pace::new(Duration::from_secs(seconds), fraction);
            let interval = Duration::from_secs(seconds).mul_f64(fraction);
            let deadline = pace.deadline();
            let lost = pace.failed(deadline, share);
            prop_assert!(lost >= deadline);
            prop_assert!(pace.deadline() + lost < interval * 3);
        }
    }
}
