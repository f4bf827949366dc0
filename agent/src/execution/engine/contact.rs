//! Whether the hub answers. While it does not, nothing that works on the member waits for it.

use super::lock;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// How long nothing is sent after a request that was not answered; the watch finds out sooner.
const REST: Duration = Duration::from_secs(5);
/// The same while the watch itself is cut off.
const LONG_REST: Duration = Duration::from_secs(30);

/// What is known of the way to the hub.
#[derive(Debug)]
pub(super) struct Contact(Mutex<Option<Instant>>);

impl Contact {
    /// Nothing was heard yet.
    pub(super) fn new() -> Self {
        Self(Mutex::new(Some(Instant::now() + LONG_REST)))
    }

    /// Until when the hub is left alone, if it is.
    pub(super) fn rests_until(&self) -> Option<Instant> {
        lock(&self.0).filter(|until| *until > Instant::now())
    }

    /// A request was not answered.
    pub(super) fn failed(&self) {
        *lock(&self.0) = Some(Instant::now() + REST);
    }

    /// The watch is cut off.
    pub(super) fn lost(&self) {
        *lock(&self.0) = Some(Instant::now() + LONG_REST);
    }

    /// The hub answers.
    pub(super) fn answered(&self) {
        *lock(&self.0) = None;
    }
}
