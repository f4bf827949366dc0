//! How many requests are under way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// By their ways; watches are none. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Counts(Arc<Mutex<BTreeMap<String, usize>>>);

/// A request that is under way.
pub(super) struct UnderWay {
    counts: Counts,
    way: String,
}

impl Counts {
    fn held(&self) -> MutexGuard<'_, BTreeMap<String, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, way: &str) -> UnderWay {
        *self.held().entry(way.to_owned()).or_default() += 1;
        UnderWay {
            counts: self.clone(),
            way: way.to_owned(),
        }
    }

    /// Where most are, and how many.
    pub(super) fn most(&self) -> Option<(String, usize)> {
        let held = self.held();
        let most = held.iter().max_by_key(|(_, count)| **count);
        most.map(|(way, count)| (way.clone(), *count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(count) = self.counts.held().get_mut(&self.way) {
            *count -= 1;
        }
    }
}
