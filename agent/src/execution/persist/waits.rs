//! Notes of what may have to change, and who waits until that is stored: deletions, and what left a Work.

use super::{PATIENCE, Persister};
use crate::execution::state::State;
use std::sync::Arc;
use tokio::time::timeout;

impl Persister {
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

#[cfg(test)]
mod tests {
    use super::super::write::GATHER_URGENT;
    use super::*;
    use crate::execution::testing::{Handles, map, wire};
    use std::time::Duration;
    use tokio::time::Instant;

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
}
