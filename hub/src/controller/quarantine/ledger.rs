//! How many bytes each cluster's agent has written lately. Pure: the time is passed in.
//!
//! One write is one object, whole: that is what the store keeps of it. A window is cut into slices, so a
//! cluster costs a fixed few numbers however often it writes.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Slices of a window: the sum is exact to a twelfth of it.
const SLICES: u32 = 12;

/// How much an agent may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes in the window.
    pub bytes: u64,
    /// The window.
    pub window: Duration,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            bytes: 64 * 1024 * 1024,
            window: Duration::from_secs(300),
        }
    }
}

/// The sums.
#[derive(Debug)]
pub(super) struct Ledger {
    budget: Budget,
    clusters: HashMap<String, BTreeMap<u64, u64>>,
}

impl Ledger {
    pub(super) fn new(budget: Budget) -> Self {
        Self {
            budget,
            clusters: HashMap::new(),
        }
    }

    /// Counts one write at `now`; true when the cluster is over its budget.
    pub(super) fn write(&mut self, cluster: &str, bytes: u64, now: Duration) -> bool {
        let slice = self.slice(now);
        let oldest = (slice + 1).saturating_sub(u64::from(SLICES));
        let written = self.clusters.entry(cluster.to_owned()).or_default();
        *written = written.split_off(&oldest);
        let sum = written.entry(slice).or_default();
        *sum = sum.saturating_add(bytes);
        self.sum(cluster, now) > self.budget.bytes
    }

    /// What a cluster wrote in the window that ends at `now`.
    pub(super) fn sum(&self, cluster: &str, now: Duration) -> u64 {
        let oldest = (self.slice(now) + 1).saturating_sub(u64::from(SLICES));
        let written = self.clusters.get(cluster);
        written.map_or(0, |all| all.range(oldest..).map(|(_, bytes)| bytes).sum())
    }

    /// Forgets a cluster: it is gone, or begins anew.
    pub(super) fn forget(&mut self, cluster: &str) {
        self.clusters.remove(cluster);
    }

    fn slice(&self, now: Duration) -> u64 {
        let length = (self.budget.window / SLICES).max(Duration::from_millis(1));
        u64::try_from(now.as_nanos() / length.as_nanos()).unwrap_or(u64::MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BUDGET: Budget = Budget {
        bytes: 100,
        window: Duration::from_secs(12),
    };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_cluster_is_over_its_budget_only_within_the_window() {
        let mut ledger = Ledger::new(BUDGET);
        assert!(!ledger.write("m1", 100, at(0)));
        assert!(!ledger.write("m2", 100, at(5)), "each has its own");
        assert!(ledger.write("m1", 1, at(11)));
        assert!(
            !ledger.write("m1", 50, at(12)),
            "the first hundred are past"
        );
        assert_eq!(ledger.sum("m1", at(12)), 51);
        assert_eq!(ledger.sum("m1", at(40)), 0);
        ledger.forget("m1");
        assert_eq!(ledger.sum("m1", at(12)), 0);
        assert!(ledger.write("m1", u64::MAX, at(12)));
        assert!(ledger.write("m1", u64::MAX, at(12)), "no overflow");
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_no_burst_is_missed(
            writes in proptest::collection::vec((0u64..100, 0u64..60), 1..200)
        ) {
            let mut ledger = Ledger::new(BUDGET);
            let mut times: Vec<_> = writes.iter().map(|(at, _)| *at).collect();
            times.sort_unstable();
            for (second, (_, bytes)) in times.iter().zip(&writes) {
                let before = ledger.sum("m1", at(*second));
                let over = ledger.write("m1", *bytes, at(*second));
                prop_assert_eq!(over, before + bytes > BUDGET.bytes);
            }
            prop_assert!(ledger.clusters["m1"].len() <= 12);
        }
    }
}
