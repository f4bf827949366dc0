//! The store as a whole: writes, watches, reopening, and what the files look like.

mod simulated;

use super::*;
use chrono::{DateTime, Utc};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;
use tempfile::TempDir;

const MAPS: &str = "/configmaps";
const LEASES: &str = "coordination.k8s.io/leases";

fn open(dir: &TempDir) -> Store {
    Store::open(dir.path(), Options::default()).expect("opens")
}

fn map(name: &str, data: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"text": data},
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
    })
}

fn write(name: &str, expect: Expect, change: Change) -> Write {
    Write {
        resource: MAPS.into(),
        key: Key::new("ns", name),
        expect,
        change,
        class: Class::Durable,
    }
}

async fn create(store: &Store, name: &str, data: &str) -> Arc<Stored> {
    let put = Change::Put(map(name, data));
    store
        .commit(write(name, Expect::Absent, put))
        .await
        .expect("creates")
}

async fn update(store: &Store, at: &Stored, data: &str) -> Arc<Stored> {
    let put = Change::Put(map(at.name(), data));
    let expect = Expect::Revision(at.revision());
    store
        .commit(write(at.name(), expect, put))
        .await
        .expect("updates")
}

async fn delete(store: &Store, at: &Stored) -> Arc<Stored> {
    let expect = Expect::Revision(at.revision());
    store
        .commit(write(at.name(), expect, Change::Delete))
        .await
        .expect("deletes")
}

/// What a watcher is handed until nothing more waits.
fn drain(watcher: &mut Watcher) -> Vec<(Kind, u64, String, Option<u64>)> {
    let mut seen = Vec::new();
    while let Ok(Some(event)) = watcher.try_next() {
        let before = event.previous.as_ref().map(|p| p.revision());
        seen.push((
            event.kind,
            event.revision(),
            event.object.name().to_owned(),
            before,
        ));
    }
    seen
}

#[tokio::test]
async fn writes_are_checked_read_and_watched() {
    let dir = TempDir::new().expect("directory");
    let store = open(&dir);
    let start = store.revision();
    assert!(start > 0, "0 has a meaning of its own in the API");
    let mut watcher = store.watch(MAPS, Scope::All, start).expect("begins");
    let a = create(&store, "a", "1").await;
    assert_eq!(
        a.value()["metadata"]["resourceVersion"],
        a.revision().to_string()
    );
    let again = store
        .commit(write("a", Expect::Absent, Change::Put(map("a", "x"))))
        .await;
    assert!(matches!(again, Err(Error::Exists { .. })), "{again:?}");
    let b = update(&store, &a, "2").await;
    let stale = Expect::Revision(a.revision());
    for change in [Change::Put(map("a", "x")), Change::Delete] {
        let stale = store.commit(write("a", stale, change)).await;
        assert!(matches!(stale, Err(Error::Conflict { .. })), "{stale:?}");
    }
    let missing = store.commit(write("z", stale, Change::Delete)).await;
    assert!(matches!(missing, Err(Error::Missing { .. })), "{missing:?}");
    let unfit = store
        .commit(write("z", Expect::Absent, Change::Put(json!({}))))
        .await;
    assert!(matches!(unfit, Err(Error::Unfit { .. })), "{unfit:?}");
    let gone = delete(&store, &b).await;
    assert_eq!(gone.value()["data"]["text"], "2");
    assert!(gone.revision() > b.revision());
    assert!(store.get(MAPS, &Key::new("ns", "a")).is_none());
    let name = || "a".to_owned();
    assert_eq!(
        drain(&mut watcher),
        [
            (Kind::Added, a.revision(), name(), None),
            (Kind::Modified, b.revision(), name(), Some(a.revision())),
            (Kind::Deleted, gone.revision(), name(), Some(b.revision())),
        ]
    );
    assert_eq!(watcher.progress(), store.revision());
    store.close().await;
    assert_eq!(watcher.next().await.err(), Some(Ended::Closed));
}

#[tokio::test]
async fn a_closed_store_opens_as_it_was() {
    let dir = TempDir::new().expect("directory");
    let store = open(&dir);
    let a = create(&store, "a", "1").await;
    let b = create(&store, "b", "1").await;
    let a2 = update(&store, &a, "2").await;
    let gone = delete(&store, &b).await;
    let revision = store.revision();
    store.close().await;
    let store = open(&dir);
    assert_eq!(store.revision(), revision);
    let read = store.get(MAPS, &Key::new("ns", "a")).expect("there");
    assert_eq!(read.json(), a2.json());
    assert_eq!(read.created(), a.revision());
    let mut watcher = store
        .watch(MAPS, Scope::All, a.revision())
        .expect("covered");
    let c = create(&store, "c", "1").await;
    assert_eq!(
        drain(&mut watcher),
        [
            (Kind::Added, b.revision(), "b".to_owned(), None),
            (
                Kind::Modified,
                a2.revision(),
                "a".to_owned(),
                Some(a.revision())
            ),
            (
                Kind::Deleted,
                gone.revision(),
                "b".to_owned(),
                Some(b.revision())
            ),
            (Kind::Added, c.revision(), "c".to_owned(), None),
        ]
    );
    let before = store.snapshot_at(MAPS, b.revision()).expect("covered");
    let names: Vec<_> = before
        .table
        .iter()
        .map(|s| (s.name().to_owned(), s.revision()))
        .collect();
    assert_eq!(
        names,
        [
            ("a".to_owned(), a.revision()),
            ("b".to_owned(), b.revision())
        ]
    );
    store.close().await;
}

