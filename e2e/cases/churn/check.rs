//! What followers of a kind were told, held against what the writers were answered.
//!
//! Every answer and every event goes into one ledger, by resourceVersion; two that speak of the same
//! one must agree. Then each follower is walked through: what lies between two of its events must be
//! nothing, what it is told must follow from what it held, and what it lists must be what the ledger
//! says of that moment.

use std::collections::{BTreeMap, BTreeSet};

/// An object at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    /// Which object of that name.
    pub(crate) uid: u128,
    /// Its resourceVersion.
    pub(crate) rv: u64,
}

/// What a writer was answered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ack {
    /// It is written; `firm` unless a kill may take it back.
    Wrote {
        number: u32,
        version: Version,
        firm: bool,
    },
    /// It is there, whoever wrote it.
    Read { number: u32, version: Version },
    /// It is gone.
    Gone { uid: u128 },
}

/// How an event calls a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Deleted,
    /// Added or modified: kube-rs does not say.
    Put,
}

/// What a follower was told, in order.
#[derive(Debug, Clone)]
pub(crate) enum Note {
    /// All there is, at a revision if that is known.
    Listed {
        at: Option<u64>,
        items: Vec<(u32, Version)>,
    },
    /// It goes on from here, and forgets what it heard after.
    Resumed { from: u64 },
    /// A change.
    Event {
        change: Change,
        number: u32,
        version: Version,
    },
    /// Everything up to here was told.
    Bookmark { at: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    number: u32,
    uid: u128,
    gone: bool,
    firm: bool,
}

/// Everything that is known of one kind.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: BTreeMap<u64, Entry>,
    /// Objects whose deletion was answered.
    gone: BTreeSet<u128>,
    /// Objects whose deletion somebody was told.
    told_gone: BTreeSet<u128>,
    /// Whether a kill may take back what is not firm.
    forgets: bool,
}

impl Ledger {
    /// From the answers to the writers and from what all followers were told.
    pub(crate) fn new(
        acks: &[Ack],
        followers: &[(&str, &[Note])],
        forgets: bool,
        broken: &mut Vec<String>,
    ) -> Self {
        let mut ledger = Self {
            forgets,
            ..Self::default()
        };
        for ack in acks {
            match *ack {
                Ack::Wrote {
                    number,
                    version,
                    firm,
                } => {
                    if ledger.entries.contains_key(&version.rv) {
                        broken.push(format!("two writes were answered with {}", version.rv));
                    }
                    ledger.put("a writer", number, version, firm, false, broken);
                }
                Ack::Read { number, version } => {
                    ledger.put("a reader", number, version, !forgets, false, broken);
                }
                Ack::Gone { uid } => {
                    ledger.gone.insert(uid);
                }
            }
        }
        for (label, notes) in followers {
            for note in *notes {
                match note {
                    Note::Listed { items, .. } => {
                        for (number, version) in items {
                            ledger.put(label, *number, *version, !forgets, false, broken);
                        }
                    }
                    Note::Event {
                        change,
                        number,
                        version,
                    } => {
                        let gone = *change == Change::Deleted;
                        if gone {
                            ledger.told_gone.insert(version.uid);
                        }
                        ledger.put(label, *number, *version, gone || !forgets, gone, broken);
                    }
                    Note::Resumed { .. } | Note::Bookmark { .. } => {}
                }
            }
        }
        ledger
    }

    fn put(
        &mut self,
        who: &str,
        number: u32,
        version: Version,
        firm: bool,
        gone: bool,
        broken: &mut Vec<String>,
    ) {
        let entry = Entry {
            number,
            uid: version.uid,
            gone,
            firm,
        };
        let known = *self.entries.entry(version.rv).or_insert(entry);
        if (known.number, known.uid, known.gone) != (number, version.uid, gone) {
            broken.push(format!(
                "{} is {known:?}, and {entry:?} to {who}",
                version.rv
            ));
        }
    }

    /// How many changes it knows.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The first change between two revisions, both excluded.
    fn between(&self, after: u64, before: u64) -> Option<(u64, Entry)> {
        let first = after.checked_add(1).filter(|first| *first < before)?;
        let mut range = self.entries.range(first..before);
        range.next().map(|(rv, entry)| (*rv, *entry))
    }

