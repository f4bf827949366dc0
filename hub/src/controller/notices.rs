//! What propagation has to tell, as Events: written while nothing else is to be, some seconds late at the most, and the
//! first to be dropped. Of a binding that moves there are six, as much work as the move: a cluster that is lost with
//! thousands is left first.

use super::events::{Events, cut};
use crate::propagation::Notice;
use k8s_openapi::api::core::v1::ObjectReference;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long one waits while there is other work, and how often that is looked at.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);
/// How many wait; beyond that the oldest goes.
const LIMIT: usize = 8192;
/// How many are written at once.
const AT_ONCE: usize = 4;

/// What is to be told; clones share it.
#[derive(Clone, Default)]
pub struct Notices(Arc<Waiting>);

#[derive(Default)]
struct Waiting {
    queue: Mutex<VecDeque<Waits>>,
    more: Notify,
}

struct Waits {
    about: ObjectReference,
    notice: Notice,
    until: Instant,
}

impl Notices {
    /// Has something told about an object. What waits is no longer than what is shown: a text may name every cluster.
    pub fn add(&self, about: &ObjectReference, notice: &Notice) {
        let mut queue = self.queue();
        if queue.len() >= LIMIT {
            queue.pop_front();
        }
        queue.push_back(Waits {
            about: about.clone(),
            notice: Notice {
                message: cut(&notice.message),
                ..*notice
            },
            until: Instant::now() + PATIENCE,
        });
        drop(queue);
        self.0.more.notify_one();
    }

    /// Tells it for ever; `is_busy` says whether there is other work.
    pub async fn tell(self, events: Events, is_busy: impl Fn() -> bool + Sync) {
        let writers = [(); AT_ONCE].map(|()| self.write(&events, &is_busy));
        futures::future::join_all(writers).await;
    }

    async fn write(&self, events: &Events, is_busy: &impl Fn() -> bool) {
        loop {
            let Waits { about, notice, .. } = self.next(is_busy).await;
            if notice.warning {
                events.warning(&about, notice.reason, notice.message).await;
            } else {
                events.normal(&about, notice.reason, notice.message).await;
            }
        }
    }

    async fn next(&self, is_busy: &impl Fn() -> bool) -> Waits {
        let first = loop {
            if let Some(first) = self.queue().pop_front() {
                break first;
            }
            self.0.more.notified().await;
        };
        while is_busy() && Instant::now() < first.until {
            tokio::time::sleep(PAUSE).await;
        }
        first
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Waits>> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn about(name: &str) -> ObjectReference {
        ObjectReference {
            name: Some(name.to_owned()),
            ..ObjectReference::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_waits_while_there_is_work_but_not_for_ever() {
        let notices = Notices::default();
        let is_busy = AtomicBool::new(true);
        let is_busy = || is_busy.load(Ordering::Relaxed);
        let begun = Instant::now();
        notices.add(&about("a"), &Notice::normal("R", "a"));
        notices.next(&is_busy).await;
        assert_eq!(begun.elapsed(), PATIENCE);
        // The next one has waited with it.
        notices.add(&about("b"), &Notice::normal("R", "b"));
        notices.next(&|| false).await;
        assert_eq!(begun.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn of_too_many_the_oldest_goes() {
        let notices = Notices::default();
        for number in 0..=LIMIT {
            notices.add(&about(&number.to_string()), &Notice::normal("R", ""));
        }
        let first = notices.next(&|| false).await;
        assert_eq!(first.about.name.as_deref(), Some("1"));
        assert_eq!(notices.queue().len(), LIMIT - 1);
    }

    #[tokio::test]
    async fn what_waits_is_no_longer_than_what_is_shown() {
        let notices = Notices::default();
        let names = "m1234:1, ".repeat(10_000);
        notices.add(&about("a"), &Notice::warning("R", &*names));
        let next = notices.next(&|| false).await.notice;
        assert_eq!(next, Notice::warning("R", &names[..1024]));
    }
}