#[tokio::test]
async fn one_process_and_one_user() {
    let dir = TempDir::new().expect("directory");
    let data = dir.path().join("data");
    let store = Store::open(&data, Options::default()).expect("opens");
    create(&store, "a", "secret").await;
    let second = Store::open(&data, Options::default())
        .err()
        .expect("refused");
    let said = second.to_string();
    assert!(
        said.contains(&format!("by process {}", std::process::id())),
        "{said}"
    );
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&data), 0o700);
    for entry in fs::read_dir(&data).expect("lists") {
        let path = entry.expect("entry").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    store.close().await;
    let again = Store::open(&data, Options::default()).expect("opens");
    again.close().await;
}

#[tokio::test]
async fn parts_are_followed_alone() {
    let dir = TempDir::new().expect("directory");
    let store = open(&dir);
    let a = create(&store, "a", "1").await;
    let one = Scope::Object(Key::new("ns", "b"));
    let mut one = store.watch(MAPS, one, a.revision()).expect("begins");
    let mut all = store
        .watch(MAPS, Scope::Namespace("ns".into()), 1)
        .expect("begins");
    let mut other = store
        .watch(MAPS, Scope::Namespace("n".into()), 1)
        .expect("begins");
    let waits = tokio::spawn(async move { one.next().await.map(|e| e.object.name().to_owned()) });
    update(&store, &a, "2").await;
    create(&store, "b", "1").await;
    let seen = tokio::time::timeout(Duration::from_secs(10), waits).await;
    assert_eq!(
        seen.expect("in time").expect("no panic"),
        Ok("b".to_owned())
    );
    assert_eq!(drain(&mut all).len(), 3);
    assert_eq!(drain(&mut other).len(), 0);
    assert_eq!(other.progress(), store.revision());
    store.close().await;
}

/// A text that does not compress.
fn noise(len: usize) -> String {
    let mut state = 1_u64;
    let letters = std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        char::from(b'0' + (state >> 58) as u8)
    });
    letters.take(len).filter(|c| *c != '\\').collect()
}

#[tokio::test]
async fn who_does_not_listen_is_told_that_it_missed_something() {
    let dir = TempDir::new().expect("directory");
    let history = Limits {
        bytes: 1 << 20,
        ..Limits::default()
    };
    let options = Options {
        history,
        ..Options::default()
    };
    let store = Store::open(dir.path(), options).expect("opens");
    let since = store.revision();
    let part = Scope::Namespace("ns".into());
    let mut deaf = store.watch(MAPS, part, since).expect("begins");
    let mut slow = store.watch(MAPS, Scope::All, since).expect("begins");
    let large = noise(1 << 20);
    let mut stored = create(&store, "a", &large).await;
    assert_eq!(
        slow.next().await.expect("history holds it").revision(),
        since + 1
    );
    // Nine are more than may wait for a part, and two are more than history holds here.
    for _ in 0..9 {
        stored = update(&store, &stored, &large).await;
    }
    assert_eq!(deaf.next().await.err(), Some(Ended::Gone));
    assert_eq!(slow.next().await.err(), Some(Ended::Gone));
    assert!(store.watch(MAPS, Scope::All, since).is_err());
    let mut hears = store
        .watch(MAPS, Scope::All, stored.revision())
        .expect("begins");
    assert_eq!(hears.try_next().expect("open").map(|e| e.revision()), None);
    store.close().await;
}

