//! What goes on side by side, and ends together.

use super::Error;
use common::signal;
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;
use tokio::task::{self, JoinSet};
use tokio_util::sync::CancellationToken;

/// How long what is under way may take at the end of a term.
pub(super) const END_WITHIN: Duration = Duration::from_secs(10);

/// The parts of a term: they all end together.
pub(super) struct Parts {
    tasks: JoinSet<()>,
    /// Those that go on.
    names: BTreeMap<task::Id, &'static str>,
    pub(super) stop: CancellationToken,
    /// Whether this hub leads, where parts wait for that.
    leading: Option<signal::Receiver<bool>>,
}

impl Parts {
    pub(super) fn new(stop: CancellationToken, leading: Option<signal::Receiver<bool>>) -> Self {
        Self {
            tasks: JoinSet::new(),
            names: BTreeMap::new(),
            stop,
            leading,
        }
    }

    /// A part that begins at once.
    pub(super) fn begin(
        &mut self,
        name: &'static str,
        part: impl Future<Output = ()> + Send + 'static,
    ) {
        let task = self.tasks.spawn(part);
        self.names.insert(task.id(), name);
    }

    /// A part that hears the stop itself and finishes what is under way.
    pub(super) fn spawn(
        &mut self,
        name: &'static str,
        part: impl Future<Output = ()> + Send + 'static,
    ) {
        let (stop, leading) = (self.stop.clone(), self.leading.clone());
        self.begin(name, async move {
            if let Some(mut leading) = leading {
                let led = stop.run_until_cancelled(leading.wait_for(|leads| *leads));
                if !matches!(led.await, Some(Ok(_))) {
                    return;
                }
            }
            part.await;
        });
    }

    /// A part that only reads, or whose writes may be cut off anywhere.
    pub(super) fn drop_at_end(
        &mut self,
        name: &'static str,
        part: impl Future<Output = ()> + Send + 'static,
    ) {
        let stop = self.stop.clone();
        self.spawn(name, async move {
            stop.run_until_cancelled_owned(part).await;
        });
    }

    /// Waits for the end of one.
    async fn ended(&mut self) -> Option<&'static str> {
        let id = match self.tasks.join_next_with_id().await? {
            Ok((id, ())) => id,
            Err(panicked) => panicked.id(),
        };
        self.names.remove(&id).or(Some("part"))
    }

    /// Waits for the end of all parts; one that ends before the stop ends the rest, and is an error.
    pub(super) async fn end(mut self) -> Result<(), Error> {
        let mut failed = None;
        let stop = self.stop.clone();
        if let Some(first) = self.ended().await
            && !stop.is_cancelled()
        {
            failed = Some(Error::Part(first));
        }
        stop.cancel();
        let rest = async { while self.ended().await.is_some() {} };
        if tokio::time::timeout(END_WITHIN, rest).await.is_err() {
            let parts: Vec<_> = self.names.values().collect();
            tracing::warn!(?parts, "some work did not end in time and is cut off");
        }
        failed.map_or(Ok(()), Err)
    }
}
