//! The recent history of a resource, and those who follow it.

use super::error::{Ended, Gone};
use super::key::{Key, Scope};
use super::stored::Stored;
use common::lock::lock;
use common::signal;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use tokio::sync::Notify;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It was created.
    Added,
    /// It was changed.
    Modified,
    /// It was deleted.
    Deleted,
}

/// One change of one object.
#[derive(Debug, Clone)]
pub struct Event {
    /// What happened.
    pub kind: Kind,
    /// The object after it; of a deletion its last content, at the revision of the deletion.
    pub object: Arc<Stored>,
    /// The object before it.
    pub previous: Option<Arc<Stored>>,
}

impl Event {
    /// The revision of the change.
    pub fn revision(&self) -> u64 {
        self.object.revision()
    }

    /// What of this event only history keeps in memory.
    fn cost(&self) -> usize {
        let gone = match self.kind {
            Kind::Deleted => self.object.cost(),
            Kind::Added | Kind::Modified => 0,
        };
        gone + self.previous.as_ref().map_or(0, |p| p.cost())
    }
}

/// How much history is kept.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Older events are forgotten, in seconds.
    pub seconds: u32,
    /// So many events of a resource at most.
    pub events: usize,
    /// So many bytes of objects at most that nothing but the history of a resource keeps.
    pub bytes: usize,
}

impl Limits {
    /// An eighth of it: for what is renewed all the time and followed by few.
    pub(super) fn eighth(self) -> Self {
        Self {
            events: self.events / 8,
            bytes: self.bytes / 8,
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            seconds: 300,
            events: 32_768,
            bytes: 16 << 20,
        }
    }
}

/// How many events may wait for a watcher of a part of a resource, and how many bytes of objects.
const SCOPED_LAG: usize = 8192;
const SCOPED_BYTES: usize = 8 << 20;

/// The history of one resource and its followers.
pub(super) struct Feed {
    inner: Mutex<Inner>,
    /// Changes when there are events; who follows the whole resource waits here.
    signal: signal::Sender<()>,
}

struct Inner {
    ring: VecDeque<Entry>,
    /// How many events were ever dropped: the number of the ring's first.
    dropped: u64,
    /// The revision of the last event that is forgotten: watches begin here at the earliest.
    floor: u64,
    bytes: usize,
    closed: bool,
    scoped: HashMap<Scope, Vec<Weak<Queue>>>,
}

struct Entry {
    event: Event,
    /// Seconds since the store was opened.
    at: u32,
}

/// Events for one watcher of a part of a resource.
#[derive(Default)]
pub(super) struct Queue {
    inner: Mutex<Waiting>,
    pub(super) arrived: Notify,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    bytes: usize,
    ended: Option<Ended>,
}

impl Feed {
    pub(super) fn new(floor: u64) -> Self {
        Self {
            inner: Mutex::new(Inner {
                ring: VecDeque::new(),
                dropped: 0,
                floor,
                bytes: 0,
                closed: false,
                scoped: HashMap::new(),
            }),
            signal: signal::Sender::new(()),
        }
    }

    /// Adds an event; who waits for it is woken by [`Feed::wake`], once for many.
    pub(super) fn push(&self, event: Event, at: u32) {
        let mut inner = lock(&self.inner);
        if !inner.scoped.is_empty() {
            inner.route(&event);
        }
        inner.bytes += event.cost();
        inner.ring.push_back(Entry { event, at });
    }

    /// Wakes those who follow the whole resource.
    pub(super) fn wake(&self) {
        self.signal.send_replace(());
    }

    /// Forgets what the limits do not cover; returns the revisions of what it forgot.
    pub(super) fn trim(&self, limits: &Limits, now: u32) -> Vec<u64> {
        let mut inner = lock(&self.inner);
        let mut forgotten = Vec::new();
        while inner.ring.front().is_some_and(|oldest| {
            inner.ring.len() > limits.events
                || inner.bytes > limits.bytes
                || now.saturating_sub(oldest.at) > limits.seconds
        }) {
            let Some(oldest) = inner.ring.pop_front() else {
                break;
            };
            inner.bytes = inner.bytes.saturating_sub(oldest.event.cost());
            inner.dropped += 1;
            inner.floor = oldest.event.revision();
            forgotten.push(oldest.event.revision());
        }
        if !forgotten.is_empty() && inner.ring.capacity() > 2 * inner.ring.len().max(64) {
            inner.ring.shrink_to_fit();
        }
        forgotten
    }

    /// The events after a revision.
    pub(super) fn newer(&self, revision: u64) -> Result<Vec<Event>, Gone> {
        let inner = lock(&self.inner);
        inner.covers(revision)?;
        let newer = inner.after(revision);
        Ok(inner.ring.range(newer..).map(|e| e.event.clone()).collect())
    }

    /// Begins to follow the whole resource: the number of the first event after `since`.
    pub(super) fn follow(&self, since: u64) -> Result<(u64, signal::Receiver<()>), Gone> {
        let inner = lock(&self.inner);
        inner.covers(since)?;
        let first = inner.dropped + inner.after(since) as u64;
        Ok((first, self.signal.subscribe()))
    }

