//! How long a change of what members say waits for the next.

use std::time::Duration;
use tokio::time::Instant;

/// How long a second change waits, and how long any does at the most.
pub(super) const PACE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// When something came last, and how long it was made to wait.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    came: Instant,
    pub(super) waits: Duration,
}

impl Pace {
    /// The next change of the same binding.
    pub(super) fn next(before: Option<Self>, now: Instant) -> Self {
        let waits = match before {
            Some(before) if now < before.came + 2 * PACE.1 => {
                (2 * before.waits).clamp(PACE.0, PACE.1)
            }
            _ => Duration::ZERO,
        };
        Self { came: now, waits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_keep_coming_wait_ever_longer() {
        let begun = Instant::now();
        let first = Pace::next(None, begun);
        assert_eq!(first.waits, Duration::ZERO);
        let mut pace = first;
        for expected in [100, 200, 400, 800, 1000, 1000] {
            pace = Pace::next(Some(pace), begun);
            assert_eq!(pace.waits, Duration::from_millis(expected));
        }
        let later = Pace::next(Some(pace), begun + Duration::from_secs(2));
        assert_eq!(later.waits, Duration::ZERO);
    }
}
