//! The shell under paused time: retries, panics, concurrency, and the end.

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

#[derive(Default)]
struct Probe {
    calls: Mutex<Vec<String>>,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Reconcile for Probe {
    const NAME: &'static str = "probe";
    type Error = Broken;

    async fn reconcile(&self, key: &str) -> Result<Requeue, Broken> {
        let running = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(10)).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
        let earlier = {
            let mut calls = self.calls.lock().expect("lock");
            calls.push(key.to_owned());
            calls.iter().filter(|call| *call == key).count()
        };
        match key {
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
    let probe = Arc::new(Probe::default());
    let queue = Queue::new();
    let shutdown = CancellationToken::new();
    for key in ["fails-twice", "panics-once", "again", "a", "b", "c", "d"] {
        queue.add(key);
    }
    let running = tokio::spawn(run(
        Arc::clone(&probe),
        queue.clone(),
        3,
        Metrics::default(),
        shutdown.clone(),
    ));
    tokio::time::sleep(Duration::from_secs(30)).await;
    shutdown.cancel();
    running.await.expect("ends");
    let calls = probe.calls.lock().expect("lock");
    let count = |key: &str| calls.iter().filter(|call| *call == key).count();
    assert_eq!(count("fails-twice"), 3);
    assert_eq!(count("panics-once"), 2);
    assert_eq!(count("again"), 2);
    assert_eq!(count("a") + count("b") + count("c") + count("d"), 4);
    assert_eq!(probe.most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn an_end_waits_for_what_is_under_way() {
    let probe = Arc::new(Probe::default());
    let queue = Queue::new();
    let shutdown = CancellationToken::new();
    queue.add("a");
    let running = tokio::spawn(run(
        Arc::clone(&probe),
        queue,
        1,
        Metrics::default(),
        shutdown.clone(),
    ));
    tokio::time::sleep(Duration::from_millis(5)).await;
    shutdown.cancel();
    running.await.expect("ends");
    assert_eq!(probe.calls.lock().expect("lock").len(), 1);
}
