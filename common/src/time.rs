//! The clock, and the only bridge between chrono (ours) and jiff (kube's).
//!
//! Timestamps come from a [`Clock`] that is passed in; intervals and timeouts are `tokio::time`.
//! Values are cut to the precision Kubernetes stores, so that a value compared before and after a
//! round trip is the same.

use chrono::{DateTime, SubsecRound as _, Utc};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::Timestamp;
use std::sync::Arc;

/// Tells the time of day.
pub trait Clock: Send + Sync {
    /// Now, in microseconds.
    fn now(&self) -> DateTime<Utc>;
}

/// A clock that is shared.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the system clock"
    )]
    fn now(&self) -> DateTime<Utc> {
        Utc::now().trunc_subsecs(6)
    }
}

/// A clock that moves with tokio's time, so that paused tests move both together.
#[derive(Debug, Clone)]
pub struct SimClock {
    base: DateTime<Utc>,
    start: tokio::time::Instant,
}

impl SimClock {
    /// A clock that shows `base` now.
    pub fn starting_at(base: DateTime<Utc>) -> Self {
        Self {
            base,
            start: tokio::time::Instant::now(),
        }
    }
}

impl Clock for SimClock {
    fn now(&self) -> DateTime<Utc> {
        let elapsed = chrono::Duration::from_std(self.start.elapsed()).unwrap_or_default();
        self.base
            .checked_add_signed(elapsed)
            .unwrap_or(self.base)
            .trunc_subsecs(6)
    }
}

/// Seconds precision, as conditions are stored.
pub fn to_time(at: DateTime<Utc>) -> Time {
    Time(timestamp(at.trunc_subsecs(0)))
}

/// Microseconds precision, as Leases are stored.
pub fn to_micro_time(at: DateTime<Utc>) -> MicroTime {
    MicroTime(timestamp(at.trunc_subsecs(6)))
}

/// A Kubernetes time as ours; `None` when it lies outside what chrono can hold.
pub fn from_time(time: &Time) -> Option<DateTime<Utc>> {
    from_timestamp(time.0)
}

/// A Kubernetes micro time as ours; `None` when it lies outside what chrono can hold.
pub fn from_micro_time(time: &MicroTime) -> Option<DateTime<Utc>> {
    from_timestamp(time.0)
}

fn from_timestamp(ts: Timestamp) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp_micros(ts.as_microsecond())
}

fn timestamp(at: DateTime<Utc>) -> Timestamp {
    // chrono's range is wider than jiff's; a date past the year 9999 is clamped, never a panic.
    Timestamp::from_microsecond(at.timestamp_micros()).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_bridge() {
        let at = DateTime::from_timestamp_micros(1_700_000_000_123_456).expect("in range");
        assert_eq!(from_micro_time(&to_micro_time(at)), Some(at));
        assert_eq!(from_time(&to_time(at)), Some(at.trunc_subsecs(0)));
    }
}
