//! At which pace bindings leave clusters: each waits for its turn, the more important first.
//!
//! Pure. Time is that since the controller began.

use super::brake::Moment;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The place of a key among those that wait: priority, then who came first.
type Place = (Reverse<i32>, u64);

/// Who waits, and who has a turn.
#[derive(Debug)]
pub struct Turns<K> {
    /// Between two turns; none when nobody ever has one.
    every: Option<Duration>,
    next: Moment,
    came: u64,
    places: BTreeMap<K, Place>,
    order: BTreeMap<Place, K>,
    given: BTreeSet<K>,
}

impl<K: Ord + Clone> Turns<K> {
    /// So many turns a second.
    pub fn new(rate: f64) -> Self {
        let every = Duration::try_from_secs_f64(1.0 / rate).ok();
        Self {
            every: every.filter(|_| rate > 0.0),
            next: Moment::ZERO,
            came: 0,
            places: BTreeMap::new(),
            order: BTreeMap::new(),
            given: BTreeSet::new(),
        }
    }

    /// Whether a key has its turn; if not, it waits from now on.
    pub fn has(&mut self, key: &K, priority: i32) -> bool {
        if self.given.contains(key) {
            return true;
        }
        if let Some(place) = self.places.get(key).copied() {
            if place.0 == Reverse(priority) {
                return false;
            }
            self.order.remove(&place);
        }
        self.came += 1;
        let place = (Reverse(priority), self.came);
        self.places.insert(key.clone(), place);
        self.order.insert(place, key.clone());
        false
    }

    /// A key needs no turn, or has used it.
    pub fn done(&mut self, key: &K) {
        self.given.remove(key);
        if let Some(place) = self.places.remove(key) {
            self.order.remove(&place);
        }
    }

    /// When the next turn comes; none when nobody waits.
    pub fn next(&self) -> Option<Moment> {
        let every = self.every.filter(|_| !self.order.is_empty());
        every.map(|_| self.next)
    }

    /// Gives a turn to whoever is first, if it is time.
    pub fn give(&mut self, now: Moment) -> Option<K> {
        let every = self.every.filter(|_| now >= self.next)?;
        let (_, key) = self.order.pop_first()?;
        self.places.remove(&key);
        self.given.insert(key.clone());
        self.next = now + every;
        Some(key)
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Moment {
        Duration::from_millis(millis)
    }

    #[test]
    fn turns_come_one_after_another_the_more_important_first() {
        let mut turns = Turns::new(2.0);
        assert_eq!(turns.next(), None);
        for (key, priority) in [("a", 0), ("b", 0), ("c", 7)] {
            assert!(!turns.has(&key, priority));
        }
        assert!(!turns.has(&"a", 0), "asked again, its place is the same");
        assert_eq!(turns.give(ms(0)), Some("c"));
        assert_eq!(turns.give(ms(499)), None);
        assert_eq!(turns.next(), Some(ms(500)));
        assert!(turns.has(&"c", 7));
        turns.done(&"c");
        assert!(!turns.has(&"c", 0), "its turn is used");
        turns.done(&"c");
        assert_eq!(turns.give(ms(500)), Some("a"));
        assert_eq!(turns.waiting(), 1);
        turns.done(&"b");
        assert_eq!(turns.next(), None);
    }

    #[test]
    fn after_a_pause_there_is_no_burst() {
        let mut turns = Turns::new(1.0);
        for key in 0..3 {
            turns.has(&key, 0);
        }
        assert_eq!(turns.give(ms(60_000)), Some(0));
        assert_eq!(turns.give(ms(60_001)), None);
        assert_eq!(turns.give(ms(61_000)), Some(1));
    }

    #[test]
    fn a_rate_of_nothing_gives_no_turn() {
        let mut turns = Turns::new(0.0);
        turns.has(&1, 0);
        assert_eq!(turns.next(), None);
        assert_eq!(turns.give(ms(1_000_000)), None);
    }
}
