//! The runtime under paused time: retries, panics, concurrency, sources, and the end.

use super::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, thiserror::Error)]
#[error("failed on purpose")]
struct Broken;

impl Failure for Broken {
    fn reason(&self) -> &'static str {
        "Broken"
    }
}

#[derive(Default, Clone)]
struct Probe(Arc<Seen>);

#[derive(Default)]
struct Seen {
    calls: Mutex<Vec<&'static str>>,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Reconcile for Probe {
    const NAME: &'static str = "probe";
    type Key = &'static str;
    type Error = Broken;

    async fn reconcile(&self, key: &&'static str) -> Result<Requeue, Broken> {
        let Self(seen) = self;
        let running = seen.now.fetch_add(1, Ordering::SeqCst) + 1;
        seen.most.fetch_max(running, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(10)).await;
        seen.now.fetch_sub(1, Ordering::SeqCst);
        let earlier = {
            let mut calls = seen.calls.lock().expect("lock");
            calls.push(*key);
            calls.iter().filter(|call| *call == key).count()
        };
        match *key {
            "fails-twice" if earlier <= 2 => Err(Broken),
            "panics-once" if earlier == 1 => {
                // The counter was lowered above, so only the shell sees the panic.
                panic!("on purpose")
            }
            "again" if earlier == 1 => Ok(Requeue::After(Duration::from_secs(5))),
            _ => Ok(Requeue::Never),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn keys_are_tried_until_they_succeed_and_never_more_at_once_than_allowed() {
    let probe = Probe::default();
    let controller = Controller::new(probe.clone()).workers(3);
    let shutdown = CancellationToken::new();
    for key in ["fails-twice", "panics-once", "again", "a", "b", "c", "d"] {
        controller.queue().add(key);
    }
    let running =
        tokio::spawn(controller.run(Metrics::unread(), Chance::seeded(1), shutdown.clone()));
    tokio::time::sleep(Duration::from_secs(30)).await;
    shutdown.cancel();
    running.await.expect("ends");
    let calls = probe.0.calls.lock().expect("lock");
    let count = |key: &str| calls.iter().filter(|call| **call == key).count();
    assert_eq!(count("fails-twice"), 3);
    assert_eq!(count("panics-once"), 2);
    assert_eq!(count("again"), 2);
    assert_eq!(count("a") + count("b") + count("c") + count("d"), 4);
    assert_eq!(probe.0.most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn an_end_waits_for_what_is_under_way() {
    let probe = Probe::default();
    let controller = Controller::new(probe.clone());
    let shutdown = CancellationToken::new();
    controller.queue().add("a");
    let running =
        tokio::spawn(controller.run(Metrics::unread(), Chance::seeded(1), shutdown.clone()));
    tokio::time::sleep(Duration::from_millis(5)).await;
    shutdown.cancel();
    running.await.expect("ends");
    assert_eq!(probe.0.calls.lock().expect("lock").len(), 1);
}

/// Waits for something that never comes.
struct Unready;

impl Reconcile for Unready {
    const NAME: &'static str = "unready";
    type Key = &'static str;
    type Error = Broken;

    async fn ready(&self) {
        std::future::pending::<()>().await;
    }

    async fn reconcile(&self, _: &&'static str) -> Result<Requeue, Broken> {
        unreachable!("it is not ready")
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_does_not_wait_for_what_is_not_known_yet() {
    let controller = Controller::new(Unready);
    controller.queue().add("a");
    let shutdown = CancellationToken::new();
    let running =
        tokio::spawn(controller.run(Metrics::unread(), Chance::seeded(1), shutdown.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    shutdown.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(60), running).await;
    ended.expect("in time").expect("ends");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_ends_or_panics_is_called_again() {
    let probe = Probe::default();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let controller = Controller::new(probe.clone()).source(move |queue| {
        let call = count.fetch_add(1, Ordering::SeqCst);
        async move {
            match call {
                0 => panic!("on purpose"),
                1 => {}
                _ => {
                    queue.add("a");
                    std::future::pending::<()>().await;
                }
            }
        }
    });
    let shutdown = CancellationToken::new();
    let running =
        tokio::spawn(controller.run(Metrics::unread(), Chance::seeded(1), shutdown.clone()));
    tokio::time::sleep(Duration::from_secs(30)).await;
    shutdown.cancel();
    running.await.expect("ends");
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    assert_eq!(*probe.0.calls.lock().expect("lock"), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_may_be_shared_with_what_else_adds_to_it() {
    let (probe, queue) = (Arc::new(Probe::default()), Queue::new());
    let controller = Controller::over(queue.clone(), probe.clone());
    queue.add("a");
    let shutdown = CancellationToken::new();
    let chance = Chance::seeded(1);
    let running = tokio::spawn(controller.run(Metrics::unread(), chance, shutdown.clone()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    shutdown.cancel();
    running.await.expect("ends");
    assert_eq!(*probe.0.calls.lock().expect("lock"), ["a"]);
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn what_ends_by_itself_is_kept_up_through_panics_alone() {
    let calls = AtomicUsize::new(0);
    let rng = Chance::seeded(1).stream("part");
    let part = || {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        async move {
            assert!(call > 1, "on purpose");
            Break(())
        }
    };
    keep_up("part", Metrics::unread(), rng, part).await;
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}
