//! Random sequences of writes, reads, watches, reopenings and kills, beside a model that keeps all.

use super::child::{LEASES, MAPS};
use hub::apiserver::store::{
    Change, Class, Error, Expect, Key, Kind, Limits, Options, Scope, Store, Watcher, Write,
};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use tempfile::TempDir;

/// So few that most sequences come to the end of history.
const HISTORY: usize = 24;
const VOLATILE_HISTORY: usize = HISTORY / 8;

#[derive(Debug, Clone)]
enum Step {
    Put {
        lease: bool,
        name: u8,
        stale: bool,
        renewal: bool,
    },
    Delete {
        lease: bool,
        name: u8,
        stale: bool,
    },
    Watch {
        lease: bool,
        scope: u8,
        back: usize,
    },
    Drain {
        watcher: usize,
    },
    Past {
        lease: bool,
        back: usize,
    },
    Close,
    Kill,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..6_u8;
    let stale = prop::bool::weighted(0.1);
    prop_oneof![
        12 => (prop::bool::weighted(0.3), name.clone(), stale, any::<bool>())
            .prop_map(|(lease, name, stale, renewal)| Step::Put { lease, name, stale, renewal }),
        4 => (prop::bool::weighted(0.3), name, stale)
            .prop_map(|(lease, name, stale)| Step::Delete { lease, name, stale }),
        3 => (prop::bool::weighted(0.2), 0..8_u8, 0..40_usize)
            .prop_map(|(lease, scope, back)| Step::Watch { lease, scope, back }),
        3 => any::<usize>().prop_map(|watcher| Step::Drain { watcher }),
        2 => (prop::bool::weighted(0.2), 0..40_usize)
            .prop_map(|(lease, back)| Step::Past { lease, back }),
        1 => Just(Step::Close),
        1 => Just(Step::Kill),
    ]
}

/// One event: revision, kind, name, count, revision before.
type Told = (u64, Kind, String, u64, u64);

type Objects = BTreeMap<String, (u64, u64)>;

struct World {
    dir: TempDir,
    store: Store,
    /// Every revision that was seen, of whatever resource.
    revisions: Vec<u64>,
    events: BTreeMap<&'static str, Vec<Told>>,
    objects: BTreeMap<&'static str, Objects>,
    /// Below it no watch of a volatile resource can begin.
    lost: u64,
    watchers: Vec<(Watcher, &'static str, Scope, u64)>,
    count: u64,
}

fn options() -> Options {
    Options {
        history: Limits {
            events: HISTORY,
            ..Limits::default()
        },
        ..Options::default()
    }
}

fn of(lease: bool) -> &'static str {
    if lease { LEASES } else { MAPS }
}

fn name(number: u8) -> (String, Key) {
    let name = format!("n{number}");
    // Two namespaces, of which one is the beginning of the other.
    let namespace = if number.is_multiple_of(2) {
        "ns"
    } else {
        "ns-b"
    };
    let key = Key::new(namespace, &name);
    (name, key)
}

fn scope(number: u8) -> Scope {
    match number {
        0 => Scope::All,
        1 => Scope::Namespace("ns".into()),
        n => Scope::Object(name(n - 2).1),
    }
}

fn in_scope(scope: &Scope, told: &Told) -> bool {
    let number: u8 = told.2.trim_start_matches('n').parse().expect("a number");
    let key = name(number).1;
    match scope {
        Scope::All => true,
        Scope::Namespace(namespace) => key.namespace() == &**namespace,
        Scope::Object(wanted) => key == *wanted,
    }
}

impl World {
    fn new() -> Self {
        let dir = TempDir::new().expect("directory");
        let store = Store::open(dir.path(), options()).expect("opens");
        let revision = store.revision();
        Self {
            dir,
            store,
            revisions: vec![revision],
            events: BTreeMap::from([(MAPS, Vec::new()), (LEASES, Vec::new())]),
            objects: BTreeMap::from([(MAPS, Objects::new()), (LEASES, Objects::new())]),
            lost: revision,
            watchers: Vec::new(),
            count: 0,
        }
    }

