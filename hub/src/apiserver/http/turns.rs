//! Who may keep a processor busy, and on which thread.
//!
//! What is cheap runs where its connection is served, a few requests at a time; what may be dear waits for
//! a turn, runs beside the runtime's threads, and there is always a processor for the rest. Of each user
//! only so many are in a queue, so that who sends without end waits behind themselves and not before the
//! others. Renewals of Leases have a lane that nothing else is on.

use crate::apiserver::request::Holding;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

/// Work from this many bytes on may be dear: bytes of the body, and of the objects that are read.
pub(super) const DEAR: usize = 32 * 1024;
/// Cheap requests at a time for each processor. Nothing that is not on this lane waits behind more.
const CHEAP_EACH: usize = 4;
/// Cheap requests of one user that are worked on at a time.
const CHEAP_OF_ONE: usize = 2;

/// What a request may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cost {
    /// As good as nothing: probes, and what waits for its turn by itself.
    Nothing,
    /// A renewal of a Lease.
    Lease,
    /// What reading and changing a small object costs.
    Cheap,
    /// As much as a body can make it.
    Dear,
}

impl Cost {
    /// Of so many bytes.
    pub(super) fn of(bytes: usize) -> Self {
        match bytes {
            DEAR.. => Self::Dear,
            _ => Self::Cheap,
        }
    }

    /// Does what costs so much, where it keeps nobody else waiting.
    pub(super) fn run<T>(self, work: impl FnOnce() -> T) -> T {
        match self {
            Self::Dear => aside(work),
            _ => work(),
        }
    }
}

/// The lanes. Clones share them.
#[derive(Clone)]
pub(super) struct Turns {
    leases: Lane,
    cheap: Lane,
    dear: Lane,
}

impl Turns {
    pub(super) fn new() -> Self {
        let threads = available_parallelism().map_or(1, std::num::NonZero::get);
        Self {
            leases: Lane::new(Semaphore::MAX_PERMITS, CHEAP_OF_ONE),
            cheap: Lane::new(CHEAP_EACH * threads, CHEAP_OF_ONE),
            // There is always one for what is not dear.
            dear: Lane::new(threads.saturating_sub(1).max(1), 1),
        }
    }

    /// Waits until a user may begin what costs so much.
    pub(super) async fn enter(&self, user: &str, cost: Cost) -> Option<Turn> {
        match cost {
            Cost::Nothing => None,
            Cost::Lease => self.leases.enter(user).await,
            Cost::Cheap => self.cheap.enter(user).await,
            Cost::Dear => self.dear.enter(user).await,
        }
    }
}

/// One queue in front of some processors, in which every user has some places.
#[derive(Clone)]
struct Lane {
    all: Arc<Semaphore>,
    of_one: usize,
    users: Arc<Mutex<HashMap<String, Arc<Semaphore>>>>,
}

impl Lane {
    fn new(all: usize, of_one: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all)),
            of_one,
            users: Arc::default(),
        }
    }

    async fn enter(&self, user: &str) -> Option<Turn> {
        let mut seat = Seat::of(self, user);
        let places = seat.places.clone()?;
        seat.place = places.acquire_owned().await.ok();
        let turn = match self.all.clone().try_acquire_owned() {
            Ok(turn) => turn,
            Err(_) => {
                let turn = self.all.clone().acquire_owned().await.ok()?;
                // Who gives a turn wakes who has waited for it, and the runtime lets that one run next: where requests
                // queue, several of them would run for each task of another kind.
                yield_now().await;
                turn
            }
        };
        Some(Turn {
            _turn: turn,
            _seat: seat,
        })
    }
}

/// A turn, until it is dropped.
pub(super) struct Turn {
    _turn: OwnedSemaphorePermit,
    _seat: Seat,
}

/// A place among the requests of a user, waited for or taken; the last one takes the user's entry along.
struct Seat {
    lane: Lane,
    user: String,
    places: Option<Arc<Semaphore>>,
    place: Option<OwnedSemaphorePermit>,
}

impl Seat {
    fn of(lane: &Lane, user: &str) -> Self {
        let mut users = lane.users.lock().unwrap_or_else(PoisonError::into_inner);
        let places = users
            .entry(user.to_owned())
            .or_insert_with(|| Arc::new(Semaphore::new(lane.of_one)));
        Self {
            places: Some(places.clone()),
            lane: lane.clone(),
            user: user.to_owned(),
            place: None,
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.place = None;
        let mut users = self
            .lane
            .users
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.places = None;
        let last = users
            .get(&self.user)
            .is_some_and(|places| Arc::strong_count(places) == 1);
        if last {
            users.remove(&self.user);
        }
    }
}

impl From<Option<Turn>> for Holding {
    fn from(turn: Option<Turn>) -> Self {
        turn.map(Self::of).unwrap_or_default()
    }
}

/// Whether this thread has others beside it that go on while it is busy.
fn has_others() -> bool {
    Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Does what keeps a thread busy beside the threads of the runtime.
pub(in crate::apiserver) fn aside<T>(work: impl FnOnce() -> T) -> T {
    match has_others() {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

/// The same for what also waits, which must not be for long: a thread is kept meanwhile, and there are only so
/// many. Whoever waits so had a turn to begin.
pub(super) async fn all_aside<T>(work: impl Future<Output = T>) -> T {
    match has_others() {
        true => tokio::task::block_in_place(|| Handle::current().block_on(work)),
        false => work.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn who_sends_without_end_waits_behind_themselves() {
        let lane = Lane::new(1, 1);
        let first = lane.enter("a").await.expect("a turn");
        let mut queue: Vec<_> = (0..100).map(|_| Box::pin(lane.enter("a"))).collect();
        for waiting in &mut queue {
            assert!(waiting.now_or_never().is_none());
        }
        let mut other = Box::pin(lane.enter("b"));
        assert!((&mut other).now_or_never().is_none());
        drop(first);
        // Of the hundred that came before, none was in the queue yet.
        let of_other = other.await.expect("a turn");
        let mut second = queue.remove(0);
        assert!((&mut second).now_or_never().is_none());
        drop(of_other);
        let second = second.await.expect("a turn");
        drop((second, queue));
        assert!(lane.users.lock().expect("unpoisoned").is_empty());
        assert_eq!(lane.all.available_permits(), 1);
    }

    #[tokio::test]
    async fn what_is_dear_takes_no_turn_from_leases() {
        let turns = Turns::new();
        let mut dear = Vec::new();
        for user in 0..100 {
            dear.extend(turns.enter(&user.to_string(), Cost::Dear).now_or_never());
        }
        assert!(dear.len() < 100);
        let lease = turns.enter("agent", Cost::Lease).now_or_never();
        assert!(lease.flatten().is_some());
        let cheap = turns.enter("agent", Cost::Cheap).now_or_never();
        assert!(cheap.flatten().is_some());
        assert!(turns.enter("agent", Cost::Nothing).await.is_none());
    }
}
