//! What this process spent: memory that it asked for, and work of its processors.

use rustix::time::{ClockId, clock_gettime};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Sums since the process began, or between two moments.
#[derive(Debug, Clone)]
pub(crate) struct Spent {
    /// Bytes that were asked for, given back or not.
    pub(crate) bytes: u64,
    /// How often.
    pub(crate) calls: u64,
    /// Microseconds of all processors; none while others have them.
    pub(crate) work: u64,
}

impl Spent {
    /// Since the process began.
    pub(crate) fn now() -> Self {
        let stats = ALLOCATOR.stats();
        let grown = usize::try_from(stats.bytes_reallocated).unwrap_or_default();
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let micros = time.tv_sec * 1_000_000 + time.tv_nsec / 1_000;
        Self {
            bytes: wide(stats.bytes_allocated + grown),
            calls: wide(stats.allocations + stats.reallocations),
            work: u64::try_from(micros).unwrap_or_default(),
        }
    }

    /// Since another moment.
    pub(crate) fn since(&self, before: &Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    /// The least of both in everything.
    pub(crate) fn least(&self, other: &Self) -> Self {
        self.with(other, u64::min)
    }

    fn with(&self, other: &Self, of: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            bytes: of(self.bytes, other.bytes),
            calls: of(self.calls, other.calls),
            work: of(self.work, other.work),
        }
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
