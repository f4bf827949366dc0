//! Crash points: a process is killed at one of its requests or of its store's commits, before that has an effect, or
//! when it had it and nobody knows of it yet.

use crate::apiserver::store::Moment;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Who is killed, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Crash {
    /// `hub`, or an agent, as `m1`.
    pub(super) of: String,
    pub(super) point: Point,
    /// Which of them since the step, from 0.
    pub(super) number: usize,
    /// Whether it has had its effect.
    pub(super) after: bool,
    /// For how many milliseconds they are counted.
    pub(super) within: u64,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Point {
    /// What the process asks: an agent of the hub and of its member, the controllers of the hub's API.
    Request,
    /// A transaction of the hub's store, whoever asked for it.
    Commit,
}

impl Crash {
    /// In a few words.
    pub(super) fn text(&self) -> String {
        let when = if self.after { "after" } else { "before" };
        let what = match self.point {
            Point::Request => "request",
            Point::Commit => "commit",
        };
        format!("{}-{when}-{what}-{}", self.of, self.number)
    }
}

/// What there was until the process was killed, or in all of the time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Of each request, whether it can change anything.
    pub(super) requests: Vec<bool>,
    pub(super) commits: usize,
}

struct Armed {
    crash: Crash,
    until: Instant,
    counted: Counted,
    is_hit: bool,
}

impl Armed {
    fn counts(&self) -> bool {
        !self.is_hit && Instant::now() < self.until
    }

    /// Whether it is asked on this way by the process that is to be killed.
    fn asks(&self, way: &str) -> bool {
        match self.crash.of.as_str() {
            "hub" => way == "controllers",
            agent => way.split_once('>').is_some_and(|(from, _)| from == agent),
        }
    }

    /// Whether nothing passes on a way any more.
    fn silences(&self, way: &str) -> bool {
        self.is_hit && (self.asks(way) || way.ends_with(&format!(">{}", self.crash.of)))
    }

    fn is_at(&self, point: Point, number: usize, after: bool) -> bool {
        let crash = &self.crash;
        crash.point == point && crash.number == number && crash.after == after
    }
}

/// Who is to be killed in one run, if anybody. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Crashes(Arc<Inner>);

#[derive(Default)]
struct Inner {
    armed: Mutex<Option<Armed>>,
    hit: Notify,
}

/// Which request of the process one is; none of others' and of what is not counted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticket(Option<usize>);

impl Crashes {
    fn armed(&self) -> MutexGuard<'_, Option<Armed>> {
        self.0.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts from now on.
    pub(super) fn arm(&self, crash: &Crash) {
        *self.armed() = Some(Armed {
            crash: crash.clone(),
            until: Instant::now() + Duration::from_millis(crash.within),
            counted: Counted::default(),
            is_hit: false,
        });
    }

    fn hit(&self, armed: &mut Armed) {
        armed.is_hit = true;
        self.0.hit.notify_one();
    }

    /// A request begins; none if it never leaves.
    pub(super) fn begins(&self, way: &str, changes: bool) -> Option<Ticket> {
        let mut held = self.armed();
        let Some(armed) = held.as_mut() else {
            return Some(Ticket(None));
        };
        if armed.silences(way) {
            return None;
        }
        if !armed.counts() || !armed.asks(way) {
            return Some(Ticket(None));
        }
        let number = armed.counted.requests.len();
        armed.counted.requests.push(changes);
        if armed.is_at(Point::Request, number, false) {
            self.hit(armed);
            return None;
        }
        Some(Ticket(Some(number)))
    }

    /// Whether anything passes on a way.
    pub(super) fn lets_pass(&self, way: &str) -> bool {
        self.armed().as_ref().is_none_or(|it| !it.silences(way))
    }

    /// A request was carried out: whether its answer is heard.
    pub(super) fn is_heard(&self, way: &str, ticket: Ticket) -> bool {
        let mut held = self.armed();
        let Some(armed) = held.as_mut() else {
            return true;
        };
        if let Ticket(Some(number)) = ticket
            && !armed.is_hit
            && armed.is_at(Point::Request, number, true)
        {
            self.hit(armed);
        }
        !armed.silences(way)
    }

    /// The hub's disk asks at a transaction whether the process is no more.
    pub(super) fn at_commit(&self, moment: Moment) -> bool {
        let mut held = self.armed();
        let Some(armed) = held.as_mut().filter(|it| it.crash.of == "hub") else {
            return false;
        };
        if armed.counts() {
            let after = moment == Moment::After;
            armed.counted.commits += usize::from(!after);
            let number = armed.counted.commits.saturating_sub(1);
            if armed.is_at(Point::Commit, number, after) {
                self.hit(armed);
            }
        }
        armed.is_hit
    }

    /// Waits until somebody has to be killed.
    pub(super) async fn is_due(&self) {
        self.0.hit.notified().await;
    }

    /// Waits until this one has to be.
    pub(super) async fn is_due_of(&self, of: &str) {
        while self.due().as_deref() != Some(of) {
            self.is_due().await;
        }
    }

    /// Who has to be killed now.
    pub(super) fn due(&self) -> Option<String> {
        let held = self.armed();
        let armed = held.as_ref().filter(|it| it.is_hit)?;
        Some(armed.crash.of.clone())
    }

    /// Who had to be killed was: everything passes again, for whoever is started in its place.
    pub(super) fn is_done(&self) {
        if let Some(armed) = self.armed().as_mut() {
            (armed.is_hit, armed.until) = (false, Instant::now());
        }
    }

    pub(super) fn counted(&self) -> Counted {
        let armed = self.armed();
        armed
            .as_ref()
            .map(|it| it.counted.clone())
            .unwrap_or_default()
    }
}
