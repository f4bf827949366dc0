//! Keeps the stored set: reads it at the start, and writes what changed, gathered.

use super::state::{Claims, Shared, State};
use super::stored::place::{Error, Place};
use super::stored::plan::{Plan, slice};
use super::stored::{Bad, Entry, Header, Volume, assemble, decode, encode};
use crate::context::ErrorReport;
use common::backoff::Backoff;
use common::chance::Chance;
use common::errors::chain;
use common::names::WORKS_SECRETS;
use common::signal;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

/// How long changes are gathered before they are written.
const GATHER: Duration = Duration::from_secs(1);
/// The same when a deletion waits for it.
const GATHER_URGENT: Duration = Duration::from_millis(20);
/// Least time between two writes, from beginning to beginning.
const SPACING: Duration = Duration::from_millis(250);
/// How long one volume may take: less than other requests, for a change that is not stored is lost with the agent.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);
/// How long a deletion waits for the stored set before it is tried again later: a write that is not answered, and
/// another one.
const PATIENCE: Duration = Duration::from_secs(12);
/// How long the last write may take when the agent stops.
const LAST_WRITE: Duration = Duration::from_secs(3);
/// The part's name in the agent's errors.
const PART: &str = "stored Works";

/// The stored set, and what of it has to change.
pub struct Persister {
    /// The execution namespace: a set of another is not believed.
    namespace: Arc<str>,
    place: Place,
    /// Bound the requests to the member at the same time.
    permits: Arc<Semaphore>,
    state: Shared,
    errors: ErrorReport,
    chance: Chance,
    inner: Mutex<Inner>,
    wake: Notify,
    flushed: signal::Sender<Flushed>,
    /// One flush at a time.
    turn: tokio::sync::Mutex<()>,
}

/// How far the set is written.
#[derive(Debug, Clone, Copy, Default)]
struct Flushed {
    /// Everything touched up to this count is.
    count: u64,
    /// Whether the last write failed.
    failing: bool,
}

#[derive(Default)]
struct Inner {
    plan: Plan,
    touched: BTreeSet<Arc<str>>,
    count: u64,
    urgent: bool,
    /// Without the right to read it, it is not written either.
    off: bool,
    stopped: bool,
}

