//! The queue without its clock: every instant is passed in. Each step costs the logarithm of the keys at most.

use super::{Key, Priority};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use tokio::time::Instant;

/// Every so many turns begin with the least urgent key.
pub const STEP_BACK: u32 = 8;

/// Room for so many keys stays; that for what came all at once is given back when most of it is gone.
const ROOM: usize = 1024;

pub(super) struct State<K> {
    share: fn(&K) -> u64,
    /// By hash: keys are long and alike, so that an ordered map reads a dozen of them for each that it finds.
    slots: HashMap<K, Slot>,
    ready: Ready<K>,
    /// By when they are due, those of one time as they came.
    timers: BTreeMap<(Instant, u64), K>,
    /// The number of the next timer.
    timer: u64,
    /// Keys that a worker has.
    running: usize,
    turns: u32,
}

/// What goes first: the more urgent, and of those the higher rank.
pub(super) type Class = (Priority, i32);

/// Where a key is; a key that is nowhere has none.
#[derive(Debug, Default)]
struct Slot {
    /// Its class, and its number while it waits for a worker.
    wanted: Option<(Class, Option<u64>)>,
    /// Its timer, and how urgent it is then.
    due: Option<((Instant, u64), Priority)>,
    running: bool,
}

/// Keys that wait for a worker.
struct Ready<K> {
    /// By class; none is empty.
    classes: BTreeMap<Class, Turns<K>>,
    /// Since when each of them waits, by its number.
    waiting: BTreeMap<u64, Instant>,
    /// The number of the next key that waits.
    number: u64,
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
            slots: HashMap::new(),
            ready: Ready::new(),
            timers: BTreeMap::new(),
            timer: 0,
            running: 0,
            turns: 0,
        }
    }

    pub(super) fn add(&mut self, key: K, class: Class, now: Instant) {
        let share = (self.share)(&key);
        let slot = self.slots.entry(key.clone()).or_default();
        if let Some((timer, _)) = slot.due.take() {
            self.timers.remove(&timer);
        }
        let mut since = now;
        match slot.wanted {
            Some((was, _)) if was >= class => return,
            Some((was, Some(number))) => {
                since = self.ready.remove(was, share, number).unwrap_or(now);
            }
            Some((_, None)) | None => {}
        }
        let number = (!slot.running).then(|| self.ready.insert(key, class, share, since));
        slot.wanted = Some((class, number));
    }

    pub(super) fn add_at(&mut self, key: K, at: Instant, priority: Priority) {
        let slot = self.slots.entry(key.clone()).or_default();
        if slot.wanted.is_some() {
            return;
        }
        let (mut at, mut priority) = (at, priority);
        if let Some((timer, was)) = slot.due {
            self.timers.remove(&timer);
            (at, priority) = (at.min(timer.0), priority.max(was));
        }
        let timer = (at, self.timer);
        self.timer += 1;
        slot.due = Some((timer, priority));
        self.timers.insert(timer, key);
    }

    pub(super) fn take(&mut self, now: Instant) -> Option<K> {
        self.expire(now);
        self.turns = self.turns.wrapping_add(1);
        let key = self.ready.take(self.turns.is_multiple_of(STEP_BACK))?;
        if let Some(slot) = self.slots.get_mut(&key) {
            slot.wanted = None;
            slot.running = true;
            self.running += 1;
        }
        Some(key)
    }

    fn expire(&mut self, now: Instant) {
        while let Some(first) = self.timers.first_entry()
            && first.key().0 <= now
        {
            let ((at, _), key) = first.remove_entry();
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
            (Some((class, _)), _) => {
                let share = (self.share)(key);
                let number = self.ready.insert(key.clone(), class, share, now);
                slot.wanted = Some((class, Some(number)));
            }
            (None, Some(_)) => {}
            (None, None) => {
                self.slots.remove(key);
            }
        }
        let (known, room) = (self.slots.len(), self.slots.capacity());
        if room > ROOM && known < room / 8 {
            self.slots.shrink_to(ROOM.max(known * 2));
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.timers.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn ready(&self) -> usize {
        self.ready.waiting.len()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.running > 0 || !self.ready.waiting.is_empty()
    }

    /// Since when the first key waits that nobody has. Keys are numbered as they come; one that was made more
    /// urgent keeps its time and has a later number, which this passes over.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        self.ready.waiting.values().next().copied()
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
        self.ready.classes.values().map(keys).sum()
    }

    pub(super) fn known(&self) -> usize {
        self.slots.len()
    }
}

impl<K> Ready<K> {
    fn new() -> Self {
        Self {
            classes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            number: 0,
        }
    }

    /// Puts a key at the end of its class, and says its number.
    fn insert(&mut self, key: K, class: Class, share: u64, since: Instant) -> u64 {
        let number = self.number;
        self.number += 1;
        self.waiting.insert(number, since);
        let turns = self.classes.entry(class).or_insert_with(Turns::new);
        turns.insert(share, number, key);
        number
    }

    /// Takes a key out, and says since when it waited.
    fn remove(&mut self, class: Class, share: u64, number: u64) -> Option<Instant> {
        if let Entry::Occupied(mut turns) = self.classes.entry(class) {
            turns.get_mut().remove(share, number);
            if turns.get().is_empty() {
                turns.remove();
            }
        }
        self.waiting.remove(&number)
    }

    /// Takes the next key, of the most urgent or of the least urgent.
    fn take(&mut self, least_urgent: bool) -> Option<K> {
        let mut class = if least_urgent {
            self.classes.first_entry()
        } else {
            self.classes.last_entry()
        }?;
        let taken = class.get_mut().take();
        if class.get().is_empty() {
            class.remove();
        }
        let (number, key) = taken?;
        self.waiting.remove(&number);
        Some(key)
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
