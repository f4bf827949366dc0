//! Which Work of the stored set lies in which volume, and which volumes must be written.
//!
//! Pure. Volumes are kept small while there is room elsewhere, because a Work that changes has its whole
//! volume written.

use common::names::WORKS_SECRETS;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most bytes of a volume: the API server takes 1 MiB of data in a Secret.
pub const VOLUME_MAX: usize = 960 * 1024;
/// Up to here a volume is filled while others are empty.
const FIRST_FILL: usize = 96 * 1024;
/// What the table of contents costs for one Work, beside its manifests.
const OVERHEAD: usize = 256;

/// Where one Work lies.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// Volumes of its parts, in order; nearly always one.
    volumes: Box<[u8]>,
    size: usize,
    /// What its table of contents costs beside [`OVERHEAD`].
    extra: usize,
    print: u64,
    sequence: u64,
}

/// A part of a Work that lies in a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The Work.
    pub name: Arc<str>,
    /// Which part.
    pub part: u8,
    /// Of how many.
    pub parts: u8,
    /// When it was put there.
    pub sequence: u64,
}

/// The plan.
#[derive(Debug, Default)]
pub struct Plan {
    places: BTreeMap<Arc<str>, Place>,
    sizes: [usize; WORKS_SECRETS],
    present: [bool; WORKS_SECRETS],
    /// Volumes to write, the ones that gained something first.
    dirty: Vec<usize>,
    fill: usize,
    sequence: u64,
    /// Works for which there was no room.
    refused: BTreeSet<Arc<str>>,
}

impl Plan {
    /// A volume exists.
    pub fn present(&mut self, volume: usize) {
        if let Some(present) = self.present.get_mut(volume) {
            *present = true;
        }
    }

    /// A volume holds something that should not be there.
    pub fn spoiled(&mut self, volume: usize) {
        if volume < WORKS_SECRETS && !self.dirty.contains(&volume) {
            self.dirty.push(volume);
        }
    }

    /// Every volume that exists is to be written.
    pub fn spoil_all(&mut self) {
        for volume in 0..WORKS_SECRETS {
            if self.present[volume] {
                self.spoiled(volume);
            }
        }
    }

    /// A Work was found in volumes.
    pub fn found(
        &mut self,
        name: &Arc<str>,
        volumes: &[usize],
        size: usize,
        extra: usize,
        (print, sequence): (u64, u64),
    ) {
        self.sequence = self.sequence.max(sequence);
        self.settle(name, volumes, (size, extra), print, sequence);
    }

    fn settle(
        &mut self,
        name: &Arc<str>,
        volumes: &[usize],
        (size, extra): (usize, usize),
        print: u64,
        sequence: u64,
    ) {
        for (volume, cost) in volumes.iter().zip(costs(name, size, extra)) {
            self.sizes[*volume] += cost;
        }
        let place = Place {
            volumes: volumes
                .iter()
                .filter_map(|v| u8::try_from(*v).ok())
                .collect(),
            size,
            extra,
            print,
            sequence,
        };
        self.places.insert(name.clone(), place);
    }

    /// Whether a Work lies in the set.
    pub fn contains(&self, name: &str) -> bool {
        self.places.contains_key(name)
    }

    /// How many bytes of a Work lie in the set.
    pub fn size(&self, name: &str) -> Option<usize> {
        self.places.get(name).map(|place| place.size)
    }

    /// How many Works should lie in it and found no room.
    pub fn refused(&self) -> usize {
        self.refused.len()
    }

    /// How much is to lie in each volume.
    pub fn sizes(&self) -> [usize; WORKS_SECRETS] {
        self.sizes
    }

    /// Works that found no room, to be put again when less is to lie in some volume than `before`.
    pub fn to_retry(&self, before: [usize; WORKS_SECRETS]) -> Vec<Arc<str>> {
        let has_more_room = self.sizes.iter().zip(before).any(|(now, old)| *now < old);
        let refused = self.refused.iter().filter(|_| has_more_room);
        refused.cloned().collect()
    }

