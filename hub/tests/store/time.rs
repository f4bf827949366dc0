//! Paused time that only a test moves.

use std::sync::mpsc;

/// While it lives, paused time stands still until it is advanced: the store answers from a thread of its
/// own, and to tokio who waits for that is idle.
pub(crate) struct Held(#[expect(dead_code, reason = "its end is what counts")] mpsc::Sender<()>);

impl Held {
    /// Holds it.
    pub(crate) fn time() -> Self {
        let (held, ends) = mpsc::channel();
        // Time does not run ahead of work on another thread.
        tokio::task::spawn_blocking(move || ends.recv());
        Self(held)
    }
}
