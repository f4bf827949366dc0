//! A disk that fills and is freed, seen from within one process.

use super::World;
use super::child::{LEASES, MAPS};
use hub::apiserver::store::{
    Change, Class, Error, Expect, Health, Key, Options, Scope, Store, Stored, Write,
};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::sync::Arc;

#[test]
fn a_full_disk_refuses_writes_and_nothing_else() {
    let world = World::new();
    let run = world
        .child("full::on_a_disk_that_fills")
        .env("STORE_FULL", "1")
        .output();
    let run = run.expect("runs");
    let said = String::from_utf8_lossy(&run.stdout);
    let error = String::from_utf8_lossy(&run.stderr);
    assert!(
        run.status.success() && said.contains("it recovered"),
        "{said}{error}"
    );
}

/// What the test above starts; by itself it does nothing.
#[test]
fn on_a_disk_that_fills() {
    if std::env::var_os("STORE_FULL").is_none() {
        return;
    }
    let path = |name| std::env::var_os(name).expect("set by the parent");
    let (data, disk) = (path("POWERCUT_DIR"), path("POWERCUT_DISK"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(fill(Path::new(&data), &Path::new(&disk).join("full")));
    println!("it recovered");
}

async fn put(
    store: &Store,
    resource: &str,
    name: &str,
    before: Option<&Stored>,
    class: Class,
) -> Result<Arc<Stored>, Error> {
    let object = json!({
        "data": {"filler": "x".repeat(20_000)},
        "metadata": {"name": name, "namespace": "ns"},
    });
    let write = Write {
        resource: resource.into(),
        key: Key::new("ns", name),
        expect: before.map_or(Expect::Absent, |b| Expect::Revision(b.revision())),
        change: Change::Put(object),
        class,
    };
    store.commit(write).await
}

async fn fill(data: &Path, switch: &Path) {
    let store = Store::open(data, Options::default()).expect("opens");
    let lease = put(&store, LEASES, "l", None, Class::Durable)
        .await
        .expect("creates");
    let first = put(&store, MAPS, "first", None, Class::Durable)
        .await
        .expect("creates");
    let mut watcher = store
        .watch(MAPS, Scope::All, first.revision())
        .expect("begins");
    let mut health = store.health();
    assert_eq!(*health.borrow(), Health::Ready);

    fs::write(switch, "").expect("fills");
    let mut made = 0;
    let refused = loop {
        match put(&store, MAPS, &format!("m{made}"), None, Class::Durable).await {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
        assert!(made < 10_000, "the disk never fills");
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    assert!(refused.to_string().contains("full"), "{refused}");
    health
        .wait_for(|h| matches!(h, Health::Full { .. }))
        .await
        .expect("told");
    let again = put(&store, MAPS, "first", Some(&first), Class::Durable).await;
    assert!(matches!(again, Err(Error::Full { .. })), "{again:?}");

    // Reads, watches and renewals go on, and what was refused is nowhere.
    let names = store.snapshot(MAPS).table.len();
    assert_eq!(names, made + 1);
    let mut newest = lease;
    for _ in 0..1000 {
        let renewed = put(&store, LEASES, "l", Some(&newest), Class::Renewal).await;
        newest = renewed.expect("a renewal needs no disk");
    }
    for _ in 0..made {
        watcher.next().await.expect("told");
    }
    assert_eq!(watcher.progress(), newest.revision());
    assert!(matches!(*health.borrow(), Health::Full { .. }));

    fs::remove_file(switch).expect("frees");
    health
        .wait_for(|h| *h == Health::Ready)
        .await
        .expect("told");
    let second = put(&store, MAPS, "first", Some(&first), Class::Durable)
        .await
        .expect("updates");
    assert!(second.revision() > newest.revision());
    assert_eq!(
        watcher.next().await.expect("told").revision(),
        second.revision()
    );
    store.close().await;

    let store = Store::open(data, Options::default()).expect("opens");
    assert_eq!(store.snapshot(MAPS).table.len(), names);
    let found = |resource, name| {
        store
            .get(resource, &Key::new("ns", name))
            .map(|s| s.revision())
    };
    assert_eq!(found(MAPS, "first"), Some(second.revision()));
    assert_eq!(found(LEASES, "l"), Some(newest.revision()));
    let mut again = store
        .watch(MAPS, Scope::All, first.revision())
        .expect("covered");
    for _ in 0..=made {
        assert!(again.try_next().expect("open").is_some());
    }
    store.close().await;
}
