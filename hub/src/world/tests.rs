use super::testing::{at_once, unreachable};
use super::{ObjectName, Told, World};
use common::chance::Chance;
use common::lock::lock;
use serde_json::{Value, json};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

fn work(name: &str, version: u32) -> Value {
    json!({"metadata": {"namespace": "karmada-es-m1", "name": name, "resourceVersion": version.to_string()},
        "status": {"conditions": [{"type": "Applied", "status": "True"}]}})
}

#[tokio::test]
async fn every_change_is_told_with_what_was_before_and_what_went_unseen_too() {
    let world = unreachable();
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let told = Arc::clone(&said);
    world.works.listen(move |event| {
        let line = match event {
            Told::Changed(change) => {
                let version = |object: &Option<super::Object<_>>| {
                    object
                        .as_ref()
                        .map_or("-".to_owned(), |o| o.version.to_string())
                };
                let (old, new) = (version(&change.old), version(&change.new));
                let written = if change.is_written() { "" } else { " again" };
                format!("{} {old}>{new}{written}", change.name)
            }
            Told::Complete { first, .. } => {
                let again = if *first { "" } else { " again" };
                format!("complete{again}")
            }
            Told::Lost(_) => "lost".to_owned(),
        };
        told.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
    });
    let take = || std::mem::take(&mut *said.lock().unwrap_or_else(PoisonError::into_inner));
    world.works.listed(&[work("a", 1), work("b", 2)]).await;
    assert_eq!(
        take(),
        ["karmada-es-m1/a ->1", "karmada-es-m1/b ->2", "complete"]
    );
    world.works.sent(&[work("a", 3)]).await;
    world.works.listed(&[work("a", 3), work("c", 4)]).await;
    assert_eq!(
        take(),
        [
            "karmada-es-m1/a 1>3",
            "karmada-es-m1/a 3>3 again",
            "karmada-es-m1/c ->4",
            "karmada-es-m1/b 2>-",
            "complete again",
        ]
    );
    assert_eq!(world.works.len(), 2);
    let bytes = [work("a", 3), work("c", 4)].map(|work| work.to_string().len());
    assert_eq!(
        world.works.bytes(),
        u64::try_from(bytes[0] + bytes[1]).expect("small")
    );
}

/// How long somebody looks for what cannot be found yet.
const LOOKS: Duration = Duration::from_millis(100);

#[tokio::test]
async fn who_is_told_first_is_told_before_anybody_finds_the_change() {
    let world = unreachable();
    let found = Arc::new(Mutex::new(Vec::new()));
    let (view, seen) = (world.works.clone(), Arc::clone(&found));
    world.works.listen_first(move |told| {
        if let Told::Changed(change) = told {
            let (view, name) = (view.clone(), change.name.clone());
            let (says, hears) = mpsc::channel();
            thread::spawn(move || says.send(view.get(&name).is_some()));
            let heard = hears.recv_timeout(LOOKS).ok();
            lock(&seen).push(heard);
        }
    });
    world.works.sent(&[work("a", 1)]).await;
    assert_eq!(*lock(&found), [None]);
    let name = ObjectName::new(Some("karmada-es-m1"), "a");
    assert!(world.works.get(&name).is_some(), "and finds it then");
}

#[tokio::test]
async fn an_index_follows_what_it_is_made_of() {
    let world = unreachable();
    let index = world.works.index(|_, work| vec![work.applied]);
    world.works.listed(&[work("a", 1), work("b", 2)]).await;
    let applied = super::Status::True;
    assert_eq!(index.count(&applied), 2);
    let mut failed = work("a", 3);
    failed["status"]["conditions"][0]["status"] = json!("False");
    world.works.sent(&[failed]).await;
    let b = ObjectName::new(Some("karmada-es-m1"), "b");
    assert_eq!(index.names(&applied), [b]);
    world.works.listed(&[]).await;
    assert_eq!(
        index.count(&applied) + index.count(&super::Status::False),
        0
    );
}

#[tokio::test(start_paused = true)]
async fn who_wrote_waits_until_the_view_has_seen_it() {
    let world = unreachable();
    let works = world.works.clone();
    let waits = tokio::spawn(async move { works.caught_up(7).await });
    world.works.listed(&[work("a", 6)]).await;
    world.works.synced().await;
    tokio::task::yield_now().await;
    assert!(!waits.is_finished());
    world.works.sent(&[work("a", 7)]).await;
    waits.await.expect("ends");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_there_at_once_gives_others_their_turn() {
    const MANY: u32 = 10_000;
    let line = |object: Value| json!({"type": "ADDED", "object": object}).to_string() + "\n";
    let mut list: String = (1..=MANY)
        .map(|it| line(work(&format!("w-{it}"), it)))
        .collect();
    let end = json!({"metadata": {"resourceVersion": MANY.to_string(),
        "annotations": {"k8s.io/initial-events-end": "true"}}});
    list += &(json!({"type": "BOOKMARK", "object": end}).to_string() + "\n");
    let world = World::new(&at_once(list), &Chance::seeded(1), Arc::default());
    let works = world.works.clone();
    let listing = tokio::spawn(async move { works.run().await });
    let works = world.works.clone();
    let other = tokio::spawn(async move {
        let mut turns = 0;
        // Behind whoever waits by then; `yield_now` lets some dozens of turns pass.
        let looks = poll_fn(|context| {
            turns += 1;
            context.waker().wake_by_ref();
            match works.is_synced() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        });
        looks.await;
        turns
    });
    let turns = other.await.expect("ends");
    listing.abort();
    assert_eq!(world.works.len(), MANY as usize);
    assert!(turns > 50, "others had {turns} turns while it was read");
}
