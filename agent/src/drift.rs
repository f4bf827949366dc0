//! Fights over a field: how often an object had to be healed, and when to slow down.
//!
//! Pure; the time is passed in. An object that is healed more than [`HEALS`] times within [`WINDOW`] is
//! healed at most once a [`WINDOW`] until it has been left alone for as long.

use chrono::{DateTime, Duration, Utc};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Heals within a window that are no fight yet.
pub const HEALS: usize = 10;
/// The window.
pub const WINDOW: Duration = Duration::seconds(60);

/// Objects that were healed lately.
#[derive(Debug)]
pub struct Fights<K> {
    healed: HashMap<K, VecDeque<DateTime<Utc>>>,
}

impl<K> Default for Fights<K> {
    fn default() -> Self {
        Self {
            healed: HashMap::new(),
        }
    }
}

impl<K: Hash + Eq + Clone> Fights<K> {
    /// Asks whether `object` may be healed now, and takes note that it is. Otherwise says when.
    pub fn heal(&mut self, object: &K, now: DateTime<Utc>) -> Result<(), DateTime<Utc>> {
        self.healed
            .retain(|_, times| times.back().is_some_and(|last| now - *last < WINDOW));
        let times = self.healed.entry(object.clone()).or_default();
        if times.len() >= HEALS
            && let (Some(first), Some(last)) = (times.front(), times.back())
            && (now - *first < WINDOW || now - *last < WINDOW)
        {
            return Err(*last + WINDOW);
        }
        if times.len() >= HEALS {
            times.pop_front();
        }
        times.push_back(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(millis: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(1_800_000_000_000 + millis).expect("in range")
    }

    #[test]
    fn drift_now_and_then_is_no_fight() {
        let mut fights = Fights::default();
        for i in 0..100 {
            assert_eq!(fights.heal(&"a", at(i * 61_000)), Ok(()));
        }
    }

    #[test]
    fn a_fight_slows_down_and_ends() {
        let mut fights = Fights::default();
        for i in 0..10 {
            assert_eq!(fights.heal(&"a", at(i)), Ok(()));
        }
        assert_eq!(fights.heal(&"a", at(10)), Err(at(9) + WINDOW));
        assert_eq!(fights.heal(&"b", at(10)), Ok(()));
        assert_eq!(fights.heal(&"a", at(60_009)), Ok(()));
    }

    proptest! {
        /// However hard the other side tries, writes stay bounded.
        #[test]
        fn writes_are_bounded(mut tries in prop::collection::vec(0i64..300_000, 0..400)) {
            tries.sort_unstable();
            let mut fights = Fights::default();
            let healed = tries.iter().filter(|t| fights.heal(&0, at(**t)).is_ok()).count();
            prop_assert!(healed <= 10 * 6, "{healed}");
        }
    }
}
