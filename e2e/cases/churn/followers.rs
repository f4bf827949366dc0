//! Followers by kube-rs: bare watches that go on wherever the protocol lets them, the watcher with its
//! two ways to begin, a reflector behind it, and a controller.

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use http::Request;
use kube::api::{Api, DynamicObject};
use kube::core::WatchEvent;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as follow};
use kube::{Client, ResourceExt as _};
use serde_json::Value;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::check::{Change, Note, Told, Version};
use super::kinds::{Kind, LAST, NAMESPACE, number, read, version};

/// Between two attempts of a bare watch.
const AGAIN: Duration = Duration::from_millis(100);
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// What one follower was told so far.
pub(crate) struct Transcript<T> {
    /// How reports name it.
    pub(crate) label: String,
    list: Mutex<Vec<T>>,
}

impl<T: Clone> Transcript<T> {
    pub(crate) fn new(label: &str, kind: Kind) -> Arc<Self> {
        Arc::new(Self {
            label: format!("{label} of {}", kind.plural()),
            list: Mutex::default(),
        })
    }

    pub(crate) fn push(&self, told: T) {
        self.list
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(told);
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.list
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Whether something of it holds, the newest first.
    pub(crate) fn any(&self, holds: impl Fn(&T) -> bool) -> bool {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.iter().rev().any(holds)
    }
}

/// Whether this tells of the object that comes last.
pub(crate) fn is_last(note: &Note) -> bool {
    match note {
        Note::Event { number, .. } => *number == LAST,
        Note::Listed { items, .. } => items.iter().any(|(number, _)| *number == LAST),
        Note::Resumed { .. } | Note::Bookmark { .. } => false,
    }
}

/// How a bare watch goes about it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bare {
    /// It begins by a watch that sends what there is, not by a list.
    pub(crate) streams: bool,
    /// The server ends each watch after so many seconds.
    pub(crate) seconds: Option<u32>,
    /// It goes on from the last bookmark, though it has seen more.
    pub(crate) from_bookmark: bool,
}

/// A bare watch that is opened again whenever it ends.
pub(crate) async fn bare(client: Client, kind: Kind, how: Bare, notes: Arc<Transcript<Note>>) {
    let mut progress = Progress::default();
    let mut again = tokio::time::interval(AGAIN);
    loop {
        again.tick().await;
        // Whatever befell it, a server that restarts included: the next attempt goes on from there.
        if let Err(error) = one_watch(&client, kind, how, &mut progress, &notes).await {
            eprintln!("{}: {error:#}", notes.label);
        }
    }
}

/// Where a bare watch is.
#[derive(Default)]
struct Progress {
    at: Option<u64>,
    bookmark: Option<u64>,
}

