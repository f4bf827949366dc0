use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[tokio::test(start_paused = true)]
async fn a_key_is_held_once_and_comes_again_when_added_meanwhile() {
    let queue = Queue::new();
    queue.add("a");
    tokio::time::advance(Duration::from_secs(3)).await;
    queue.add("a");
    queue.add("b");
    assert_eq!(queue.oldest(), Duration::from_secs(3));
    assert_eq!(queue.next().await, "a");
    assert_eq!(queue.oldest(), Duration::ZERO);
    queue.add("a");
    assert_eq!(queue.next().await, "b");
    assert!(queue.is_empty() && queue.is_busy());
    queue.done(&"a");
    assert_eq!(queue.next().await, "a");
    queue.done(&"a");
    queue.done(&"b");
    assert!(queue.is_empty() && !queue.is_busy());
    assert_eq!(queue.lock().known(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_shortest_delay_counts() {
    let queue = Queue::new();
    let start = Instant::now();
    queue.add_after("a", Duration::from_secs(10));
    queue.add_after("a", Duration::from_secs(3));
    queue.add_after("a", Duration::from_secs(7));
    assert_eq!(queue.next().await, "a");
    assert_eq!(start.elapsed().as_secs(), 3);
    queue.done(&"a");
    let second = tokio::time::timeout(Duration::from_secs(60), queue.next()).await;
    assert!(second.is_err(), "the key came twice");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_looked_at_now_waits_for_no_delay() {
    let queue = Queue::new();
    queue.add_after("a", Duration::from_secs(5));
    queue.add("a");
    queue.add_after("a", Duration::from_secs(1));
    assert_eq!(queue.try_next(), Some("a"));
    // What the worker asks for itself stands.
    queue.add_after("a", Duration::from_secs(2));
    queue.done(&"a");
    assert_eq!(queue.try_next(), None);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(queue.try_next(), Some("a"));
    queue.done(&"a");
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(queue.try_next(), None);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_worker_hears_of_a_new_key() {
    let queue = Queue::new();
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { queue.next().await }
    });
    tokio::task::yield_now().await;
    queue.add("a");
    assert_eq!(worker.await.expect("joins"), "a");
}

#[tokio::test(start_paused = true)]
async fn the_urgent_goes_first_and_the_backlog_is_not_forgotten() {
    let queue = Queue::new();
    queue.add_with(0, Priority::Backlog);
    queue.add_with(1, Priority::Backlog);
    for key in 2..30 {
        queue.add_with(key, Priority::Urgent);
    }
    queue.add_with(1, Priority::Urgent);
    let order: Vec<i32> = std::iter::from_fn(|| queue.try_next()).collect();
    assert_eq!(order.len(), 30);
    let place = |key: i32| order.iter().position(|k| *k == key);
    assert_eq!(order[..7], [2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(place(0), Some(STEP_BACK as usize - 1), "the step back");
    assert_eq!(place(1), Some(29), "urgent now, and last of them");
}

#[tokio::test(start_paused = true)]
async fn of_the_equally_urgent_the_higher_rank_goes_first() {
    let queue = Queue::new();
    for (key, rank) in [("low", -5), ("none", 0), ("high", 7), ("raised", 0)] {
        queue.add_ranked(key, Priority::Normal, rank);
    }
    queue.add_ranked("raised", Priority::Normal, 9);
    queue.add_ranked("person", Priority::Urgent, -9);
    let order: Vec<_> = std::iter::from_fn(|| queue.try_next()).collect();
    assert_eq!(order, ["person", "raised", "high", "none", "low"]);
}

#[tokio::test(start_paused = true)]
async fn whoever_has_many_keys_does_not_keep_the_others_waiting() {
    let queue: Queue<(u64, u32)> = Queue::with_shares(|(owner, _)| *owner);
    for n in 0..1000 {
        queue.add((1, n));
    }
    queue.add((2, 0));
    queue.add((3, 0));
    queue.add((2, 1));
    let order: Vec<_> = std::iter::from_fn(|| queue.try_next()).take(6).collect();
    assert_eq!(order, [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2)]);
}

proptest! {
    /// Whatever is added comes out, no key is out twice at a time, and nothing stays behind.
    #[test]
    fn nothing_is_lost(ops in prop::collection::vec((0_u8..6, 0_u64..5, 0_u64..9), 1..80)) {
        let start = Instant::now();
        let mut state: State<u64> = State::new(|key| *key % 2);
        let mut running: BTreeSet<u64> = BTreeSet::new();
        let mut owed = BTreeSet::new();
        for (op, key, t) in ops {
            let at = start + Duration::from_secs(t);
            match op {
                0 => { state.add(key, (Priority::Urgent, 0), at); owed.insert(key); }
                1 => { state.add(key, (Priority::Backlog, i32::from(key % 2 == 0)), at); owed.insert(key); }
                2 => { state.add_at(key, at, Priority::Normal); owed.insert(key); }
                3 => if let Some(key) = running.pop_first() { state.done(&key, at); },
                _ => if let Some(key) = state.take(at) {
                    prop_assert!(running.insert(key), "{} is out twice", key);
                    owed.remove(&key);
                },
            }
            prop_assert_eq!(state.ready(), state.enlisted());
        }
        for key in running { state.done(&key, start); }
        let end = start + Duration::from_secs(99);
        while let Some(key) = state.take(end) {
            owed.remove(&key);
            state.done(&key, end);
        }
        prop_assert!(owed.is_empty(), "{:?} never came", owed);
        prop_assert_eq!(state.known(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_idle_when_it_knows_no_key() {
    let queue = Queue::new();
    assert!(queue.is_idle());
    queue.add_after("a", Duration::from_secs(1));
    assert!(!queue.is_idle() && !queue.is_busy());
    assert_eq!(queue.next().await, "a");
    assert!(!queue.is_idle());
    queue.done(&"a");
    assert!(queue.is_idle());
}
