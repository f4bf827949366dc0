//! What the agents of a fleet tell of themselves: how long renewals took, and when each was last
//! heard by the hub.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Shared by all agents of a fleet.
pub(super) struct Board {
    began: Instant,
    latencies: Mutex<Vec<Duration>>,
    failures: AtomicUsize,
    seats: Vec<Seat>,
}

/// The times of one agent, in microseconds since the board was made; 0 for never.
#[derive(Default)]
struct Seat {
    /// The first renewal that succeeded since the board was marked.
    renewed: AtomicU64,
    /// Since when its watch of Works delivers.
    watching: AtomicU64,
}

impl Board {
    /// A board with places for so many.
    pub(super) fn new(agents: usize) -> Self {
        Self {
            began: Instant::now(),
            latencies: Mutex::default(),
            failures: AtomicUsize::new(0),
            seats: (0..agents).map(|_| Seat::default()).collect(),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// A renewal was answered.
    pub(super) fn renewed(&self, agent: usize, took: Duration) {
        let mut all = self
            .latencies
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.push(took);
        drop(all);
        if let Some(seat) = self.seats.get(agent) {
            let (relaxed, now) = (Ordering::Relaxed, self.now());
            // Only the first counts; a later one finds it taken.
            let _ = seat.renewed.compare_exchange(0, now, relaxed, relaxed);
        }
    }

    /// Counts renewals anew.
    pub(super) fn mark(&self) {
        for seat in &self.seats {
            seat.renewed.store(0, Ordering::Relaxed);
        }
    }

    /// A renewal failed.
    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// An agent's watch delivers from now on, or no longer.
    pub(super) fn watches(&self, agent: usize, delivers: bool) {
        let at = if delivers { self.now() } else { 0 };
        if let Some(seat) = self.seats.get(agent) {
            seat.watching.store(at, Ordering::Relaxed);
        }
    }

    /// How long renewals took since this was asked last, and how many failed.
    pub(super) fn forget(&self) -> (Vec<Duration>, usize) {
        let mut all = self
            .latencies
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let failures = self.failures.swap(0, Ordering::Relaxed);
        (std::mem::take(&mut all), failures)
    }

    /// How long after a moment each agent had its watch again, of those that have it.
    pub(super) fn watching_since(&self, moment: Instant) -> Vec<Duration> {
        self.since(moment, |seat| &seat.watching)
    }

    /// How long after a moment each agent was first heard, of those that were.
    pub(super) fn renewed_since(&self, moment: Instant) -> Vec<Duration> {
        self.since(moment, |seat| &seat.renewed)
    }

    fn since(&self, moment: Instant, time: impl Fn(&Seat) -> &AtomicU64) -> Vec<Duration> {
        let moment = moment - self.began;
        let times = self.seats.iter().map(|seat| {
            let at = Duration::from_micros(time(seat).load(Ordering::Relaxed));
            at.checked_sub(moment)
        });
        times.flatten().collect()
    }
}
