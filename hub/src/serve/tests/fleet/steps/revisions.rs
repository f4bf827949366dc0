//! Revisions of the hub only grow, and what was stored for good is there whatever befell it.

use crate::serve::tests::fleet::books::{Books, Key};
use std::collections::BTreeMap;

/// Of this kind a loss of power may take the last renewals.
const LOOSE: &str = "Lease";

/// An object is told at a revision, after it was known at another.
pub(super) fn step(books: &mut Books, key: &Key, known: Option<u64>, revision: u64) {
    let before = books.revisions.insert(revision, key.clone());
    if let Some(before) = before.filter(|it| it != key) {
        books.problem(format!(
            "revisions: {revision} is one of {before}, and of {key}"
        ));
    }
    if let Some(known) = known.filter(|it| *it > revision && key.kind != LOOSE) {
        books.problem(format!(
            "revisions: {key} was at {known}, and is at {revision}"
        ));
    }
    // What was doubtful is told of.
    books.doubtful.remove(key);
}

/// The hub was started again, and this is there: nothing of what was stored before is missing or older.
pub(in super::super) fn started(books: &mut Books, there: &BTreeMap<Key, u64>) {
    let known = books.hub.iter().filter(|(key, _)| key.kind != LOOSE);
    let known: Vec<(Key, u64)> = known.map(|(key, it)| (key.clone(), revision(it))).collect();
    for (key, known) in known {
        match there.get(&key) {
            Some(now) if *now < known => {
                books.problem(format!(
                    "durable: {key} was stored at {known}, and is at {now} after a restart"
                ));
            }
            Some(_) => {}
            // It may have been deleted; then that is told.
            None => {
                books.doubtful.insert(key, known);
            }
        }
    }
}

/// What is missing since a restart, and nobody deleted.
pub(in super::super) fn open(books: &Books, open: &mut Vec<String>) {
    for (key, known) in &books.doubtful {
        open.push(format!("durable: {key} was stored at {known}, and is lost"));
    }
}

/// That of an object; 0 of one that has none.
pub(in super::super) fn revision(object: &serde_json::Value) -> u64 {
    let text = object["metadata"]["resourceVersion"].as_str();
    text.and_then(|it| it.parse().ok()).unwrap_or(0)
}