    /// What is wrong with a list that is at least of the revision `upto`, and `exact` if of no later.
    fn list(&self, items: &[(u32, Version)], upto: u64, exact: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut newest: BTreeMap<u32, (u64, Entry)> = BTreeMap::new();
        let mut firm: BTreeMap<u32, u64> = BTreeMap::new();
        for (rv, entry) in self.entries.range(..=upto) {
            newest.insert(entry.number, (*rv, *entry));
            if entry.firm {
                firm.insert(entry.number, *rv);
            }
        }
        for (number, version) in items {
            if exact && version.rv > upto {
                wrong.push(format!("of {number} has {version:?}, from after {upto}"));
            }
            let Some((rv, entry)) = newest.remove(number) else {
                continue;
            };
            let bound = if self.forgets {
                firm.get(number).copied().unwrap_or_default()
            } else {
                rv
            };
            if version.rv < bound || (version.rv == rv && entry.gone) {
                wrong.push(format!(
                    "of {number} has {version:?}, not {entry:?} at {rv}"
                ));
            }
        }
        for (number, (rv, entry)) in newest {
            // A deletion that was answered and that nobody was told of has a revision nobody knows.
            let unseen = self.gone.contains(&entry.uid) && !self.told_gone.contains(&entry.uid);
            let later = !exact && self.told_gone.contains(&entry.uid);
            if !entry.gone && !unseen && !later {
                wrong.push(format!("of {number} has nothing, not {entry:?} at {rv}"));
            }
        }
        wrong
    }
}

/// One follower on its walk.
struct Walk<'a> {
    ledger: &'a Ledger,
    held: BTreeMap<u32, Version>,
    /// The revision up to which it was told everything, if it knows.
    at: Option<u64>,
    /// The least that the next event is above.
    floor: u64,
    /// The highest revision it ever met.
    top: u64,
    /// What it held before each event since its last list.
    undo: Vec<(u64, u32, Option<Version>)>,
    broken: Vec<String>,
}

/// What is wrong with what a follower was told, and what it holds in the end.
pub(crate) fn walk(notes: &[Note], ledger: &Ledger) -> (Vec<String>, BTreeMap<u32, Version>) {
    let mut walk = Walk {
        ledger,
        held: BTreeMap::new(),
        at: None,
        floor: 0,
        top: 0,
        undo: Vec::new(),
        broken: Vec::new(),
    };
    for note in notes {
        match note {
            Note::Listed { at, items } => walk.listed(*at, items),
            Note::Resumed { from } => walk.resumed(*from),
            Note::Bookmark { at } => walk.bookmark(*at),
            Note::Event {
                change,
                number,
                version,
            } => walk.event(*change, *number, *version),
        }
    }
    (walk.broken, walk.held)
}

impl Walk<'_> {
    fn listed(&mut self, at: Option<u64>, items: &[(u32, Version)]) {
        if at.is_some_and(|at| at < self.top) {
            let top = self.top;
            self.broken
                .push(format!("a list is of {at:?}, after {top} was told"));
        }
        let wrong = self
            .ledger
            .list(items, at.unwrap_or(self.top), at.is_some());
        let wrong = wrong.into_iter().map(|what| format!("a list {what}"));
        self.broken.extend(wrong);
        self.held = items.iter().copied().collect();
        self.floor = items.iter().map(|(_, v)| v.rv).max().unwrap_or_default();
        self.floor = at.unwrap_or(self.floor.max(self.top));
        self.top = self.top.max(self.floor);
        self.at = at;
        self.undo.clear();
    }

    fn resumed(&mut self, from: u64) {
        self.no_gap(from.saturating_add(1), "where it went on");
        while let Some((_, number, before)) = self.undo.pop_if(|(rv, ..)| *rv > from) {
            match before {
                Some(version) => self.held.insert(number, version),
                None => self.held.remove(&number),
            };
        }
        self.at = Some(from);
        self.floor = from;
    }

    fn no_gap(&mut self, before: u64, what: &str) {
        let Some(at) = self.at else { return };
        if let Some((rv, entry)) = self.ledger.between(at, before) {
            self.broken.push(format!(
                "{rv} ({entry:?}) was not told, between {at} and {what}"
            ));
        }
    }

    fn bookmark(&mut self, at: u64) {
        let floor = self.floor;
        if at < floor {
            self.broken
                .push(format!("a bookmark of {at} after {floor}"));
        }
        self.no_gap(at.saturating_add(1), &format!("the bookmark {at}"));
        self.at = Some(at);
        self.floor = at;
        self.top = self.top.max(at);
    }

    fn event(&mut self, change: Change, number: u32, version: Version) {
        let what = format!("{change:?} {number} {version:?}");
        if version.rv <= self.floor {
            let floor = self.floor;
            self.broken.push(format!("{what} after {floor}"));
        }
        self.no_gap(version.rv, &what);
        let held = self.held.get(&number).copied();
        let follows = match (change, held) {
            (Change::Added | Change::Put, None) => true,
            (Change::Added, Some(_)) | (Change::Modified | Change::Deleted, None) => false,
            (Change::Modified | Change::Deleted | Change::Put, Some(held)) => {
                held.uid == version.uid && held.rv < version.rv
            }
        };
        if !follows {
            self.broken.push(format!("{what} after {held:?}"));
        }
        self.undo.push((version.rv, number, held));
        match change {
            Change::Deleted => self.held.remove(&number),
            _ => self.held.insert(number, version),
        };
        self.at = Some(version.rv);
        self.floor = version.rv;
        self.top = self.top.max(version.rv);
    }
}