impl Persister {
    /// The set at `place`, of which nothing is known yet.
    pub fn new(
        namespace: Arc<str>,
        place: Place,
        permits: Arc<Semaphore>,
        state: Shared,
        errors: ErrorReport,
        chance: Chance,
    ) -> Self {
        Self {
            namespace,
            place,
            permits,
            state,
            errors,
            chance,
            inner: Mutex::default(),
            wake: Notify::new(),
            flushed: signal::Sender::new(Flushed::default()),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// What is stored of a Work may have to change. Returns up to where it must be flushed.
    fn mark(&self, work: &Arc<str>, urgent: bool) -> u64 {
        let mut inner = self.lock();
        if inner.off {
            return 0;
        }
        inner.touched.insert(work.clone());
        inner.count += 1;
        inner.urgent |= urgent;
        self.wake.notify_one();
        inner.count
    }

    /// Waits until everything touched up to `count` is written; false when it was not in time.
    async fn reached(&self, count: u64) -> bool {
        let mut flushed = self.flushed.subscribe();
        let done = flushed.wait_for(|flushed| flushed.count >= count);
        matches!(timeout(PATIENCE, done).await, Ok(Ok(_)))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing panics while it holds it; a poisoned lock still holds a sound value.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the stored set into the state. Returns when it is known, or known not to be readable, whether
    /// the hub had said that our registration is gone.
    pub async fn recall(&self) -> bool {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
        let mut rng = self.chance.stream("stored Works, read");
        let volumes = loop {
            match self.read_volumes().await {
                Ok(volumes) => break volumes,
                Err(error) if error.is_denied() => {
                    tracing::error!(error = %chain(&error), "the agent cannot go on without its hub: it may not read what it stored");
                    self.errors.report(PART, &chain(&error));
                    self.lock().off = true;
                    return false;
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "the stored Works are not read yet");
                    self.errors.report(PART, &chain(&error));
                    let pause = backoff.next(&mut rng);
                    tokio::time::sleep(pause).await;
                }
            }
        };
        self.errors.clear(PART);
        for (volume, read) in &volumes {
            match read {
                Err(bad) => tracing::warn!(volume, %bad, "stored Works are not believed"),
                Ok(read) if *read.header.namespace != *self.namespace => tracing::warn!(
                    volume,
                    of = read.header.namespace,
                    "stored Works of another registration are not believed"
                ),
                Ok(_) => {}
            }
        }
        let set = assemble(&self.namespace, volumes);
        let count = set.works.len();
        let mut inner = self.lock();
        inner.plan = set.plan;
        inner.stopped = set.stopped;
        if !inner.plan.dirty().is_empty() {
            self.wake.notify_one();
        }
        drop(inner);
        if set.stopped {
            tracing::error!(
                "the hub said that this registration is gone: nothing is healed until a hub lists Works"
            );
        }
        let mut state = self.state.lock();
        for (entry, manifests) in set.works {
            state.recall(entry, manifests);
        }
        drop(state);
        if count > 0 {
            tracing::info!(count, "stored Works are known");
        }
        set.stopped
    }

    async fn read_volumes(&self) -> Result<Vec<(usize, Result<Volume, Bad>)>, Error> {
        let mut volumes = Vec::new();
        for number in 0..WORKS_SECRETS {
            let read = {
                let _permit = self.permits.acquire().await;
                self.place.read(number).await?
            };
            if let Some(bytes) = read {
                volumes.push((number, decode(&bytes)));
            }
        }
        Ok(volumes)
    }

    /// A hub that lists our Works has us registered: so much is stored, too.
    pub fn healing_goes_on(&self) {
        let mut inner = self.lock();
        if std::mem::take(&mut inner.stopped) {
            inner.plan.spoil_all();
            self.wake.notify_one();
        }
    }

    /// Stores that our registration is gone, for later lives.
    pub async fn healing_stops(&self) {
        {
            let mut inner = self.lock();
            inner.stopped = true;
            inner.plan.spoil_all();
        }
        match timeout(LAST_WRITE, self.flush()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %chain(&error), "not stored that healing ends");
            }
            Err(_) => tracing::warn!("not stored in time that healing ends"),
        }
    }

