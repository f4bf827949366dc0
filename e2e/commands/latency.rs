//! How times are spread: what half of them, nearly all of them and all of them keep to.

use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// How times are spread, in milliseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Latency {
    /// Half took no longer.
    pub(crate) p50: f64,
    /// One in a hundred took longer.
    pub(crate) p99: f64,
    /// The longest.
    pub(crate) max: f64,
}

impl Latency {
    /// Of these; zero of none.
    pub(crate) fn of(all: &[Duration]) -> Self {
        let mut sorted = all.to_vec();
        sorted.sort_unstable();
        let at = |percent: usize| {
            let last = sorted.len().saturating_sub(1);
            let found = sorted.get((sorted.len() * percent / 100).min(last));
            found.copied().unwrap_or_default().as_secs_f64() * 1e3
        };
        Self {
            p50: at(50),
            p99: at(99),
            max: at(100),
        }
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { p50, p99, max } = self;
        if *max < 1000.0 {
            return write!(f, "p50 {p50:.1} ms, p99 {p99:.1} ms, at most {max:.1} ms");
        }
        let [p50, p99, max] = [p50, p99, max].map(|ms| ms / 1e3);
        write!(f, "p50 {p50:.2} s, p99 {p99:.2} s, at most {max:.2} s")
    }
}
