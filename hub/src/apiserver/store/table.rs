//! All objects of a resource in order: a sorted array in chunks, which costs nothing to keep as it is.
//!
//! A copy shares every chunk; a change copies the chunk it touches and the list of chunks. That is
//! about twelve bytes an object, and a list reads memory in order.

use super::key::{Key, against_namespace};
use super::stored::Stored;
use std::cmp::Ordering;
use std::sync::Arc;

/// A chunk is cut in two when it grows past this.
const CHUNK: usize = 128;

/// Objects in the order of their keys. Cheap to clone; a clone never changes.
#[derive(Clone, Default)]
pub struct Table {
    /// No chunk is empty.
    chunks: Arc<Vec<Arc<Vec<Arc<Stored>>>>>,
    len: usize,
}

/// Where an object is, or would be put.
struct Position {
    chunk: usize,
    slot: usize,
    found: bool,
}

impl Table {
    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// One object.
    pub fn get(&self, key: &Key) -> Option<&Arc<Stored>> {
        let place = self.place(key.as_str().as_bytes());
        self.chunks
            .get(place.chunk)
            .filter(|_| place.found)?
            .get(place.slot)
    }

    /// Every object, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Stored>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// The objects of one namespace, in order.
    pub fn namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<Stored>> {
        let start = self.first(|joined| against_namespace(joined, namespace) == Ordering::Less);
        self.onward(start).take_while(move |stored| {
            against_namespace(stored.joined_bytes(), namespace) == Ordering::Equal
        })
    }

    /// The objects after a key, in order; the key itself is left out. How a page goes on.
    pub fn after(&self, key: &Key) -> impl Iterator<Item = &Arc<Stored>> {
        let key = key.as_str().as_bytes();
        let start = self.first(|joined| joined <= key);
        self.onward(start)
    }

    /// A table of objects that are in order, no two of the same key.
    pub(super) fn of_sorted(objects: &[Arc<Stored>]) -> Self {
        let chunks = objects.chunks(CHUNK).map(|chunk| Arc::new(chunk.to_vec()));
        Self {
            chunks: Arc::new(chunks.collect()),
            len: objects.len(),
        }
    }

    /// Puts a version in its place and returns the one that was there.
    pub(super) fn insert(&mut self, stored: Arc<Stored>) -> Option<Arc<Stored>> {
        let place = self.place(stored.joined_bytes());
        let chunks = Arc::make_mut(&mut self.chunks);
        let Some(chunk) = chunks.get_mut(place.chunk) else {
            chunks.push(Arc::new(vec![stored]));
            self.len += 1;
            return None;
        };
        if place.found {
            let slot = Arc::make_mut(chunk).get_mut(place.slot)?;
            return Some(std::mem::replace(slot, stored));
        }
        self.len += 1;
        let mut grown = grow(chunk);
        grown.insert(place.slot, stored);
        if grown.len() > CHUNK {
            // Objects that come in order fill their chunks; others leave room on both sides.
            let last = place.chunk + 1 == chunks.len() && place.slot == CHUNK;
            let rest = grown.split_off(if last { CHUNK } else { CHUNK / 2 });
            grown.shrink_to_fit();
            chunks.insert(place.chunk + 1, Arc::new(rest));
        }
        if let Some(chunk) = chunks.get_mut(place.chunk) {
            *chunk = Arc::new(grown);
        }
        None
    }

    /// Takes an object out.
    pub(super) fn remove(&mut self, key: &str) -> Option<Arc<Stored>> {
        let place = self.place(key.as_bytes());
        if !place.found {
            return None;
        }
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(chunks.get_mut(place.chunk)?);
        let removed = chunk.remove(place.slot);
        if chunk.is_empty() {
            chunks.remove(place.chunk);
        }
        self.len -= 1;
        Some(removed)
    }

    fn place(&self, key: &[u8]) -> Position {
        let place = self.first(|joined| joined < key);
        let found = self
            .chunks
            .get(place.chunk)
            .and_then(|chunk| chunk.get(place.slot))
            .is_some_and(|stored| stored.joined_bytes() == key);
        Position { found, ..place }
    }