    /// A Work should lie in the set like that: `size` bytes of manifests, and `extra` that its entry in the
    /// table of contents takes more than others. False when there is no room for it.
    pub fn put(&mut self, name: &Arc<str>, size: usize, extra: usize, print: u64) -> bool {
        let before = self.places.get(name);
        if before.is_some_and(|place| place.print == print) {
            return true;
        }
        let before = self.take(name);
        let wanted: Vec<usize> = costs(name, size, extra).collect();
        let stays = before.as_ref().filter(|place| {
            place.volumes.len() == wanted.len()
                && (place.volumes.iter().zip(&wanted))
                    .all(|(v, size)| self.sizes[usize::from(*v)] + size <= VOLUME_MAX)
        });
        let volumes = match stays {
            Some(place) => Some(place.volumes.iter().map(|v| usize::from(*v)).collect()),
            None => self.find(&wanted),
        };
        // What loses something is written after what gains it, so that a crash loses nothing.
        for volume in before.iter().flat_map(|place| place.volumes.iter()) {
            self.spoiled(usize::from(*volume));
        }
        let Some(volumes): Option<Vec<usize>> = volumes else {
            self.refused.insert(name.clone());
            return false;
        };
        self.refused.remove(name);
        for volume in &volumes {
            self.dirty.retain(|v| v != volume);
            self.dirty.insert(0, *volume);
        }
        self.sequence += 1;
        let sequence = self.sequence;
        self.settle(name, &volumes, (size, extra), print, sequence);
        true
    }

    /// A Work should not lie in the set any more.
    pub fn remove(&mut self, name: &str) {
        self.refused.remove(name);
        if let Some(place) = self.take(name) {
            for volume in &place.volumes {
                self.spoiled(usize::from(*volume));
            }
        }
    }

    fn take(&mut self, name: &str) -> Option<Place> {
        let place = self.places.remove(name)?;
        for (volume, cost) in (place.volumes.iter()).zip(costs(name, place.size, place.extra)) {
            let size = &mut self.sizes[usize::from(*volume)];
            *size = size.saturating_sub(cost);
        }
        Some(place)
    }

    /// Volumes with room, one for each part.
    fn find(&mut self, wanted: &[usize]) -> Option<Vec<usize>> {
        self.fill = self.fill.max(FIRST_FILL);
        if let [one] = wanted {
            loop {
                let free = (0..WORKS_SECRETS)
                    .find(|v| self.sizes[*v] == 0 || self.sizes[*v] + one <= self.fill);
                let free = free.filter(|v| self.sizes[*v] + one <= VOLUME_MAX);
                if let Some(volume) = free {
                    return Some(vec![volume]);
                }
                if self.fill >= VOLUME_MAX {
                    return None;
                }
                self.fill = (self.fill * 2).min(VOLUME_MAX);
            }
        }
        let mut by_room: Vec<usize> = (0..WORKS_SECRETS).collect();
        by_room.sort_by_key(|v| self.sizes[*v]);
        let fits = |(v, size): (&usize, &usize)| self.sizes[*v] + size <= VOLUME_MAX;
        let enough = wanted.len() <= WORKS_SECRETS && by_room.iter().zip(wanted).all(fits);
        enough.then(|| by_room[..wanted.len()].to_vec())
    }

    /// Volumes that must be written, in that order.
    pub fn dirty(&self) -> &[usize] {
        &self.dirty
    }

    /// What a volume should hold.
    pub fn members(&self, volume: usize) -> Vec<Member> {
        let mut members: Vec<Member> = self
            .places
            .iter()
            .flat_map(|(name, place)| {
                let parts = u8::try_from(place.volumes.len()).unwrap_or(u8::MAX);
                (0u8..)
                    .zip(&place.volumes)
                    .filter(move |(_, v)| usize::from(**v) == volume)
                    .map(move |(part, _)| Member {
                        name: name.clone(),
                        part,
                        parts,
                        sequence: place.sequence,
                    })
            })
            .collect();
        members.sort_by(|a, b| (&a.name, a.part).cmp(&(&b.name, b.part)));
        members
    }

    /// Whether a volume exists.
    pub fn is_present(&self, volume: usize) -> bool {
        self.present.get(volume).is_some_and(|present| *present)
    }

    /// A volume was written, or removed.
    pub fn written(&mut self, volume: usize, present: bool) {
        self.dirty.retain(|v| *v != volume);
        if let Some(slot) = self.present.get_mut(volume) {
            *slot = present;
        }
    }
}

/// Most bytes of one part; what is left of its volume takes its entry, with the most that a Work may claim.
const PART_MAX: usize = VOLUME_MAX - 128 * 1024;

