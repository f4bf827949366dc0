//! The files themselves: a database of each format that was ever released opens, churn does not make them
//! grow, and room that is not used any more is given back.

use super::child::{LEASES, MAPS};
use super::time::Held;
use hub::apiserver::sealing::Keyring;
use hub::apiserver::store::{
    Change, Class, Expect, Key, Limits, OpenError, Options, Restore, Scope, Store, Table, Write,
    restore,
};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const WORKS: &str = "work.karmada.io/works";

#[tokio::test]
async fn a_database_of_format_1_opens() {
    let dir = TempDir::new().expect("directory");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/store/format-1.db");
    fs::copy(fixture, dir.path().join("hub.db")).expect("copies");
    let store = Store::open(dir.path(), Options::default()).expect("opens");
    assert_eq!(store.revision(), 7);
    let works = store.snapshot(WORKS).table;
    let first = works
        .get(&Key::new("karmada-es-m1", "first"))
        .expect("there");
    assert_eq!((works.len(), first.created(), first.revision()), (1, 2, 3));
    let value = first.value();
    assert_eq!(value["metadata"]["resourceVersion"], "3");
    assert_eq!(
        value["spec"]["workload"]["manifests"][0]["filler"],
        "x".repeat(20)
    );
    assert_eq!(store.snapshot(LEASES).table.len(), 1);
    let cluster = store
        .get("cluster.karmada.io/clusters", &Key::cluster("m1"))
        .expect("there");
    assert_eq!(cluster.value()["ünï"], "\u{1}\\\"");
    let mut watcher = store
        .watch(WORKS, Scope::All, 2)
        .expect("the log covers it");
    let mut told = Vec::new();
    while let Some(event) = watcher.try_next().expect("open") {
        told.push((event.object.name().to_owned(), event.revision()));
    }
    let wanted = [("first", 3), ("second", 4), ("second", 5)];
    assert_eq!(told, wanted.map(|(name, at)| (name.to_owned(), at)));
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn churn_does_not_grow_the_files() {
    let dir = TempDir::new().expect("directory");
    let size = || {
        fs::metadata(dir.path().join("hub.db"))
            .expect("there")
            .len()
    };
    churn(dir.path(), 40).await;
    let before = size();
    churn(dir.path(), 200).await;
    let after = size();
    assert!(after < before + before / 4, "{before} bytes became {after}");
}

/// Sixteen writers that create, change and delete so often, and history that is soon forgotten.
async fn churn(dir: &Path, rounds: u64) {
    let history = Limits {
        events: 64,
        ..Limits::default()
    };
    let options = Options {
        history,
        ..Options::default()
    };
    let store = Store::open(dir, options).expect("opens");
    let writers: Vec<_> = (0..16)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..rounds {
                    turn(&store, &format!("w{writer}"), round).await;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("no panic");
    }
    store.close().await;
}

async fn turn(store: &Store, name: &str, round: u64) {
    let filler = "x".repeat(usize::try_from(round * 7919 % 9000).expect("small"));
    let object = json!({"data": {"filler": filler}, "metadata": {"name": name}});
    let put = Change::Put(object);
    let found = store.get(MAPS, &Key::new("ns", name));
    let (expect, change) = match found {
        None => (Expect::Absent, put),
        Some(found) if round.is_multiple_of(5) => {
            (Expect::Revision(found.revision()), Change::Delete)
        }
        Some(found) => (Expect::Revision(found.revision()), put),
    };
    let write = Write {
        resource: MAPS.into(),
        key: Key::new("ns", name),
        expect,
        change,
        class: Class::Durable,
    };
    store.commit(write).await.expect("nobody else writes it");
}

async fn commit(store: &Store, resource: &str, name: &str, class: Class, change: Change) {
    let key = Key::new("ns", name);
    let found = store.get(resource, &key);
    let write = Write {
        resource: resource.into(),
        key,
        expect: found.map_or(Expect::Absent, |found| Expect::Revision(found.revision())),
        change,
        class,
    };
    store.commit(write).await.expect("nobody else writes it");
}

/// A hub with agents is never idle, and what was deleted on it leaves room all the same.
#[tokio::test(start_paused = true)]
async fn room_is_given_back_while_agents_renew() {
    let _held = Held::time();
    let dir = TempDir::new().expect("directory");
    let history = Limits {
        seconds: 60,
        ..Limits::default()
    };
    let options = Options {
        history,
        ..Options::default()
    };
    let store = Store::open(dir.path(), options).expect("opens");
    let filler = "x".repeat(1 << 20);
    let names: Vec<_> = (0..12).map(|number| format!("m{number}")).collect();
    for name in &names {
        let object = json!({"data": {"filler": filler}, "metadata": {"name": name}});
        commit(&store, MAPS, name, Class::Durable, Change::Put(object)).await;
    }
    for name in &names {
        commit(&store, MAPS, name, Class::Durable, Change::Delete).await;
    }
    let size = || {
        let file = fs::metadata(dir.path().join("hub.db"));
        file.expect("there").len() >> 20
    };
    let mut sizes = Vec::new();
    for beat in 0..60 {
        tokio::time::advance(Duration::from_secs(10)).await;
        let lease = json!({"metadata": {"name": "l"}, "spec": {"renewTime": beat}});
        commit(&store, LEASES, "l", Class::Renewal, Change::Put(lease)).await;
        sizes.push(size());
    }
    let largest = sizes.iter().max().expect("some");
    assert!(*largest >= 12 && size() <= 5, "in MiB: {sizes:?}");
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_under_load_is_one_moment() {
    let dir = TempDir::new().expect("directory");
    let store = Store::open(&dir.path().join("data"), Options::default()).expect("opens");
    let writers: Vec<_> = (0..16)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for round in 0..100 {
                    turn(&store, &format!("w{writer}"), round).await;
                }
            })
        })
        .collect();
    let mut moments = Vec::new();
    for number in 0..3 {
        let file = dir.path().join(format!("backup-{number}"));
        let at = store.backup(&file, Vec::new()).await.expect("writes");
        let then = store.snapshot_at(MAPS, at).expect("history reaches back");
        moments.push((file, then));
    }
    for writer in writers {
        writer.await.expect("no panic");
    }
    store.close().await;
    let now = chrono::DateTime::from_timestamp(1_800_000_000, 0).expect("a time");
    for (file, then) in moments {
        let home = file.with_extension("restored");
        let key_file = Keyring::place(&dir.path().join("data"));
        let what = Restore {
            backup: &file,
            dir: &home,
            key_file: Some(&key_file),
            now,
        };
        restore(&what, |_| Ok(()), |()| Ok::<_, OpenError>(())).expect("restores");
        let store = Store::open(&home, Options::default()).expect("opens");
        let texts = |table: &Table| -> Vec<Vec<u8>> {
            table.iter().map(|stored| stored.json().to_vec()).collect()
        };
        assert_eq!(texts(&store.snapshot(MAPS).table), texts(&then.table));
        assert!(store.revision() > then.revision + (1 << 40));
        store.close().await;
    }
}