    async fn write(&mut self, resource: &'static str, number: u8, stale: bool, put: Option<Class>) {
        let (name, key) = name(number);
        let now = self.objects[resource].get(&name).copied();
        let expect = match now {
            Some((revision, _)) => Expect::Revision(revision - u64::from(stale)),
            None if stale || put.is_none() => Expect::Revision(1),
            None => Expect::Absent,
        };
        self.count += 1;
        let object = json!({
            "data": {"count": self.count},
            "metadata": {"name": name, "namespace": key.namespace(), "uid": name},
        });
        let write = Write {
            resource: resource.into(),
            key,
            expect,
            change: put.map_or(Change::Delete, |_| Change::Put(object)),
            class: put.unwrap_or(Class::Durable),
        };
        let answer = self.store.commit(write).await;
        if stale || (now.is_none() && put.is_none()) {
            let right = match now {
                Some(_) => matches!(answer, Err(Error::Conflict { .. })),
                None => matches!(answer, Err(Error::Missing { .. })),
            };
            assert!(right, "{answer:?}");
            return;
        }
        let stored = answer.expect("nothing is against it");
        let revision = stored.revision();
        assert!(
            Some(&revision) > self.revisions.last(),
            "{revision} came twice"
        );
        self.revisions.push(revision);
        let objects = self.objects.get_mut(resource).expect("known");
        let (kind, count) = match (put, now) {
            (Some(_), None) => (Kind::Added, self.count),
            (Some(_), Some(_)) => (Kind::Modified, self.count),
            (None, now) => (Kind::Deleted, now.expect("was there").1),
        };
        if kind == Kind::Deleted {
            objects.remove(&name);
        } else {
            objects.insert(name.clone(), (revision, count));
        }
        let told = (revision, kind, name, count, now.map_or(0, |n| n.0));
        self.events.get_mut(resource).expect("known").push(told);
    }

    /// A revision from the past, and whether history has to reach back to it.
    fn past(&self, resource: &'static str, back: usize) -> (u64, bool) {
        let index = self.revisions.len().saturating_sub(1 + back);
        let revision = self.revisions[index];
        let newer = self.events[resource]
            .iter()
            .filter(|e| e.0 > revision)
            .count();
        let kept = if resource == LEASES {
            newer <= VOLATILE_HISTORY && revision >= self.lost
        } else {
            newer <= HISTORY
        };
        (revision, kept)
    }

    fn watch(&mut self, resource: &'static str, scope: Scope, back: usize) {
        let (since, kept) = self.past(resource, back);
        match self.store.watch(resource, scope.clone(), since) {
            Ok(watcher) => self.watchers.push((watcher, resource, scope, since)),
            Err(gone) => assert!(!kept, "{gone}"),
        }
    }

    fn drain(&mut self, index: usize) {
        if self.watchers.is_empty() {
            return;
        }
        let index = index % self.watchers.len();
        let (watcher, resource, scope, since) = &mut self.watchers[index];
        let mut told = Vec::new();
        let ended = loop {
            match watcher.try_next() {
                Ok(Some(event)) => {
                    let count = event.object.value()["data"]["count"]
                        .as_u64()
                        .expect("a count");
                    told.push((
                        event.revision(),
                        event.kind,
                        event.object.name().to_owned(),
                        count,
                        event.previous.map_or(0, |p| p.revision()),
                    ));
                }
                Ok(None) => break None,
                Err(ended) => break Some(ended),
            }
        };
        let newer = self.events[resource].iter().filter(|e| e.0 > *since);
        let wanted: Vec<Told> = newer.filter(|e| in_scope(scope, e)).cloned().collect();
        if ended.is_some() {
            assert!(
                wanted.len() > VOLATILE_HISTORY,
                "ended after {} events",
                wanted.len()
            );
            assert_eq!(told, wanted[..told.len()]);
            self.watchers.remove(index);
            return;
        }
        assert_eq!(told, wanted);
        *since = watcher.progress();
        assert_eq!(*since, self.store.revision());
    }

