//! The model in memory beside SQLite: two writers make the same turns, lose the same, and find the same.

use super::super::feed::Limits;
use super::super::inbox::{Inbox, Job, Taken};
use super::super::key::Key;
use super::super::stored::Draft;
use super::super::writer::Writer;
use super::super::{Class, DATABASE, Expect, Health, Make, Options};
use super::*;
use crate::apiserver::sealing;
use common::signal;
use proptest::prelude::*;
use serde_json::json;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::time::advance;

/// One whose renewals come late, one that is sealed, and one that is neither.
const RESOURCES: [&str; 3] = ["coordination.k8s.io/leases", "/secrets", "/configmaps"];
/// So little history that some is always being forgotten.
const HISTORY: usize = 8;
/// The head of SQLite's log, and what a page takes there.
const HEAD: u64 = 32;
const PAGE: u64 = 4096 + 24;

/// How many pages the log held when all was durable, and after each transaction since that may be lost.
type Marks = Arc<Mutex<Vec<usize>>>;

/// SQLite, with notes of how much of its log a loss of power may take.
struct Noted {
    disk: Sqlite,
    marks: Marks,
}

impl Noted {
    fn note(&self, durable: bool) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if durable {
            marks.clear();
        }
        marks.push(self.disk.log_pages());
    }
}

impl Disk for Noted {
    fn load(&mut self) -> Result<Loaded, OpenError> {
        self.disk.load()
    }

    fn write(&mut self, batch: &Batch<'_>) -> Result<(), rusqlite::Error> {
        self.disk.write(batch)?;
        self.note(batch.must_last());
        Ok(())
    }

    fn checkpoint(&mut self, mode: Checkpoint) -> Result<(), rusqlite::Error> {
        self.disk.checkpoint(mode)?;
        self.note(true);
        Ok(())
    }

    fn log_pages(&self) -> usize {
        self.disk.log_pages()
    }

    fn give_back(&mut self) -> Result<bool, rusqlite::Error> {
        self.disk.give_back()
    }

    fn probe(&mut self) -> Result<(), rusqlite::Error> {
        self.disk.probe()
    }

    fn close(self: Box<Self>) -> Result<(), rusqlite::Error> {
        Box::new(self.disk).close()
    }

    fn file(&self) -> &Path {
        self.disk.file()
    }
}

#[derive(Debug, Clone, Copy)]
enum Verb {
    Put,
    Renew,
    Delete,
}