/// The sizes of the parts of `size` bytes.
fn parts(size: usize) -> impl Iterator<Item = usize> {
    let count = size.div_ceil(PART_MAX).max(1);
    (0..count).map(move |i| (size - i * PART_MAX).min(PART_MAX))
}

/// What the parts of a Work take of their volumes.
fn costs(name: &str, size: usize, extra: usize) -> impl Iterator<Item = usize> {
    let fixed = OVERHEAD + name.len();
    // What is more lies with the first part.
    let extras = std::iter::once(extra).chain(std::iter::repeat(0));
    parts(size)
        .zip(extras)
        .map(move |(part, extra)| part + fixed + extra)
}

/// The bytes of one part of a Work.
pub fn slice(bytes: &[u8], part: u8) -> &[u8] {
    let begin = usize::from(part) * PART_MAX;
    let end = (begin + PART_MAX).min(bytes.len());
    bytes.get(begin..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(i: usize) -> Arc<str> {
        format!("w{i}").into()
    }

    #[test]
    fn a_change_writes_one_volume() {
        let mut plan = Plan::default();
        for i in 0..2000 {
            assert!(plan.put(&name(i), 400, 0, 1));
        }
        let volumes = plan.dirty().len();
        assert!((10..WORKS_SECRETS).contains(&volumes), "{volumes}");
        for volume in plan.dirty().to_vec() {
            plan.written(volume, true);
        }
        assert!(plan.put(&name(7), 400, 0, 1));
        assert!(plan.dirty().is_empty(), "nothing changed");
        assert!(plan.put(&name(7), 420, 0, 2));
        assert_eq!(plan.dirty().len(), 1);
        plan.remove("w8");
        assert!(!plan.contains("w8"));
        assert!(plan.dirty().len() <= 2);
    }

    #[test]
    fn what_the_table_of_contents_takes_counts() {
        let mut plan = Plan::default();
        let mut count = 0;
        while plan.put(&name(count), 100, 100_000, 1) {
            count += 1;
        }
        // Nine or so of a hundred thousand bytes each fit into a volume.
        assert_eq!(count, WORKS_SECRETS * (VOLUME_MAX / 100_360));
        plan.remove("w0");
        assert!(
            plan.put(&name(count), 100, 100_000, 1),
            "its room is free again"
        );
    }

    #[test]
    fn what_is_too_big_for_one_volume_lies_in_several() {
        let mut plan = Plan::default();
        let big = name(0);
        assert!(plan.put(&big, 2_000_000, 0, 1));
        let parts: Vec<u8> = (0..WORKS_SECRETS)
            .flat_map(|v| plan.members(v))
            .map(|m| m.part)
            .collect();
        assert_eq!(parts.len(), 3);
        let bytes = vec![7; 2_000_000];
        let whole: usize = (0..3).map(|part| slice(&bytes, part).len()).sum();
        assert_eq!(whole, bytes.len());
        assert!(slice(&bytes, 3).is_empty());
        let mut full = 1;
        while plan.put(&name(full), 900_000, 0, 1) {
            full += 1;
        }
        assert!(full > 20);
        assert!(!plan.contains(&name(full)));
    }

    proptest! {
        /// No volume ever holds more than the API server takes, and everything that was put is there.
        #[test]
        fn volumes_never_overflow(steps in prop::collection::vec((0usize..40, 0usize..1_500_000, any::<bool>()), 1..80)) {
            let mut plan = Plan::default();
            let mut there = BTreeMap::new();
            for (print, (i, size, put)) in (1u64..).zip(steps) {
                if put {
                    if plan.put(&name(i), size, 0, print) {
                        there.insert(name(i), size);
                    } else {
                        there.remove(&name(i));
                    }
                } else {
                    plan.remove(&name(i));
                    there.remove(&name(i));
                }
            }
            let mut seen = BTreeMap::<Arc<str>, usize>::new();
            for volume in 0..WORKS_SECRETS {
                let mut total = 0;
                for member in plan.members(volume) {
                    let size = there[&member.name];
                    let part = parts(size).nth(usize::from(member.part)).expect("a part");
                    total += part;
                    *seen.entry(member.name).or_default() += part;
                }
                prop_assert!(total <= VOLUME_MAX);
            }
            prop_assert_eq!(seen, there);
        }
    }
}
