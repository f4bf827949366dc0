//! A store without a thread and without files: what a simulation has.

use super::*;
use futures::FutureExt as _;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A store, and its writer as a task; aborted, it was killed.
fn begin(disk: &MemoryDisk) -> (Store, JoinHandle<()>) {
    let (store, writer) = Store::simulated(disk, Options::default()).expect("opens");
    (store, tokio::spawn(writer))
}

async fn kill(writer: JoinHandle<()>) {
    writer.abort();
    let _ = writer.await;
}

async fn lease(store: &Store, at: Option<&Stored>, data: &str) -> Result<Arc<Stored>, Error> {
    let write = Write {
        resource: LEASES.into(),
        class: Class::Renewal,
        ..write(
            "a",
            at.map_or(Expect::Absent, |at| Expect::Revision(at.revision())),
            Change::Put(map("a", data)),
        )
    };
    store.commit(write).await
}

#[tokio::test(start_paused = true)]
async fn what_was_answered_outlives_a_kill_and_renewals_a_loss_of_power_when_they_are_written() {
    let disk = MemoryDisk::default();
    let (store, writer) = begin(&disk);
    let a = create(&store, "a", "1").await;
    let first = lease(&store, None, "first").await.expect("creates");
    let second = lease(&store, Some(&first), "second").await;
    kill(writer).await;
    let refused = store.commit(write("b", Expect::Absent, Change::Put(map("b", "1"))));
    assert!(matches!(refused.await, Err(Error::Closed)));

    let (store, writer) = begin(&disk);
    assert!(store.revision() > second.expect("renews").revision());
    let read = store.get(MAPS, &Key::new("ns", "a")).expect("there");
    assert_eq!(read.json(), a.json());
    // A renewal that was only answered is lost; one that had its seconds is not.
    let found = store.get(LEASES, &Key::new("ns", "a")).expect("there");
    assert_eq!(data_of(&found), "first");
    lease(&store, Some(&found), "third").await.expect("renews");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(disk.loose(), 1);
    kill(writer).await;
    disk.lose_power(1);
    let (store, writer) = begin(&disk);
    let found = store.get(LEASES, &Key::new("ns", "a")).expect("there");
    assert_eq!(data_of(&found), "third");
    store.close().await;
    writer.await.expect("ends");
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_is_full_slow_or_broken_is_told() {
    let disk = MemoryDisk::default();
    let (store, writer) = begin(&disk);
    let held = lease(&store, None, "1").await.expect("creates");
    for fault in [Fault::Full, Fault::Broken] {
        disk.set_fault(Some(fault));
        let put = Change::Put(map("a", "1"));
        let refused = store.commit(write("a", Expect::Absent, put)).await;
        assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
        assert!(store.get(MAPS, &Key::new("ns", "a")).is_none());
        disk.set_fault(None);
        let mut health = store.health();
        let ready = health.wait_for(|health| *health == Health::Ready);
        drop(ready.await.expect("open"));
    }
    let found = store.get(LEASES, &held.key()).expect("there");
    assert_eq!(data_of(&found), "1");

    disk.set_latency(Duration::from_secs(3));
    let began = Instant::now();
    let mut slow = Box::pin(create(&store, "b", "1"));
    assert!((&mut slow).now_or_never().is_none());
    slow.await;
    assert_eq!(began.elapsed().as_secs(), 3);
    store.close().await;
    writer.await.expect("ends");
}

/// The writer is no thread: nothing happens that nobody polls.
#[test]
fn a_write_waits_for_the_writer_to_be_polled() {
    let disk = MemoryDisk::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let _entered = runtime.enter();
    let (store, writer) = Store::simulated(&disk, Options::default()).expect("opens");
    let (mut writer, mut made) = (Box::pin(writer), Box::pin(create(&store, "a", "1")));
    assert!((&mut made).now_or_never().is_none());
    let before = disk.transactions();
    assert!((&mut made).now_or_never().is_none());
    assert!((&mut writer).now_or_never().is_none());
    assert_eq!(disk.transactions(), before + 1);
    assert!((&mut made).now_or_never().is_some());
}