/// What a handler of an informer or a reconciler is told: objects, as they are held at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Add,
    Update,
    Delete,
    /// Of a reconciler, which is told a name and looks.
    Look,
}

/// What is wrong with what a handler was told; `anew` is whether its store was ever filled anew, for
/// then it is told again what did not change.
pub(crate) fn handler(told: &[(Told, u32, Version)], ledger: &Ledger, anew: bool) -> Vec<String> {
    let mut held: BTreeMap<u32, Version> = BTreeMap::new();
    let mut broken = Vec::new();
    for &(what, number, version) in told {
        let before = held.get(&number).copied();
        let follows = match (what, before) {
            (Told::Add, None) | (Told::Look, None) => true,
            (Told::Add, Some(_)) | (Told::Update | Told::Delete, None) => false,
            (_, Some(before)) if before.rv < version.rv => {
                before.uid == version.uid || anew || what == Told::Look
            }
            (Told::Delete | Told::Look, Some(before)) if before == version => true,
            (Told::Update, Some(before)) if before == version => anew,
            // A kill may take back what is not firm; a list then has what was before.
            (_, Some(before)) => {
                ledger.forgets && before.uid == version.uid && {
                    let mut lost = ledger
                        .entries
                        .range(version.rv.saturating_add(1)..=before.rv);
                    lost.all(|(_, entry)| entry.number != number || !entry.firm)
                }
            }
        };
        if !follows {
            broken.push(format!("{what:?} {number} {version:?} after {before:?}"));
        }
        match what {
            Told::Delete => held.remove(&number),
            _ => held.insert(number, version),
        };
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(uid: u128, rv: u64) -> Version {
        Version { uid, rv }
    }

    fn wrote(number: u32, uid: u128, rv: u64) -> Ack {
        let version = v(uid, rv);
        Ack::Wrote {
            number,
            version,
            firm: true,
        }
    }

    fn event(change: Change, number: u32, uid: u128, rv: u64) -> Note {
        let version = v(uid, rv);
        Note::Event {
            change,
            number,
            version,
        }
    }

    fn empty(at: u64) -> Note {
        let items = Vec::new();
        Note::Listed {
            at: Some(at),
            items,
        }
    }

    /// What is wrong with one follower of a kind that forgets nothing.
    fn wrong(acks: &[Ack], notes: &[Note]) -> Vec<String> {
        let mut broken = Vec::new();
        let ledger = Ledger::new(acks, &[("it", notes)], false, &mut broken);
        broken.extend(walk(notes, &ledger).0);
        broken
    }

    use Change::{Added, Deleted, Modified, Put};

    #[test]
    fn a_faithful_follower_is_left_alone() {
        let acks = [wrote(1, 10, 2), wrote(1, 10, 3), wrote(1, 11, 6)];
        let notes = [
            empty(1),
            event(Added, 1, 10, 2),
            Note::Bookmark { at: 2 },
            event(Modified, 1, 10, 3),
            Note::Resumed { from: 2 },
            event(Modified, 1, 10, 3),
            event(Deleted, 1, 10, 5),
            event(Put, 1, 11, 6),
            Note::Bookmark { at: 9 },
            Note::Listed {
                at: Some(9),
                items: vec![(1, v(11, 6))],
            },
        ];
        assert_eq!(wrong(&acks, &notes), Vec::<String>::new());
    }

    #[test]
    fn whatever_is_amiss_is_found() {
        let acks = [wrote(1, 10, 2), wrote(2, 20, 3), wrote(1, 10, 4)];
        let listed = |at, items: &[(u32, Version)]| Note::Listed {
            at: Some(at),
            items: items.to_vec(),
        };
        let one = event(Added, 1, 10, 2);
        let two = event(Added, 2, 20, 3);
        let cases: [(&str, Vec<Note>); 13] = [
            (
                "a gap",
                vec![empty(1), one.clone(), event(Modified, 1, 10, 4)],
            ),
            (
                "a gap to a bookmark",
                vec![empty(1), one.clone(), Note::Bookmark { at: 3 }],
            ),
            ("twice", vec![empty(1), one.clone(), one.clone()]),
            ("back", vec![empty(1), two.clone(), one.clone()]),
            (
                "a bookmark back",
                vec![empty(1), one.clone(), Note::Bookmark { at: 1 }],
            ),
            (
                "a revision twice",
                vec![empty(1), one.clone(), event(Added, 3, 30, 3)],
            ),
            (
                "modified before it was added",
                vec![empty(1), event(Modified, 1, 10, 2)],
            ),
            (
                "added again",
                vec![empty(1), one.clone(), two.clone(), event(Added, 1, 10, 4)],
            ),
            (
                "no deletion between",
                vec![empty(1), one.clone(), two.clone(), event(Put, 1, 11, 5)],
            ),
            (
                "an old list",
                vec![listed(4, &[(1, v(10, 2)), (2, v(20, 3))])],
            ),
            ("an incomplete list", vec![listed(4, &[(1, v(10, 4))])]),
            (
                "a list back",
                vec![
                    empty(1),
                    one.clone(),
                    two.clone(),
                    listed(2, &[(1, v(10, 2))]),
                ],
            ),
            (
                "on from too late",
                vec![
                    empty(1),
                    one,
                    Note::Resumed { from: 3 },
                    event(Modified, 1, 10, 4),
                ],
            ),
        ];
        for (what, notes) in cases {
            let acks = if what == "no deletion between" {
                &acks[..2]
            } else {
                &acks[..]
            };
            assert!(!wrong(acks, &notes).is_empty(), "{what}");
        }
    }

    #[test]
    fn a_kill_takes_back_what_is_not_firm_and_nothing_else() {
        let renewed = Ack::Wrote {
            number: 1,
            version: v(10, 5),
            firm: false,
        };
        let after = Note::Listed {
            at: Some(9),
            items: vec![(1, v(10, 3))],
        };
        for (acks, holds) in [
            (vec![wrote(1, 10, 3), renewed], true),
            (vec![wrote(1, 10, 3), wrote(1, 10, 5)], false),
        ] {
            let mut broken = Vec::new();
            let notes = [after.clone()];
            let ledger = Ledger::new(&acks, &[("it", &notes)], true, &mut broken);
            assert_eq!(walk(&notes, &ledger).0.is_empty(), holds);
            let told = [(Told::Add, 1, v(10, 5)), (Told::Update, 1, v(10, 3))];
            assert_eq!(handler(&told, &ledger, true).is_empty(), holds);
        }
    }

    #[test]
    fn handlers_are_told_each_thing_once() {
        let ledger = Ledger::default();
        let once = [(Told::Add, 1, v(10, 2)), (Told::Update, 1, v(10, 3))];
        assert!(handler(&once, &ledger, false).is_empty());
        for last in [
            (Told::Update, 1, v(10, 3)),
            (Told::Update, 1, v(10, 2)),
            (Told::Update, 1, v(11, 4)),
            (Told::Add, 1, v(10, 4)),
            (Told::Delete, 2, v(20, 4)),
            (Told::Look, 1, v(10, 2)),
        ] {
            let told = [once[0], once[1], last];
            assert_eq!(handler(&told, &ledger, false).len(), 1, "{last:?}");
        }
    }
}
