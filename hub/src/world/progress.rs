//! How far a view has come, and who waits for it to come further.
//!
//! A view hears of tens of thousands of objects while hundreds wait for a version: each is woken once, when it is
//! there.

use common::lock::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;
use tokio::sync::oneshot;

/// Which version somebody waits for, and who of those who wait for it came first.
type Place = (u64, u64);

/// How far a view has come.
#[derive(Debug, Default)]
pub(super) struct Progress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    complete: bool,
    position: u64,
    came: u64,
    waiting: BTreeMap<Place, oneshot::Sender<()>>,
}

impl State {
    fn reached(&self, version: u64) -> bool {
        self.complete && self.position >= version
    }
}

/// A place that is given up when nobody waits there any more.
struct Waits<'p> {
    progress: &'p Progress,
    place: Place,
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        lock(&self.progress.0).waiting.remove(&self.place);
    }
}

impl Progress {
    /// The view has come so far.
    pub(super) fn advance(&self, complete: bool, position: u64) {
        let mut state = lock(&self.0);
        (state.complete, state.position) = (complete, position);
        while let Some(first) = state.waiting.first_entry() {
            if !complete || first.key().0 > position {
                return;
            }
            // Who waits no more is gone.
            let _ = first.remove().send(());
        }
    }

    /// Whether the collection was listed once.
    pub(super) fn is_complete(&self) -> bool {
        lock(&self.0).complete
    }

    /// Waits until the collection was listed once, and a version was seen.
    pub(super) async fn reaches(&self, version: u64) {
        let (told, place) = {
            let mut state = lock(&self.0);
            if state.reached(version) {
                return;
            }
            state.came += 1;
            let place = (version, state.came);
            let (tell, told) = oneshot::channel();
            state.waiting.insert(place, tell);
            (told, place)
        };
        let _waits = Waits {
            progress: self,
            place,
        };
        // It lies with this, and goes only when it was used.
        let _ = told.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::pin::pin;

    #[test]
    fn each_is_woken_when_its_version_is_there() {
        let progress = Progress::default();
        let mut all: Vec<_> = [0, 5, 7]
            .into_iter()
            .map(|version| Box::pin(progress.reaches(version)))
            .collect();
        let mut done = || -> Vec<bool> {
            let all = all.iter_mut();
            all.map(|it| it.as_mut().now_or_never().is_some()).collect()
        };
        assert_eq!(done(), [false; 3]);
        progress.advance(false, 7);
        assert!(!progress.is_complete());
        assert_eq!(lock(&progress.0).waiting.len(), 3);
        progress.advance(true, 5);
        assert!(progress.is_complete());
        assert_eq!(lock(&progress.0).waiting.len(), 1);
        drop(all.pop());
        assert_eq!(lock(&progress.0).waiting.len(), 0, "nobody waits any more");
        for mut one in all {
            assert!(one.as_mut().now_or_never().is_some());
        }
        assert!(progress.reaches(5).now_or_never().is_some());
        let mut later = pin!(progress.reaches(6));
        assert!(later.as_mut().now_or_never().is_none());
        progress.advance(true, 6);
        assert!(later.now_or_never().is_some());
    }
}
