//! One follower of a resource, or of a part of it.

use super::error::Ended;
use super::feed::{Event, Feed, Queue};
use super::key::Scope;
use super::state::Shared;
use common::signal;
use std::collections::VecDeque;
use std::sync::Arc;

/// How many events are taken from the history at once.
const GRAB: usize = 32;

/// Follows a resource from a revision on: every event once, in order, or an end.
pub struct Watcher {
    shared: Arc<Shared>,
    feed: Arc<Feed>,
    source: Source,
    /// The revision up to which everything was handed over.
    seen: u64,
}

enum Source {
    /// Reads the history that all share; who is too slow finds its place gone.
    All {
        next: u64,
        taken: VecDeque<Event>,
        signal: signal::Receiver<()>,
    },
    /// Is handed what concerns it, for most events do not.
    Part { scope: Scope, queue: Arc<Queue> },
}

impl Watcher {
    pub(super) fn all(
        shared: Arc<Shared>,
        feed: Arc<Feed>,
        since: u64,
        (next, signal): (u64, signal::Receiver<()>),
    ) -> Self {
        let taken = VecDeque::new();
        let source = Source::All {
            next,
            taken,
            signal,
        };
        Self {
            shared,
            feed,
            source,
            seen: since,
        }
    }

    pub(super) fn part(
        shared: Arc<Shared>,
        feed: Arc<Feed>,
        since: u64,
        scope: Scope,
        queue: Arc<Queue>,
    ) -> Self {
        Self {
            shared,
            feed,
            source: Source::Part { scope, queue },
            seen: since,
        }
    }

    /// The next event; waits for it. Can be dropped while it waits, and nothing is lost.
    pub async fn next(&mut self) -> Result<Event, Ended> {
        let event = match &mut self.source {
            Source::All {
                next,
                taken,
                signal,
            } => loop {
                if let Some(event) = taken.pop_front() {
                    break event;
                }
                // Seen before looking, so that what comes after the look wakes.
                signal.borrow_and_update();
                self.feed.take(next, GRAB, taken)?;
                if taken.is_empty() && signal.changed().await.is_err() {
                    return Err(Ended::Closed);
                }
            },
            Source::Part { queue, .. } => loop {
                if let Some(event) = queue.pop()? {
                    break event;
                }
                queue.arrived.notified().await;
            },
        };
        self.seen = event.revision();
        Ok(event)
    }

    /// The next event if there is one already.
    pub fn try_next(&mut self) -> Result<Option<Event>, Ended> {
        let event = match &mut self.source {
            Source::All { next, taken, .. } => {
                if taken.is_empty() {
                    self.feed.take(next, GRAB, taken)?;
                }
                taken.pop_front()
            }
            Source::Part { queue, .. } => queue.pop()?,
        };
        if let Some(event) = &event {
            self.seen = event.revision();
        }
        Ok(event)
    }

    /// The revision up to which everything of this resource was handed over by this watcher: what a
    /// bookmark may tell. Never a revision of which an event still waits.
    pub fn progress(&mut self) -> u64 {
        // The order matters: what was published by now lies in the history by now.
        let published = self.shared.published();
        let nothing_waits = match &self.source {
            Source::All { next, taken, .. } => taken.is_empty() && self.feed.is_end(*next),
            Source::Part { queue, .. } => queue.is_empty(),
        };
        if nothing_waits {
            self.seen = self.seen.max(published);
        }
        self.seen
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        if let Source::Part { scope, queue } = &mut self.source {
            // Lets go of its own queue first, so that the feed sees it gone.
            *queue = Arc::new(Queue::default());
            self.feed.unsubscribe(scope);
        }
    }
}
