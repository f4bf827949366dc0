//! Time during which the hub could have heard an agent.
//!
//! A cluster's silence is measured on a clock that stands still while the hub itself was away from its
//! API server or had a gap in a watch: every deadline moves by the length of the gap, at no cost for
//! each of ten thousand clusters. Pure.

use std::time::Duration;

/// Monotonic time since the monitor began.
pub type Moment = Duration;

/// Time on the contact clock: monotonic time without the excluded spans.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContactTime(pub Duration);

impl ContactTime {
    /// This long after.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// Spans kept apart; older ones can no longer overlap anything and only their sum is kept.
const SPANS_MAX: usize = 64;

/// Converts between the two kinds of time.
#[derive(Debug, Clone, Default)]
pub struct ContactClock {
    /// Excluded spans, disjoint and in order.
    spans: Vec<(Moment, Moment)>,
    /// Sum of the spans that were dropped.
    settled: Duration,
    /// End of the last span that was dropped.
    settled_until: Moment,
    /// Since when the hub has been away.
    away: Option<Moment>,
}

impl ContactClock {
    /// Excludes a span; what was excluded already is not excluded twice.
    pub fn exclude(&mut self, from: Moment, to: Moment) {
        let (mut from, mut to) = (from.max(self.settled_until), to);
        if from >= to {
            return;
        }
        self.spans.retain(|&(start, end)| {
            let apart = end < from || to < start;
            if !apart {
                from = from.min(start);
                to = to.max(end);
            }
            apart
        });
        let at = self.spans.partition_point(|&(start, _)| start < from);
        self.spans.insert(at, (from, to));
        if self.spans.len() > SPANS_MAX {
            let (start, end) = self.spans.remove(0);
            self.settled += end - start;
            self.settled_until = end;
        }
    }

    /// The hub has been away since `since`; the clock stands still until [`ContactClock::back`].
    pub fn leave(&mut self, since: Moment) {
        self.away = Some(self.away.map_or(since, |earlier| earlier.min(since)));
    }

    /// The hub is back.
    pub fn back(&mut self, now: Moment) {
        if let Some(since) = self.away.take() {
            self.exclude(since, now);
        }
    }

    /// Whether the hub is away.
    pub fn is_away(&self) -> bool {
        self.away.is_some()
    }

    /// The time on the contact clock.
    pub fn now(&self, now: Moment) -> ContactTime {
        let until = self.away.unwrap_or(now).min(now);
        let excluded: Duration = self
            .spans
            .iter()
            .map(|&(start, end)| end.min(until).saturating_sub(start))
            .sum();
        ContactTime(until.saturating_sub(self.settled + excluded))
    }

    /// When the contact clock will show `at`, as far as is known; none while the hub is away.
    pub fn moment(&self, at: ContactTime, now: Moment) -> Option<Moment> {
        if self.is_away() {
            return None;
        }
        Some(now + at.0.saturating_sub(self.now(now).0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_clock_stands_still_while_away() {
        let mut clock = ContactClock::default();
        assert_eq!(clock.now(s(10)), ContactTime(s(10)));
        clock.leave(s(10));
        clock.leave(s(12));
        assert_eq!(clock.now(s(300)), ContactTime(s(10)));
        assert_eq!(clock.moment(ContactTime(s(40)), s(300)), None);
        clock.back(s(310));
        assert_eq!(clock.now(s(311)), ContactTime(s(11)));
        assert_eq!(clock.moment(ContactTime(s(40)), s(311)), Some(s(340)));
    }

    #[test]
    fn two_gaps_over_the_same_time_count_once() {
        let mut clock = ContactClock::default();
        clock.exclude(s(10), s(20));
        clock.exclude(s(15), s(30));
        clock.exclude(s(5), s(12));
        assert_eq!(clock.now(s(30)), ContactTime(s(5)));
    }

    proptest! {
        /// Whatever is excluded, in whatever order: as a set of whole seconds would count it.
        #[test]
        fn excluded_time_is_a_union(
            gaps in proptest::collection::vec((0_u64..200, 0_u64..40), 0..40),
        ) {
            let mut clock = ContactClock::default();
            let mut seconds = std::collections::BTreeSet::new();
            for (from, length) in gaps {
                clock.exclude(s(from), s(from + length));
                seconds.extend(from..from + length);
            }
            let excluded = u64::try_from(seconds.len()).expect("small");
            prop_assert_eq!(clock.now(s(1000)), ContactTime(s(1000 - excluded)));
        }
    }
}
