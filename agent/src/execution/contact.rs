//! Whether the hub answers, and whether Works are healed without it. While it does not answer, nothing that
//! works on the member waits for it.

use common::rest::Error;
use common::signal;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// How long nothing is sent after a request that was not answered; the watch finds out sooner.
const REST: Duration = Duration::from_secs(5);
/// The same while the watch itself is cut off.
const LONG_REST: Duration = Duration::from_secs(30);

/// Whether Works that the hub has not confirmed in this life are worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Alone {
    /// Not yet: the hub may answer.
    NotYet,
    /// Yes: the hub does not answer.
    Yes,
    /// No: the hub said that our registration is gone.
    Never,
}

/// What is known of the way to the hub.
#[derive(Debug)]
pub struct Contact {
    rest: signal::Sender<Option<Instant>>,
    alone: signal::Sender<Alone>,
}

impl Default for Contact {
    /// Nothing was heard yet.
    fn default() -> Self {
        Self {
            rest: signal::Sender::new(Some(Instant::now() + LONG_REST)),
            alone: signal::Sender::new(Alone::NotYet),
        }
    }
}

impl Contact {
    /// Until when the hub is left alone, if it is.
    pub fn rests_until(&self) -> Option<Instant> {
        self.rest.borrow().filter(|until| *until > Instant::now())
    }

    /// Waits until the hub is left alone no more: it answered, or it is time to try.
    pub async fn rested(&self) {
        let mut rest = self.rest.subscribe();
        loop {
            let until = *rest.borrow_and_update();
            let Some(until) = until.filter(|until| *until > Instant::now()) else {
                return;
            };
            tokio::select! {
                biased;
                // The sender lives as long as we do.
                _ = rest.changed() => {}
                () = sleep_until(until) => {}
            }
        }
    }

    /// A request failed; whether for want of an answer is seen here.
    pub fn failed(&self, error: &Error) {
        if error.is_outage() {
            self.timed_out();
        }
    }

    /// A request was not answered in time.
    pub fn timed_out(&self) {
        self.rest.send_replace(Some(Instant::now() + REST));
    }

    /// The watch is cut off.
    pub fn lost(&self) {
        self.rest.send_replace(Some(Instant::now() + LONG_REST));
    }

    /// The hub answers.
    pub fn answered(&self) {
        self.rest.send_replace(None);
    }

    /// From now on Works are worked on that are known from the stored set alone. Returns whether that is new,
    /// and allowed.
    pub fn stand_alone(&self) -> bool {
        self.alone.send_if_modified(|alone| {
            let first = *alone == Alone::NotYet;
            if first {
                *alone = Alone::Yes;
            }
            first
        })
    }

    /// Whether Works are worked on that are known from the stored set alone.
    pub fn is_alone(&self) -> bool {
        *self.alone.borrow() == Alone::Yes
    }

    /// Our registration is gone: what the hub does not list is not healed.
    pub fn forbid_alone(&self) {
        self.alone.send_replace(Alone::Never);
    }

    /// A hub that lists our Works has us registered.
    pub fn permit_alone(&self) {
        self.alone.send_replace(Alone::Yes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::poll;
    use std::pin::pin;

    #[tokio::test(start_paused = true)]
    async fn a_hub_that_does_not_answer_is_left_alone_until_it_does() {
        let contact = Contact::default();
        let start = Instant::now();
        contact.rested().await;
        assert_eq!(start.elapsed(), LONG_REST);
        contact.timed_out();
        assert_eq!(contact.rests_until(), Some(Instant::now() + REST));
        let mut rested = pin!(contact.rested());
        assert!(poll!(&mut rested).is_pending());
        contact.lost();
        assert!(poll!(&mut rested).is_pending());
        contact.answered();
        assert!(poll!(&mut rested).is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_hub_that_lists_works_lifts_its_word_that_we_are_gone() {
        let contact = Contact::default();
        assert!(!contact.is_alone());
        assert!(contact.stand_alone() && contact.is_alone());
        assert!(!contact.stand_alone());
        contact.forbid_alone();
        assert!(!contact.stand_alone() && !contact.is_alone());
        contact.permit_alone();
        assert!(contact.is_alone());
    }
}
