//! What the built-in server hears of agents between two renewals of their Leases, until the monitor takes it.

use common::lock::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// One sign of life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sign {
    /// When it was heard.
    pub at: Instant,
    /// After which time the next one is to come; zero where none is.
    pub next: Duration,
}

/// The last sign of each cluster that was not taken yet. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Signs(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Whether anybody takes them.
    counts: AtomicBool,
    heard: Mutex<BTreeMap<Box<str>, Sign>>,
}

impl Signs {
    /// From now on they are taken.
    pub fn count(&self) {
        self.0.counts.store(true, Ordering::Relaxed);
    }

    /// Whether they are taken.
    pub fn are_counted(&self) -> bool {
        self.0.counts.load(Ordering::Relaxed)
    }

    /// Whoever may renew the Lease of this name gave a sign.
    pub fn heard(&self, lease: &str, sign: Sign) {
        let mut heard = lock(&self.0.heard);
        match heard.get_mut(lease) {
            Some(last) => *last = sign,
            None => {
                heard.insert(lease.into(), sign);
            }
        }
    }

    /// All that were heard since they were taken last.
    pub fn take(&self) -> BTreeMap<Box<str>, Sign> {
        let mut heard = lock(&self.0.heard);
        std::mem::take(&mut *heard)
    }
}
