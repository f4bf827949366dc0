//! Registrations of agents that were removed or replaced are revoked for good: bindings that come back, from
//! somebody's repository or a backup, give their certificates nothing.
//!
//! A removal is durable before the list is written. A process that ends in between, by a kill or while the disk
//! takes nothing more, leaves it to the next one, which begins where history does.

use super::http::aside;
use super::keys::Keys;
use super::keys::revoked::{Entry, Revoked, Whom};
use super::store::{Ended, Event, Kind, Scope, Snapshot, Store, Stored};
use chrono::{DateTime, TimeDelta, Utc};
use common::identity::{CERTIFICATE_LIFETIME_CAP, CLUSTER_GROUP_PREFIX};
use common::labels::REGISTRATION_ID;
use common::time::SharedClock;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

const CLUSTERS: &str = "cluster.karmada.io/clusters";
/// Before a list that could not be written is written again; longer each time.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Which registration each Cluster has, by the name of the Cluster.
type Registrations = BTreeMap<String, String>;

/// Keeps the list as Clusters come and go; ends with the store.
pub(super) async fn run(store: Store, keys: Keys, clock: SharedClock) {
    let Past {
        changes,
        mut has,
        mut since,
    } = aside(|| past(&store));
    write(&keys, &clock, &changes, take_again).await;
    drop(changes);
    loop {
        if let Ok(mut watcher) = store.watch(CLUSTERS, Scope::All, since) {
            let ended = loop {
                let event = match watcher.next().await {
                    Ok(event) => event,
                    Err(ended) => break ended,
                };
                if let Some(change) = follow(&mut has, &event) {
                    write(&keys, &clock, &[change], take).await;
                }
            };
            if ended == Ended::Closed {
                return;
            }
        }
        let (now, revision) = present(&store);
        since = revision;
        write(&keys, &clock, &differences(&has, &now), take).await;
        has = now;
    }
}

/// What history still tells, most of which the process before has seen to.
struct Past {
    /// In the order in which they happened.
    changes: Vec<Change>,
    /// Where they lead to.
    has: Registrations,
    /// The revision of `has`.
    since: u64,
}

fn past(store: &Store) -> Past {
    loop {
        let all = store.snapshot_at(CLUSTERS, 0);
        let then = all.or_else(|gone| store.snapshot_at(CLUSTERS, gone.floor));
        // History may be cut while it is read: then it begins later.
        if let Some(past) = then.ok().and_then(|then| past_since(store, &then)) {
            return past;
        }
    }
}

/// What happened since; `None` when some of it was forgotten meanwhile.
fn past_since(store: &Store, then: &Snapshot) -> Option<Past> {
    let mut watcher = store.watch(CLUSTERS, Scope::All, then.revision).ok()?;
    let (mut has, mut changes) = (registrations(then), Vec::new());
    loop {
        match watcher.try_next() {
            Ok(Some(event)) => changes.extend(follow(&mut has, &event)),
            Err(Ended::Gone) => return None,
            Ok(None) | Err(Ended::Closed) => {
                let since = watcher.progress();
                return Some(Past {
                    changes,
                    has,
                    since,
                });
            }
        }
    }
}

fn present(store: &Store) -> (Registrations, u64) {
    let snapshot = store.snapshot(CLUSTERS);
    (registrations(&snapshot), snapshot.revision)
}

fn registrations(snapshot: &Snapshot) -> Registrations {
    let clusters = snapshot.table.iter();
    let of = |cluster: &std::sync::Arc<Stored>| {
        Some((cluster.name().to_owned(), registration(cluster)?))
    };
    clusters.filter_map(of).collect()
}

/// Takes an event in; what of a registration it changed.
fn follow(has: &mut Registrations, event: &Event) -> Option<Change> {
    let name = event.object.name().to_owned();
    let now = match event.kind {
        Kind::Deleted => None,
        Kind::Added | Kind::Modified => registration(&event.object),
    };
    let before = match &now {
        Some(id) => has.insert(name.clone(), id.clone()),
        None => has.remove(&name),
    };
    (before != now).then_some((name, before, now))
}

/// The registration of a Cluster; nothing else of it is read.
fn registration(cluster: &Stored) -> Option<String> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize)]
    struct Metadata<'a> {
        #[serde(borrow, default)]
        annotations: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
    }
    let json = cluster.json();
    let object: Object<'_> = serde_json::from_slice(&json).ok()?;
    let id = object.metadata.annotations.get(REGISTRATION_ID)?;
    Some(id.clone().into_owned())
}

/// What happened to a Cluster: its name, the registration it had, the one it has.
type Change = (String, Option<String>, Option<String>);

