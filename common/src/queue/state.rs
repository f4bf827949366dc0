//! The queue without its clock: every instant is passed in. Each step costs the logarithm of the keys.

use super::{Key, Priority};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::Instant;

/// Every so many turns begin with the least urgent key.
pub const STEP_BACK: u32 = 8;

pub(super) struct State<K> {
    share: fn(&K) -> u64,
    slots: BTreeMap<K, Slot>,
    /// Keys that wait for a worker, by class; none is empty.
    ready: BTreeMap<Class, Turns<K>>,
    /// Since when each of them waits, by its number.
    waiting: BTreeMap<u64, Instant>,
    timers: BTreeSet<(Instant, K)>,
    /// Keys that a worker has.
    running: usize,
    /// The number of the next key that waits.
    number: u64,
    turns: u32,
}

/// What goes first: the more urgent, and of those the higher rank.
pub(super) type Class = (Priority, i32);

/// Where a key is; a key that is nowhere has none.
#[derive(Debug, Default)]
struct Slot {
    /// Its class, and its number while it waits for a worker.
    wanted: Option<(Class, Option<u64>)>,
    due: Option<(Instant, Priority)>,
    running: bool,
}

/// The keys of one class: shares in turn, and within a share by number.
struct Turns<K> {
    /// The turn of each share, and its keys.
    shares: BTreeMap<u64, (u64, BTreeMap<u64, K>)>,
    /// (turn, share).
    order: BTreeSet<(u64, u64)>,
    next_turn: u64,
}

impl<K: Key> State<K> {
    pub(super) fn new(share: fn(&K) -> u64) -> Self {
        Self {
            share,
            slots: BTreeMap::new(),
            ready: BTreeMap::new(),
            waiting: BTreeMap::new(),
            timers: BTreeSet::new(),
            running: 0,
            number: 0,
            turns: 0,
        }
    }

    pub(super) fn add(&mut self, key: K, class: Class, now: Instant) {
        let share = (self.share)(&key);
        let slot = self.slots.entry(key.clone()).or_default();
        if let Some((at, _)) = slot.due.take() {
            self.timers.remove(&(at, key.clone()));
        }
        let mut since = now;
        match slot.wanted {
            Some((was, _)) if was >= class => return,
            Some((was, Some(number))) => {
                since = self.waiting.remove(&number).unwrap_or(now);
                if let Entry::Occupied(mut turns) = self.ready.entry(was) {
                    turns.get_mut().remove(share, number);
                    if turns.get().is_empty() {
                        turns.remove();
                    }
                }
            }
            Some((_, None)) | None => {}
        }
        if slot.running {
            slot.wanted = Some((class, None));
        } else {
            self.enlist(key, class, since);
        }
    }

    fn enlist(&mut self, key: K, class: Class, since: Instant) {
        let number = self.number;
        self.number += 1;
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.wanted = Some((class, Some(number)));
        }
        self.waiting.insert(number, since);
        let share = (self.share)(&key);
        let turns = self.ready.entry(class).or_insert_with(Turns::new);
        turns.insert(share, number, key);
    }

    pub(super) fn add_at(&mut self, key: K, at: Instant, priority: Priority) {
        let slot = self.slots.entry(key.clone()).or_default();
        if slot.wanted.is_some() {
            return;
        }
        let (mut at, mut priority) = (at, priority);
        if let Some((earlier, was)) = slot.due {
            self.timers.remove(&(earlier, key.clone()));
            (at, priority) = (at.min(earlier), priority.max(was));
        }
        slot.due = Some((at, priority));
        self.timers.insert((at, key));
    }

    pub(super) fn take(&mut self, now: Instant) -> Option<K> {
        self.expire(now);
        self.turns = self.turns.wrapping_add(1);
        let mut class = if self.turns.is_multiple_of(STEP_BACK) {
            self.ready.first_entry()
        } else {
            self.ready.last_entry()
        }?;
        let taken = class.get_mut().take();
        if class.get().is_empty() {
            class.remove();
        }
        let (number, key) = taken?;
        self.waiting.remove(&number);
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.wanted = None;
            slot.running = true;
            self.running += 1;
        }
        Some(key)
    }

    fn expire(&mut self, now: Instant) {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            let Some((at, key)) = self.timers.pop_first() else {
                return;
            };
            let due = self.slots.get_mut(&key).and_then(|slot| slot.due.take());
            self.add(key, (due.map_or(Priority::Normal, |(_, p)| p), 0), at);
        }
    }

    pub(super) fn done(&mut self, key: &K, now: Instant) {
        let Some(slot) = self.slots.get_mut(key) else {
            return;
        };
        if !std::mem::take(&mut slot.running) {
            return;
        }
        self.running -= 1;
        match (slot.wanted, slot.due) {
            (Some((class, _)), _) => self.enlist(key.clone(), class, now),
            (None, Some(_)) => {}
            (None, None) => {
                self.slots.remove(key);
            }
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    pub(super) fn ready(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.running > 0 || !self.waiting.is_empty()
    }

    /// Since when the first key waits that nobody has. Keys are numbered as they come; one that was made more
    /// urgent keeps its time and has a later number, which this passes over.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        self.waiting.values().next().copied()
    }

    /// Keys in the lists of what is ready, counted.
    #[cfg(test)]
    pub(super) fn enlisted(&self) -> usize {
        let keys = |turns: &Turns<K>| {
            turns
                .shares
                .values()
                .map(|(_, keys)| keys.len())
                .sum::<usize>()
        };
        self.ready.values().map(keys).sum()
    }

    pub(super) fn known(&self) -> usize {
        self.slots.len()
    }
}

impl<K> Turns<K> {
    fn new() -> Self {
        Self {
            shares: BTreeMap::new(),
            order: BTreeSet::new(),
            next_turn: 0,
        }
    }

    fn insert(&mut self, share: u64, number: u64, key: K) {
        let turn = self.next_turn;
        let (_, keys) = self.shares.entry(share).or_insert_with(|| {
            self.next_turn += 1;
            self.order.insert((turn, share));
            (turn, BTreeMap::new())
        });
        keys.insert(number, key);
    }

    fn remove(&mut self, share: u64, number: u64) {
        let Some((turn, keys)) = self.shares.get_mut(&share) else {
            return;
        };
        keys.remove(&number);
        if keys.is_empty() {
            self.order.remove(&(*turn, share));
            self.shares.remove(&share);
        }
    }

    fn is_empty(&self) -> bool {
        self.shares.is_empty()
    }

    fn take(&mut self) -> Option<(u64, K)> {
        let (_, share) = self.order.pop_first()?;
        let (turn, keys) = self.shares.get_mut(&share)?;
        let taken = keys.pop_first();
        if keys.is_empty() {
            self.shares.remove(&share);
        } else {
            *turn = self.next_turn;
            self.order.insert((self.next_turn, share));
            self.next_turn += 1;
        }
        taken
    }
}
