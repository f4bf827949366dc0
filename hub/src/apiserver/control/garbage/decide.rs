//! What becomes of an object, given how its owners stand.

use crate::apiserver::request::Propagation;
use crate::apiserver::value::{at, text};
use serde_json::Value;
use std::collections::BTreeSet;

/// An entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// Whether the owner waits for this object when it is deleted in the foreground.
    pub(super) blocks: bool,
}

impl Owner {
    pub(super) fn read(value: &Value) -> Self {
        let field = |name: &str| text(value, &[name]).to_owned();
        Self {
            api_version: field("apiVersion"),
            kind: field("kind"),
            name: field("name"),
            uid: field("uid"),
            blocks: at(value, &["blockOwnerDeletion"]) == Some(&Value::Bool(true)),
        }
    }
}

/// How an owner stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is there, and holds what it owns.
    Solid,
    /// It is not there, or another object has its name.
    Absent,
    /// It is being deleted, and waits for what it owns.
    Waiting,
    /// It cannot be told.
    Unknown,
}

/// What becomes of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    Stays,
    /// It stays, without the owners of these uids.
    Loses(BTreeSet<String>),
    Goes(Propagation),
}

/// What becomes of an object that has these owners. `below` says how it goes, and is asked only of what does.
pub(super) fn fate(
    owners: &[Owner],
    standing: impl Fn(&Owner) -> Standing,
    has_dependents: bool,
    below: impl FnOnce() -> Propagation,
) -> Fate {
    let of: Vec<(&Owner, Standing)> = owners.iter().map(|one| (one, standing(one))).collect();
    let any = |wanted: Standing| of.iter().any(|(_, standing)| *standing == wanted);
    if any(Standing::Unknown) {
        return Fate::Stays;
    }
    if any(Standing::Solid) {
        let gone: BTreeSet<String> = of
            .iter()
            .filter(|(_, standing)| *standing != Standing::Solid)
            .map(|(owner, _)| owner.uid.clone())
            .collect();
        return if gone.is_empty() {
            Fate::Stays
        } else {
            Fate::Loses(gone)
        };
    }
    if any(Standing::Waiting) && has_dependents {
        return Fate::Goes(Propagation::Foreground);
    }
    Fate::Goes(below())
}

/// Entries of `metadata.ownerReferences` without those of the uids that are `gone`.
pub(super) fn without(owners: Vec<Value>, gone: &BTreeSet<String>) -> Vec<Value> {
    let stays = |owner: &Value| !gone.contains(text(owner, &["uid"]));
    owners.into_iter().filter(stays).collect()
}

/// Of what `owner` waits for itself, something that waits, perhaps through others, for `owner`. What an
/// object waits for is told by uid, with a place for each.
pub(super) fn in_circle<P: Clone>(
    owner: &str,
    waits_for: impl Fn(&str) -> Vec<(String, P)>,
) -> Option<P> {
    let mut seen = BTreeSet::new();
    let mut left: Vec<(String, Option<P>)> = vec![(owner.to_owned(), None)];
    while let Some((uid, first)) = left.pop() {
        for (next, place) in waits_for(&uid) {
            let first = first.clone().unwrap_or(place);
            if next == owner {
                return Some(first);
            }
            if seen.insert(next.clone()) {
                left.push((next, Some(first)));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fates() {
        use Standing::{Absent, Solid, Unknown, Waiting};
        let lost = |names: &[&str]| Fate::Loses(names.iter().map(|&n| n.to_owned()).collect());
        let cases = [
            (vec![Solid], Fate::Stays),
            (vec![Solid, Absent, Waiting], lost(&["1", "2"])),
            (vec![Absent], Fate::Goes(Propagation::Background)),
            (vec![Absent, Unknown], Fate::Stays),
            (vec![Absent, Waiting], Fate::Goes(Propagation::Foreground)),
        ];
        for (standings, expected) in cases {
            let owners: Vec<Owner> = (0..standings.len())
                .map(|index| Owner::read(&serde_json::json!({"uid": index.to_string()})))
                .collect();
            let standing = |owner: &Owner| {
                let index: usize = owner.uid.parse().expect("an index");
                standings[index]
            };
            let below = || Propagation::Background;
            assert_eq!(fate(&owners, standing, true, below), expected);
        }
        let one = [Owner::read(&serde_json::json!({"uid": "0"}))];
        let orphaned = fate(&one, |_| Absent, false, || Propagation::Orphan);
        assert_eq!(orphaned, Fate::Goes(Propagation::Orphan));
    }

    /// So many fit into one object: to compare each with each takes 2,500 million comparisons.
    #[test]
    fn of_many_owners_those_that_are_gone_are_dropped() {
        let all: Vec<Value> = (0..50_000)
            .map(|index| serde_json::json!({"uid": index.to_string()}))
            .collect();
        let owners: Vec<Owner> = all.iter().map(Owner::read).collect();
        let standing = |owner: &Owner| match owner.uid.as_str() {
            "7" => Standing::Solid,
            _ => Standing::Absent,
        };
        let uids = owners.iter().map(|owner| owner.uid.clone());
        let gone: BTreeSet<String> = uids.filter(|uid| uid != "7").collect();
        let fate = fate(&owners, standing, false, || Propagation::Background);
        assert!(fate == Fate::Loses(gone.clone()));
        assert_eq!(without(all, &gone), [serde_json::json!({"uid": "7"})]);
        // An entry without a uid stays.
        let odd = vec![serde_json::json!({}), serde_json::json!({"uid": 7})];
        assert_eq!(without(odd.clone(), &gone), odd);
    }

    #[test]
    fn circles_are_found_and_nothing_else() {
        let found = |edges: &[(&str, &str)]| {
            in_circle("a", |owner| {
                let held = edges.iter().filter(|(from, _)| *from == owner);
                held.map(|(_, to)| ((*to).to_owned(), (*to).to_owned()))
                    .collect()
            })
        };
        let of = |name: &str| Some(name.to_owned());
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[("a", "a")]), of("a"));
        assert_eq!(found(&[("a", "b"), ("b", "c"), ("a", "d")]), None);
        assert_eq!(
            found(&[("a", "d"), ("a", "b"), ("b", "c"), ("c", "a")]),
            of("b")
        );
        // A circle further down is broken by those in it.
        assert_eq!(found(&[("a", "b"), ("b", "c"), ("c", "b")]), None);
    }
}
