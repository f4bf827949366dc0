//! The wall clocks of the hosts, which can be wrong. What passes between two moments is the same on all.

use chrono::{DateTime, Duration, Utc};
use common::time::{Clock, SharedClock, SimClock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// In place of one host's name.
pub(super) const ALL: &str = "all";

/// Those of one run, by host.
pub(super) struct Clocks {
    right: SimClock,
    /// By how many milliseconds each is ahead.
    ahead: BTreeMap<String, Arc<AtomicI64>>,
}

struct HostClock {
    right: SimClock,
    ahead: Arc<AtomicI64>,
}

impl Clock for HostClock {
    fn now(&self) -> DateTime<Utc> {
        let ahead = Duration::milliseconds(self.ahead.load(Ordering::Relaxed));
        self.right.now() + ahead
    }
}

impl Clocks {
    pub(super) fn starting_at(at: DateTime<Utc>) -> Self {
        Self {
            right: SimClock::starting_at(at),
            ahead: BTreeMap::new(),
        }
    }

    pub(super) fn of(&mut self, host: &str) -> SharedClock {
        let ahead = self.ahead.entry(host.to_owned()).or_default().clone();
        let right = self.right.clone();
        Arc::new(HostClock { right, ahead })
    }

    /// Somebody sets the clock of a host, or those of all.
    pub(super) fn jump(&mut self, host: &str, milliseconds: i64) {
        for (name, ahead) in &self.ahead {
            if host == ALL || host == name {
                ahead.fetch_add(milliseconds, Ordering::Relaxed);
            }
        }
    }
}