fn differences(before: &Registrations, now: &Registrations) -> Vec<Change> {
    let names = before
        .keys()
        .chain(now.keys().filter(|name| !before.contains_key(*name)));
    names
        .map(|name| {
            (
                name.clone(),
                before.get(name).cloned(),
                now.get(name).cloned(),
            )
        })
        .filter(|(_, before, now)| before != now)
        .collect()
}

fn group(cluster: &str, id: &str) -> Whom {
    Whom::Group(format!("{CLUSTER_GROUP_PREFIX}{cluster}:{id}"))
}

/// How changes are put into the list.
type Take = fn(&mut Revoked, &[Change], DateTime<Utc>);

/// A registration that is over is revoked; one that was made again, with the same key, is not any more.
fn take(revoked: &mut Revoked, changes: &[Change], now: DateTime<Utc>) {
    for (cluster, before, after) in changes {
        if let Some(before) = before {
            revoke(revoked, group(cluster, before), now);
        }
        if let Some(after) = after {
            revoked.remove(&group(cluster, after));
        }
    }
}

fn revoke(revoked: &mut Revoked, whom: Whom, now: DateTime<Utc>) {
    let until = now.checked_add_signed(TimeDelta::seconds(CERTIFICATE_LIFETIME_CAP));
    let entry = Entry {
        whom,
        begun_by: Some(now),
        until,
    };
    revoked.add(entry, now);
}

/// What became of a registration within some changes.
#[derive(Default)]
struct Fate {
    /// Whether it is over in the end.
    over: bool,
    /// Whether it was made.
    made: bool,
}

/// The same for changes that may have been taken before, in the order in which they happened. What is on the list
/// stays as it is, unless it was made within these changes: then the entry may be of before that. The list is
/// as after [`take`] at once, so that nobody is shut out for a moment who was let in again.
fn take_again(revoked: &mut Revoked, changes: &[Change], now: DateTime<Utc>) {
    let mut fates: BTreeMap<(&str, &str), Fate> = BTreeMap::new();
    for (cluster, before, after) in changes {
        if let Some(before) = before {
            let fate = fates.entry((cluster.as_str(), before.as_str()));
            fate.or_default().over = true;
        }
        if let Some(after) = after {
            let fate = Fate {
                over: false,
                made: true,
            };
            fates.insert((cluster.as_str(), after.as_str()), fate);
        }
    }
    for ((cluster, id), fate) in fates {
        let whom = group(cluster, id);
        let is_listed = || revoked.entries().iter().any(|entry| entry.whom == whom);
        if !fate.over {
            revoked.remove(&whom);
        } else if fate.made || !is_listed() {
            revoke(revoked, whom, now);
        }
    }
}