    fn look_back(&self, resource: &'static str, back: usize) {
        let (revision, kept) = self.past(resource, back);
        let snapshot = match self.store.snapshot_at(resource, revision) {
            Ok(snapshot) => snapshot,
            Err(gone) => return assert!(!kept, "{gone}"),
        };
        assert_eq!(snapshot.revision, revision);
        let mut wanted = Objects::new();
        for (at, kind, name, count, _) in &self.events[resource] {
            if *at <= revision {
                match kind {
                    Kind::Deleted => wanted.remove(name),
                    Kind::Added | Kind::Modified => wanted.insert(name.clone(), (*at, *count)),
                };
            }
        }
        assert_eq!(found(&snapshot.table), wanted);
    }

    async fn reopen(&mut self, kill: bool) {
        let dir = TempDir::new().expect("directory");
        if !kill {
            self.store.close().await;
        }
        // What a kill leaves is what the files hold, for they are written before the answer.
        for entry in fs::read_dir(self.dir.path()).expect("lists") {
            let path = entry.expect("entry").path();
            let name = path.file_name().expect("a name");
            fs::copy(&path, dir.path().join(name)).expect("copies");
        }
        let store = Store::open(dir.path(), options()).expect("opens");
        let last = self.revisions.last().copied().expect("has one");
        let revision = store.revision();
        assert!(if kill {
            revision > last
        } else {
            revision == last
        });
        self.store.close().await;
        for (watcher, ..) in &mut self.watchers {
            while watcher.next().await.is_ok() {}
        }
        self.watchers.clear();
        (self.dir, self.store) = (dir, store);
        self.revisions.push(revision);
        if kill {
            self.lost = revision;
            let leases = found(&self.store.snapshot(LEASES).table);
            let before = self.objects.insert(LEASES, leases.clone()).expect("known");
            assert!(leases.keys().eq(before.keys()), "only renewals are lost");
            self.events.insert(LEASES, Vec::new());
            for (name, (at, count)) in leases {
                // For the model's sake they all begin here.
                let told = (at, Kind::Added, name, count, 0);
                self.events.get_mut(LEASES).expect("known").push(told);
            }
            self.events
                .get_mut(LEASES)
                .expect("known")
                .sort_by_key(|e| e.0);
        }
        if !kill {
            self.lost = self.lost.max(revision);
        }
        assert_eq!(found(&self.store.snapshot(MAPS).table), self.objects[MAPS]);
    }
}

fn found(table: &hub::apiserver::store::Table) -> Objects {
    let versions = table.iter().map(|stored| {
        let count = stored.value()["data"]["count"].as_u64().expect("a count");
        (stored.name().to_owned(), (stored.revision(), count))
    });
    versions.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn a_store_is_what_the_model_is(steps in prop::collection::vec(step(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let mut world = World::new();
            for step in steps {
                match step {
                    Step::Put { lease, name, stale, renewal } => {
                        let class = if renewal { Class::Renewal } else { Class::Durable };
                        world.write(of(lease), name, stale, Some(class)).await;
                    }
                    Step::Delete { lease, name, stale } => {
                        world.write(of(lease), name, stale, None).await;
                    }
                    Step::Watch { lease, scope: part, back } => {
                        world.watch(of(lease), scope(part), back);
                    }
                    Step::Drain { watcher } => world.drain(watcher),
                    Step::Past { lease, back } => world.look_back(of(lease), back),
                    Step::Close => world.reopen(false).await,
                    Step::Kill => world.reopen(true).await,
                }
            }
            world.store.close().await;
        });
    }
}