#[tokio::test]
async fn a_backup_begins_anew_elsewhere() {
    let dir = TempDir::new().expect("directory");
    let store = open(&dir);
    let a = create(&store, "a", "1").await;
    let b = create(&store, "b", "1").await;
    delete(&store, &b).await;
    let file = dir.path().join("backup");
    let key = Attachment {
        path: "pki/ca.key".to_owned(),
        content: b"secret".to_vec(),
    };
    let at = store
        .backup(&file, vec![key.clone()])
        .await
        .expect("writes");
    assert_eq!(at, store.revision());
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&file), 0o600);
    let again = store.backup(&file, Vec::new()).await;
    assert!(
        matches!(again, Err(OpenError::Occupied { .. })),
        "{again:?}"
    );
    let later = update(&store, &a, "2").await;
    store.close().await;

    let now = DateTime::from_timestamp(1_800_000_000, 0).expect("a time");
    let home = dir.path().join("elsewhere");
    let begin = restored(&file, dir.path(), &home, now).expect("restores");
    assert!(begin > later.revision());
    // A private key is encrypted, whatever it was like in the backup.
    let key = fs::read_to_string(home.join("pki/ca.key")).expect("there");
    let opened = store_keys(dir.path()).open_file("ca.key", key.clone());
    assert!(!key.contains("secret") && opened.is_ok_and(|plain| plain == "secret"));
    assert_eq!(
        (mode(&home.join("pki")), mode(&home.join("pki/ca.key"))),
        (0o700, 0o600)
    );
    let occupied = restored(&file, dir.path(), &home, now);
    assert!(
        matches!(occupied, Err(OpenError::Occupied { .. })),
        "{occupied:?}"
    );

    let store = Store::open(&home, Options::default()).expect("opens");
    assert_eq!(store.revision(), begin);
    let read = store.get(MAPS, &Key::new("ns", "a")).expect("there");
    assert_eq!((read.json(), read.revision()), (a.json(), a.revision()));
    for resource in [MAPS, "/secrets"] {
        let older = store.watch(resource, Scope::All, later.revision()).err();
        assert_eq!(older.map(|gone| gone.floor), Some(begin), "{resource}");
        assert!(store.snapshot_at(resource, later.revision()).is_err());
    }
    let a = update(&store, &read, "3").await;
    assert!(a.revision() > begin);
    store.close().await;
    // It is as good a store as any other, and a second restore begins above the first.
    let store = Store::open(&home, Options::default()).expect("opens");
    assert!(store.watch(MAPS, Scope::All, later.revision()).is_err());
    assert!(
        store
            .watch("/secrets", Scope::All, later.revision())
            .is_err()
    );
    store.close().await;
    let third = dir.path().join("third");
    let later = now + chrono::Duration::seconds(60);
    assert!(
        restored(&file, dir.path(), &third, later).expect("restores") > a.revision() + (1 << 24)
    );
    // A backup is not opened in place, and a database is not restored.
    fs::copy(&file, dir.path().join("fourth.db")).expect("copies");
    let fourth = dir.path().join("fourth");
    fs::create_dir(&fourth).expect("makes");
    fs::copy(&file, fourth.join(DATABASE)).expect("copies");
    let in_place = Store::open(&fourth, Options::default()).err();
    assert!(
        matches!(in_place, Some(OpenError::Backup { .. })),
        "{in_place:?}"
    );
    let none = restored(
        &home.join(DATABASE),
        dir.path(),
        &dir.path().join("fifth"),
        now,
    );
    assert!(matches!(none, Err(OpenError::NoBackup { .. })), "{none:?}");
}

fn store_keys(dir: &Path) -> Keyring {
    let ring = Keyring::read(&Keyring::place(dir)).expect("read");
    ring.expect("there")
}

/// Restores by the key of the store that the backup is of.
fn restored(file: &Path, from: &Path, home: &Path, now: DateTime<Utc>) -> Result<u64, OpenError> {
    let key_file = Keyring::place(from);
    let what = Restore {
        backup: file,
        dir: home,
        key_file: Some(&key_file),
        now,
    };
    restore(&what, |_| Ok(()), |()| Ok(())).map(|(begin, ())| begin)
}

/// What somebody would find whose process was killed now.
fn kept_now(dir: &TempDir) -> Vec<String> {
    let copy = TempDir::new().expect("a folder");
    let log = "hub.db-wal";
    // SQLite's log begins with another number when it begins anew; a copy across that is of no moment.
    let beginning = || fs::read(dir.path().join(log)).expect("read")[..32].to_vec();
    loop {
        let before = beginning();
        for file in [DATABASE, log, crate::apiserver::sealing::FILE] {
            fs::copy(dir.path().join(file), copy.path().join(file)).expect("copied");
        }
        if beginning() == before {
            break;
        }
    }
    let objects = open(&copy).snapshot(LEASES);
    objects.table.iter().map(|object| data_of(object)).collect()
}

fn data_of(stored: &Stored) -> String {
    let object: Value = serde_json::from_slice(&stored.json()).expect("JSON");
    object["data"]["text"].as_str().expect("text").to_owned()
}

#[tokio::test]
async fn renewals_reach_the_disk_although_nothing_else_is_written() {
    let dir = TempDir::new().expect("a folder");
    let store = open(&dir);
    // More than are written at a time.
    let names: Vec<String> = (0..100).map(|n| format!("lease-{n:03}")).collect();
    for name in &names {
        let lease = |expect, change| Write {
            resource: LEASES.into(),
            ..write(name, expect, change)
        };
        let made = lease(Expect::Absent, Change::Put(map(name, "old")));
        let made = store.commit(made).await.expect("creates");
        let renewed = Write {
            class: Class::Renewal,
            ..lease(
                Expect::Revision(made.revision()),
                Change::Put(map(name, "new")),
            )
        };
        store.commit(renewed).await.expect("renews");
    }
    let until = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let kept = kept_now(&dir);
        assert_eq!(kept.len(), names.len());
        if kept.iter().all(|text| text == "new") {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "{kept:?}");
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    store.close().await;
}