/// Writes until it is written.
async fn write(keys: &Keys, clock: &SharedClock, changes: &[Change], take: Take) {
    if changes.is_empty() {
        return;
    }
    let mut pause = RETRY.0;
    loop {
        let now = clock.now();
        match aside(|| keys.revoke(|revoked| take(revoked, changes, now))) {
            Ok(()) => return,
            Err(error) => {
                let error = common::errors::chain(&error).to_string();
                tracing::error!(
                    error,
                    "failed to revoke a removed registration; trying again"
                );
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(RETRY.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::store::{Change as To, Class, Expect, Key, Options, Write};
    use common::time::SystemClock;
    use serde_json::json;
    use std::path::Path;
    use std::sync::Arc;

    fn change(before: Option<&str>, now: Option<&str>) -> Change {
        let text = |id: Option<&str>| id.map(str::to_owned);
        ("m1".to_owned(), text(before), text(now))
    }

    #[test]
    fn what_is_over_is_revoked_until_it_is_made_again() {
        let now: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().expect("a time");
        let mut revoked = Revoked::default();
        let is = |revoked: &Revoked, id: &str| {
            revoked.is_group(&format!("{CLUSTER_GROUP_PREFIX}m1:{id}"))
        };
        take(&mut revoked, &[change(None, Some("a"))], now);
        assert!(revoked.entries().is_empty());
        take(&mut revoked, &[change(Some("a"), Some("b"))], now);
        assert!(is(&revoked, "a") && !is(&revoked, "b"));
        take(&mut revoked, &[change(Some("b"), None)], now);
        assert!(is(&revoked, "a") && is(&revoked, "b"));
        take(&mut revoked, &[change(None, Some("a"))], now);
        assert!(!is(&revoked, "a") && is(&revoked, "b"));
    }

    /// The groups on a list, by what comes after the name of the cluster.
    fn listed(revoked: &Revoked) -> Vec<String> {
        let of = |entry: &Entry| match &entry.whom {
            Whom::Group(group) => group.rsplit(':').next().map(str::to_owned),
            _ => None,
        };
        let mut all: Vec<String> = revoked.entries().iter().filter_map(of).collect();
        all.sort();
        all
    }

    #[test]
    fn what_is_told_again_ends_as_it_did() {
        let early: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().expect("a time");
        let late: DateTime<Utc> = "2026-01-01T00:01:00Z".parse().expect("a time");
        let all = [
            change(None, Some("a")),
            change(Some("a"), Some("b")),
            change(Some("b"), None),
            change(None, Some("a")),
            change(Some("a"), None),
            change(None, Some("b")),
        ];
        for begin in 0..all.len() {
            for end in begin..=all.len() {
                let told = &all[begin..end];
                let mut wanted = Revoked::default();
                take(&mut wanted, &all[..end], early);
                // Nothing of it was written, or some, or all.
                for written in begin..=end {
                    let mut found = Revoked::default();
                    take(&mut found, &all[..written], early);
                    take_again(&mut found, told, late);
                    let what = format!("{begin}..{end}, of which {written} were written");
                    assert_eq!(listed(&found), listed(&wanted), "{what}");
                }
            }
        }
    }

    #[test]
    fn what_is_on_the_list_already_is_left_as_it_is() {
        let early: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().expect("a time");
        let late: DateTime<Utc> = "2026-01-01T00:01:00Z".parse().expect("a time");
        let over = change(Some("a"), None);
        let mut before = Revoked::default();
        take(&mut before, std::slice::from_ref(&over), early);
        let begun_by = |told: &[Change]| {
            let mut revoked = before.clone();
            take_again(&mut revoked, told, late);
            revoked.entries().first().and_then(|entry| entry.begun_by)
        };
        assert_eq!(begun_by(std::slice::from_ref(&over)), Some(early));
        let made_again = [over.clone(), change(None, Some("a"))];
        assert_eq!(begun_by(&made_again), None);
        // Certificates of its second life began after the first was over.
        let over_again = [over.clone(), change(None, Some("a")), over.clone()];
        assert_eq!(begun_by(&over_again), Some(late));
    }

    async fn put(store: &Store, name: &str, expect: Expect, id: Option<&str>) -> u64 {
        let object = |id: &str| {
            json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": name, "uid": name, "annotations": {REGISTRATION_ID: id}}})
        };
        let write = Write {
            resource: CLUSTERS.into(),
            key: Key::new("", name),
            expect,
            change: id.map_or(To::Delete, |id| To::Put(object(id))),
            class: Class::Durable,
        };
        store.commit(write).await.expect("written").revision()
    }

    fn open(dir: &Path) -> Store {
        Store::open(dir, Options::default()).expect("opened")
    }

    #[tokio::test]
    async fn a_removal_that_a_process_did_not_write_is_written_by_the_next() {
        let dir = tempfile::tempdir().expect("a folder");
        let clock: SharedClock = Arc::new(SystemClock);
        let store = open(dir.path());
        let keys = Keys::open(dir.path(), &clock).expect("made");
        let a = put(&store, "m1", Expect::Absent, Some("a")).await;
        let b = put(&store, "m1", Expect::Revision(a), Some("b")).await;
        put(&store, "m1", Expect::Revision(b), None).await;
        let c = put(&store, "m2", Expect::Absent, Some("c")).await;
        put(&store, "m2", Expect::Revision(c), None).await;
        put(&store, "m2", Expect::Absent, Some("c")).await;
        store.close().await;

        let store = open(dir.path());
        tokio::join!(
            run(store.clone(), keys.clone(), clock.clone()),
            store.close()
        );
        assert_eq!(listed(&keys.revoked()), ["a", "b"]);
        assert_eq!(keys.generation(), 1, "never anything else meanwhile");
    }

    #[test]
    fn what_was_missed_is_seen_by_comparing() {
        let map = |pairs: &[(&str, &str)]| -> Registrations {
            let owned = |(name, id): &(&str, &str)| ((*name).to_owned(), (*id).to_owned());
            pairs.iter().map(owned).collect()
        };
        let found = differences(
            &map(&[("a", "1"), ("b", "1"), ("c", "1")]),
            &map(&[("b", "2"), ("c", "1"), ("d", "1")]),
        );
        let shown: Vec<(&str, Option<&str>, Option<&str>)> = found
            .iter()
            .map(|(name, before, now)| (name.as_str(), before.as_deref(), now.as_deref()))
            .collect();
        assert_eq!(
            shown,
            [
                ("a", Some("1"), None),
                ("b", Some("1"), Some("2")),
                ("d", None, Some("1"))
            ]
        );
    }
}