#[derive(Debug, Clone)]
enum Step {
    /// Writes that came together: resource, name, and what becomes of it.
    Turn(Vec<(usize, u8, Verb)>),
    /// So many seconds in which nobody writes.
    Rest(u64),
    /// The store is closed and opened again.
    Close,
    /// Its process is killed.
    Kill,
    /// Its host loses power, after which so many of what may be lost are there.
    LosePower(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let verb = prop_oneof![3 => Just(Verb::Put), 4 => Just(Verb::Renew), 1 => Just(Verb::Delete)];
    let write = (0..RESOURCES.len(), 0..4_u8, verb);
    prop_oneof![
        8 => prop::collection::vec(write, 1..8).prop_map(Step::Turn),
        4 => (0..8_u64).prop_map(Step::Rest),
        1 => Just(Step::Rest(40)),
        1 => Just(Step::Close),
        1 => Just(Step::Kill),
        3 => (0..3_usize).prop_map(Step::LosePower),
    ]
}

/// Everything that was found on a disk, as text.
fn told(loaded: &Loaded) -> String {
    let text = |object: &Stored| {
        let json = String::from_utf8_lossy(&object.json()).into_owned();
        format!("{object:?} of {} {json}", object.created())
    };
    let mut all = format!("{} {} {}\n", loaded.reserved, loaded.clean, loaded.begin);
    for resource in &loaded.resources {
        let _ = writeln!(all, "{} {} {}", resource.id, resource.name, resource.floor);
        for object in resource.table.iter() {
            let _ = writeln!(all, "  {}", text(object));
        }
        for event in &resource.history {
            let before = event.previous.as_ref().map(|before| text(before));
            let _ = writeln!(all, "  {:?} {} {before:?}", event.kind, text(&event.object));
        }
    }
    all
}

struct World {
    dir: TempDir,
    marks: Marks,
    memory: MemoryDisk,
    /// Over SQLite and over the model.
    writers: Vec<Writer>,
    count: u64,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            dir: TempDir::new().expect("a folder"),
            marks: Marks::default(),
            memory: MemoryDisk::default(),
            writers: Vec::new(),
            count: 0,
        };
        world.open();
        world
    }

    /// Opens both disks, on which the same has to be.
    fn open(&mut self) {
        assert!(self.writers.is_empty());
        let disk = Sqlite::open(self.dir.path(), None, Make::Always).expect("opens");
        let marks = self.marks.clone();
        let disks: [Box<dyn Disk>; 2] = [
            Box::new(Noted { disk, marks }),
            Box::new(self.memory.open()),
        ];
        let mut found = Vec::new();
        for mut disk in disks {
            found.push(told(&disk.load().expect("loads")));
            let options = Options {
                history: Limits {
                    events: HISTORY,
                    ..Limits::default()
                },
                ..Options::default()
            };
            let (health, _) = signal::channel(Health::Ready);
            let writer = Writer::begin(disk, options, Arc::new(Inbox::new()), health);
            self.writers.push(writer.expect("begins"));
        }
        assert_eq!(found[0], found[1]);
    }

    fn turn(&mut self, writes: &[(usize, u8, Verb)]) {
        let mut answers = Vec::new();
        let first = self.count;
        for writer in &mut self.writers {
            let (mut jobs, mut waiting) = (Vec::new(), Vec::new());
            for (number, (resource, name, verb)) in (first..).zip(writes) {
                let key = Key::new("ns", &format!("n{name}"));
                let found = writer.shared().read().get(RESOURCES[*resource], &key);
                let object = json!({"metadata": {"name": name.to_string()}, "count": number});
                let draft = Draft::new(object).expect("an object");
                let (answer, answered) = oneshot::channel();
                waiting.push(answered);
                jobs.push(Job {
                    resource: RESOURCES[*resource].into(),
                    key,
                    expect: found.map_or(Expect::Absent, |f| Expect::Revision(f.revision())),
                    draft: (!matches!(verb, Verb::Delete)).then_some(draft),
                    class: match verb {
                        Verb::Renew => Class::Renewal,
                        Verb::Put | Verb::Delete => Class::Durable,
                    },
                    answer,
                });
            }
            let next = writer.turn(Taken { jobs, last: false });
            assert!(next.is_continue());
            let told: Vec<_> = waiting
                .into_iter()
                .map(|mut answered| format!("{:?}", answered.try_recv().expect("an answer")))
                .collect();
            answers.push(told);
        }
        self.count += writes.len() as u64;
        assert_eq!(answers[0], answers[1]);
    }

    /// Turns without a write, as long as there is something to do at once.
    async fn rest(&mut self, seconds: u64) {
        for _ in 0..seconds {
            advance(Duration::from_secs(1)).await;
            for writer in &mut self.writers {
                let nothing = || Taken {
                    jobs: Vec::new(),
                    last: false,
                };
                while writer.turn(nothing()) == ControlFlow::Continue(Some(Duration::ZERO)) {}
            }
        }
    }

    fn close(&mut self) {
        for mut writer in self.writers.drain(..) {
            let last = Taken {
                jobs: Vec::new(),
                last: true,
            };
            assert!(writer.turn(last).is_break());
            writer.end();
        }
    }

    /// Ends both as they are; of SQLite's log so many pages are left.
    fn kill(&mut self, pages: Option<usize>) {
        let next = TempDir::new().expect("a folder");
        let log = format!("{DATABASE}-wal");
        for file in [DATABASE, &log, sealing::FILE] {
            fs::copy(self.dir.path().join(file), next.path().join(file)).expect("copied");
        }
        if let Some(pages) = pages {
            let file = OpenOptions::new().write(true).open(next.path().join(log));
            let length = match pages {
                0 => 0,
                pages => HEAD + pages as u64 * PAGE,
            };
            file.and_then(|file| file.set_len(length)).expect("cut");
        }
        self.writers.clear();
        self.dir = next;
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Turn(writes) => return self.turn(writes),
            Step::Rest(seconds) => return self.rest(*seconds).await,
            Step::Close => self.close(),
            Step::Kill => self.kill(None),
            Step::LosePower(kept) => {
                let marks = self.marks.lock().expect("unpoisoned").clone();
                assert_eq!(marks.len() - 1, self.memory.loose());
                let kept = (*kept).min(marks.len() - 1);
                self.kill(Some(marks[kept]));
                self.memory.lose_power(kept);
            }
        }
        self.open();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_model_holds_and_loses_what_sqlite_does(
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
        runtime.block_on(async {
            let mut world = World::new();
            for step in &steps {
                world.step(step).await;
            }
            world.close();
            world.open();
        });
    }
}
