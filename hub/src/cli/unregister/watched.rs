//! Waits until a Cluster is gone, and tells whether its agent had answered by then.

use super::{Leaving, count_works, get, plan};
use crate::cli::error::or_later;
use crate::cli::{CliError, Kind, Output};
use common::api::cluster::Cluster;
use common::duration;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::runtime::watcher::{Config, Event, Result as Told};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const POLL: Duration = Duration::from_millis(500);
/// How long the watch may take to begin, and to tell of the end.
const PATIENCE: Duration = Duration::from_secs(3);

/// What was seen of an agent's answer by the time that its Cluster was gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Answered,
    Unanswered,
    /// The last state of the Cluster was missed.
    Unseen,
}

/// A Cluster whose changes are followed.
pub(super) struct Watched {
    clusters: Api<Cluster>,
    changes: BoxStream<'static, Told<Event<Cluster>>>,
    /// Whether its agent has answered, as the Cluster was when it went.
    end: Option<bool>,
}

impl Watched {
    /// Follows a Cluster that is there. Who may not watch it learns nothing of the agent.
    pub(super) async fn begin(clusters: &Api<Cluster>, name: &str) -> Self {
        let config = Config::default().fields(&format!("metadata.name={name}"));
        let changes = watcher(clusters.clone(), config).default_backoff();
        let mut changes = changes.boxed();
        let begun = async {
            while let Some(Ok(event)) = changes.next().await {
                if matches!(event, Event::InitDone) {
                    break;
                }
            }
        };
        let _ = timeout(PATIENCE, begun).await;
        Self {
            clusters: clusters.clone(),
            changes,
            end: None,
        }
    }

    /// Waits until the Cluster is gone, as long as `args` says.
    pub(super) async fn wait(
        mut self,
        client: &Client,
        args: &Leaving,
        output: &Output,
    ) -> Result<End, CliError> {
        let name = args.cluster.as_str();
        let progress = output.progress(format!("unregistering {name}"));
        let deadline = Instant::now() + args.wait;
        loop {
            let Some(cluster) = or_later(get(&self.clusters, name).await, deadline)? else {
                progress.step("the hub does not answer");
                sleep(POLL).await;
                continue;
            };
            let Some(cluster) = cluster else {
                let _ = timeout(PATIENCE, self.hear()).await;
                return Ok(match self.end {
                    Some(true) => End::Answered,
                    Some(false) => End::Unanswered,
                    None => End::Unseen,
                });
            };
            if cluster.metadata.deletion_timestamp.is_none() {
                let message = format!("Cluster {name:?} was registered anew meanwhile");
                return Err(CliError::message(Kind::Unmet, message));
            }
            let left = count_works(client, &args.cluster).await.unwrap_or(0);
            let state = plan::state(&cluster, left);
            if Instant::now() >= deadline {
                let waited = duration::format(args.wait);
                let message = format!("Cluster {name:?} is still there after {waited}: {state}");
                return Err(CliError::message(Kind::Unavailable, message)
                    .hint("Check that `towline-hub run` is up; it goes on by itself.")
                    .hint("If the member is gone for good, run again with --force."));
            }
            progress.step(format!("unregistering {name}: {state}"));
            // Whoever hears of the end looks at once.
            let _ = timeout(POLL, self.hear()).await;
        }
    }

    /// Follows until the Cluster is gone.
    async fn hear(&mut self) {
        while self.end.is_none()
            && let Some(change) = self.changes.next().await
        {
            if let Ok(Event::Delete(cluster)) = change {
                self.end = Some(plan::has_answered(&cluster));
            }
        }
    }
}