    /// Writes what changed, for ever.
    pub async fn run(&self) {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let mut rng = self.chance.stream("stored Works, written");
        let mut full = false;
        loop {
            self.wake.notified().await;
            self.gather().await;
            let begun = Instant::now();
            match self.flush().await {
                Ok(()) => {
                    backoff.reset();
                    if !full {
                        self.errors.clear(PART);
                    }
                }
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "the Works are not stored");
                    self.errors.report(PART, &chain(&error));
                    let pause = backoff.next(&mut rng);
                    tokio::time::sleep(pause).await;
                    self.wake.notify_one();
                }
            }
            full = self.tell_what_has_no_room();
            tokio::time::sleep_until(begun + SPACING).await;
        }
    }

    /// Waits for more changes, not long when a deletion waits.
    async fn gather(&self) {
        let until = Instant::now() + GATHER;
        loop {
            if self.lock().urgent {
                return tokio::time::sleep(GATHER_URGENT).await;
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(until) => return,
                () = self.wake.notified() => {}
            }
        }
    }

    /// The last write of a life, within limits.
    pub async fn flush_at_end(&self) {
        if let Ok(Err(error)) = timeout(LAST_WRITE, self.flush()).await {
            tracing::warn!(error = %chain(&error), "the last changes of Works are not stored");
        }
    }

    async fn flush(&self) -> Result<(), Error> {
        let _turn = self.turn.lock().await;
        let count = self.take_touched();
        loop {
            let next = {
                let inner = self.lock();
                inner.plan.dirty().first().copied()
            };
            let Some(volume) = next else { break };
            let bytes = self.volume(volume);
            let present = self.lock().plan.is_present(volume);
            let mut write = Write {
                inner: &self.inner,
                volume,
                may_be_present: present || bytes.is_some(),
                is_done: false,
            };
            // It counts as written while it is: what changes meanwhile makes it dirty again.
            self.lock().plan.written(volume, bytes.is_some());
            let writing = async {
                let _permit = self.permits.acquire().await;
                match bytes {
                    Some(bytes) => self.place.write(volume, bytes).await,
                    None if present => self.place.remove(volume).await,
                    None => Ok(()),
                }
            };
            let written = timeout(WRITTEN_WITHIN, writing).await;
            let after = WRITTEN_WITHIN;
            if let Err(error) = written.unwrap_or(Err(Error::Unanswered { after })) {
                drop(write);
                self.flushed.send_modify(|flushed| flushed.failing = true);
                return Err(error);
            }
            write.is_done = true;
        }
        let failing = false;
        self.flushed.send_replace(Flushed { count, failing });
        Ok(())
    }

    /// Brings the plan up to date; returns up to where.
    fn take_touched(&self) -> u64 {
        let state = self.state.lock();
        let mut inner = self.lock();
        inner.urgent = false;
        for name in std::mem::take(&mut inner.touched) {
            match state.to_store(&name, inner.plan.contains(&name)) {
                Some((entry, manifests)) => {
                    let (size, extra) = (manifests.bytes().len(), entry.stored_extra());
                    inner.plan.put(&name, size, extra, entry.print);
                }
                None => inner.plan.remove(&name),
            }
        }
        inner.count
    }

    /// The bytes of a volume; none when nothing lies in it.
    fn volume(&self, volume: usize) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let inner = self.lock();
        let entries: Vec<(Entry, Vec<u8>)> = inner
            .plan
            .members(volume)
            .into_iter()
            .filter_map(|member| {
                let (entry, manifests) = state.to_store(&member.name, true)?;
                // Grown since: it was touched, and finds another place in the next round.
                if manifests.bytes().len() > inner.plan.size(&member.name)? {
                    return None;
                }
                let bytes = slice(manifests.bytes(), member.part).to_vec();
                let (claims, scripts) = match member.part {
                    0 => (entry.claims, entry.scripts),
                    _ => (Claims::default(), String::new()),
                };
                let entry = Entry {
                    claims,
                    scripts,
                    part: member.part,
                    parts: member.parts,
                    sequence: member.sequence,
                    ..entry
                };
                Some((entry, bytes))
            })
            .collect();
        let header = Header {
            namespace: self.namespace.as_ref().to_owned(),
            stopped: inner.stopped,
        };
        (!entries.is_empty()).then(|| encode(&header, entries))
    }

    /// Says which Works are not stored because there is no room.
    fn tell_what_has_no_room(&self) -> bool {
        let missing = self.lock().plan.refused();
        if missing > 0 {
            let text = format!(
                "{missing} Works are not stored for want of room; they are not healed while the hub is away"
            );
            self.errors.report(PART, &text);
        }
        missing > 0
    }

    /// Notes that what is stored of a Work may have to change.
    pub fn touch(&self, name: &Arc<str>) {
        self.mark(name, false);
    }

    /// Notes that a Work has changed: before what left it goes, the stored set must say so. The state is the one that
    /// took the change in, and was not given up since: whoever sees that something leaves sees what that waits for.
    pub fn touch_changed(&self, state: &mut State, name: &Arc<str>) {
        let record = state.works.get_mut(name);
        let leaves = record.filter(|record| !record.leaving.is_empty());
        // What is not stored nobody makes again.
        let leaves = leaves.filter(|_| self.lock().plan.contains(name));
        let count = self.mark(name, leaves.is_some());
        if let Some(record) = leaves {
            record.leaves_at = count;
        }
    }

    /// Waits, once, until the stored set does not want what left a Work any more. A store that fails does not keep it.
    pub async fn leaving_is_stored(&self, name: &str) {
        let until = self.state.lock().works.get(name).map_or(0, |r| r.leaves_at);
        let mut flushed = self.flushed.subscribe();
        let done = flushed.wait_for(|flushed| flushed.count >= until || flushed.failing);
        let stored = matches!(timeout(PATIENCE, done).await, Ok(Ok(now)) if now.count >= until);
        if !stored {
            tracing::warn!(work = %name, "what left the Work goes before that is stored");
        }
        if let Some(record) = self.state.lock().works.get_mut(name)
            && record.leaves_at == until
        {
            record.leaves_at = 0;
        }
    }

    /// Notes that a Work is being deleted: before it is let go, the stored set must say so. Of the state the same holds.
    pub fn touch_deletion(&self, state: &mut State, name: &Arc<str>) {
        if self.lock().plan.contains(name) {
            let count = self.mark(name, true);
            if let Some(record) = state.works.get_mut(name) {
                record.kept_at = count;
            }
        }
    }

    /// Notes that objects of a Work are other Works' from now on: before it is let go, the stored set must say so.
    pub fn touch_heirs(&self, work: &str, heirs: &[Arc<str>]) {
        let counts = heirs.iter().map(|heir| self.mark(heir, true));
        let count = counts.max().unwrap_or(0);
        if let Some(record) = self.state.lock().works.get_mut(work) {
            record.kept_at = record.kept_at.max(count);
        }
    }

    /// Waits until the stored set does not want a Work's objects any more.
    pub async fn deletion_is_stored(&self, name: &str) -> bool {
        let until = self.state.lock().works.get(name).map_or(0, |r| r.kept_at);
        self.reached(until).await
    }
}

