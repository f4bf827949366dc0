//! The process that is killed: it opens the store, tells what it finds, and then writes without end,
//! telling of each write before it asks and after it was answered.

use hub::apiserver::store::{
    Change, Class, Event, Expect, Key, Kind, Options, Scope, Store, Stored, Write,
};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

pub(crate) const MAPS: &str = "/configmaps";
pub(crate) const LEASES: &str = "coordination.k8s.io/leases";

/// Writers of objects, and writers of Leases.
const WRITERS: u64 = 8;
const RENEWERS: u64 = 2;

/// Objects of each writer.
const OBJECTS: u64 = 24;

/// One line, whole or not at all as far as it matters: the reader drops one without an end.
fn say(line: &str) {
    let line = format!("@ {line}\n");
    std::io::stdout()
        .lock()
        .write_all(line.as_bytes())
        .expect("the parent listens");
}

fn object(name: &str, count: u64) -> Value {
    // Some are small, and some are longer than a page.
    let filler = "x".repeat(usize::try_from(count * 7919 % 6000).expect("small"));
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "data": {"count": count.to_string(), "filler": filler},
        "metadata": {"name": name, "namespace": "ns", "uid": name},
    })
}

fn count(stored: &Stored) -> String {
    let value = stored.value();
    assert_eq!(
        value["metadata"]["resourceVersion"],
        stored.revision().to_string()
    );
    value["data"]["count"].as_str().expect("a count").to_owned()
}

fn tell(what: &str, stored: &Stored) {
    let (name, revision) = (stored.name(), stored.revision());
    say(&format!("{what} {name} {revision} {}", count(stored)));
}

fn tell_event(event: &Event) {
    let kind = match event.kind {
        Kind::Added => "added",
        Kind::Modified => "modified",
        Kind::Deleted => "deleted",
    };
    let before = event.previous.as_ref().map_or(0, |p| p.revision());
    tell(&format!("{kind} {before}"), &event.object);
}

/// Runs until it is killed. `since` is what a watcher of the last process had seen.
pub(crate) async fn run(dir: &Path, since: u64, seed: u64) {
    let store = Store::open(dir, Options::default()).expect("opens");
    say(&format!("open {}", store.revision()));
    let old = store.watch(LEASES, Scope::All, since).is_ok();
    say(&format!("leases {}", if old { "resumed" } else { "gone" }));
    let mut watcher = match store.watch(MAPS, Scope::All, since) {
        Ok(mut watcher) => {
            while let Some(event) = watcher.try_next().expect("open") {
                tell_event(&event);
            }
            watcher
        }
        Err(_) => {
            say("gone");
            store.follow(MAPS, Scope::All).1
        }
    };
    for (what, resource) in [("has", MAPS), ("lease", LEASES)] {
        for stored in store.snapshot(resource).table.iter() {
            tell(what, stored);
        }
    }
    say(&format!("seen {}", watcher.progress()));
    let mut tasks = Vec::new();
    for writer in 0..WRITERS {
        tasks.push(tokio::spawn(write(store.clone(), writer, seed + writer)));
    }
    for renewer in 0..RENEWERS {
        tasks.push(tokio::spawn(renew(store.clone(), renewer, seed)));
    }
    loop {
        tell_event(&watcher.next().await.expect("fast enough"));
        while let Some(event) = watcher.try_next().expect("fast enough") {
            tell_event(&event);
        }
        say(&format!("seen {}", watcher.progress()));
    }
}

async fn commit(store: &Store, resource: &str, name: &str, put: Option<u64>, renewal: bool) {
    let key = Key::new("ns", name);
    let expect = match store.get(resource, &key) {
        Some(found) => Expect::Revision(found.revision()),
        None => Expect::Absent,
    };
    let write = Write {
        resource: resource.into(),
        key,
        expect,
        change: put.map_or(Change::Delete, |count| Change::Put(object(name, count))),
        class: if renewal {
            Class::Renewal
        } else {
            Class::Durable
        },
    };
    let answer: Arc<Stored> = store.commit(write).await.expect("nobody else writes it");
    let what = match (put, renewal) {
        (None, _) => "ack-delete",
        (Some(_), false) => "ack",
        (Some(_), true) => "ack-renewal",
    };
    tell(what, &answer);
}

async fn write(store: Store, writer: u64, seed: u64) {
    for turn in seed * 1_000_000.. {
        // A walk that meets the same objects again and again, without a generator to carry along.
        let step = turn.wrapping_mul(6_364_136_223_846_793_005).rotate_left(17);
        let name = format!("w{writer}-{}", step % OBJECTS);
        let there = store.get(MAPS, &Key::new("ns", &name)).is_some();
        let put = (!there || !step.is_multiple_of(5)).then_some(turn);
        match put {
            Some(count) => say(&format!("try {writer} {name} {count}")),
            None => say(&format!("try {writer} {name} gone")),
        }
        commit(&store, MAPS, &name, put, false).await;
    }
}

async fn renew(store: Store, renewer: u64, seed: u64) {
    let name = format!("l{renewer}");
    for count in seed * 1_000_000.. {
        let there = store.get(LEASES, &Key::new("ns", &name)).is_some();
        commit(&store, LEASES, &name, Some(count), there).await;
        // So many renewals to one durable write would leave the disk nothing to do.
        tokio::task::yield_now().await;
    }
}