    /// The first place whose object is not `before`; the end of the last chunk if there is none.
    fn first(&self, before: impl Fn(&[u8]) -> bool) -> Position {
        let chunk = self
            .chunks
            .partition_point(|chunk| chunk.last().is_some_and(|last| before(last.joined_bytes())));
        if chunk == self.chunks.len() && chunk > 0 {
            let slot = self.chunks.last().map_or(0, |chunk| chunk.len());
            return Position {
                chunk: chunk - 1,
                slot,
                found: false,
            };
        }
        let slot = self.chunks.get(chunk).map_or(0, |chunk| {
            chunk.partition_point(|stored| before(stored.joined_bytes()))
        });
        Position {
            chunk,
            slot,
            found: false,
        }
    }

    fn onward(&self, start: Position) -> impl Iterator<Item = &Arc<Stored>> {
        let whole = self.chunks.iter().skip(start.chunk);
        whole.flat_map(|chunk| chunk.iter()).skip(start.slot)
    }
}

/// The content of a chunk with room for one more; moved out if nobody else has it.
fn grow(chunk: &mut Arc<Vec<Arc<Stored>>>) -> Vec<Arc<Stored>> {
    if let Some(own) = Arc::get_mut(chunk) {
        return std::mem::take(own);
    }
    let mut grown = Vec::with_capacity(chunk.len() + 1);
    grown.extend(chunk.iter().cloned());
    grown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::Packer;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn stored(key: &Key, revision: u64) -> Arc<Stored> {
        Arc::new(
            Stored::read(
                key.as_str(),
                1,
                revision,
                br#"{"metadata":{}}"#,
                &mut Packer::default(),
            )
            .expect("fit"),
        )
    }

    fn check(table: &Table, model: &BTreeMap<Key, u64>) {
        let found: Vec<_> = table.iter().map(|s| (s.key(), s.revision())).collect();
        let wanted: Vec<_> = model.iter().map(|(k, r)| (k.clone(), *r)).collect();
        assert_eq!(found, wanted);
        assert_eq!(table.len(), model.len());
    }

    proptest! {
        #[test]
        fn is_a_sorted_map(
            steps in prop::collection::vec((any::<bool>(), 0..3_u8, 0..600_u16), 0..1500)
        ) {
            let mut table = Table::default();
            let mut model = BTreeMap::new();
            let mut kept = Vec::new();
            for (revision, (put, namespace, name)) in (0_u64..).zip(steps) {
                let key = Key::new(["", "a", "a-b"][usize::from(namespace)], &format!("n{name}"));
                if put || name > 400 {
                    let before = table.insert(stored(&key, revision)).map(|s| s.revision());
                    prop_assert_eq!(before, model.insert(key.clone(), revision));
                } else {
                    let before = table.remove(key.as_str()).map(|s| s.revision());
                    prop_assert_eq!(before, model.remove(&key));
                }
                prop_assert_eq!(table.get(&key).map(|s| s.revision()), model.get(&key).copied());
                if revision % 300 == 0 {
                    kept.push((table.clone(), model.clone()));
                }
            }
            let again: Vec<_> = table.iter().cloned().collect();
            kept.push((Table::of_sorted(&again), model.clone()));
            kept.push((table.clone(), model.clone()));
            for (table, model) in &kept {
                check(table, model);
            }
            for namespace in ["", "a", "a-", "a-b", "b"] {
                let found: Vec<_> = table.namespace(namespace).map(|s| s.key()).collect();
                let wanted: Vec<_> =
                    model.keys().filter(|k| k.namespace() == namespace).cloned().collect();
                prop_assert_eq!(found, wanted);
            }
            for key in [Key::new("a", "n3"), Key::new("a", "n300x"), Key::new("z", "")] {
                let found: Vec<_> = table.after(&key).map(|s| s.key()).collect();
                let wanted: Vec<_> = model.keys().filter(|k| **k > key).cloned().collect();
                prop_assert_eq!(found, wanted);
            }
        }
    }

    #[test]
    fn objects_in_order_fill_their_chunks() {
        let mut table = Table::default();
        for i in 0..10_000 {
            table.insert(stored(&Key::new("ns", &format!("{i:05}")), 1));
        }
        assert_eq!(table.chunks.len(), 10_000_usize.div_ceil(CHUNK));
    }
}