/// A write of a volume that is under way. Unless it is done, the volume is still to be written: not only after an error,
/// but also when whatever waits for it is dropped.
struct Write<'a> {
    inner: &'a Mutex<Inner>,
    volume: usize,
    may_be_present: bool,
    is_done: bool,
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.plan.written(self.volume, self.may_be_present);
            inner.plan.spoiled(self.volume);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::testing::{Handles, map, wire};

    /// A life after that of `parts`, from what it stored.
    async fn next_life(parts: &Handles, namespace: &str) -> (Shared, bool) {
        let state = Shared::default();
        let place = Place::Directory(parts.directory.path().to_owned());
        let permits = Arc::new(Semaphore::new(1));
        let errors = ErrorReport::default();
        let next = Persister::new(
            namespace.into(),
            place,
            permits,
            state.clone(),
            errors,
            Chance::seeded(1),
        );
        let stopped = next.recall().await;
        (state, stopped)
    }

    #[tokio::test(start_paused = true)]
    async fn what_changed_is_written_after_it_was_gathered_and_comes_back() {
        let parts = Handles::alone().await;
        let written = async {
            for name in ["one", "two"] {
                let work = parts.knows(&wire(name, name, &[map(name)]));
                parts.persister.touch(&work);
            }
            tokio::time::sleep(GATHER - Duration::from_millis(1)).await;
            assert!(
                parts
                    .directory
                    .path()
                    .read_dir()
                    .expect("there")
                    .next()
                    .is_none()
            );
            assert!(parts.persister.reached(2).await);
        };
        tokio::select! {
            biased;
            () = parts.persister.run() => unreachable!("it never ends"),
            () = written => {}
        }
        let (state, stopped) = next_life(&parts, "karmada-es-m1").await;
        assert!(!stopped);
        {
            let works = &state.lock().works;
            assert!(works.contains_key("one") && works.contains_key("two"));
            assert!(works.values().all(|record| !record.confirmed));
        }
        let (state, _) = next_life(&parts, "karmada-es-another").await;
        assert!(state.lock().works.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_waits_for_the_store_and_the_store_hurries() {
        let parts = Handles::alone().await;
        let work = parts.knows(&wire("w", "1", &[map("a")]));
        // Nothing of it is stored: there is nothing to wait for.
        parts
            .persister
            .touch_deletion(&mut parts.state.lock(), &work);
        assert!(parts.persister.deletion_is_stored(&work).await);
        parts.persister.touch(&work);
        parts.persister.flush_at_end().await;
        parts
            .persister
            .touch_deletion(&mut parts.state.lock(), &work);
        let start = Instant::now();
        assert!(!parts.persister.deletion_is_stored(&work).await);
        assert_eq!(start.elapsed(), PATIENCE);
        tokio::select! {
            biased;
            () = parts.persister.run() => unreachable!("it never ends"),
            stored = parts.persister.deletion_is_stored(&work) => assert!(stored),
        }
        assert_eq!(start.elapsed(), PATIENCE + GATHER_URGENT);
    }

    /// At the end of a life what is under way is dropped, and the last write must know what it has to write.
    #[tokio::test(start_paused = true)]
    async fn a_write_that_is_dropped_is_written_by_the_next() {
        let parts = Handles::alone().await;
        let work = parts.knows(&wire("w", "1", &[map("a")]));
        parts.persister.touch(&work);
        let permits = parts.persister.permits.clone();
        let count = u32::try_from(permits.available_permits()).expect("few");
        let all = permits.acquire_many(count).await.expect("open");
        let write = timeout(Duration::from_secs(1), parts.persister.flush()).await;
        assert!(write.is_err(), "it waits for a permit");
        drop(all);
        assert_eq!(parts.persister.lock().plan.dirty().len(), 1);
        parts.persister.flush_at_end().await;
        let (state, _) = next_life(&parts, "karmada-es-m1").await;
        assert!(state.lock().works.contains_key("w"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_left_a_work_waits_for_one_write_and_for_none_that_fails() {
        let parts = Handles::alone().await;
        let work = parts.knows(&wire("w", "1", &[map("a"), map("b")]));
        let mut news = wire("w", "1", &[map("a")]);
        news.metadata.generation = 2;
        news.metadata.resource_version = "9".into();
        parts.knows(&news);
        let waits = async || {
            let start = Instant::now();
            parts.persister.leaving_is_stored(&work).await;
            start.elapsed()
        };
        // Nothing of it is stored: nobody makes again what is gone.
        parts
            .persister
            .touch_changed(&mut parts.state.lock(), &work);
        assert_eq!(waits().await, Duration::ZERO);
        parts.persister.flush_at_end().await;
        parts
            .persister
            .touch_changed(&mut parts.state.lock(), &work);
        assert_eq!(waits().await, PATIENCE);
        assert_eq!(waits().await, Duration::ZERO, "once");
        parts
            .persister
            .touch_changed(&mut parts.state.lock(), &work);
        let waited = tokio::select! {
            biased;
            () = parts.persister.run() => unreachable!("it never ends"),
            waited = waits() => waited,
        };
        assert_eq!(waited, GATHER_URGENT);
        // Where it lies nothing can be written any more.
        std::fs::remove_dir_all(parts.directory.path()).expect("removable");
        parts.knows(&wire("x", "2", &[map("x")]));
        parts.persister.touch(&"x".into());
        assert!(parts.persister.flush().await.is_err());
        parts
            .persister
            .touch_changed(&mut parts.state.lock(), &work);
        assert_eq!(waits().await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn that_healing_ends_is_known_in_the_next_life_until_a_hub_lists_works() {
        let parts = Handles::alone().await;
        let work = parts.knows(&wire("w", "1", &[map("a")]));
        parts.persister.touch(&work);
        parts.persister.healing_stops().await;
        assert!(next_life(&parts, "karmada-es-m1").await.1);
        parts.persister.healing_goes_on();
        parts.persister.flush_at_end().await;
        assert!(!next_life(&parts, "karmada-es-m1").await.1);
    }
}
