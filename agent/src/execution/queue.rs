//! Which Work is worked on next.
//!
//! Pure; instants are passed in. A key is worked on by one at a time; what comes while it is worked on
//! brings it back afterwards. News of a moment go before the backlog of a start.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use tokio::time::Instant;

/// How soon a key should come up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// After everything else: the first list after a start.
    Backlog,
    /// In turn.
    Now,
}

#[derive(Debug, Default)]
struct Slot {
    /// In one of the ready lists.
    ready: Option<Urgency>,
    /// When it is due, if it waits.
    due: Option<Instant>,
    running: bool,
}

/// A queue of names without duplicates.
#[derive(Debug, Default)]
pub struct Queue {
    now: VecDeque<Arc<str>>,
    backlog: VecDeque<Arc<str>>,
    delayed: BTreeSet<(Instant, Arc<str>)>,
    slots: HashMap<Arc<str>, Slot>,
    running: usize,
}

impl Queue {
    /// Adds a key that is due.
    pub fn push(&mut self, key: &Arc<str>, urgency: Urgency) {
        let slot = self.slots.entry(key.clone()).or_default();
        if slot.ready.is_some_and(|was| was >= urgency) {
            return;
        }
        if let Some(due) = slot.due.take() {
            self.delayed.remove(&(due, key.clone()));
        }
        // A key that moves up leaves a stale entry in the backlog, which `pop` passes over.
        slot.ready = Some(urgency);
        if !slot.running {
            self.enlist(key.clone(), urgency);
        }
    }

    /// Adds a key that is due at `at`; an earlier time stands.
    pub fn push_at(&mut self, key: &Arc<str>, at: Instant) {
        let slot = self.slots.entry(key.clone()).or_default();
        if slot.ready.is_some() || slot.due.is_some_and(|due| due <= at) {
            return;
        }
        if let Some(due) = slot.due.replace(at) {
            self.delayed.remove(&(due, key.clone()));
        }
        self.delayed.insert((at, key.clone()));
    }

    fn enlist(&mut self, key: Arc<str>, urgency: Urgency) {
        match urgency {
            Urgency::Now => self.now.push_back(key),
            Urgency::Backlog => self.backlog.push_back(key),
        }
    }

    /// Takes the next key that is due, and marks it as being worked on.
    pub fn pop(&mut self, at: Instant) -> Option<Arc<str>> {
        while let Some((due, _)) = self.delayed.first()
            && *due <= at
        {
            if let Some((_, key)) = self.delayed.pop_first() {
                if let Some(slot) = self.slots.get_mut(&key) {
                    slot.due = None;
                }
                self.push(&key, Urgency::Now);
            }
        }
        loop {
            let (key, urgency) = match self.now.pop_front() {
                Some(key) => (key, Urgency::Now),
                None => (self.backlog.pop_front()?, Urgency::Backlog),
            };
            if let Some(slot) = self.slots.get_mut(&key)
                && !slot.running
                && slot.ready == Some(urgency)
            {
                slot.ready = None;
                slot.running = true;
                self.running += 1;
                return Some(key);
            }
        }
    }

    /// Ends the work on a key.
    pub fn done(&mut self, key: &Arc<str>) {
        let Some(slot) = self.slots.get_mut(key) else {
            return;
        };
        if std::mem::take(&mut slot.running) {
            self.running -= 1;
        }
        match (slot.ready, slot.due) {
            (Some(urgency), _) => self.enlist(key.clone(), urgency),
            (None, None) => {
                self.slots.remove(key);
            }
            (None, Some(_)) => {}
        }
    }

    /// When the next waiting key is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.delayed.first().map(|(due, _)| *due)
    }

    /// Keys that wait for a worker.
    pub fn ready(&self) -> usize {
        self.now.len() + self.backlog.len()
    }

    /// Whether any key is worked on or waits for a worker.
    pub fn is_busy(&self) -> bool {
        self.running > 0 || self.ready() > 0
    }

    /// Keys that are known, waiting or worked on.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is nothing at all.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn key(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[test]
    fn news_goes_before_backlog_and_nothing_runs_twice_at_once() {
        let start = Instant::now();
        let mut q = Queue::default();
        for name in ["a", "b", "c"] {
            q.push(&key(name), Urgency::Backlog);
        }
        q.push(&key("new"), Urgency::Now);
        q.push(&key("c"), Urgency::Now);
        assert_eq!(q.pop(start).as_deref(), Some("new"));
        assert_eq!(q.pop(start).as_deref(), Some("c"));
        q.push(&key("c"), Urgency::Now);
        assert!(q.is_busy());
        assert_eq!(q.pop(start).as_deref(), Some("a"));
        assert_eq!(q.pop(start).as_deref(), Some("b"));
        assert_eq!(q.pop(start), None);
        q.done(&key("c"));
        assert_eq!(q.pop(start).as_deref(), Some("c"));
        for name in ["a", "b", "c", "new"] {
            q.done(&key(name));
        }
        assert!(q.is_empty() && !q.is_busy());
    }

    #[test]
    fn what_waits_comes_when_due_and_the_earlier_time_stands() {
        let start = Instant::now();
        let later = start + Duration::from_secs(5);
        let mut q = Queue::default();
        q.push_at(&key("a"), later);
        q.push_at(&key("a"), later + Duration::from_secs(1));
        assert_eq!(q.next_due(), Some(later));
        assert_eq!(q.pop(start), None);
        q.push_at(&key("a"), start + Duration::from_secs(1));
        assert_eq!(q.next_due(), Some(start + Duration::from_secs(1)));
        q.push(&key("a"), Urgency::Now);
        assert_eq!(q.next_due(), None);
        assert_eq!(q.pop(start).as_deref(), Some("a"));
        q.push_at(&key("a"), later);
        q.done(&key("a"));
        assert_eq!(q.pop(start), None);
        assert_eq!(q.pop(later).as_deref(), Some("a"));
    }

    proptest! {
        /// Whatever is pushed comes out, and no key is ever out twice at a time.
        #[test]
        fn nothing_is_lost(ops in prop::collection::vec((0u8..4, 0u8..4, 0u64..9), 1..60)) {
            let start = Instant::now();
            let mut q = Queue::default();
            let mut running: Vec<Arc<str>> = Vec::new();
            let mut owed = BTreeSet::new();
            for (op, k, t) in ops {
                let k = key(&k.to_string());
                match op {
                    0 => { q.push(&k, Urgency::Now); owed.insert(k); }
                    1 => { q.push(&k, Urgency::Backlog); owed.insert(k); }
                    2 => { q.push_at(&k, start + Duration::from_secs(t)); owed.insert(k); }
                    _ => if let Some(got) = q.pop(start + Duration::from_secs(t)) {
                        prop_assert!(!running.contains(&got));
                        owed.remove(&got);
                        running.push(got);
                    },
                }
            }
            for k in running.drain(..) { q.done(&k); }
            while let Some(got) = q.pop(start + Duration::from_secs(99)) {
                owed.remove(&got);
                q.done(&got);
            }
            prop_assert!(owed.is_empty(), "{owed:?}");
            prop_assert!(q.is_empty());
        }
    }
}
