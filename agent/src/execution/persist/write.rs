//! Writes what changed: gathered, a volume at a time, and once more at the end of a life.

use super::{Flushed, Inner, LAST_WRITE, PART, Persister};
use crate::execution::state::{Claims, State};
use crate::execution::stored::place::Error;
use crate::execution::stored::plan::{Plan, slice};
use crate::execution::stored::{Entry, Header, encode};
use common::backoff::Backoff;
use common::errors::chain;
use common::leader::Standing;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long changes are gathered before they are written.
const GATHER: Duration = Duration::from_secs(1);
/// The same when a deletion waits for it.
pub(super) const GATHER_URGENT: Duration = Duration::from_millis(20);
/// Least time between two writes, from beginning to beginning.
const SPACING: Duration = Duration::from_millis(250);
/// How long one volume may take: less than other requests, for a change that is not stored is lost with the agent.
const WRITTEN_WITHIN: Duration = Duration::from_secs(5);

impl Persister {
    /// Writes what changed, for ever.
    pub async fn run(&self) {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let mut rng = self.chance.stream("stored Works, written");
        loop {
            self.wake.notified().await;
            self.gather().await;
            let begun = Instant::now();
            match self.flush().await {
                Ok(()) => {
                    backoff.reset();
                    if !self.tell_what_has_no_room() {
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

    pub(super) async fn flush(&self) -> Result<(), Error> {
        let _turn = self.turn.lock().await;
        let count = self.take_touched();
        loop {
            let next = {
                let inner = self.lock();
                if inner.off {
                    return Ok(());
                }
                inner.plan.dirty().first().copied()
            };
            let Some(volume) = next else { break };
            if !self.leads().await {
                self.flushed.send_modify(|flushed| flushed.failing = true);
                let after = WRITTEN_WITHIN;
                return Err(Error::Unanswered { after });
            }
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

    /// Whether this replica leads by what the member says: one that was cut off from it may have been followed by
    /// another, and writes over what that one stored. Where the member does not say, it is waited for.
    async fn leads(&self) -> bool {
        let Some(standing) = &self.standing else {
            return true;
        };
        let mut standing = standing.clone();
        let leads = standing.wait_for(|standing| *standing == Standing::Leads);
        matches!(timeout(WRITTEN_WITHIN, leads).await, Ok(Ok(_))) && !self.lock().off
    }

    /// Brings the plan up to date; returns up to where.
    fn take_touched(&self) -> u64 {
        let state = self.state.lock();
        let mut inner = self.lock();
        inner.urgent = false;
        let before = inner.plan.sizes();
        for name in std::mem::take(&mut inner.touched) {
            place(&state, &mut inner.plan, &name);
        }
        for name in inner.plan.to_retry(before) {
            place(&state, &mut inner.plan, &name);
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
}

/// Has the plan say of a Work what the state does.
fn place(state: &State, plan: &mut Plan, name: &Arc<str>) {
    match state.to_store(name, plan.contains(name)) {
        Some((entry, manifests)) => {
            let (size, extra) = (manifests.bytes().len(), entry.stored_extra());
            plan.put(name, size, extra, entry.print);
        }
        None => plan.remove(name),
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
    use super::super::tests::next_life;
    use super::*;
    use crate::context::ErrorReport;
    use crate::execution::stored::place::Place;
    use crate::execution::stored::plan::VOLUME_MAX;
    use crate::execution::testing::{Handles, map, wire};
    use common::chance::Chance;
    use common::client::Problem;
    use common::signal;
    use tokio::sync::Semaphore;

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
    async fn who_leads_no_more_stores_nothing() {
        let parts = Handles::alone().await;
        let work = parts.knows(&wire("w", "1", &[map("a")]));
        parts.persister.touch(&work);
        parts.persister.hand_over();
        parts.persister.flush_at_end().await;
        let (state, _) = next_life(&parts, "karmada-es-m1").await;
        assert!(state.lock().works.is_empty());
    }

    /// It goes on while the member is away, and another replica may have reached it and followed.
    #[tokio::test(start_paused = true)]
    async fn who_may_have_been_followed_stores_nothing_before_the_member_says_that_it_leads() {
        let parts = Handles::alone().await;
        let work = parts.knows(&wire("w", "1", &[map("a")]));
        let sender = signal::Sender::new(Standing::Failing(Problem::Other("away".to_owned())));
        let persister = Persister::new(
            "karmada-es-m1".into(),
            Place::Directory(parts.directory.path().to_owned()),
            Arc::new(Semaphore::new(1)),
            parts.state.clone(),
            ErrorReport::default(),
            Chance::seeded(1),
        );
        let persister = persister.while_it_leads(Some(sender.subscribe()));
        persister.touch(&work);
        assert!(persister.flush().await.is_err());
        sender.send_replace(Standing::Follows("another".to_owned()));
        assert!(persister.flush().await.is_err());
        let (state, _) = next_life(&parts, "karmada-es-m1").await;
        assert!(state.lock().works.is_empty());
        sender.send_replace(Standing::Leads);
        assert!(persister.flush().await.is_ok());
        let (state, _) = next_life(&parts, "karmada-es-m1").await;
        assert!(state.lock().works.contains_key("w"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_work_without_room_is_stored_once_there_is_some() {
        let parts = Handles::alone().await;
        let work = parts.knows(&wire("w", "1", &[map("a")]));
        let filler = |i: usize| -> Arc<str> { format!("filler-{i:02}").into() };
        let mut count = 0;
        while (parts.persister.lock().plan).put(&filler(count), 0, VOLUME_MAX - 300, 1) {
            count += 1;
        }
        parts.persister.lock().plan.remove(&filler(count));
        let missing = |touched: &Arc<str>| {
            parts.persister.touch(touched);
            parts.persister.take_touched();
            parts.persister.lock().plan.refused()
        };
        assert_eq!(missing(&work), 1);
        // Nobody knows it: it is taken out of the set.
        assert_eq!(missing(&filler(0)), 0);
        assert!(parts.persister.lock().plan.contains(&work));
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
}
