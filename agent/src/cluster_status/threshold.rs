//! When an observed readiness is believed: a change must last before it is written.
//!
//! Pure; `now` is time since the process started, on a monotonic clock.

use std::time::Duration;

/// What the hub's copy of the Ready condition says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Current {
    /// There is no Ready condition.
    Absent,
    /// Ready is True.
    True,
    /// Ready is False or Unknown.
    NotTrue,
}

/// What to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Believed {
    /// What was observed.
    Observed,
    /// What the hub has already: the change has not lasted long enough.
    Current,
}

/// The memory of the filter.
#[derive(Debug, Clone)]
pub struct Threshold {
    success: Duration,
    failure: Duration,
    last: Option<Observation>,
    settled: bool,
}

#[derive(Debug, Clone, Copy)]
struct Observation {
    ready: bool,
    since: Duration,
}

impl Threshold {
    /// A filter that has seen nothing: its first observation counts at once.
    pub fn new(success: Duration, failure: Duration) -> Self {
        Self {
            success,
            failure,
            last: None,
            settled: false,
        }
    }

    /// Takes one observation and says whether it is believed yet.
    pub fn observe(&mut self, now: Duration, ready: bool, current: Current) -> Believed {
        let since = match self.last {
            Some(last) if last.ready == ready => last.since,
            _ => now,
        };
        self.last = Some(Observation { ready, since });
        if !self.settled {
            return Believed::Observed;
        }
        let lasted = now.saturating_sub(since);
        match (ready, current) {
            (true, Current::NotTrue) if lasted < self.success => Believed::Current,
            (false, Current::True) if lasted < self.failure => Believed::Current,
            _ => Believed::Observed,
        }
    }

    /// The hub has taken what this process observed first; from now on changes must last.
    pub fn settle(&mut self) {
        self.settled = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOLD: Duration = Duration::from_secs(30);

    /// Feeds (second, observed, hub's copy) and returns what is believed at each.
    fn run(steps: &[(u64, bool, Current)]) -> Vec<Believed> {
        let mut filter = Threshold::new(HOLD, HOLD);
        let mut out = Vec::new();
        for (second, ready, current) in steps {
            out.push(filter.observe(Duration::from_secs(*second), *ready, *current));
            filter.settle();
        }
        out
    }

    #[test]
    fn changes_must_last() {
        use Believed::{Current as Kept, Observed};
        use Current::{Absent, NotTrue, True};
        type Case = (&'static str, Vec<(u64, bool, Current)>, Vec<Believed>);
        let cases: [Case; 7] = [
            (
                "first observation of a process",
                vec![(0, false, True)],
                vec![Observed],
            ),
            (
                "no Ready yet",
                vec![(0, true, True), (10, false, Absent)],
                vec![Observed; 2],
            ),
            (
                "member lost",
                vec![
                    (0, true, True),
                    (10, false, True),
                    (39, false, True),
                    (40, false, True),
                ],
                vec![Observed, Kept, Kept, Observed],
            ),
            (
                "member back",
                vec![
                    (0, false, NotTrue),
                    (10, true, NotTrue),
                    (30, true, NotTrue),
                    (40, true, NotTrue),
                ],
                vec![Observed, Kept, Kept, Observed],
            ),
            (
                "a blink starts the count anew",
                vec![
                    (0, true, True),
                    (10, false, True),
                    (20, true, True),
                    (30, false, True),
                    (50, false, True),
                ],
                vec![Observed, Kept, Observed, Kept, Kept],
            ),
            (
                "marked Unknown while healthy all along",
                vec![(0, true, True), (100, true, True), (110, true, NotTrue)],
                vec![Observed; 3],
            ),
            (
                "Unknown to False is the same class",
                vec![(0, true, True), (10, false, NotTrue)],
                vec![Observed; 2],
            ),
        ];
        for (name, steps, want) in cases {
            assert_eq!(run(&steps), want, "{name}");
        }
    }

    #[test]
    fn first_observation_counts_until_the_hub_took_it() {
        let mut filter = Threshold::new(HOLD, HOLD);
        for second in [0, 10, 20] {
            let at = Duration::from_secs(second);
            assert_eq!(filter.observe(at, false, Current::True), Believed::Observed);
        }
        filter.settle();
        let at = Duration::from_secs(30);
        assert_eq!(
            filter.observe(at, true, Current::NotTrue),
            Believed::Current
        );
    }

    proptest! {
        /// Whatever happened before, an observation that lasted is believed, and one that
        /// contradicts the hub is never believed earlier.
        #[test]
        fn believed_exactly_when_it_lasted(
            steps in proptest::collection::vec((1u64..20, any::<bool>(), any::<bool>()), 1..40),
        ) {
            let mut filter = Threshold::new(HOLD, HOLD);
            filter.settle();
            let mut now = Duration::ZERO;
            let mut since = Duration::ZERO;
            let mut last = None;
            for (step, ready, hub) in steps {
                now += Duration::from_secs(step);
                if last != Some(ready) {
                    since = now;
                    last = Some(ready);
                }
                let current = if hub { Current::True } else { Current::NotTrue };
                let believed = filter.observe(now, ready, current);
                let held = ready != hub && now - since < HOLD;
                prop_assert_eq!(believed == Believed::Current, held);
            }
        }
    }
}
