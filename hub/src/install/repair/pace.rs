//! When each object is looked at next: at once when it is seen to change, later when it will not stay.
//!
//! Pure. Somebody else's automation may undo every repair; the hub then goes on, but ever more slowly.

use crate::install::object::ObjectKey;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The delay after the first repair, doubled by each further one.
const FIRST: Duration = Duration::from_millis(100);
/// The longest delay: what guards the hub may not stay open for long.
const LONGEST: Duration = Duration::from_secs(5);
/// An object that stayed as it should for so long starts afresh.
const CALM: Duration = Duration::from_secs(60);

/// Suspects and their history.
#[derive(Debug, Default)]
pub(super) struct Pace {
    suspects: BTreeMap<ObjectKey, Instant>,
    repairs: BTreeMap<ObjectKey, (u32, Instant)>,
}

impl Pace {
    /// Notes that an object may have changed.
    pub(super) fn suspect(&mut self, key: ObjectKey, now: Instant) {
        let at = match self.repairs.get(&key) {
            Some((count, last)) if now < *last + CALM => now.max(*last + delay(*count)),
            _ => now,
        };
        self.suspects.entry(key).or_insert(at);
    }

    /// The suspects that are to be looked at now.
    pub(super) fn due(&self, now: Instant, may: impl Fn(&ObjectKey) -> bool) -> Vec<ObjectKey> {
        let due = self
            .suspects
            .iter()
            .filter(|(key, at)| **at <= now && may(key));
        due.map(|(key, _)| key.clone()).collect()
    }

    /// When the next suspect is due.
    pub(super) fn next(&self, may: impl Fn(&ObjectKey) -> bool) -> Option<Instant> {
        self.suspects
            .iter()
            .filter(|(key, _)| may(key))
            .map(|(_, at)| *at)
            .min()
    }

    /// Notes that an object was looked at; one that needed a repair is suspect again, later.
    pub(super) fn looked_at(&mut self, key: &ObjectKey, repaired: bool, now: Instant) {
        self.suspects.remove(key);
        if !repaired {
            return;
        }
        let history = self.repairs.entry(key.clone()).or_insert((0, now));
        if now >= history.1 + CALM {
            history.0 = 0;
        }
        *history = (history.0.saturating_add(1), now);
        self.suspect(key.clone(), now);
    }
}

fn delay(repairs: u32) -> Duration {
    let factor = 1_u32
        .checked_shl(repairs.saturating_sub(1).min(16))
        .unwrap_or(u32::MAX);
    FIRST.saturating_mul(factor).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> ObjectKey {
        ObjectKey {
            kind: "Role".into(),
            namespace: None,
            name: "a".into(),
        }
    }

    #[test]
    fn a_first_change_is_looked_at_once() {
        let now = Instant::now();
        let mut pace = Pace::default();
        pace.suspect(key(), now);
        assert_eq!(pace.due(now, |_| true), vec![key()]);
        pace.looked_at(&key(), false, now);
        assert_eq!(pace.due(now, |_| true), Vec::new());
        assert_eq!(pace.next(|_| true), None);
    }

    #[test]
    fn an_object_that_will_not_stay_is_looked_at_ever_later_but_never_given_up() {
        let mut now = Instant::now();
        let mut pace = Pace::default();
        let mut waits = Vec::new();
        for _ in 0..12 {
            pace.suspect(key(), now);
            let at = pace.next(|_| true).expect("a suspect");
            waits.push(at.saturating_duration_since(now));
            now = now.max(at);
            pace.looked_at(&key(), true, now);
        }
        assert_eq!(waits[0], Duration::ZERO);
        assert!(waits.is_sorted());
        assert_eq!(waits[11], LONGEST);
    }

    #[test]
    fn what_may_not_be_touched_yet_waits() {
        let now = Instant::now();
        let mut pace = Pace::default();
        pace.suspect(key(), now);
        assert_eq!(pace.due(now, |_| false), Vec::new());
        assert_eq!(pace.next(|_| false), None);
    }
}