    /// Begins to follow a part of the resource.
    pub(super) fn subscribe(&self, scope: &Scope, since: u64) -> Result<Arc<Queue>, Gone> {
        let mut inner = lock(&self.inner);
        inner.covers(since)?;
        let newer = inner.after(since);
        let missed = inner.ring.range(newer..).map(|e| &e.event);
        let events: VecDeque<Event> = missed.filter(|e| matches(scope, e)).cloned().collect();
        let queue = Arc::new(Queue {
            inner: Mutex::new(Waiting {
                bytes: events.iter().map(|e| e.object.cost()).sum(),
                events,
                ended: inner.closed.then_some(Ended::Closed),
            }),
            arrived: Notify::new(),
        });
        let followers = inner.scoped.entry(scope.clone()).or_default();
        followers.push(Arc::downgrade(&queue));
        Ok(queue)
    }

    /// Forgets a watcher of a part that is gone.
    pub(super) fn unsubscribe(&self, scope: &Scope) {
        let mut inner = lock(&self.inner);
        if let Some(followers) = inner.scoped.get_mut(scope) {
            followers.retain(|queue| queue.strong_count() > 0);
            if followers.is_empty() {
                inner.scoped.remove(scope);
            }
        }
    }

    /// Hands over up to `most` events from number `next` on.
    pub(super) fn take(
        &self,
        next: &mut u64,
        most: usize,
        into: &mut VecDeque<Event>,
    ) -> Result<(), Ended> {
        // Called only with nothing left of what was taken before.
        let inner = lock(&self.inner);
        let Some(skip) = next.checked_sub(inner.dropped) else {
            return Err(Ended::Gone);
        };
        let skip = usize::try_from(skip)
            .unwrap_or(usize::MAX)
            .min(inner.ring.len());
        into.extend(inner.ring.range(skip..).take(most).map(|e| e.event.clone()));
        *next += into.len() as u64;
        if into.is_empty() && inner.closed {
            return Err(Ended::Closed);
        }
        Ok(())
    }

    /// Whether any event is kept.
    pub(super) fn has_history(&self) -> bool {
        !lock(&self.inner).ring.is_empty()
    }

    /// Whether there is no event from number `next` on.
    pub(super) fn is_end(&self, next: u64) -> bool {
        let inner = lock(&self.inner);
        next >= inner.dropped + inner.ring.len() as u64
    }

    /// Ends every watcher once it has seen what there is.
    pub(super) fn close(&self) {
        let mut inner = lock(&self.inner);
        inner.closed = true;
        for queue in inner.scoped.values().flatten().filter_map(Weak::upgrade) {
            lock(&queue.inner).ended.get_or_insert(Ended::Closed);
            queue.arrived.notify_one();
        }
        drop(inner);
        self.wake();
    }
}

impl Inner {
    fn covers(&self, revision: u64) -> Result<(), Gone> {
        if revision < self.floor {
            return Err(Gone {
                asked: revision,
                floor: self.floor,
            });
        }
        Ok(())
    }

    /// The index of the first event after a revision.
    fn after(&self, revision: u64) -> usize {
        self.ring
            .partition_point(|e| e.event.revision() <= revision)
    }

    fn route(&self, event: &Event) {
        let namespace = event.object.namespace();
        for scope in [
            Scope::Object(event.object.key()),
            Scope::Namespace(namespace.into()),
        ] {
            let followers = self.scoped.get(&scope).into_iter().flatten();
            for queue in followers.filter_map(Weak::upgrade) {
                queue.push(event);
            }
        }
    }
}

fn matches(scope: &Scope, event: &Event) -> bool {
    match scope {
        Scope::All => true,
        Scope::Namespace(namespace) => event.object.namespace() == &**namespace,
        Scope::Object(key) => event.object.joined() == Key::as_str(key),
    }
}

impl Queue {
    fn push(&self, event: &Event) {
        let mut waiting = lock(&self.inner);
        if waiting.ended.is_none() {
            if waiting.events.len() >= SCOPED_LAG || waiting.bytes >= SCOPED_BYTES {
                *waiting = Waiting::default();
                waiting.ended = Some(Ended::Gone);
            } else {
                waiting.bytes += event.object.cost();
                waiting.events.push_back(event.clone());
            }
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// The next event, if one waits.
    pub(super) fn pop(&self) -> Result<Option<Event>, Ended> {
        let mut waiting = lock(&self.inner);
        match (waiting.events.pop_front(), waiting.ended) {
            (Some(event), _) => {
                waiting.bytes = waiting.bytes.saturating_sub(event.object.cost());
                Ok(Some(event))
            }
            (None, Some(ended)) => Err(ended),
            (None, None) => Ok(None),
        }
    }

    /// Whether nothing waits, not even the end.
    pub(super) fn is_empty(&self) -> bool {
        let waiting = lock(&self.inner);
        waiting.events.is_empty() && waiting.ended.is_none()
    }
}