async fn one_watch(
    client: &Client,
    kind: Kind,
    how: Bare,
    progress: &mut Progress,
    notes: &Transcript<Note>,
) -> Result<()> {
    if progress.at.is_none() && !how.streams {
        let list: Value = client.request(get(&kind.collection())?).await?;
        let at = list["metadata"]["resourceVersion"].as_str();
        let at: u64 = at.context("a list without a revision")?.parse()?;
        let items = list["items"].as_array().context("a list without items")?;
        let items = items.iter().filter_map(read).collect();
        notes.push(Note::Listed {
            at: Some(at),
            items,
        });
        progress.at = Some(at);
    }
    let from = match progress.bookmark {
        Some(bookmark) if how.from_bookmark => Some(bookmark),
        _ => progress.at,
    };
    let mut path = format!("{}?watch=true&allowWatchBookmarks=true", kind.collection());
    match from {
        Some(from) => path.push_str(&format!("&resourceVersion={from}")),
        None => path.push_str("&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
    }
    if let Some(seconds) = how.seconds {
        path.push_str(&format!("&timeoutSeconds={seconds}"));
    }
    let events = client.request_events::<Value>(get(&path)?).await?;
    let mut events = std::pin::pin!(events);
    let mut initial = match from {
        Some(from) => {
            notes.push(Note::Resumed { from });
            progress.at = Some(from);
            None
        }
        None => Some(Vec::new()),
    };
    while let Some(event) = events.next().await {
        let (change, object) = match event? {
            WatchEvent::Added(object) => (Change::Added, object),
            WatchEvent::Modified(object) => (Change::Modified, object),
            WatchEvent::Deleted(object) => (Change::Deleted, object),
            WatchEvent::Bookmark(bookmark) => {
                let at: u64 = bookmark.metadata.resource_version.parse()?;
                if bookmark.metadata.annotations.contains_key(INITIAL_END) {
                    let items = initial.take().context("an end of what did not begin")?;
                    notes.push(Note::Listed {
                        at: Some(at),
                        items,
                    });
                } else {
                    notes.push(Note::Bookmark { at });
                }
                *progress = Progress {
                    at: Some(at),
                    bookmark: Some(at),
                };
                continue;
            }
            WatchEvent::Error(status) if status.code == 410 => {
                *progress = Progress::default();
                return Ok(());
            }
            WatchEvent::Error(status) => anyhow::bail!("{status:?}"),
        };
        let Some((number, version)) = read(&object) else {
            continue;
        };
        match &mut initial {
            Some(items) => items.push((number, version)),
            None => {
                progress.at = Some(version.rv);
                notes.push(Note::Event {
                    change,
                    number,
                    version,
                });
            }
        }
    }
    Ok(())
}

fn get(path: &str) -> Result<Request<Vec<u8>>> {
    Request::get(path)
        .body(Vec::new())
        .with_context(|| format!("{path} is no path"))
}

fn identify(object: &DynamicObject) -> Option<(u32, Version)> {
    let number = number(&object.name_any())?;
    let version = version(&object.uid()?, &object.resource_version()?)?;
    Some((number, version))
}

fn api(client: Client, kind: Kind) -> Api<DynamicObject> {
    Api::namespaced_with(client, NAMESPACE, &kind.resource())
}

/// kube-rs's watcher with a reflector behind it; returns the reflector's store and what has to run.
pub(crate) fn reflect(
    client: Client,
    kind: Kind,
    config: watcher::Config,
    notes: Arc<Transcript<Note>>,
) -> (Store<DynamicObject>, impl Future<Output = ()> + Send) {
    let writer = reflector::store::Writer::new(kind.resource());
    let store = writer.as_reader();
    let events = follow(api(client, kind), config).default_backoff();
    let events = reflector::reflector(writer, events);
    let run = async move {
        let mut events = std::pin::pin!(events);
        let mut items = Vec::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => items.clear(),
                Ok(Event::InitApply(object)) => items.extend(identify(&object)),
                Ok(Event::InitDone) => notes.push(Note::Listed {
                    at: None,
                    items: std::mem::take(&mut items),
                }),
                Ok(Event::Apply(object)) => note(&notes, Change::Put, &object),
                Ok(Event::Delete(object)) => note(&notes, Change::Deleted, &object),
                Err(error) => eprintln!("{}: {error}", notes.label),
            }
        }
    };
    (store, run)
}

fn note(notes: &Transcript<Note>, change: Change, object: &DynamicObject) {
    if let Some((number, version)) = identify(object) {
        notes.push(Note::Event {
            change,
            number,
            version,
        });
    }
}

/// What a reflector holds of ours.
pub(crate) fn held(store: &Store<DynamicObject>) -> Vec<(u32, Version)> {
    store.state().iter().filter_map(|o| identify(o)).collect()
}

/// A controller that notes what it is shown.
pub(crate) async fn control(
    client: Client,
    kind: Kind,
    told: Arc<Transcript<(Told, u32, Version)>>,
) {
    let controller = Controller::new_with(
        api(client, kind),
        watcher::Config::default(),
        kind.resource(),
    );
    let reconcile = |object: Arc<DynamicObject>, told: Arc<Transcript<(Told, u32, Version)>>| async move {
        if let Some((number, version)) = identify(&object) {
            told.push((Told::Look, number, version));
        }
        Ok::<_, Infallible>(Action::await_change())
    };
    let wrong = |_, _: &Infallible, _| Action::await_change();
    let label = told.label.clone();
    let mut outcomes = std::pin::pin!(controller.run(reconcile, wrong, told));
    while let Some(outcome) = outcomes.next().await {
        if let Err(error) = outcome {
            eprintln!("{label}: {error}");
        }
    }
}
