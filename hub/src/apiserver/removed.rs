//! Registrations of agents that were removed or replaced are revoked for good: bindings that come back, from
//! somebody's repository or a backup, give their certificates nothing.

use super::http::aside;
use super::keys::Keys;
use super::keys::revoked::{Entry, Revoked, Whom};
use super::store::{Ended, Kind, Scope, Store, Stored};
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
    let (mut has, mut since) = registrations(&store);
    loop {
        if let Ok(mut watcher) = store.watch(CLUSTERS, Scope::All, since) {
            let ended = loop {
                let event = match watcher.next().await {
                    Ok(event) => event,
                    Err(ended) => break ended,
                };
                let name = event.object.name().to_owned();
                let now = match event.kind {
                    Kind::Deleted => None,
                    Kind::Added | Kind::Modified => registration(&event.object),
                };
                let before = match &now {
                    Some(id) => has.insert(name.clone(), id.clone()),
                    None => has.remove(&name),
                };
                if before != now {
                    let change = [(name, before, now)];
                    write(&keys, &clock, change.into()).await;
                }
            };
            if ended == Ended::Closed {
                return;
            }
        }
        let (now, revision) = registrations(&store);
        since = revision;
        write(&keys, &clock, differences(&has, &now)).await;
        has = now;
    }
}

fn registrations(store: &Store) -> (Registrations, u64) {
    let snapshot = store.snapshot(CLUSTERS);
    let clusters = snapshot.table.iter();
    let of = |cluster: &std::sync::Arc<Stored>| {
        Some((cluster.name().to_owned(), registration(cluster)?))
    };
    (clusters.filter_map(of).collect(), snapshot.revision)
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

/// A registration that is over is revoked; one that was made again, with the same key, is not any more.
fn take(revoked: &mut Revoked, changes: &[Change], now: DateTime<Utc>) {
    for (cluster, before, after) in changes {
        if let Some(before) = before {
            let whom = group(cluster, before);
            let until = now.checked_add_signed(TimeDelta::seconds(CERTIFICATE_LIFETIME_CAP));
            let entry = Entry {
                whom,
                begun_by: Some(now),
                until,
            };
            revoked.add(entry, now);
        }
        if let Some(after) = after {
            revoked.remove(&group(cluster, after));
        }
    }
}

/// Writes until it is written.
async fn write(keys: &Keys, clock: &SharedClock, changes: Vec<Change>) {
    if changes.is_empty() {
        return;
    }
    let mut pause = RETRY.0;
    loop {
        let now = clock.now();
        match aside(|| keys.revoke(|revoked| take(revoked, &changes, now))) {
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
