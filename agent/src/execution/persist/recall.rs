//! Reads the stored set at the start of a life.

use super::{PART, Persister};
use crate::execution::stored::place::Error;
use crate::execution::stored::{Bad, Volume, assemble, decode};
use common::backoff::Backoff;
use common::errors::chain;
use common::names::WORKS_SECRETS;
use std::time::Duration;
use tokio::time::Instant;

/// How long the member may refuse to have it read before that counts: an API server that has just started does not know
/// its roles yet.
const SETTLING: Duration = Duration::from_secs(30);

impl Persister {
    /// Reads the stored set into the state. Returns when it is known, or known not to be readable, whether
    /// the hub had said that our registration is gone.
    pub async fn recall(&self) -> bool {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));
        let mut rng = self.chance.stream("stored Works, read");
        let mut refused: Option<Instant> = None;
        let volumes = loop {
            match self.read_volumes().await {
                Ok(volumes) => break volumes,
                Err(error) if has_settled(&error, &mut refused) => {
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
}

/// Whether the member has refused for long enough that it counts; `since` is when it began to.
fn has_settled(error: &Error, since: &mut Option<Instant>) -> bool {
    if !error.is_denied() {
        *since = None;
        return false;
    }
    since.get_or_insert_with(Instant::now).elapsed() >= SETTLING
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::ErrorReport;
    use crate::execution::state::Shared;
    use crate::execution::stored::place::Place;
    use crate::execution::testing::{refusal, scripted};
    use common::chance::Chance;
    use kube::Api;
    use std::sync::Arc;
    use tokio::sync::Semaphore;

    /// An API server that has just started knows no roles yet.
    #[tokio::test(start_paused = true)]
    async fn a_member_that_refuses_at_first_is_asked_again() {
        // For how long it does not answer, and then refuses; whether the agent goes on without what it stored.
        for (silent, refuses, off) in [(0, 20, false), (300, 20, false), (0, 120, true)] {
            let begun = Instant::now();
            let (member, _) = scripted(move |_| {
                let at = begun.elapsed().as_secs();
                match at < silent {
                    true => Some(refusal(503, "ServiceUnavailable")),
                    false => (at < silent + refuses).then(|| refusal(403, "Forbidden")),
                }
            });
            let persister = Persister::new(
                "karmada-es-m1".into(),
                Place::Member(Box::new(Api::namespaced(member, "towline-system"))),
                Arc::new(Semaphore::new(1)),
                Shared::default(),
                ErrorReport::default(),
                Chance::seeded(1),
            );
            assert!(!persister.recall().await);
            let case = format!("silent for {silent} s, refuses for {refuses} s");
            assert_eq!(persister.lock().off, off, "{case}");
            assert_eq!(persister.errors.text().is_some(), off, "{case}");
            let took = begun.elapsed() - Duration::from_secs(silent);
            assert!(took < SETTLING + Duration::from_secs(10), "{case}");
        }
    }
}
